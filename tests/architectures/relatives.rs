//! Tiny models of architectures that have no other reference, against llama.cpp's
//! per-token figures for them. `fixtures/relatives/make.py` makes both.

use std::path::{Path, PathBuf};

use super::fixtures::{EXACT, GELU_TABLE};
use crate::support::{cpu, differences, ids, rows, score, token_nlls};
use pplx::eval::{Geometry, Mode};

/// All targets of windows of 64.
const GEOMETRY: Geometry = Geometry {
    n_ctx: 64,
    mode: Mode::SlidingWindow {
        stride: 64,
        unscored_prefix: 1,
    },
};
const WINDOWS: usize = 2;

/// llama.cpp looks tanh-GELU up in a half-precision table, which moves single
/// tokens.
const GELU: [&str; 3] = ["codeshell", "phi2", "starcoder"];

/// The models, by name. `PPLX_RELATIVES` adds a directory of ones too large to keep.
pub fn cases() -> Vec<PathBuf> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/relatives");
    let directories = [
        Some(kept),
        std::env::var_os("PPLX_RELATIVES").map(PathBuf::from),
    ];
    let mut models: Vec<PathBuf> = directories
        .iter()
        .flatten()
        .flat_map(|directory| std::fs::read_dir(directory).expect("a directory"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    models.sort();
    models
}

/// Largest difference of a token and difference of the means, and the bounds they
/// must stay below.
pub fn errors(path: &Path) -> ((f64, f64), (f64, f64)) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/relatives");
    let tokens = ids(&directory.join("ids.txt"));
    let scores = score(&cpu(path, 1), &tokens, GEOMETRY, WINDOWS, None, WINDOWS);
    let reference = token_nlls(&path.with_extension("csv"));
    let has_gelu = GELU
        .iter()
        .any(|n| path.file_stem().is_some_and(|s| s == *n));
    let bounds = match has_gelu {
        true => (GELU_TABLE, 5e-4),
        false => (EXACT, 5e-6),
    };
    (differences(&rows(&tokens, &scores), &reference), bounds)
}

#[test]
fn every_relative_matches_llama_cpp() {
    let models = cases();
    assert!(models.len() >= 43, "only {} models", models.len());
    let mut failures = Vec::new();
    for path in models {
        let name = path.file_stem().and_then(|n| n.to_str()).expect("a name");
        let ((max, mean), bounds) = errors(&path);
        println!("{name:16} max {max:.2e} mean {mean:.2e}");
        if max.is_nan() || max >= bounds.0 || mean >= bounds.1 {
            failures.push(format!("{name}: max {max:.2e}, mean {mean:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
