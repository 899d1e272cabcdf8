//! Summaries of many values: mean, root mean square, percentiles, correlation.
//! Definitions are those of llama-perplexity's `--kl-divergence`.

use super::mean::Moments;

/// A figure and its standard error, which takes the values as independent; `None`
/// where one value is too few to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Its standard error; `None` where one cannot be told.
    pub se: Option<f64>,
}

/// The mean and `sqrt(var / (n − 1))` with the population variance; `None` without
/// values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let m: Moments = values.into_iter().collect();
    (m.n > 0).then(|| Estimate {
        value: m.mean,
        se: m.mean_err(),
    })
}

/// `sqrt(mean(x²))`. Its error is that of the mean square, to first order:
/// `se(x²) / (2 · rms)`; 0 where all values are 0. `None` without values.
pub fn root_mean_square(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let square = mean(values.into_iter().map(|x| x * x))?;
    let rms = square.value.sqrt();
    Some(Estimate {
        value: rms,
        se: square.se.map(|se| match rms > 0.0 {
            true => se / (2.0 * rms),
            false => 0.0,
        }),
    })
}

/// The share `hits / n` and `sqrt(share · (1 − share) / (n − 1))`; `None` without
/// values.
pub fn share(hits: usize, n: usize) -> Option<Estimate> {
    let value = (n > 0).then(|| hits as f64 / n as f64)?;
    Some(Estimate {
        value,
        se: (n > 1).then(|| (value * (1.0 - value) / (n - 1) as f64).sqrt()),
    })
}

/// The value below which the share `p` of `sorted` lies: linear between the two
/// values around place `p · (n − 1)`. `None` without values.
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = p.clamp(0.0, 1.0) * last as f64;
    let i = place as usize;
    let (low, high) = (sorted[i], sorted[(i + 1).min(last)]);
    Some(low + (place - i as f64) * (high - low))
}

/// The percentiles of a [`Summary`], by name and share: llama-perplexity's.
pub const PERCENTILES: [(&str, f64); 13] = [
    ("max", 1.0),
    ("99.9 %", 0.999),
    ("99 %", 0.99),
    ("95 %", 0.95),
    ("90 %", 0.9),
    ("75 %", 0.75),
    ("median", 0.5),
    ("25 %", 0.25),
    ("10 %", 0.1),
    ("5 %", 0.05),
    ("1 %", 0.01),
    ("0.1 %", 0.001),
    ("min", 0.0),
];

/// How values are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Values.
    pub n: usize,
    /// Their mean.
    pub mean: Estimate,
    /// Their root mean square.
    pub rms: Estimate,
    /// In the order of [`PERCENTILES`].
    pub percentiles: [f64; PERCENTILES.len()],
}

impl Summary {
    /// `None` without values.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        let (mean, rms) = (
            mean(values.iter().copied())?,
            root_mean_square(values.iter().copied())?,
        );
        values.sort_by(f64::total_cmp);
        Some(Self {
            n: values.len(),
            mean,
            rms,
            percentiles: PERCENTILES.map(|(_, p)| percentile(&values, p).unwrap_or(f64::NAN)),
        })
    }

    /// The percentile for a share of [`PERCENTILES`]; NaN for another share.
    pub fn at(&self, share: f64) -> f64 {
        let place = PERCENTILES.iter().position(|(_, p)| *p == share);
        place.map_or(f64::NAN, |i| self.percentiles[i])
    }
}

/// Pearson's correlation of pairs; `None` where one side does not vary.
pub fn correlation(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    // Welford's update for two variables: nothing large cancels.
    let (mut n, mut mean, mut m2, mut cross) = (0.0, [0.0; 2], [0.0; 2], 0.0);
    for (x, y) in pairs {
        n += 1.0;
        let (dx, dy) = (x - mean[0], y - mean[1]);
        mean[0] += dx / n;
        mean[1] += dy / n;
        m2[0] += dx * (x - mean[0]);
        m2[1] += dy * (y - mean[1]);
        cross += dx * (y - mean[1]);
    }
    let size: f64 = (m2[0] * m2[1]).sqrt();
    (size > 0.0).then(|| (cross / size).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(got: Option<Estimate>, value: f64, se: f64) {
        let got = got.unwrap();
        assert!((got.value - value).abs() < 1e-14, "{got:?}");
        assert!((got.se.unwrap() - se).abs() < 1e-14, "{got:?}");
    }

    #[test]
    fn figures_by_hand() {
        // 1, 2, 3, 6: mean 3, population variance 3.5.
        close(mean([1.0, 2.0, 3.0, 6.0]), 3.0, (3.5f64 / 3.0).sqrt());
        // Squares of −1, 1, 3 are 1, 1, 9: mean 11/3, population variance 128/9.
        let rms = (11f64 / 3.0).sqrt();
        let se = (128f64 / 9.0 / 2.0).sqrt() / (2.0 * rms);
        close(root_mean_square([-1.0, 1.0, 3.0]), rms, se);
        close(root_mean_square([0.0; 4]), 0.0, 0.0);
        close(share(3, 4), 0.75, (0.1875f64 / 3.0).sqrt());
        assert_eq!(mean([]), None);
        assert_eq!(root_mean_square([2.0]).unwrap().se, None);
        assert_eq!(share(0, 0), None);
    }

    #[test]
    fn percentiles_by_hand() {
        let x = [1.0, 2.0, 4.0, 8.0, 16.0];
        let at = |p| percentile(&x, p).unwrap();
        assert_eq!([at(0.0), at(0.25), at(0.5), at(1.0)], [1.0, 2.0, 4.0, 16.0]);
        // Place 3.6: 8 + 0.6 · 8.
        assert!((at(0.9) - 12.8).abs() < 1e-14);
        assert_eq!(percentile(&[7.0], 0.999), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn correlation_by_hand() {
        // x − 2 = −1, 0, 1; y − 3 = −2, 1, 1: 3 / sqrt(2 · 6).
        let r = correlation([(1.0, 1.0), (2.0, 4.0), (3.0, 4.0)]).unwrap();
        assert!((r - 3.0 / 12f64.sqrt()).abs() < 1e-15);
        assert_eq!(correlation([(1.0, 5.0), (2.0, 5.0)]), None);
        // scipy.stats.pearsonr.
        let x = [2.25, 2.5, 3.1, 2.0, 7.7, 1.25];
        let y = [2.3, 2.41, 3.0, 2.2, 7.1, 1.5];
        let r = correlation(x.into_iter().zip(y)).unwrap();
        assert!((r - 0.999_184_313_069_868_3).abs() < 1e-14, "{r}");
    }

    proptest! {
        #[test]
        fn a_line_correlates_perfectly(
            x in prop::collection::vec(-1e3f64..1e3, 3..50),
            slope in prop_oneof![-9f64..-0.1, 0.1f64..9.0],
        ) {
            prop_assume!(x.iter().any(|v| (v - x[0]).abs() > 1.0));
            let r = correlation(x.iter().map(|&x| (x, 3.0 + slope * x))).unwrap();
            prop_assert!((r - slope.signum()).abs() < 1e-9);
        }
    }
}
