//! Notes beside a figure, from the library and from `pplx score`.

use std::path::Path;

use pplx::eval::{Geometry, Limits};
use pplx::gguf::Value;
use pplx::run::{LoadedModel, Settings, remarks};
use pplx::tokenizer::Options;

use super::project::Project;
use crate::support::tiny::{BOS, Tiny, ids, text};

fn settings(bos: Option<u32>) -> Settings {
    Settings {
        geometry: Geometry::llama_cpp(32),
        limits: Limits::default(),
        bos,
        batch: None,
    }
}

fn notes(tiny: &Tiny, tokens: &[u32], settings: &Settings) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.gguf");
    tiny.write(&path);
    loaded(&path, |m| remarks(m, tokens, settings))
}

fn loaded<T>(path: &Path, f: impl FnOnce(&LoadedModel) -> T) -> T {
    f(&LoadedModel::open(path, &Options::default(), 1).unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn nothing_is_said_of_what_is_usual() {
    let with_bos: Vec<u32> = [vec![BOS], ids(200)].concat();
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        for tokens in [&with_bos, &ids(200)] {
            let none: Vec<String> = Vec::new();
            assert_eq!(notes(&tiny, tokens, &settings(Some(BOS))), none);
        }
    }
    // A Llama may do without.
    assert!(notes(&Tiny::llama(), &ids(200), &settings(None)).is_empty());
}

#[test]
fn bos_twice_and_no_bos() {
    let twice: Vec<u32> = [vec![BOS, BOS], ids(200)].concat();
    assert_eq!(
        notes(&Tiny::llama(), &twice, &settings(Some(BOS))),
        ["the corpus begins with BOS (1) twice: its own, and the one that is added"]
    );
    let without = "no BOS is added, but gemma3 models are trained with it: the figure means little";
    assert_eq!(
        notes(&Tiny::gemma3(), &ids(200), &settings(None)),
        [without]
    );
    // One BOS before all windows is not one before each.
    let once: Vec<u32> = [vec![BOS], ids(200)].concat();
    assert_eq!(notes(&Tiny::gemma3(), &once, &settings(None)), [without]);
    let strided = Settings {
        geometry: Geometry::llama_cpp_strided(32, 8),
        ..settings(None)
    };
    assert!(notes(&Tiny::gemma3(), &once, &strided).is_empty());
    assert_eq!(notes(&Tiny::gemma3(), &ids(200), &strided), [without]);
}

#[test]
fn tokens_without_text() {
    let mut tokens = ids(64);
    // In the second window's scored half, its first half, and beyond all windows.
    tokens[32 + 20] = 2;
    tokens[32 + 4] = 2;
    let one = "1 of the scored tokens stand for no text (control or unknown tokens): they count in \
               the PPL, and in bits per byte as NLL without bytes";
    assert_eq!(notes(&Tiny::llama(), &tokens, &settings(Some(BOS))), [one]);
    tokens[32 + 20] = 3;
    assert!(notes(&Tiny::llama(), &tokens, &settings(Some(BOS))).is_empty());
}

#[test]
fn weights_that_are_all_zero() {
    let zero = |tiny: Tiny, part: &str| tiny.edit(part, |values| values.fill(0.0));
    let settings = settings(Some(BOS));
    assert_eq!(
        notes(&zero(Tiny::llama(), "ffn_up.weight"), &ids(200), &settings),
        ["3 tensors of the model are all zero, first 'blk.0.ffn_up.weight': is the file complete?"]
    );
    assert_eq!(
        notes(&zero(Tiny::llama(), "output.weight"), &ids(200), &settings),
        ["1 tensor of the model is all zero, first 'output.weight': is the file complete?"]
    );
    let norms = notes(
        &zero(Tiny::gemma3(), "output_norm.weight"),
        &ids(200),
        &settings,
    );
    assert!(norms[0].contains("'output_norm.weight'"), "{norms:?}");
    // Biases are often zero, and one value that is not makes a tensor whole.
    let biased = (0..3).fold(Tiny::llama(), |t, i| {
        t.tensor(&format!("blk.{i}.attn_q.bias"), &[32], vec![0.0; 32])
    });
    assert!(notes(&biased, &ids(200), &settings).is_empty());
    let last = Tiny::llama().edit("output.weight", |values| {
        values.fill(0.0);
        *values.last_mut().unwrap() = 1.0;
    });
    assert!(notes(&last, &ids(200), &settings).is_empty());
}

#[test]
fn a_window_that_is_not_applied() {
    // Four layers see all, whatever their key says; 32 tokens are more than 16.
    let stated = |n| Value::U32(n);
    let tiny = |n| exaone().set("attention.sliding_window", stated(n));
    let told = notes(&tiny(16), &ids(200), &settings(Some(BOS)));
    assert_eq!(
        told,
        ["the model's sliding window of 16 is not applied, as in llama.cpp"]
    );
    assert!(notes(&tiny(32), &ids(200), &settings(Some(BOS))).is_empty());
}

/// A Gemma 3 of the tests in EXAONE 4's clothes: norms after the blocks only.
fn exaone() -> Tiny {
    let gemma = Tiny::gemma3();
    let mut tiny = Tiny::new("exaone4", 0, 0, 0);
    tiny.meta = gemma.meta.clone();
    for (key, _) in &mut tiny.meta {
        *key = key.replace("gemma3.", "exaone4.");
    }
    tiny.tensors = gemma.tensors;
    tiny.tensors
        .retain(|t| !t.0.contains(".attn_norm.") && !t.0.contains(".ffn_norm."));
    tiny.unset("rope.freq_base_swa")
}

#[test]
fn score_says_so_in_text_and_json() {
    let project = Project::new();
    let usual = project.pplx(&["score", "m/llama.gguf", "-f", "c/t.txt", "-c", "32"]);
    assert!(!usual.good().contains("note"));
    let special = format!("<s>{} </s> {}", text(300), text(300));
    project.write("c/special.txt", &special);
    let line = [
        "score",
        "m/llama.gguf",
        "-f",
        "c/special.txt",
        "-c",
        "32",
        "--parse-special",
        "--unscored-prefix",
        "1",
    ];
    let text = project.pplx(&line).good();
    assert!(
        text.contains("\nnote      the corpus begins with BOS (1) twice"),
        "{text}"
    );
    // </s>, and the second <s>, which is scored as well.
    assert!(
        text.contains("\nnote      2 of the scored tokens stand for no text"),
        "{text}"
    );
    let json = project.pplx(&[&line[..], &["--json"]].concat()).good();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["notes"].as_array().map(Vec::len), Some(2), "{json}");
    let gemma = project.pplx(&[
        "score",
        "m/gemma3.gguf",
        "-f",
        "c/t.txt",
        "-c",
        "32",
        "--no-bos",
    ]);
    assert!(
        gemma
            .good()
            .contains("\nnote      no BOS is added, but gemma3")
    );
}

