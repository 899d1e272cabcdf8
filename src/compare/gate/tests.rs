use super::*;
use crate::compare::paired;
use crate::results::WindowRow;
use crate::stats::{Normal, Student};

fn measured(delta_pct: f64, t: f64) -> Measured<'static> {
    Measured {
        delta_ln_ppl: delta_pct / 100.0,
        delta_pct,
        paired: None,
        noise_floor: None,
        t,
        adjusted_p: None,
        corpus_windows: None,
    }
}

fn point(gate: Gate, delta_pct: f64, t: f64) -> usize {
    gate.judge(measured(delta_pct, t)).broken.len()
}

#[test]
fn bounds_hold_in_both_directions_and_at_the_bound() {
    let g = Gate {
        max_delta_pct: Some(0.1),
        max_sigma: Some(3.0),
        ..Gate::default()
    };
    assert_eq!(point(g, 0.1, -3.0), 0);
    assert_eq!(point(g, -0.1, 3.0), 0);
    assert_eq!(point(g, -0.11, 0.0), 1);
    assert_eq!(point(g, 0.0, 3.01), 1);
    assert_eq!(point(g, 0.2, f64::INFINITY), 2);
    // One-sided bounds let any improvement pass.
    let g = Gate {
        max_increase: Some(MaxDelta::Nats(0.002)),
        max_increase_pct: Some(0.1),
        ..Gate::default()
    };
    assert_eq!(point(g, 0.1, 0.0), 0);
    assert_eq!(point(g, -50.0, 0.0), 0);
    assert_eq!(point(g, 0.11, 0.0), 1);
    assert_eq!(point(g, 0.3, 0.0), 2);
}

#[test]
fn significance_judges_the_adjusted_p() {
    let g = Gate {
        significance: Some(0.05),
        ..Gate::default()
    };
    let at = |adjusted_p| {
        let m = Measured {
            adjusted_p,
            ..measured(0.0, 0.0)
        };
        g.judge(m).broken
    };
    assert!(at(Some(0.05)).is_empty());
    assert_eq!(at(Some(0.01)), ["adjusted p 0.0100 below 0.05"]);
    assert_eq!(at(Some(f64::NAN)).len(), 1);
    assert_eq!(at(None).len(), 1);
    for bad in [0.0, 1.0, -0.1, f64::NAN] {
        let g = Gate {
            significance: Some(bad),
            ..Gate::default()
        };
        assert!(g.check().is_err());
    }
}

#[test]
fn nan_never_passes() {
    let nan = f64::NAN;
    let g = Gate {
        max_delta: Some(MaxDelta::Nats(f64::MAX)),
        max_delta_pct: Some(f64::MAX),
        max_increase: Some(MaxDelta::Nats(f64::MAX)),
        max_increase_pct: Some(f64::MAX),
        max_sigma: Some(f64::MAX),
        ..Gate::default()
    };
    assert_eq!(point(g, nan, nan), 5);
    // A multiple of a floor that is not known.
    let noise = Gate {
        max_delta: Some(MaxDelta::Noise(3.0)),
        ..Gate::default()
    };
    assert_eq!(point(noise, 0.0, 0.0), 1);
    let bad = Gate {
        max_delta_pct: Some(nan),
        ..Gate::default()
    };
    assert_eq!(point(bad, 0.0, 0.0), 1);
    assert!(bad.check().is_err());
    let negative = Gate {
        max_increase_pct: Some(-1.0),
        ..Gate::default()
    };
    assert!(negative.check().is_err());
}

/// Windows of 100 tokens whose differences have this mean and error: half a
/// token-sum of it above, half below.
fn windows(n: usize, mean: f64, se: f64) -> (Vec<WindowRow>, Vec<WindowRow>) {
    // With ±s on n windows, se² = n/(n−1) · Σ s² / (100 n)².
    let s = se * 100.0 * ((n - 1) as f64).sqrt();
    let row = |window, nll_sum| WindowRow {
        window,
        scored: 100,
        nll_sum,
        target_bytes: 0,
    };
    let a = (0..n).map(|w| row(w, 300.0)).collect();
    let moved = |w: usize| 300.0 + 100.0 * mean + if w.is_multiple_of(2) { s } else { -s };
    (a, (0..n).map(|w| row(w, moved(w))).collect())
}

