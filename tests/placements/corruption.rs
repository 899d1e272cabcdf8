//! What the perplexity at the end can tell of an error at a cut.

use pplx::backend::{CPU, Hidden, Partition};
use pplx::eval::{Feed, Geometry, Limits, Moments, WindowPlan, WindowScore};

use super::probe::{Probe, score_on};
use crate::support::{SMOLLM2, cpu, ids, model, shared};

/// Mean over tokens of `a − b`, and its standard error.
fn difference(a: &[WindowScore], b: &[WindowScore]) -> (f64, f64) {
    let nll =
        |scores: &[WindowScore]| -> Vec<f64> { scores.iter().flat_map(WindowScore::nll).collect() };
    let differences = nll(a).into_iter().zip(nll(b)).map(|(a, b)| a - b);
    let moments: Moments = differences.collect();
    let variance = moments.m2 / (moments.n - 1) as f64;
    (moments.mean, (variance / moments.n as f64).sqrt())
}

/// The curve of `docs/placements.md`: `--nocapture` prints it.
#[test]
fn alternating_errors_show_and_a_uniform_scale_hardly_does() {
    let Some(path) = model(SMOLLM2) else { return };
    let Some(tokens) = shared("reference/smollm2-q4_1.tokens") else {
        return;
    };
    let (cpu, tokens) = (cpu(&path, 0), ids(&tokens));
    let limits = Limits {
        windows: Some(4),
        max_tokens: None,
    };
    let plan = WindowPlan::new(tokens.len(), Geometry::llama_cpp(256), limits).unwrap();
    let feed = Feed {
        bos: None,
        batch: 4,
    };
    // In the middle of the 30 layers, and before the last one.
    for cut in [15, 29] {
        let run = |factor: &(dyn Fn(usize) -> f32 + Sync)| {
            let after = |end: usize, hidden: &mut Hidden| {
                if end == cut {
                    let values = hidden.data.iter_mut().enumerate();
                    values.for_each(|(i, x)| *x *= factor(i));
                }
            };
            let probe = Probe {
                cpu: &cpu,
                leaks: false,
                after: &after,
            };
            let partition = Partition::cycle(CPU, 30, cut);
            score_on(&probe, partition, &tokens, &plan, feed, u64::MAX)
        };
        let exact = run(&|_| 1.0);
        let mut last = ((0.0, 0.0), (0.0, 0.0));
        for percent in [0.5, 1.0, 2.0, 5.0] {
            let e = percent / 100.0;
            let alternating = run(&|i| if i % 2 == 0 { 1.0 + e } else { 1.0 - e });
            let uniform = run(&|_| 1.0 + e);
            let (a, u) = (
                difference(&alternating, &exact),
                difference(&uniform, &exact),
            );
            println!(
                "cut {cut}, {percent} %: alternating {:+.6} ± {:.6}, uniform {:+.6} ± {:.6}",
                a.0, a.1, u.0, u.1
            );
            last = (a, u);
        }
        let ((alternating, error), (uniform, uniform_error)) = last;
        assert!(alternating > 2.0 * error, "{alternating} ± {error}");
        assert!(
            uniform.abs() < 2.0 * uniform_error && uniform.abs() < alternating / 2.0,
            "{uniform} ± {uniform_error} against {alternating}"
        );
    }
}
