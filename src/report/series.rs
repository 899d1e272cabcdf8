//! What curves show, from the windows of runs.

use crate::results::WindowRow;
use crate::stats::clustered_mean;

/// Points that a curve has at most: about as many as a figure is wide in pixels.
const MAX_POINTS: usize = 400;

/// The perplexity of the first windows of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// How many windows.
    pub windows: usize,
    pub ppl: f64,
    /// Standard error with tokens correlated within windows; `None` with one window.
    pub err: Option<f64>,
}

/// The perplexity after each window, or after every n-th and the last where there
/// are many windows. The last estimate is the run's figure: perplexity and
/// clustered error.
///
/// Estimates that f64 cannot hold are left out.
pub fn running(windows: &[WindowRow]) -> Vec<Estimate> {
    let clusters: Vec<_> = windows.iter().map(WindowRow::cluster).collect();
    let step = windows.len().div_ceil(MAX_POINTS).max(1);
    let last = windows.len();
    (1..=last)
        .filter(|k| k % step == 0 || *k == last)
        .map(|k| {
            let first = &clusters[..k];
            let n: f64 = first.iter().map(|c| c.n as f64).sum();
            let ppl = (first.iter().map(|c| c.sum).sum::<f64>() / n).exp();
            Estimate {
                windows: k,
                ppl,
                err: clustered_mean(first).map(|c| ppl * c.se),
            }
        })
        .filter(|e| e.ppl.is_finite() && e.err.is_none_or(f64::is_finite))
        .collect()
}

/// The difference of two runs in consecutive windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowDifference {
    /// Number of the first window, from 0.
    pub window: usize,
    /// Mean of the NLL differences of their tokens, in nats.
    pub mean: f64,
}

/// B − A in each window, or in groups of `group` windows where there are many.
#[derive(Clone, Debug, PartialEq)]
pub struct Differences {
    pub group: usize,
    pub points: Vec<WindowDifference>,
}

/// The differences of two runs over the same windows, which `compare::paired`
/// has found to match.
pub fn differences(a: &[WindowRow], b: &[WindowRow]) -> Differences {
    let group = a.len().div_ceil(MAX_POINTS).max(1);
    let points = a.chunks(group).zip(b.chunks(group)).map(|(a, b)| {
        let sum: f64 = a.iter().zip(b).map(|(a, b)| b.nll_sum - a.nll_sum).sum();
        let n: usize = a.iter().map(|w| w.scored).sum();
        WindowDifference {
            window: a[0].window,
            mean: sum / n as f64,
        }
    });
    Differences {
        group,
        points: points.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::compare::paired;
    use crate::results::{Figures, Tables};
    use crate::stats::Moments;

    fn windows(n: usize, token: impl Fn(usize, usize) -> f64) -> (Vec<WindowRow>, Vec<Moments>) {
        let scored = |w| if w + 1 == n { 7 } else { 20 };
        (0..n)
            .map(|window| {
                let nll: Vec<f64> = (0..scored(window)).map(|t| token(window, t)).collect();
                let row = WindowRow {
                    window,
                    scored: nll.len(),
                    nll_sum: nll.iter().sum(),
                    target_bytes: 1,
                };
                (row, nll.into_iter().collect::<Moments>())
            })
            .unzip()
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{a}, not {b}");
    }

    fn wave(w: usize, t: usize) -> f64 {
        3.0 + (w as f64 * 0.7).sin() + 0.5 * (t as f64 * 1.3).cos()
    }

    /// Every estimate is the figure of a run that ended there, computed from its
    /// tokens.
    #[test]
    fn estimates_are_the_figures_of_shorter_runs() {
        for n in [1, 2, 30, 2 * MAX_POINTS + 3] {
            let (rows, tokens) = windows(n, wave);
            let estimates = running(&rows);
            assert!(estimates.len() <= MAX_POINTS + 1);
            assert_eq!(estimates.last().unwrap().windows, n);
            for e in estimates {
                let mut all = Moments::default();
                tokens[..e.windows].iter().for_each(|t| all.merge(t));
                let figures = Figures::new(&all, &rows[..e.windows]).unwrap();
                close(e.ppl, figures.ppl);
                assert_eq!(e.err.is_some(), e.windows > 1);
                if let (Some(err), Some(want)) = (e.err, figures.ppl_err_clustered) {
                    close(err, want);
                }
            }
        }
    }

    #[test]
    fn the_committed_tables_end_at_their_figures() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        for name in ["quickstart", "wikitext"] {
            let tables = Tables::load(&dir, name).unwrap();
            for row in tables.rows() {
                let figures = row.figures().unwrap();
                let last = *running(tables.windows(&row.key)).last().unwrap();
                close(last.ppl, figures.ppl);
                close(last.err.unwrap(), figures.ppl_err_clustered.unwrap());
            }
        }
    }

    /// Weighted by their tokens, differences have the mean of the paired test.
    #[test]
    fn differences_average_to_the_paired_mean() {
        for n in [2, 30, 3 * MAX_POINTS + 1] {
            let (a, _) = windows(n, wave);
            let (b, _) = windows(n, |w, t| wave(w, t) + 1e-3 * (w as f64).cos());
            let d = differences(&a, &b);
            assert_eq!(d.points.len(), n.div_ceil(d.group));
            assert!(d.points.len() <= MAX_POINTS);
            let tokens = a
                .chunks(d.group)
                .map(|g| g.iter().map(|w| w.scored).sum::<usize>() as f64);
            let sum: f64 = d.points.iter().zip(tokens).map(|(p, n)| p.mean * n).sum();
            let total: usize = a.iter().map(|w| w.scored).sum();
            let want = paired(&a, &b).unwrap().mean;
            assert!((sum / total as f64 - want).abs() < 1e-14);
        }
        assert_eq!(differences(&[], &[]).points, []);
    }
}
