//! How far one evaluation is from another.

use crate::eval::WindowScore;
use crate::stats::{Cluster, Estimate, clustered_mean, root_mean_square};

/// B against A on identical targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Mean of the NLL differences B − A, which is Δ ln PPL, in nats.
    pub mean: f64,
    /// Its standard error, clustered by window; `None` with one window.
    pub se: Option<f64>,
    /// Root mean square of the NLL differences.
    pub rms: f64,
    /// The largest of them.
    pub max: f64,
}

impl Shift {
    /// `None` where nothing was scored, or not the same.
    pub fn between(a: &[WindowScore], b: &[WindowScore]) -> Option<Self> {
        let same = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.window == b.window);
        let by_window =
            |s: &[WindowScore]| -> Vec<Vec<f64>> { s.iter().map(|w| w.nll().collect()).collect() };
        same.then(|| Self::of_nll(&by_window(a), &by_window(b)))?
    }

    /// The same of NLLs by window; `None` where nothing was scored, or not as much.
    pub fn of_nll(a: &[Vec<f64>], b: &[Vec<f64>]) -> Option<Self> {
        let sizes = |x: &[Vec<f64>]| -> Vec<usize> { x.iter().map(Vec::len).collect() };
        if sizes(a) != sizes(b) {
            return None;
        }
        let differences: Vec<Vec<f64>> = a
            .iter()
            .zip(b)
            .map(|(a, b)| a.iter().zip(b).map(|(a, b)| b - a).collect())
            .collect();
        let clusters: Vec<Cluster> = differences
            .iter()
            .map(|d| Cluster {
                n: d.len(),
                sum: d.iter().sum(),
            })
            .collect();
        let all = || differences.iter().flatten().copied();
        let n = all().count();
        let rms = root_mean_square(all())?.value;
        Some(Self {
            mean: clusters.iter().map(|c| c.sum).sum::<f64>() / n as f64,
            se: clustered_mean(&clusters).map(|c| c.se),
            rms,
            max: all().map(f64::abs).fold(0.0, f64::max),
        })
    }
}

/// Mean NLL of B less that of A where the targets are not the same, in nats: the
/// difference of two ratio estimators, its error from the windows' shares of it
/// (`None` with one window). Where the targets are the same it is [`Shift`]'s.
/// `None` where nothing was scored, or windows do not match.
pub fn shift_of_means(a: &[WindowScore], b: &[WindowScore]) -> Option<Estimate> {
    let same = a.len() == b.len();
    let same = same
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.window.start == b.window.start);
    let mean = |s: &[WindowScore]| {
        let n = s.iter().map(|w| w.tokens.len()).sum::<usize>() as f64;
        let sum = s.iter().map(WindowScore::nll_sum).sum::<f64>();
        (same && n > 0.0).then_some((sum / n, n))
    };
    let ((mean_a, n_a), (mean_b, n_b)) = (mean(a)?, mean(b)?);
    let residual = |w: &WindowScore, mean: f64| w.nll_sum() - mean * w.tokens.len() as f64;
    let shares = a
        .iter()
        .zip(b)
        .map(|(a, b)| residual(b, mean_b) / n_b - residual(a, mean_a) / n_a);
    let k = a.len() as f64;
    let square = shares.map(|x| x * x).sum::<f64>();
    Some(Estimate {
        value: mean_b - mean_a,
        se: (k > 1.0).then(|| (k / (k - 1.0) * square).sqrt()),
    })
}
