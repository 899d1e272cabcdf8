//! The paired test of two runs over the same tokens.

use serde::Serialize;

use super::row::WindowRow;
use crate::stats::{Cluster, ClusteredMean, Estimate, Student, clustered_mean, sign_flip_p};

/// How far run B is from run A on identical tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Mean of the per-token NLL differences B − A, which is Δ ln PPL, in nats.
    pub mean: f64,
    /// Its standard error, clustered by window.
    pub se: f64,
    /// Windows compared.
    pub windows: usize,
    /// Two-sided p of [`sign_flip_p`] on the windows' differences.
    pub permutation_p: f64,
    /// `PPL_B − PPL_A`. Its error is clustered by window and counts how the two
    /// vary together: that of the mean of `PPL_B · nll_B − PPL_A · nll_A`.
    pub ppl_difference: Estimate,
    /// The distribution of t where nothing differs: `windows − 1` degrees of
    /// freedom.
    student: Student,
}

impl Paired {
    /// `mean / se`. Exactly 0 where nothing differs, infinite where every window
    /// differs by the same amount a token.
    ///
    /// With few windows it follows Student's distribution with `windows − 1`
    /// degrees of freedom, not the normal one.
    pub fn t(&self) -> f64 {
        if self.mean == 0.0 {
            0.0
        } else {
            self.mean / self.se
        }
    }

    /// Two-sided p of [`Self::t`].
    pub fn p(&self) -> f64 {
        self.student.two_sided_p(self.t())
    }

    /// The interval that holds the true Δ ln PPL with 95 % confidence.
    pub fn interval(&self) -> (f64, f64) {
        let half = self.student.quantile(0.975) * self.se;
        (self.mean - half, self.mean + half)
    }

    /// The smallest |Δ ln PPL| that these windows would show at 5 %, two-sided,
    /// in four of five repetitions: `(t(0.975) + t(0.8)) · se`.
    pub fn detectable(&self) -> f64 {
        (self.student.quantile(0.975) + self.student.quantile(0.8)) * self.se
    }

    /// `PPL_B / PPL_A` and its standard error, `ratio · se`.
    pub fn ppl_ratio(&self) -> Estimate {
        let ratio = self.mean.exp();
        Estimate {
            value: ratio,
            se: Some(ratio * self.se),
        }
    }
}

/// Compares two runs window by window. Both load the same text, so what makes
/// one window harder than another cancels; what is left is the difference of
/// the runs and its scatter. Windows are weighted by their scored tokens:
/// [`clustered_mean`] of the differences.
///
/// # Errors
/// Windows that do not match one to one in number and scored tokens, and fewer
/// than two windows, which have no scatter to judge by.
pub fn paired(a: &[WindowRow], b: &[WindowRow]) -> Result<Paired, String> {
    if a.len() != b.len() {
        return Err(format!("{} windows against {}", a.len(), b.len()));
    }
    let pairs = || a.iter().zip(b);
    for (a, b) in pairs() {
        if (a.window, a.scored) != (b.window, b.scored) {
            return Err(format!(
                "window {} with {} scored tokens against window {} with {}",
                a.window, a.scored, b.window, b.scored
            ));
        }
    }
    // The mean and its error over all tokens of a quantity's sums by window.
    let over_tokens = |sum: &dyn Fn(&WindowRow, &WindowRow) -> f64| {
        let clusters: Vec<Cluster> = pairs()
            .map(|(a, b)| Cluster {
                n: a.scored,
                sum: sum(a, b),
            })
            .collect();
        clustered_mean(&clusters)
            .ok_or_else(|| format!("{} window is too few for a paired test", a.len()))
    };
    let ClusteredMean { mean, se, clusters } = over_tokens(&|a, b| b.nll_sum - a.nll_sum)?;
    let ppl_a = over_tokens(&|a, _| a.nll_sum)?.mean.exp();
    let ppl_b = over_tokens(&|_, b| b.nll_sum)?.mean.exp();
    let linear = over_tokens(&|a, b| ppl_b * b.nll_sum - ppl_a * a.nll_sum)?;
    let differences: Vec<f64> = pairs().map(|(a, b)| b.nll_sum - a.nll_sum).collect();
    Ok(Paired {
        mean,
        se,
        windows: clusters,
        permutation_p: sign_flip_p(&differences),
        ppl_difference: Estimate {
            value: ppl_b - ppl_a,
            se: Some(linear.se),
        },
        student: Student::new(clusters - 1).ok_or("one window is too few for a paired test")?,
    })
}

/// A window that moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MovedWindow {
    pub window: usize,
    pub scored: usize,
    /// Mean NLL of its tokens in A and B, in nats.
    pub nll_a: f64,
    pub nll_b: f64,
}

