//! Against llama.cpp: per-token figures of its own, made as
//! `../shared/reference/README.md` and `../shared/arch/README.md` say.

use std::path::Path;

use crate::support::{
    GEMMA3, SMOLLM2, cpu, differences, ids, model, rows, score, shared, token_nlls,
};
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{Geometry, Mode};
use pplx::gguf::Gguf;
use pplx::tokenizer::{Options, Tokenizer};

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

/// Runs a test of this binary on its own.
fn alone(test: &str, environment: &[(&str, &str)]) -> (bool, String) {
    let mut command = std::process::Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", test]).env_remove("PPLX_REQUIRE");
    command.envs(environment.iter().copied());
    let out = command.output().expect("the tests run");
    let text = [out.stdout, out.stderr].concat();
    (
        out.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_skip_is_said_and_fails_where_it_is_asked_for() {
    let nowhere = ("PPLX_SHARED", "/nonexistent");
    let with = |list| {
        alone(
            "parity::architecture_suite",
            &[nowhere, ("PPLX_REQUIRE", list)],
        )
    };
    let missing = "/nonexistent/arch is missing";
    for list in ["", "smollm2", "models, nvrtc"] {
        let (passed, text) = with(list);
        assert!(passed, "{list}: {text}");
        let line = format!("SKIPPED (shared): engine::parity::architecture_suite: {missing}");
        assert!(text.contains(&line), "{text}");
    }
    for list in ["shared", "all", "models,shared"] {
        let (passed, text) = with(list);
        assert!(!passed, "{list}");
        let why = format!("{missing} (PPLX_REQUIRE asks for shared)");
        assert!(text.contains(&why), "{text}");
    }
    let (passed, text) = with("shard");
    assert!(
        !passed && text.contains("PPLX_REQUIRE: 'shard' is none of shared,"),
        "{text}"
    );
}

#[test]
fn the_suite_ends_with_the_number_of_skips() {
    let notes = "7\tshared\ta::x\tr\n7\tshared\ta::x\tr\n7\tgpu\tb::y\tr\n8\tgpu\tb::z\tr\nhalf";
    let text = crate::support::skip::summary(notes, 7);
    assert!(text.starts_with("SKIPPED: 2 tests, "), "{text}");
    assert!(
        text.contains("\n  shared: 1 for want of llama.cpp's figures"),
        "{text}"
    );
    assert!(
        text.contains("\n    b::y") && !text.contains("b::z"),
        "{text}"
    );
    assert_eq!(crate::support::skip::summary("", 7), "SKIPPED: no test");
}

/// The reference that is kept here: llama.cpp's ids of a text of this repository,
/// and every token of windows of it.
#[test]
fn smollm2_on_a_text_of_ours() {
    let Some(path) = model(SMOLLM2) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let figures = |name: &str| root.join("tests/fixtures/reference").join(name);
    let tokens = ids(&figures("smollm2-on-measuring.ids"));
    let gguf = Gguf::open(&path).expect("a model");
    let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &Options::default());
    let corpus = root.join("corpora/on-measuring.txt");
    let ours = tokenize_file(&corpus, &tokenizer.expect("a tokenizer"), DEFAULT_CHUNK);
    assert_eq!(ours.expect("ids").ids, tokens);
    let cpu = cpu(&path, 2);
    for (n_ctx, windows) in [(256, 6), (1024, 1)] {
        let mode = Mode::SlidingWindow {
            stride: n_ctx,
            unscored_prefix: 1,
        };
        let scores = score(&cpu, &tokens, Geometry { n_ctx, mode }, windows, None, 6);
        let want = token_nlls(&figures(&format!("smollm2-on-measuring.ctx{n_ctx}.csv")));
        let (max, mean) = differences(&rows(&tokens, &scores), &want);
        println!("context {n_ctx}: max {max:.2e} mean {mean:.2e}");
        assert!(
            max < 1e-4 && mean < 1e-6,
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
