//! Against llama.cpp's per-token figures, which are committed:
//!
//! ```text
//! ORACLE_PYTHON=.oracle/bin/python cargo test --release --test engine regenerate -- --ignored
//! ```
//!
//! makes them anew; the Python needs the packages `llama-cpp-python` and `numpy`.

use std::process::Command;

use pplx::model::{Activation, Ffn, Mixer, Model};

use crate::cases::{CASES, Case, GEOMETRY, N_CTX, N_WINDOWS, bos, fixtures, tokens};
use crate::support::{differences, rows, score, token_nlls};

/// Largest difference per token.
pub const EXACT: f64 = 1e-4;
/// The same where llama.cpp looks GELU up in a table of half-precision values.
pub const GELU_TABLE: f64 = 1e-2;

pub fn bound(model: &Model) -> f64 {
    let is_gelu = |f: &Ffn| f.activation == Activation::GeluTanh;
    let blocks = model.layers.iter().flat_map(|l| &l.blocks);
    let mut mixers = blocks.flat_map(|b| &b.branches).map(|b| &b.mixer);
    match mixers.any(|m| matches!(m, Mixer::Ffn(f) if is_gelu(f))) {
        true => GELU_TABLE,
        false => EXACT,
    }
}

/// Largest difference from llama.cpp, and that of the means.
pub fn errors(case: &Case) -> (f64, f64) {
    let (tiny, tokens) = ((case.build)(), tokens());
    let scores = score(&tiny.cpu(1), &tokens, GEOMETRY, N_WINDOWS, bos(&tiny), 1);
    let expected = token_nlls(&fixtures().join(format!("{}.csv", case.name)));
    differences(&rows(&tokens, &scores), &expected)
}

#[test]
fn every_token_is_llama_cpps() {
    let mut wrong = Vec::new();
    for case in CASES {
        let bound = bound(&(case.build)().model().unwrap_or_else(|e| panic!("{e}")));
        let (max, mean) = errors(case);
        println!("{:24} max {max:.1e} mean {mean:.1e}", case.name);
        if max > bound || mean > bound / 10.0 {
            wrong.push(format!("{}: max {max:.1e}, mean {mean:.1e}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs llama.cpp; see the module's documentation"]
fn regenerate() {
    let python = std::env::var_os("ORACLE_PYTHON").expect("ORACLE_PYTHON names a Python");
    let directory = tempfile::tempdir().unwrap();
    let ids: Vec<String> = tokens().iter().map(|id| format!("{id}\n")).collect();
    std::fs::write(directory.path().join("tokens.txt"), ids.concat()).unwrap();
    for case in CASES {
        (case.build)().write(directory.path().join(format!("{}.gguf", case.name)));
    }
    let status = Command::new(python)
        .arg(fixtures().join("llama_nll.py"))
        .arg(directory.path())
        .arg(N_CTX.to_string())
        .arg(fixtures())
        .status();
    assert!(status.expect("Python runs").success());
}
