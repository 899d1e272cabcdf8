//! Against llama.cpp: per-token figures of its own, made as
//! `../shared/reference/README.md` and `../shared/arch/README.md` say.

mod support;

use pplx::eval::{Geometry, Mode};
use support::{GEMMA3, SMOLLM2, cpu, differences, ids, model, rows, score, shared, token_nlls};

/// The suite's geometry: all targets of windows of 64.
const SUITE: Geometry = Geometry {
    n_ctx: 64,
    mode: Mode::SlidingWindow {
        stride: 64,
        unscored_prefix: 1,
    },
};

#[test]
fn architecture_suite() {
    let Some(root) = shared("arch") else { return };
    let tokens = ids(&root.join("ids.txt"));
    let supported = pplx::model::supported_architectures();
    let mut index = csv::Reader::from_path(root.join("INDEX.csv")).expect("an index");
    let mut cases = 0;
    let mut beyond = Vec::new();
    for case in index.records() {
        let case = case.expect("a row");
        let (name, architecture) = (&case[0], &case[1]);
        if !supported.contains(&architecture) {
            continue;
        }
        cases += 1;
        let cpu = cpu(&root.join(format!("{name}.gguf")), 2);
        let bos = (name == "llama_tied_bos").then_some(1);
        let scores = score(&cpu, &tokens, SUITE, 4, bos, 4);
        let reference = token_nlls(&root.join(format!("{name}.csv")));
        let (max, mean) = differences(&rows(&tokens, &scores), &reference);
        println!("{name:24} max {max:.2e} mean {mean:.2e}");
        if max >= 1e-4 || mean >= 5e-6 {
            beyond.push(format!("{name}: max {max:e}, mean {mean:e}"));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
    assert_eq!(cases, 89, "cases of the suite");
}

fn exact(file: &str, reference: &str, bos: Option<u32>) {
    let Some(path) = model(file) else { return };
    let Some(root) = shared("reference") else {
        return;
    };
    let tokens = ids(&root.join(format!("{reference}.tokens")));
    let cpu = cpu(&path, 2);
    for (n_ctx, windows) in [(256, 8), (512, 8), (2048, 2)] {
        let scores = score(&cpu, &tokens, Geometry::llama_cpp(n_ctx), windows, bos, 8);
        let want = token_nlls(&root.join(format!("{reference}.exact.ctx{n_ctx}.csv")));
        let (max, mean) = differences(&rows(&tokens, &scores), &want);
        println!("{reference} {n_ctx}: max {max:.2e} mean {mean:.2e}");
        assert!(
            max < 2e-3 && mean < 2e-5,
            "{n_ctx}: max {max:e}, mean {mean:e}"
        );
    }
}

#[test]
fn smollm2_exact() {
    exact(SMOLLM2, "smollm2-q4_1", None);
}

#[test]
fn gemma3_exact() {
    exact(GEMMA3, "gemma3-q4_k_m", Some(2));
}
