//! Hashes of the ids that llama.cpp gave (oracle.py made them) for random texts:
//! every pre-tokenizer name on a vocabulary that shows all boundaries, and the
//! real vocabularies, with special tokens in the texts.

use pplx::corpus::tokenize_file;
use pplx::gguf::{Array, Gguf, Metadata, Value};
use pplx::tokenizer::{Options, Tokenizer};
use rayon::prelude::*;

use super::support::{cases, digest, model, pair_vocab, shared, with_special};

/// The rows of a CSV file, without its header.
fn rows(csv: &str) -> impl Iterator<Item = Vec<&str>> {
    csv.lines().skip(1).map(|line| line.split(',').collect())
}

#[test]
fn every_pre_tokenizer() {
    let rows: Vec<_> = rows(include_str!("pretokenizers.csv")).collect();
    let differs = |row: &&Vec<&str>| {
        let [name, count, sha256] = row[..] else {
            panic!("{row:?}")
        };
        let gguf = pair_vocab(name);
        let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &Options::default()).unwrap();
        let ids = cases().into_iter().map(|c| with_special(&tokenizer, c));
        digest(ids) != (count.parse().unwrap(), sha256.to_owned())
    };
    let wrong: Vec<_> = rows.par_iter().filter(differs).map(|row| row[0]).collect();
    assert!(wrong.is_empty(), "differ from llama.cpp: {wrong:?}");
    assert_eq!(rows.len(), 87);
}

/// The cases with special tokens of the vocabulary in and between them.
fn with_specials(meta: &Metadata) -> Vec<String> {
    let texts = meta.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    let kinds = match meta.get("tokenizer.ggml.token_type") {
        Some(Value::Array(Array::I32(kinds))) => kinds,
        other => panic!("{other:?}"),
    };
    let known = texts
        .iter()
        .zip(kinds)
        .filter(|(_, k)| [2, 3, 4].contains(*k));
    let known: Vec<&String> = known.map(|(text, _)| text).collect();
    let glue = ["", " ", "\n", "  x"];
    let mix = |(i, case): (usize, &str)| {
        let (first, second) = (
            known[i * 7 % known.len()],
            known[(i * 13 + 5) % known.len()],
        );
        format!("{case}{first}{}{second}{case}", glue[i % 4])
    };
    cases().into_iter().enumerate().map(mix).collect()
}

fn check(name: &str) {
    let path = if name.ends_with("Q4_1") || name.ends_with("q4_k_m") {
        model(&format!("{name}.gguf"))
    } else {
        shared(&format!("vocab/ggml-vocab-{name}.gguf"))
    };
    let Some(path) = path else { return };
    let gguf = Gguf::open(&path).unwrap();
    let mut checked = 0;
    for row in rows(include_str!("vocabularies.csv")).filter(|row| row[0] == name) {
        let [_, texts, parse, count, sha256] = row[..] else {
            panic!("{row:?}")
        };
        let options = Options {
            parse_special: parse.parse().unwrap(),
            ..Options::default()
        };
        let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &options).unwrap();
        let found = if texts == "wikitext" {
            let Some(corpus) = shared("corpora/wiki.test.raw") else {
                continue;
            };
            digest(std::iter::once(
                tokenize_file(&corpus, &tokenizer, 4096).unwrap().ids,
            ))
        } else {
            let mixed = with_specials(gguf.metadata());
            digest(mixed.iter().map(|c| with_special(&tokenizer, c)))
        };
        let expected = (count.parse().unwrap(), sha256.to_owned());
        assert_eq!(found, expected, "{name}, {texts}, parse_special = {parse}");
        checked += 1;
    }
    assert!(checked > 0, "vocabularies.csv has no row for {name}");
}

macro_rules! vocabularies {
    ($($test:ident: $name:literal,)*) => {$(
        #[test]
        fn $test() {
            check($name);
        }
    )*};
}

vocabularies! {
    deepseek_coder: "deepseek-coder",
    falcon: "falcon",
    gpt_2: "gpt-2",
    llama_bpe: "llama-bpe",
    llama_spm: "llama-spm",
    mpt: "mpt",
    phi_3: "phi-3",
    qwen2: "qwen2",
    qwen35: "qwen35",
    refact: "refact",
    starcoder: "starcoder",
    smollm2: "SmolLM2-135M-Instruct.Q4_1",
    gemma3: "gemma-3-270m-q4_k_m",
}

/// Kinds of vocabularies of which no real one is at hand; fixtures.py made them.
#[test]
fn fixtures() {
    let vocabularies = [
        include_bytes!("unigram.gguf").as_slice(),
        include_bytes!("unigram-merged.gguf"),
        include_bytes!("rwkv.gguf"),
        include_bytes!("gemma4.gguf"),
        include_bytes!("sarvam-moe.gguf"),
    ];
    let rows: Vec<_> = rows(include_str!("fixtures.csv")).collect();
    assert_eq!(rows.len(), vocabularies.len());
    for (row, bytes) in rows.iter().zip(vocabularies) {
        let [name, count, sha256] = row[..] else {
            panic!("{row:?}")
        };
        let gguf = Gguf::from_bytes(name, bytes.to_vec()).unwrap();
        let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &Options::default()).unwrap();
        let texts = cases().into_iter().map(|text| match name {
            "rwkv" => text.replace('Z', "z"), // see fixtures.py
            _ => text.to_owned(),
        });
        let found = digest(texts.map(|text| with_special(&tokenizer, &text)));
        assert_eq!(found, (count.parse().unwrap(), sha256.to_owned()), "{name}");
    }
}
