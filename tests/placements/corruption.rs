//! What the perplexity at the end can tell of an error at a cut.

use pplx::backend::{Device, Hidden, Partition};
use pplx::eval::{Feed, Geometry, Limits, WindowPlan, WindowScore};

use crate::probe::{Probe, score_on};
use crate::support::{SMOLLM2, cpu, ids, model, shared};

fn mean(scores: &[WindowScore]) -> f64 {
    let n: usize = scores.iter().map(|s| s.nll.len()).sum();
    scores.iter().map(WindowScore::nll_sum).sum::<f64>() / n as f64
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
    let run = |factor: &(dyn Fn(usize) -> f32 + Sync)| {
        let after = |end: usize, hidden: &mut Hidden| {
            if end == 15 {
                let values = hidden.data.iter_mut().enumerate();
                values.for_each(|(i, x)| *x *= factor(i));
            }
        };
        let probe = Probe {
            cpu: &cpu,
            leaks: false,
            after: &after,
        };
        let partition = Partition::cycle(Device::Cpu, 30, 15);
        mean(&score_on(&probe, partition, &tokens, &plan, feed, u64::MAX))
    };
    let exact = run(&|_| 1.0);
    println!("exact: mean NLL {exact:.6}");
    let mut last = (0.0, 0.0);
    for percent in [0.5, 1.0, 2.0, 5.0] {
        let e = percent / 100.0;
        let alternating = run(&|i| if i % 2 == 0 { 1.0 + e } else { 1.0 - e }) - exact;
        let uniform = run(&|_| 1.0 + e) - exact;
        println!("{percent} %: alternating {alternating:+.6}, uniform {uniform:+.6}");
        last = (alternating.abs(), uniform.abs());
    }
    let (alternating, uniform) = last;
    assert!(alternating > 2e-3, "{alternating}");
    assert!(
        uniform < alternating / 2.0,
        "{uniform} against {alternating}"
    );
}