fn by_interval(gate: Gate, mean: f64, se: f64) -> Judgement {
    let (a, b) = windows(20, mean, se);
    let p = paired(&a, &b).unwrap();
    assert!((p.mean - mean).abs() < 1e-9 && (p.se / se - 1.0).abs() < 1e-6);
    gate.judge(Measured {
        paired: Some(&p),
        corpus_windows: Some(400),
        ..measured(100.0 * mean.exp_m1(), p.t())
    })
}

/// t(0.975) of 19 degrees of freedom, from a table.
const T: f64 = 2.093_024;

/// The verdict turns where an end of the interval crosses the bound, and nowhere
/// else.
#[test]
fn intervals_are_held_against_bounds_at_their_borders() {
    let se = 1e-3;
    let verdict = |gate: Gate, mean: f64| {
        let j = by_interval(gate, mean, se);
        (j.broken.len(), j.undecided.len())
    };
    let (pass, fail, open) = ((0, 0), (1, 0), (0, 1));
    let nats = Gate {
        max_delta: Some(MaxDelta::Nats(0.01)),
        ..Gate::default()
    };
    let percent = Gate {
        max_delta_pct: Some(1.0),
        ..Gate::default()
    };
    // ± 1 % is from ln 0.99 to ln 1.01.
    for (gate, low, high) in [(nats, -0.01, 0.01), (percent, 0.99f64.ln(), 1.01f64.ln())] {
        let h = T * se;
        for (mean, want) in [
            (0.0, pass),
            (high - h - 1e-6, pass),
            (high - h + 1e-6, open),
            (high, open),
            (high + h - 1e-6, open),
            (high + h + 1e-6, fail),
            (low + h + 1e-6, pass),
            (low + h - 1e-6, open),
            (low - h + 1e-6, open),
            (low - h - 1e-6, fail),
        ] {
            assert_eq!(verdict(gate, mean), want, "{gate:?} {mean}");
        }
    }
    let increase = Gate {
        max_increase: Some(MaxDelta::Nats(0.01)),
        max_increase_pct: Some(5.0),
        ..Gate::default()
    };
    let h = T * se;
    assert_eq!(verdict(increase, -3.0), pass);
    assert_eq!(verdict(increase, 0.01 - h - 1e-6), pass);
    assert_eq!(verdict(increase, 0.01 - h + 1e-6), open);
    assert_eq!(verdict(increase, 0.01 + h + 1e-6), fail);
    // What is undecided says what would decide it.
    let text = &by_interval(percent, 0.009, se).undecided[0];
    assert!(
        text.starts_with("Δ from +0.6931 % to +1.1155 % (95 %), across ±1 %: some ")
            && text.ends_with("; the corpus has 400"),
        "{text}"
    );
}

/// The advice by hand: a distance of d needs `n = ((t(0.975) + t(0.8)) · s / d)²`
/// windows of error s each, nearly the normal quantiles for many.
#[test]
fn the_advised_number_of_windows_resolves_the_distance() {
    let (a, b) = windows(20, 0.009, 1e-3);
    let p = paired(&a, &b).unwrap();
    let n = p.windows_to_decide(-0.01, 0.01).unwrap() as f64;
    let one = 1e-3 * 20f64.sqrt();
    let normal = ((1.959_964 + 0.841_621) * one / 0.001).powi(2);
    assert!((n / normal - 1.0).abs() < 0.02, "{n} {normal}");
    // Never fewer than there are; none where the difference is on the bound.
    assert_eq!(p.windows_to_decide(-1.0, 1.0), Some(20));
    assert_eq!(p.windows_to_decide(f64::NEG_INFINITY, p.mean), None);
}

