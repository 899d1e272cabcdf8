//! The verdict on a difference.

use super::{Difference, Verdict};
use crate::compare::gate::{Gate, Judge, Measured};
use crate::compare::paired::Paired;

/// The verdict on a difference, and why it is no better: bounds that are broken or
/// undecided. `corpus_windows` is how many windows the corpus has.
pub(super) fn judge(
    d: &Difference,
    gate: Gate,
    noise_floor: &Result<f64, String>,
    corpus_windows: Option<usize>,
) -> (Verdict, String) {
    let good = match gate.is_empty() {
        true => Verdict::Compared,
        false => Verdict::Pass,
    };
    // What does not differ passes any bound.
    if d.is_unchanged() {
        return (good, String::new());
    }
    // The unpaired σ sees some hundred times less: what it misses has not passed.
    let t = d.paired.as_ref().map_or(f64::NAN, Paired::t);
    if gate.max_sigma.is_some() || gate.significance.is_some() {
        let why = match &d.paired {
            Err(why) => Some(why.as_str()),
            Ok(_) if t.is_nan() => Some("its t is not a number"),
            Ok(_) => None,
        };
        if let Some(why) = why {
            let reason =
                format!("a bound on σ or p is for the paired test, and there is none: {why}");
            return (Verdict::NotMeasured, reason);
        }
    }
    if let (true, Err(why)) = (gate.needs_noise(), noise_floor) {
        return (Verdict::NotMeasured, why.clone());
    }
    let by_interval = gate.judge == Judge::Interval && gate.has_size();
    let paired = match (&d.paired, by_interval) {
        (Err(why), true) if !d.has_same_figures() => {
            let reason = format!(
                "a bound on Δ is judged by its interval, and there is no error to make one of: {why}; \
                 judge = \"point\" compares the two figures alone"
            );
            return (Verdict::Inconclusive, reason);
        }
        (paired, _) => paired.as_ref().ok(),
    };
    let noise_floor = noise_floor.as_ref().ok().copied();
    let measured = Measured {
        delta_ln_ppl: d.delta_ln_ppl,
        paired: paired.filter(|_| by_interval),
        noise_floor,
        delta_pct: d.delta_pct,
        t,
        adjusted_p: d.adjusted_p,
        corpus_windows,
    };
    let found = gate.judge(measured);
    // A bound on ln PPL that is tighter than the floor was meant.
    let is_below = |floor: f64| match measured.paired.map(Paired::interval) {
        Some((low, high)) => -floor <= low && high <= floor,
        None => d.delta_ln_ppl.abs() <= floor,
    };
    if noise_floor.is_some_and(is_below) && !found.breaks_max_delta {
        return (Verdict::BelowNoiseFloor, String::new());
    }
    match (found.broken.is_empty(), found.undecided.is_empty()) {
        (true, true) => (good, String::new()),
        (true, false) => (Verdict::Inconclusive, found.undecided.join(", ")),
        (false, _) => (Verdict::Fail, found.broken.join(", ")),
    }
}
