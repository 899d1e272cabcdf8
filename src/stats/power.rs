//! What a paired comparison can show, told from the scatter of its windows before it
//! is made. `docs/methodology.md` derives it.

use statrs::distribution::{ContinuousCDF, Normal};

use super::Student;

/// The interval that is judged by has this much below its upper end.
const UPPER: f64 = 0.975;
/// How often what is there is to be shown.
const POWER: f64 = 0.8;
/// More windows than any corpus has.
const MOST_WINDOWS: usize = 1 << 40;

/// Student's quantile for the mean of so many windows; infinite with fewer than two.
/// Beyond a thousand it is Cornish and Fisher's expansion about the normal
/// distribution's, good to 1e-9 there, where the exact one takes long.
fn quantile(windows: usize, p: f64) -> f64 {
    let Some(degrees) = windows.checked_sub(1).filter(|&n| n > 0) else {
        return f64::INFINITY;
    };
    if degrees <= 1000 {
        return Student::new(degrees).map_or(f64::INFINITY, |s| s.quantile(p));
    }
    let (z, n) = (Normal::standard().inverse_cdf(p), degrees as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / n + second / (n * n)
}

/// On which sides of no change a bound stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// A change in either direction may be too large.
    Both,
    /// A change in the other direction never is.
    One,
}

/// The smallest change that so many windows show at 5 %, two-sided, in four of five
/// repetitions: `(t(0.975) + t(0.8)) · sd / √n`, where the windows' mean differences
/// have the standard deviation `sd`. `None` below two windows, which have no scatter
/// to judge by.
pub fn detectable(sd: f64, windows: usize) -> Option<f64> {
    if windows < 2 {
        return None;
    }
    let quantiles = quantile(windows, UPPER) + quantile(windows, POWER);
    Some(quantiles * sd / (windows as f64).sqrt())
}