/// The windows whose mean NLL moved most, by size, at most `n`.
pub fn moved_windows(a: &[WindowRow], b: &[WindowRow], n: usize) -> Vec<MovedWindow> {
    let by_token = |w: &WindowRow| w.nll_sum / w.scored as f64;
    let moves: Vec<f64> = a
        .iter()
        .zip(b)
        .map(|(a, b)| by_token(b) - by_token(a))
        .collect();
    let moved = largest(&moves, n).into_iter().map(|i| MovedWindow {
        window: a[i].window,
        scored: a[i].scored,
        nll_a: by_token(&a[i]),
        nll_b: by_token(&b[i]),
    });
    moved.collect()
}

/// The places of the `n` values that are furthest from 0, and are not 0: the
/// furthest first, equal ones in order.
pub(super) fn largest(values: &[f64], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    order.sort_by(|&i, &j| values[j].abs().total_cmp(&values[i].abs()).then(i.cmp(&j)));
    order.truncate(n);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(data: &[(usize, f64)]) -> Vec<WindowRow> {
        data.iter()
            .enumerate()
            .map(|(window, &(scored, nll_sum))| WindowRow {
                window,
                scored,
                nll_sum,
                target_bytes: 0,
            })
            .collect()
    }

    #[test]
    fn by_hand_with_a_short_last_window() {
        // Differences 2, 6 and 2 over 2, 2 and 1 tokens: mean 10/5, se² = 0.48
        // (see eval::stats), t = 2 / sqrt(0.48).
        let a = windows(&[(2, 5.0), (2, 1.0), (1, 3.0)]);
        let b = windows(&[(2, 7.0), (2, 7.0), (1, 5.0)]);
        let p = paired(&a, &b).unwrap();
        assert_eq!((p.mean, p.windows), (2.0, 3));
        assert!((p.t() - 2.0 / 0.48f64.sqrt()).abs() < 1e-14);
        // The opposite difference, exactly.
        let q = paired(&b, &a).unwrap();
        assert_eq!((q.mean, q.se, q.t()), (-p.mean, p.se, -p.t()));
    }

    #[test]
    fn identical_runs_differ_by_exactly_nothing() {
        let a = windows(&[(127, 400.125), (127, 1e-300), (3, 7.7)]);
        let p = paired(&a, &a).unwrap();
        assert_eq!((p.mean, p.se, p.t()), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_constant_shift_is_infinitely_significant() {
        let p = paired(&windows(&[(4, 0.0); 3]), &windows(&[(4, 1.0); 3])).unwrap();
        assert_eq!((p.mean, p.se, p.t()), (0.25, 0.0, f64::INFINITY));
    }

    #[test]
    fn unequal_windows_are_not_compared() {
        let a = windows(&[(4, 1.0), (4, 1.0)]);
        assert!(paired(&a, &a[..1]).is_err());
        assert!(paired(&a[..1], &a[..1]).is_err());
        assert!(paired(&a, &windows(&[(4, 1.0), (3, 1.0)])).is_err());
        let mut moved = a.clone();
        moved[1].window = 2;
        assert!(paired(&a, &moved).is_err());
    }

    /// SplitMix64 and Box–Muller: seeded normal deviates.
    struct Normal(u64);

    impl Normal {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn next(&mut self) -> f64 {
            let r = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            r * (std::f64::consts::TAU * self.uniform()).cos()
        }
    }

    /// Without a true difference, |t| exceeds the 97.5 % quantile of Student's
    /// distribution in 5 % of experiments, although tokens are correlated within
    /// windows and one window is short. A plain per-token error fails this: it
    /// rejects far too often, which is checked too.
    #[test]
    fn t_has_its_size_under_the_null() {
        const EXPERIMENTS: usize = 4000;
        const T_29: f64 = 2.045_229_6; // 0.975 quantile, 29 degrees of freedom
        let mut rng = Normal(7);
        let (mut clustered, mut plain) = (0, 0);
        for _ in 0..EXPERIMENTS {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let mut tokens = crate::eval::Moments::default();
            for w in 0..30 {
                let scored = if w == 29 { 11 } else { 32 };
                let hardness = 3.0 + rng.next();
                let shared = 0.05 * rng.next();
                let (mut sum_a, mut sum_b) = (0.0, 0.0);
                for _ in 0..scored {
                    let x = hardness + rng.next();
                    let d = shared + 0.1 * rng.next();
                    sum_a += x;
                    sum_b += x + d;
                    tokens.push(d);
                }
                a.push((scored, sum_a));
                b.push((scored, sum_b));
            }
            let p = paired(&windows(&a), &windows(&b)).unwrap();
            clustered += usize::from(p.t().abs() > T_29);
            let n = tokens.n as f64;
            let se = (tokens.m2 / (n * (n - 1.0))).sqrt();
            plain += usize::from((tokens.mean / se).abs() > T_29);
        }
        // Binomial noise: sqrt(0.05 · 0.95 / 4000) = 0.0034.
        let rate = clustered as f64 / EXPERIMENTS as f64;
        assert!((0.038..=0.062).contains(&rate), "size {rate}");
        let rate = plain as f64 / EXPERIMENTS as f64;
        assert!(rate > 0.2, "plain size {rate}");
    }
}
