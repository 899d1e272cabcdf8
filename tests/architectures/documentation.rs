//! `docs/models.md` is written from the cases, from what they build, and from
//! what was measured here; `PPLX_REGENERATE=1 cargo test --release --test
//! architectures documentation` writes it anew.

use std::collections::BTreeMap;
use std::path::Path;

use pplx::model::{Model, supported_architectures};

use super::fixtures::{EXACT, GELU_TABLE, bound, errors};
use super::refusals::REFUSALS;
use super::relatives;
use crate::cases::{CASES, fixtures};

/// What an architecture's cases come to.
#[derive(Default)]
struct Row {
    /// In order of appearance.
    kinds: Vec<&'static str>,
    n_cases: usize,
    largest: f64,
    bound: f64,
}

fn rows() -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::<String, Row>::new();
    let mut add = |model: Model, error: f64, bound: f64| {
        let row = rows.entry(model.architecture.clone()).or_default();
        for kind in model.layer_kinds().into_iter().flat_map(|(kinds, _)| kinds) {
            if !row.kinds.contains(&kind) {
                row.kinds.push(kind);
            }
        }
        row.n_cases += 1;
        row.largest = row.largest.max(error);
        row.bound = row.bound.max(bound);
    };
    for case in CASES {
        let model = (case.build)().model().unwrap_or_else(|e| panic!("{e}"));
        let bound = bound(&model);
        add(model, errors(case).0, bound);
    }
    for path in relatives::cases() {
        let ((max, _), (bound, _)) = relatives::errors(&path);
        add(
            Model::open(&path).unwrap_or_else(|e| panic!("{e}")),
            max,
            bound,
        );
    }
    rows
}

fn document() -> String {
    let version = std::fs::read_to_string(fixtures().join("version.txt")).unwrap();
    let mut out = format!(
        "# Models

<!-- Written by the test-suite (tests/architectures/documentation.rs): edit it there. -->

A model file can be scored if its architecture is one of these, every tensor in it is one that the architecture uses, and every hyper-parameter is understood. `pplx inspect FILE` says so at once, or says what is missing.

## Architectures

The cases are models of a few kB with random weights, made by `tests/support/cases` or kept in `tests/fixtures/relatives` (two windows of 64 tokens; `make.py` there makes them and their figures). For the former, the hyper-parameters make each feature show: tests turn every feature off and see the figures of its case move, on the mean by more than 1e-3 and on one token by more than twice the bound that follows. The error is the largest |Δ NLL| of one token, in nats, against llama.cpp ({version}; F32 weights and KV cache, no flash attention) over two windows of 32 tokens, every position scored. It must stay below {EXACT:.0e}. `tests/architectures/fixtures.rs` names the command that makes llama.cpp's figures anew.

Where the error is marked with *, the network has a GELU. A stock llama.cpp looks that up in a table of half-precision values, and the bound is {GELU_TABLE:.0e}.

The 89 larger models of `../shared/arch`, whose reference has no such table, are compared where that directory is present (`tests/parity.rs`): all within 1e-4 per token.

| architecture | layer kinds | cases | largest error |
| --- | --- | --- | --- |
",
        version = version.trim(),
    );
    for (name, row) in rows() {
        let mark = if row.bound > EXACT { "*" } else { "" };
        out += &format!(
            "| {name} | {} | {} | {:.0e}{mark} |\n",
            row.kinds.join(", "),
            row.n_cases,
            row.largest
        );
    }
    out += &format!(
        "
Supported, but with a case too large to keep here (`tests/fixtures/relatives/make.py` makes it): {}.
",
        NOT_KEPT.join(", ")
    );
    out += "
## What is left

Architectures of llama.cpp that are refused by name, and why they are not here yet:

| architectures | reason |
| --- | --- |
";
    for (names, reason) in LEFT {
        out += &format!("| {names} | {reason} |\n");
    }
    out += "
## What is refused

Nothing is left out in silence. A file of another architecture is refused, and so are missing tensors, tensors of another shape than the hyper-parameters say, and tensors that nothing uses. Each line is a test:

| what | message |
| --- | --- |
";
    for r in REFUSALS {
        out += &format!("| {} | {} |\n", r.what, r.message);
    }
    out
}

#[test]
fn documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/models.md");
    let document = document();
    if std::env::var_os("PPLX_REGENERATE").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    for (line, (ours, committed)) in document.lines().zip(committed.lines()).enumerate() {
        assert_eq!(ours, committed, "docs/models.md:{}", line + 1);
    }
    assert_eq!(document, committed, "docs/models.md is not up to date");
}

/// What llama.cpp has and we have not.
const LEFT: [(&str, &str); 10] = [
    (
        "gemma3n, gemma4",
        "KV shared between layers, embeddings for each layer, head widths that differ by layer",
    ),
    ("bloom, mpt, refact, jais, baichuan 13B", "ALiBi"),
    (
        "smallthinker, grok",
        "routers that read or cap something else",
    ),
    (
        "dbrx, arctic, openelm, plamo, plamo3, plm, chameleon, cogvlm, deepseek2-ocr, granite_swa, \
         graniteswitch, afmoe, grovemoe, hy_v3, laguna, mimo2, step35, spark2_5, talkie, \
         muse-glimmer, maple",
        "not attempted",
    ),
    ("nanbeige, hrm_text", "layers that run in loops"),
    (
        "deepseek32, deepseek4, glm-dsa, glm5-next, dots3note, minimax-m3, hy_v4, qwen4exp",
        "sparse or compressed attention",
    ),
    (
        "bailingmoe3, kimi-linear, kimi-k3, minimax-01, plamo2, rwkv6qwen2, arwkv7",
        "recurrent or linear layers that differ from those here",
    ),
    (
        "bert, nomic-bert, nomic-bert-moe, jina-bert-v2, jina-bert-v3, modern-bert, neo-bert, \
         eurobert, gemma-embedding, llama-embed, t5, t5encoder",
        "no causal language models",
    ),
    (
        "dream, llada, llada-moe, rnd1",
        "diffusion: no left-to-right likelihood",
    ),
    (
        "clip, wavtokenizer-dec, pockettts, qwen3tts, eagle3, dflash, gemma4-assistant",
        "no text models, or drafts for others",
    ),
];

/// llama.cpp knows Baichuan 7B by its 32 layers, which make a case too large to
/// keep: `make.py` makes it, and `PPLX_RELATIVES` names its directory.
const NOT_KEPT: [&str; 1] = ["baichuan"];

#[test]
fn every_architecture_has_a_case() {
    let rows = rows();
    for name in supported_architectures() {
        let has_case = rows.contains_key(name) || NOT_KEPT.contains(&name);
        assert!(has_case, "no case for {name}");
    }
}
