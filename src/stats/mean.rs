//! Means and their standard errors.

/// Running mean and sum of squared deviations, which can be merged.
///
/// Update: Welford, "Note on a method for calculating corrected sums of squares
/// and products", Technometrics 4 (1962). Merge: Chan, Golub and LeVeque,
/// "Updating formulae and a pairwise algorithm for computing sample variances"
/// (1979). Floating-point sums depend on their order, so results are
/// bit-identical only if values are pushed and merged in a fixed order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Number of values.
    pub n: u64,
    /// Their mean; 0 when there are none.
    pub mean: f64,
    /// Sum of squared deviations from the mean.
    pub m2: f64,
}

impl Moments {
    /// Adds a value.
    pub fn push(&mut self, x: f64) {
        self.n += 1;
        let d = x - self.mean;
        self.mean += d / self.n as f64;
        self.m2 += d * (x - self.mean);
    }

    /// Adds the values that `other` has seen.
    pub fn merge(&mut self, other: &Moments) {
        if self.n == 0 || other.n == 0 {
            if self.n == 0 {
                *self = *other;
            }
            return;
        }
        let (a, b) = (self.n as f64, other.n as f64);
        let d = other.mean - self.mean;
        self.n += other.n;
        self.mean += d * b / (a + b);
        self.m2 += other.m2 + d * d * a * b / (a + b);
    }

    /// Population variance `m2 / n`, as llama.cpp uses it; `None` without values.
    pub fn variance(&self) -> Option<f64> {
        (self.n > 0).then(|| self.m2 / self.n as f64)
    }

    /// Perplexity `exp(mean)`; `None` without values.
    pub fn ppl(&self) -> Option<f64> {
        (self.n > 0).then(|| self.mean.exp())
    }

    /// Standard error of the mean of independent values: `sqrt(var / (n − 1))`
    /// with the population variance. `None` with fewer than two values.
    pub fn mean_err(&self) -> Option<f64> {
        let degrees = self.n.checked_sub(1).filter(|&k| k > 0)?;
        Some((self.variance()? / degrees as f64).sqrt())
    }

    /// llama-perplexity's error bar, `ppl` times [`Self::mean_err`]: one standard
    /// error if tokens were independent. `None` with fewer than two values.
    pub fn ppl_err(&self) -> Option<f64> {
        Some(self.ppl()? * self.mean_err()?)
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut m = Self::default();
        values.into_iter().for_each(|x| m.push(x));
        m
    }
}

/// What one window contributes to a mean over tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Number of values in it (scored tokens).
    pub n: usize,
    /// Their sum.
    pub sum: f64,
}

/// A mean over tokens with a standard error that lets the tokens of one window
/// be correlated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusteredMean {
    /// `R = Σ sum_w / Σ n_w`.
    pub mean: f64,
    /// Standard error of `mean`; exactly 0 if every `sum_w` is exactly `R · n_w`.
    pub se: f64,
    /// Number of windows.
    pub clusters: usize,
}

