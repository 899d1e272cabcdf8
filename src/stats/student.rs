//! Tail probabilities and quantiles of Student's t.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::beta::beta_reg;

/// Student's t distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Student {
    /// Degrees of freedom, at least 1.
    df: f64,
}

impl Student {
    /// `None` below one degree of freedom.
    pub fn new(df: usize) -> Option<Self> {
        (df > 0).then_some(Self { df: df as f64 })
    }

    /// Probability of a `|t|` at least this large by chance: `I_x(ν/2, 1/2)` with
    /// `x = ν / (ν + t²)`, which keeps its digits far out in the tail. 0 for an
    /// infinite t, NaN for NaN.
    pub fn two_sided_p(self, t: f64) -> f64 {
        if t.is_nan() {
            return f64::NAN;
        }
        let x = self.df / (self.df + t * t);
        match x > 0.0 {
            true => beta_reg(self.df / 2.0, 0.5, x.min(1.0)),
            false => 0.0,
        }
    }

    /// The value that t stays below with probability `p`, in (0, 1). From 1000 degrees of
    /// freedom on by Cornish and Fisher's expansion around the normal quantile, which is
    /// then right to 10 digits and takes no search.
    pub fn quantile(self, p: f64) -> f64 {
        if self.df >= 1000.0 {
            let z = Normal::standard().inverse_cdf(p);
            let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
            return z
                + (z3 + z) / (4.0 * self.df)
                + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * self.df.powi(2))
                + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * self.df.powi(3));
        }
        StudentsT::new(0.0, 1.0, self.df).map_or(f64::NAN, |t| t.inverse_cdf(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, relative: f64) {
        assert!((a - b).abs() <= relative * b.abs(), "{a}, not {b}");
    }

    /// One degree of freedom is Cauchy's distribution, two have a closed form too.
    #[test]
    fn tails_in_closed_form() {
        let (one, two) = (Student::new(1).unwrap(), Student::new(2).unwrap());
        for t in [1e-3, 0.5, 1.0, 3.0, 40.0, 1e4] {
            close(
                one.two_sided_p(t),
                2.0 / std::f64::consts::PI * (1.0 / t).atan(),
                1e-12,
            );
            // 1 − t/√(2 + t²), without the cancellation.
            let root = (2.0 + t * t).sqrt();
            close(two.two_sided_p(-t), 2.0 / (root * (root + t)), 1e-12);
        }
        assert_eq!(one.two_sided_p(0.0), 1.0);
        assert_eq!(two.two_sided_p(f64::INFINITY), 0.0);
        assert!(two.two_sided_p(f64::NAN).is_nan());
        assert_eq!(Student::new(0), None);
    }

    /// scipy.stats.t.ppf and scipy.stats.t.sf, 1.17.
    #[test]
    fn tails_and_quantiles_of_tables() {
        let t = |df| Student::new(df).unwrap();
        close(t(63).quantile(0.975), 1.998_340_542_520_741, 1e-10);
        close(t(29).quantile(0.975), 2.045_229_642_132_703, 1e-10);
        close(t(63).quantile(0.8), 0.847_363_912_275_646_1, 1e-10);
        close(t(1).quantile(0.975), 12.706_204_736_174_698, 1e-10);
        close(t(63).two_sided_p(2.0), 0.049_815_763_699_044_82, 1e-11);
        close(t(63).two_sided_p(9.0), 6.474_996_232_003_075e-13, 1e-9);
    }

    /// The tail beyond the quantile is what it is to be.
    #[test]
    fn the_expansion_for_many_degrees_of_freedom_is_exact() {
        for df in [1000, 4000, 1_000_000] {
            let t = Student::new(df).unwrap();
            for p in [0.6, 0.8, 0.975, 0.9995] {
                close(t.two_sided_p(t.quantile(p)), 2.0 * (1.0 - p), 1e-9);
            }
        }
    }
}
