//! The paired test of two runs over the same tokens.

use serde::Serialize;

use crate::results::WindowRow;
use crate::stats::{Cluster, ClusteredMean, Estimate, Student, clustered_mean, sign_flip_p};

/// How far run B is from run A on identical tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// Mean of the per-token NLL differences B − A, which is Δ ln PPL, in nats.
    pub mean: f64,
    /// Its standard error, clustered by window.
    pub se: f64,
    /// Windows compared.
    pub windows: usize,
    /// `PPL_B − PPL_A`. Its error is clustered by window and counts how the two
    /// vary together: that of the mean of `PPL_B · nll_B − PPL_A · nll_A`.
    pub ppl_difference: Estimate,
    /// Differences of the windows' NLL sums, B − A.
    differences: Vec<f64>,
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

    /// Two-sided p of [`sign_flip_p`] on the windows' differences. It takes some
    /// milliseconds each time.
    pub fn permutation_p(&self) -> f64 {
        sign_flip_p(&self.differences)
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

    /// Whether every window has the same bits on both sides.
    pub fn is_unchanged(&self) -> bool {
        self.differences.iter().all(|d| *d == 0.0)
    }

    /// How many windows like these would show, in four of five repetitions, on which
    /// side of its bounds a difference of this size lies: the fewest, but not fewer
    /// than there are, at which `(t(0.975) + t(0.8)) · se` is no more than its distance
    /// to the nearest bound. `None` where the distance is 0.
    pub fn windows_to_decide(&self, least: f64, most: f64) -> Option<usize> {
        let distance = (self.mean - least).abs().min((self.mean - most).abs());
        // The error of one window, so that that of n is this over √n.
        let one = self.se * (self.windows as f64).sqrt();
        // From the normal quantiles, once more with those of as many windows: t hardly
        // changes where there are many.
        let mut n = self.windows as f64;
        for _ in 0..8 {
            let df = (n as usize).saturating_sub(1).max(1);
            let student = Student::new(df)?;
            let resolved = student.quantile(0.975) + student.quantile(0.8);
            let next = (resolved * one / distance).powi(2).ceil();
            let next = next.max(self.windows as f64);
            // Beyond any corpus, or a distance of 0.
            if next.is_nan() || next > 1e12 {
                return None;
            }
            if next == n {
                break;
            }
            n = next;
        }
        Some(n as usize)
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
    Ok(Paired {
        mean,
        se,
        windows: clusters,
        ppl_difference: Estimate {
            value: ppl_b - ppl_a,
            se: Some(linear.se),
        },
        differences: pairs().map(|(a, b)| b.nll_sum - a.nll_sum).collect(),
        student: Student::new(clusters - 1).ok_or("one window is too few for a paired test")?,
    })
}

/// A window that moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MovedWindow {
    /// Its number, from 0.
    pub window: usize,
    /// Scored targets in it.
    pub scored: usize,
    /// Mean NLL of its tokens in A and B, in nats.
    pub nll_a: f64,
    /// Its mean NLL in B.
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
    use crate::stats::Normal;

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
    fn figures_that_follow_by_hand() {
        // Two windows of one token, NLL 1 and 3 against 1 and 5: differences 0 and
        // 2, mean 1, se² = 2/1 · (1 + 1) / 4 = 1.
        let (a, b) = (
            windows(&[(1, 1.0), (1, 3.0)]),
            windows(&[(1, 1.0), (1, 5.0)]),
        );
        let p = paired(&a, &b).unwrap();
        assert_eq!((p.mean, p.se, p.t()), (1.0, 1.0, 1.0));
        // One degree of freedom: p(1) = 1/2, t(0.975) = tan(0.475 π), t(0.8) =
        // tan(0.3 π).
        let close = |x: f64, y: f64| assert!((x - y).abs() < 1e-9 * y.abs(), "{x}, not {y}");
        let tan = |x: f64| (x * std::f64::consts::PI).tan();
        close(p.p(), 0.5);
        close(p.interval().0, 1.0 - tan(0.475));
        close(p.interval().1, 1.0 + tan(0.475));
        close(p.detectable(), tan(0.475) + tan(0.3));
        close(p.ppl_ratio().value, 1f64.exp());
        close(p.ppl_ratio().se.unwrap(), 1f64.exp());
        // Sums 0 and ±2 flip to 2 and 2: p is 1.
        assert_eq!(p.permutation_p(), 1.0);
        // e³ − e² and the error of e³·nll_B − e²·nll_A: e³ − e² and 5e³ − 3e².
        let (e2, e3) = (2f64.exp(), 3f64.exp());
        close(p.ppl_difference.value, e3 - e2);
        close(p.ppl_difference.se.unwrap(), (4.0 * e3 - 2.0 * e2) / 2.0);
    }

    /// The delta method's error of the PPL difference against finite differences:
    /// jackknife over windows.
    #[test]
    fn error_of_the_ppl_difference_is_the_jackknifes() {
        let mut rng = Normal::new(3);
        let mut draw = || (32, 32.0 * (3.0 + 0.2 * rng.next()));
        let data: Vec<(usize, f64)> = (0..200).map(|_| draw()).collect();
        let moved = data.iter().map(|&(n, x)| (n, x + 0.1 * draw().1 - 9.0));
        let (a, b) = (windows(&data), windows(&moved.collect::<Vec<_>>()));
        let ppl = |w: &[WindowRow], left_out: usize| {
            let others = w.iter().filter(|w| w.window != left_out);
            let (sum, n) =
                others.fold((0.0, 0.0), |(s, n), w| (s + w.nll_sum, n + w.scored as f64));
            (sum / n).exp()
        };
        let without: Vec<f64> = (0..200).map(|i| ppl(&b, i) - ppl(&a, i)).collect();
        let m: crate::stats::Moments = without.iter().copied().collect();
        let jackknife = (199.0 / 200.0 * m.m2).sqrt();
        let se = paired(&a, &b).unwrap().ppl_difference.se.unwrap();
        assert!((se / jackknife - 1.0).abs() < 0.01, "{se} {jackknife}");
    }

    #[test]
    fn windows_that_moved_most_by_size() {
        let a = windows(&[(4, 4.0), (2, 4.0), (4, 8.0), (4, 1.0)]);
        let b = windows(&[(4, 5.0), (2, 2.0), (4, 8.0), (4, 2.0)]);
        let moved = moved_windows(&a, &b, 10);
        // −1, +1/4 and +1/4 a token; the one that did not move is not listed.
        let numbers: Vec<usize> = moved.iter().map(|w| w.window).collect();
        assert_eq!(numbers, [1, 0, 3]);
        assert_eq!(
            (moved[0].nll_a, moved[0].nll_b, moved[0].scored),
            (2.0, 1.0, 2)
        );
        assert_eq!(moved_windows(&a, &b, 1).len(), 1);
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

    /// Without a true difference, |t| exceeds the 97.5 % quantile of Student's
    /// distribution in 5 % of experiments, although tokens are correlated within
    /// windows and one window is short. A plain per-token error fails this: it
    /// rejects far too often, which is checked too.
    #[test]
    fn t_has_its_size_under_the_null() {
        const EXPERIMENTS: usize = 4000;
        const T_29: f64 = 2.045_229_6; // 0.975 quantile, 29 degrees of freedom
        let mut rng = Normal::new(7);
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

    /// Two runs of 64 windows of 255 tokens, as two kernels differ: B's NLLs move by
    /// `shift`, by an amount of the window (0.0002 nat) and by one of the token (0.004
    /// nat, three times that on one token in ten). Returns the p of the clustered
    /// t, of the permutation, and the unpaired σ.
    fn two_kernels(rng: &mut Normal, shift: f64) -> (f64, f64, f64) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let mut tokens = [crate::stats::Moments::default(); 2];
        for _ in 0..64 {
            let (hardness, shared) = (0.4 * rng.next(), 2e-4 * rng.next());
            let (mut sum_a, mut sum_b) = (0.0, 0.0);
            for t in 0..255 {
                // Skewed, with mean 3 and a standard deviation near 3.
                let x = -3.0 * (1.0 - rng.uniform()).ln() + hardness;
                let size = if t % 10 == 0 { 0.012 } else { 0.004 };
                let y = x + shift + shared + size * rng.next();
                sum_a += x;
                sum_b += y;
                tokens[0].push(x);
                tokens[1].push(y);
            }
            a.push((255, sum_a));
            b.push((255, sum_b));
        }
        let p = paired(&windows(&a), &windows(&b)).unwrap();
        let [m, n] = tokens;
        let delta = n.ppl().unwrap() - m.ppl().unwrap();
        let err = m.ppl_err().unwrap().hypot(n.ppl_err().unwrap());
        (p.p(), p.permutation_p(), delta / err)
    }

    /// In 100 repetitions, how many p of each test are below 5 %, and how many
    /// unpaired σ beyond 1.96.
    fn alarms(seed: u64, shift: f64) -> [usize; 3] {
        let mut rng = Normal::new(seed);
        let mut alarms = [0; 3];
        for _ in 0..100 {
            let (t, permuted, sigma) = two_kernels(&mut rng, shift);
            alarms[0] += usize::from(t < 0.05);
            alarms[1] += usize::from(permuted < 0.05);
            alarms[2] += usize::from(sigma.abs() > 1.96);
        }
        alarms
    }

    #[test]
    fn a_shift_of_two_in_ten_thousand_is_found_by_the_paired_test_only() {
        let [t, permuted, unpaired] = alarms(1, 2e-4);
        assert!(t >= 95 && permuted >= 95, "found {t} and {permuted} of 100");
        assert_eq!(unpaired, 0);
    }

    #[test]
    fn without_a_shift_alarms_are_as_rare_as_they_should_be() {
        let [t, permuted, unpaired] = alarms(2, 0.0);
        assert!((2..=8).contains(&t), "{t} of 100");
        assert!((2..=8).contains(&permuted), "{permuted} of 100");
        assert_eq!(unpaired, 0);
    }
}