/// The smallest number of windows for which a change of zero has its 95 % interval
/// within a bound in four of five repetitions. `None` where no number will do.
///
/// The interval reaches `t(0.975) · se` to either side of the mean difference. With a
/// bound on both sides, the mean passes it on each with a probability of 0.1: it is
/// `z(0.9) · se` away. With one, `z(0.8) · se`.
pub fn windows_to_pass(sd: f64, bound: f64, sides: Sides) -> Option<usize> {
    let tail = match sides {
        Sides::Both => (1.0 + POWER) / 2.0,
        Sides::One => POWER,
    };
    let z = Normal::standard().inverse_cdf(tail);
    let reach = |windows| (quantile(windows, UPPER) + z) * sd / (windows as f64).sqrt();
    let passes = |windows: usize| reach(windows) <= bound;
    // It falls with the number of windows.
    let mut enough = 2;
    while !passes(enough) {
        enough *= 2;
        if enough > MOST_WINDOWS {
            return None;
        }
    }
    let mut few = enough / 2;
    while enough - few > 1 {
        let middle = few + (enough - few) / 2;
        match passes(middle) {
            true => enough = middle,
            false => few = middle,
        }
    }
    Some(enough)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::SplitMix64;

    fn close(x: f64, y: f64) {
        assert!((x - y).abs() < 1e-9 * y.abs(), "{x}, not {y}");
    }

    /// Student's quantiles with one and two degrees of freedom have closed forms.
    #[test]
    fn detectable_in_closed_form() {
        let tan = |p: f64| (std::f64::consts::PI * (p - 0.5)).tan();
        close(
            detectable(3.0, 2).unwrap(),
            3.0 / 2f64.sqrt() * (tan(0.975) + tan(0.8)),
        );
        let two = |p: f64| (2.0 * p - 1.0) / (2.0 * p * (1.0 - p)).sqrt();
        close(
            detectable(1.0, 3).unwrap(),
            (two(0.975) + two(0.8)) / 3f64.sqrt(),
        );
        assert_eq!((detectable(1.0, 0), detectable(1.0, 1)), (None, None));
        assert_eq!(detectable(0.0, 5), Some(0.0));
        // Many windows: the normal distribution's 1.959964 + 0.841621, over √n.
        let many = detectable(1.0, 1_000_000).unwrap();
        assert!((many * 1e3 - 2.801_585).abs() < 1e-4, "{many}");
    }

    #[test]
    fn quantiles_of_many_windows_go_on_where_those_of_few_end() {
        for p in [UPPER, POWER] {
            let exact = Student::new(1001).unwrap().quantile(p);
            let expanded = quantile(1002, p);
            assert!((expanded - exact).abs() < 1e-8, "{expanded}, not {exact}");
        }
    }

    #[test]
    fn windows_to_pass_in_closed_form() {
        // One degree of freedom, at the very bound and just below it.
        let z = 1.281_551_565_544_6;
        let t = (std::f64::consts::PI * 0.475).tan();
        let bound = (t + z) / 2f64.sqrt();
        let both = |bound| windows_to_pass(1.0, bound, Sides::Both);
        assert_eq!(both(bound * (1.0 + 1e-9)), Some(2));
        assert_eq!(both(bound * (1.0 - 1e-9)), Some(3));
        // Many: ((1.959964 + 1.281552) · 100)² and ((1.959964 + 0.841621) · 100)².
        let near = |found: Option<usize>, want: f64| {
            let found = found.unwrap() as f64;
            assert!(want <= found && found < want + 4.0, "{found}, not {want}");
        };
        near(both(0.01), 105_074.2);
        near(windows_to_pass(1.0, 0.01, Sides::One), 78_488.8);
        // Only the ratio counts.
        assert_eq!(both(0.1), windows_to_pass(0.03, 0.003, Sides::Both));
        assert_eq!(both(0.0), None);
        assert_eq!(windows_to_pass(f64::NAN, 1.0, Sides::Both), None);
        assert_eq!(windows_to_pass(0.0, 1e-9, Sides::Both), Some(2));
    }

    /// The mean of `n` seeded normal deviates, and its standard error.
    fn sample(rng: &mut SplitMix64, n: usize) -> (f64, f64) {
        let mut uniform = || (rng.next() >> 11) as f64 / (1u64 << 53) as f64;
        let m: crate::stats::Moments = (0..n)
            .map(|_| {
                let r = (-2.0 * (1.0 - uniform()).ln()).sqrt();
                r * (std::f64::consts::TAU * uniform()).cos()
            })
            .collect();
        (m.mean, m.mean_err().unwrap())
    }

    /// How often `passes` holds of the interval of samples with this true mean.
    fn rate(seed: u64, n: usize, shift: f64, passes: impl Fn(f64, f64) -> bool) -> f64 {
        const REPETITIONS: usize = 4000;
        let mut rng = SplitMix64(seed);
        let half = Student::new(n - 1).unwrap().quantile(0.975);
        let good = (0..REPETITIONS).filter(|_| {
            let (mean, se) = sample(&mut rng, n);
            let mean = mean + shift;
            passes(mean - half * se, mean + half * se)
        });
        good.count() as f64 / REPETITIONS as f64
    }

    /// Three standard deviations of a rate of 0.8 in 4000.
    const NOISE: f64 = 0.019;

    #[test]
    fn what_is_detectable_is_found_in_four_of_five() {
        for (seed, n) in [(1, 8), (2, 32), (3, 100)] {
            let shift = detectable(1.0, n).unwrap();
            let found = rate(seed, n, shift, |low, high| low > 0.0 || high < 0.0);
            assert!((found - 0.8).abs() < NOISE, "{n}: {found}");
        }
    }

    /// A change of zero passes in four of five with the number of windows that is
    /// advised, and a change at the bound in one of forty at most.
    #[test]
    fn windows_to_pass_pass_in_four_of_five() {
        for (seed, bound, sides) in [
            (4, 0.5, Sides::Both),
            (5, 0.3, Sides::Both),
            (6, 0.3, Sides::One),
        ] {
            let n = windows_to_pass(1.0, bound, sides).unwrap();
            let within =
                |low: f64, high: f64| high < bound && (sides == Sides::One || low > -bound);
            let passed = rate(seed, n, 0.0, within);
            assert!((passed - 0.8).abs() < NOISE, "{n} windows: {passed}");
            let wrongly = rate(seed, n, bound, within);
            assert!(wrongly < 0.025 + 0.0075, "{n} windows: {wrongly}");
            // Fewer windows are not enough.
            let fewer = rate(seed, n * 2 / 3, 0.0, within);
            assert!(fewer < 0.8 - 2.0 * NOISE, "{fewer}");
        }
    }
}