/// Where the vocabulary has it: bytes, as SentencePiece falls back to.
#[test]
fn a_byte_order_mark() {
    let project = Project::new();
    with_bytes(Tiny::llama()).write(project.path("m/bytes.gguf"));
    project.write("c/bom.txt", &format!("\u{feff}{}", text(500)));
    for (corpus, told) in [("c/bom.txt", true), ("c/t.txt", false)] {
        let out = project.pplx(&["score", "m/bytes.gguf", "-f", corpus, "-c", "32"]);
        let out = out.good();
        let note = "\nnote      the corpus begins with a byte order mark (U+FEFF)";
        assert_eq!(out.contains(note), told, "{out}");
    }
}

/// The vocabulary with the bytes of U+FEFF in place of three letters' merges.
fn with_bytes(tiny: Tiny) -> Tiny {
    use pplx::gguf::Array;
    let mut tokens = crate::support::tiny::vocabulary();
    let n = tokens.len();
    for (token, byte) in tokens[n - 3..]
        .iter_mut()
        .zip(["<0xEF>", "<0xBB>", "<0xBF>"])
    {
        *token = byte.to_owned();
    }
    let kinds = (0..n).map(|id| match id {
        0 => 2,
        1 | 2 => 3,
        id if id >= n - 3 => 6,
        _ => 1,
    });
    tiny.tokenizer("tokens", Value::Array(Array::String(tokens)))
        .tokenizer("token_type", Value::Array(Array::I32(kinds.collect())))
}
