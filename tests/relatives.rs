//! Tiny models of architectures that have no other reference, against llama.cpp's
//! per-token figures for them. `fixtures/relatives/make.py` makes both.

mod support;

use std::path::{Path, PathBuf};

use pplx::eval::{Geometry, Mode};
use support::{cpu, differences, ids, rows, score, token_nlls};

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

/// The models, by name. `PPLX_RELATIVES` adds a folder of ones too large to keep.
fn cases() -> Vec<PathBuf> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/relatives");
    let folders = [
        Some(kept),
        std::env::var_os("PPLX_RELATIVES").map(PathBuf::from),
    ];
    let mut models: Vec<PathBuf> = folders
        .iter()
        .flatten()
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    models.sort();
    models
}

#[test]
fn every_model_matches_llama_cpp() {
    let models = cases();
    assert!(models.len() >= 34, "only {} models", models.len());
    let tokens =
        ids(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/relatives/ids.txt"));
    let mut failures = Vec::new();
    for path in models {
        let name = path.file_stem().and_then(|n| n.to_str()).expect("a name");
        let scores = score(&cpu(&path, 1), &tokens, GEOMETRY, WINDOWS, None, WINDOWS);
        let reference = token_nlls(&path.with_extension("csv"));
        let (max, mean) = differences(&rows(&tokens, &scores), &reference);
        println!("{name:16} max {max:.2e} mean {mean:.2e}");
        let bounds = match GELU.contains(&name) {
            true => (1e-2, 5e-4),
            false => (1e-4, 5e-6),
        };
        if max.is_nan() || max >= bounds.0 || mean >= bounds.1 {
            failures.push(format!("{name}: max {max:.2e}, mean {mean:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