/// The ratio estimator over windows: windows are taken as independent draws, so
/// tokens count with equal weight and windows of any length (the last block in
/// teacher-forced mode) are weighted properly.
///
/// `R = Σ sum_w / Σ n_w`, `se² = K/(K−1) · Σ (sum_w − R·n_w)² / (Σ n_w)²` over K
/// windows. Source: Cochran, *Sampling Techniques* (3rd ed., 1977), section 6.4,
/// without the finite population correction. With one value a window it is the
/// plain standard error of a mean.
///
/// `None` with fewer than two windows or an empty one: no error can be told.
/// Windows whose scored tokens overlap are not independent; the error is then
/// too small.
pub fn clustered_mean(clusters: &[Cluster]) -> Option<ClusteredMean> {
    let k = clusters.len();
    if k < 2 || clusters.iter().any(|c| c.n == 0) {
        return None;
    }
    let n = clusters.iter().map(|c| c.n as f64).sum::<f64>();
    let mean = clusters.iter().map(|c| c.sum).sum::<f64>() / n;
    let residual = clusters
        .iter()
        .map(|c| (c.sum - mean * c.n as f64).powi(2))
        .sum::<f64>();
    let k_f = k as f64;
    Some(ClusteredMean {
        mean,
        se: (k_f / (k_f - 1.0) * residual).sqrt() / n,
        clusters: k,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Mean and sum of squared deviations in two passes.
    fn two_pass(x: &[f64]) -> (f64, f64) {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        (mean, x.iter().map(|v| (v - mean).powi(2)).sum())
    }

    fn close(a: f64, b: f64, rel: f64) -> bool {
        (a - b).abs() <= rel * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn small_sample_by_hand() {
        // Values 1, 2, 3, 6: mean 3, squared deviations 4 + 1 + 0 + 9 = 14.
        let m: Moments = [1.0, 2.0, 3.0, 6.0].into_iter().collect();
        assert_eq!((m.n, m.mean), (4, 3.0));
        assert!(close(m.m2, 14.0, 1e-15));
        assert!(close(m.variance().unwrap(), 3.5, 1e-15));
        // llama-perplexity: nll2 = E[x²] − E[x]² = 12.5 − 9; sqrt(nll2 / (count − 1)).
        let want = 3.0f64.exp() * ((12.5f64 - 9.0) / 3.0).sqrt();
        assert!(close(m.ppl_err().unwrap(), want, 1e-14));
    }

    #[test]
    fn too_few_values_have_no_figure() {
        let mut m = Moments::default();
        assert_eq!((m.variance(), m.ppl(), m.ppl_err()), (None, None, None));
        m.push(2.0);
        assert_eq!((m.ppl(), m.ppl_err()), (Some(2.0f64.exp()), None));
    }

    #[test]
    fn clustered_mean_by_hand() {
        // Windows of 2, 2 and 1 tokens with sums 2, 6 and 2: R = 10/5 = 2, residuals
        // −2, 2 and 0, se² = 3/2 · 8 / 25 = 0.48.
        let c = [(2, 2.0), (2, 6.0), (1, 2.0)].map(|(n, sum)| Cluster { n, sum });
        let r = clustered_mean(&c).unwrap();
        assert_eq!((r.mean, r.clusters), (2.0, 3));
        assert!(close(r.se, 0.48f64.sqrt(), 1e-15));
        assert_eq!(clustered_mean(&c[..1]), None);
        assert_eq!(clustered_mean(&[c[0], Cluster { n: 0, sum: 0.0 }]), None);
    }

    #[test]
    fn equal_windows_have_exactly_no_error() {
        let c = [Cluster { n: 127, sum: 0.0 }; 64];
        assert_eq!(
            clustered_mean(&c),
            Some(ClusteredMean {
                mean: 0.0,
                se: 0.0,
                clusters: 64
            })
        );
    }

    proptest! {
        #[test]
        fn merge_is_the_two_pass_result(
            x in prop::collection::vec(-1e3f64..1e3, 1..300),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut at: Vec<usize> = cuts.iter().map(|i| i.index(x.len() + 1)).collect();
            at.extend([0, x.len()]);
            at.sort_unstable();
            let mut merged = Moments::default();
            for w in at.windows(2) {
                merged.merge(&x[w[0]..w[1]].iter().copied().collect());
            }
            let (mean, m2) = two_pass(&x);
            prop_assert_eq!(merged.n, x.len() as u64);
            prop_assert!(close(merged.mean, mean, 1e-12));
            prop_assert!(close(merged.m2, m2, 1e-11));
        }

        /// One token a window: the clustered error is llama.cpp's plain error.
        #[test]
        fn singleton_clusters_are_the_plain_error(x in prop::collection::vec(0f64..20.0, 2..200)) {
            let c: Vec<_> = x.iter().map(|&sum| Cluster { n: 1, sum }).collect();
            let m: Moments = x.iter().copied().collect();
            let r = clustered_mean(&c).unwrap();
            prop_assert!(close(r.mean, m.mean, 1e-12));
            let plain = m.ppl_err().unwrap() / m.ppl().unwrap();
            prop_assert!((r.se - plain).abs() <= 1e-10 * plain + 1e-12);
        }
    }
}
