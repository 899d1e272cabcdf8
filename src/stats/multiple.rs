//! Many tests at once.

/// Adjusted p-values, in the order of `p`: rejecting those at most `q` keeps the
/// expected share of false rejections among all rejections at `q`.
///
/// With the p-values in ascending order, `adjusted_(i) = min over j ≥ i of
/// min(1, m/j · p_(j))`. Source: Benjamini and Hochberg, "Controlling the false
/// discovery rate", J. R. Statist. Soc. B 57 (1995). Valid for tests that are
/// independent or positively dependent, as runs over the same text are.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let m = p.len() as f64;
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut least = 1.0f64;
    for (j, &i) in order.iter().enumerate().rev() {
        least = least.min(m / (j + 1) as f64 * p[i]);
        adjusted[i] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// m = 5, sorted 0.005, 0.01, 0.03, 0.04, 0.5: raw m/j·p are 0.025, 0.025,
    /// 0.05, 0.05, 0.5, which do not fall from the right.
    #[test]
    fn by_hand() {
        let got = benjamini_hochberg(&[0.04, 0.01, 0.5, 0.005, 0.03]);
        let want = [0.05, 0.025, 0.5, 0.025, 0.05];
        for (g, w) in got.iter().zip(want) {
            assert!((g - w).abs() < 1e-15, "{got:?}");
        }
        // 3/2 · 0.4 = 0.6 is more than 3/3 · 0.5.
        assert_eq!(benjamini_hochberg(&[0.4, 0.5, 0.3]), [0.5, 0.5, 0.5]);
        assert_eq!(benjamini_hochberg(&[0.9, 1.0]), [1.0, 1.0]);
        assert_eq!(benjamini_hochberg(&[0.2]), [0.2]);
        assert!(benjamini_hochberg(&[]).is_empty());
    }
}