/// How often a gate of ± `bound` passes, leaves open and fails what truly differs by
/// `mean`, in experiments of `n` windows whose token-means scatter by `scatter`.
fn rates(seed: u64, n: usize, mean: f64, scatter: f64, bound: f64) -> [f64; 3] {
    const EXPERIMENTS: usize = 4000;
    let mut rng = Normal::new(seed);
    let gate = Gate {
        max_delta: Some(MaxDelta::Nats(bound)),
        ..Gate::default()
    };
    let mut counts = [0usize; 3];
    for _ in 0..EXPERIMENTS {
        let row = |window, nll_sum| WindowRow {
            window,
            scored: 100,
            nll_sum,
            target_bytes: 0,
        };
        let a: Vec<WindowRow> = (0..n).map(|w| row(w, 300.0)).collect();
        let mut moved = |w| row(w, 300.0 + 100.0 * (mean + scatter * rng.next()));
        let b: Vec<WindowRow> = (0..n).map(&mut moved).collect();
        let p = paired(&a, &b).unwrap();
        let j = gate.judge(Measured {
            paired: Some(&p),
            ..measured(100.0 * p.mean.exp_m1(), p.t())
        });
        let i = match (j.broken.is_empty(), j.undecided.is_empty()) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        };
        counts[i] += 1;
    }
    counts.map(|c| c as f64 / EXPERIMENTS as f64)
}

/// Three standard errors of a rate of 4000 experiments.
fn noise(rate: f64) -> f64 {
    3.0 * (rate * (1.0 - rate) / 4000.0).sqrt()
}

/// A change that is just as large as the bound passes in 2.5 % of experiments, and
/// fails in as many: the two one-sided tests have their size.
#[test]
fn at_the_bound_neither_verdict_is_given_beyond_its_level() {
    for (seed, n, mean) in [(1, 30, 0.01), (2, 30, -0.01), (3, 8, 0.01), (4, 200, 0.01)] {
        // The bound is far enough from its other side for that not to matter.
        let [pass, _, fail] = rates(seed, n, mean, 0.01, 0.01);
        for (what, rate) in [("pass", pass), ("fail", fail)] {
            assert!(
                (rate - 0.025).abs() < noise(0.025),
                "{n} {mean}: {what} {rate}"
            );
        }
    }
    // Where the interval is too wide to lie within at all, nothing passes.
    let [pass, open, _] = rates(5, 8, 0.0, 0.1, 0.01);
    assert!(pass < 0.01 && open > 0.9, "{pass} {open}");
}

/// At a distance of `(t(0.975) + t(0.8)) · se` from the bound, which is what the advised
/// number of windows is made for, four of five experiments decide.
#[test]
fn the_power_is_what_the_advice_says() {
    let resolved = |n: usize| {
        let t = Student::new(n - 1).unwrap();
        (t.quantile(0.975) + t.quantile(0.8)) / (n as f64).sqrt()
    };
    for (seed, n) in [(6, 20), (7, 60)] {
        let scatter = 0.01;
        let distance = resolved(n) * scatter;
        let [pass, ..] = rates(seed, n, 0.05 - distance, scatter, 0.05);
        let [.., fail] = rates(seed + 10, n, 0.05 + distance, scatter, 0.05);
        for rate in [pass, fail] {
            assert!((rate - 0.8).abs() < noise(0.8) + 0.005, "{n}: {rate}");
        }
    }
}

/// Real windows: SmolLM2-135M Q4_1 on corpora/on-measuring.txt in windows of 64, sums of
/// NLL in exact arithmetic and with 8-bit activations, as pplx measured them.
const EXACT_AND_Q8: &str = include_str!("../../../tests/fixtures/exact_and_q8.csv");

#[test]
fn the_advised_windows_decide_on_real_data() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (window, line) in EXACT_AND_Q8.lines().skip(1).enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let row = |cell: &str| WindowRow {
            window,
            scored: cells[0].parse().unwrap(),
            nll_sum: cell.parse().unwrap(),
            target_bytes: 0,
        };
        a.push(row(cells[1]));
        b.push(row(cells[2]));
    }
    let gate = Gate {
        max_delta_pct: Some(1.0),
        ..Gate::default()
    };
    let judged = |n: usize| {
        let p = paired(&a[..n], &b[..n]).unwrap();
        let j = gate.judge(Measured {
            paired: Some(&p),
            ..measured(100.0 * p.mean.exp_m1(), p.t())
        });
        let (least, most) = (0.99f64.ln(), 1.01f64.ln());
        (j, p.windows_to_decide(least, most).unwrap())
    };
    let (open, advised) = judged(20);
    assert!(open.broken.is_empty() && open.undecided.len() == 1);
    assert!((40..=a.len()).contains(&advised), "{advised}");
    let (decided, _) = judged(advised);
    assert_eq!(decided, Judgement::default());
}
