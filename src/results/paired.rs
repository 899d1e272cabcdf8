//! The paired test of two runs over the same tokens.

use super::row::WindowRow;
use crate::eval::{Cluster, ClusteredMean, clustered_mean};

/// How far run B is from run A on identical tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Mean of the per-token NLL differences B − A, which is Δ ln PPL, in nats.
    pub mean: f64,
    /// Its standard error, clustered by window.
    pub se: f64,
    /// Windows compared.
    pub windows: usize,
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
    let mut differences = Vec::with_capacity(a.len());
    for (a, b) in a.iter().zip(b) {
        if (a.window, a.scored) != (b.window, b.scored) {
            return Err(format!(
                "window {} with {} scored tokens against window {} with {}",
                a.window, a.scored, b.window, b.scored
            ));
        }
        differences.push(Cluster {
            n: a.scored,
            sum: b.nll_sum - a.nll_sum,
        });
    }
    let ClusteredMean { mean, se, clusters } = clustered_mean(&differences)
        .ok_or_else(|| format!("{} window is too few for a paired test", a.len()))?;
    Ok(Paired {
        mean,
        se,
        windows: clusters,
    })
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
