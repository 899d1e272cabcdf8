//! Which of several choices are dominated: another is no larger and no worse, and
//! better in one of the two.

/// For each point `(size, figure)`, less of both being better: `None` if it is on the
/// Pareto front, else the point of the front that dominates it, the best one first.
pub(super) fn dominators(points: &[(f64, f64)]) -> Vec<Option<usize>> {
    let dominates =
        |a: &(f64, f64), b: &(f64, f64)| a.0 <= b.0 && a.1 <= b.1 && (a.0 < b.0 || a.1 < b.1);
    let is_front = |p: &(f64, f64)| !points.iter().any(|q| dominates(q, p));
    let of = |p: &(f64, f64)| {
        let others = points.iter().enumerate();
        let better = others.filter(|(_, q)| dominates(q, p) && is_front(q));
        let best = better.min_by(|(_, a), (_, b)| a.1.total_cmp(&b.1).then(a.0.total_cmp(&b.0)));
        best.map(|(i, _)| i)
    };
    points.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_front_is_what_nothing_dominates() {
        // Worked by hand: (3, 5) loses to (3, 4), (4, 4) to (3, 4) and (6, 3) to (5, 2).
        let points = [
            (2.0, 7.0),
            (3.0, 5.0),
            (3.0, 4.0),
            (4.0, 4.0),
            (5.0, 2.0),
            (6.0, 3.0),
        ];
        let want = [None, Some(2), None, Some(2), None, Some(4)];
        assert_eq!(dominators(&points), want);
        // Equal points do not dominate each other.
        assert_eq!(dominators(&[(1.0, 1.0), (1.0, 1.0)]), [None, None]);
    }

    proptest! {
        /// By another way: sorted by size, the front is where the figure falls.
        #[test]
        fn the_front_falls(points in prop::collection::vec((0u8..20, 0u8..20), 1..15)) {
            let points: Vec<(f64, f64)> =
                points.iter().map(|&(x, y)| (f64::from(x), f64::from(y))).collect();
            let mut sorted = points.clone();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let mut best = f64::INFINITY;
            let mut front = Vec::new();
            for p in sorted {
                if p.1 < best || front.last() == Some(&p) {
                    best = p.1;
                    front.push(p);
                }
            }
            let found = dominators(&points);
            let mut ours: Vec<(f64, f64)> =
                points.iter().zip(&found).filter(|(_, d)| d.is_none()).map(|(p, _)| *p).collect();
            ours.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            prop_assert_eq!(ours, front);
            for (p, by) in points.iter().zip(&found) {
                if let Some(by) = by {
                    prop_assert!(found[*by].is_none());
                    prop_assert!(points[*by].0 <= p.0 && points[*by].1 <= p.1);
                }
            }
        }
    }
}
