//! The whole of WikiText-2 against llama.cpp's ids, at several chunk sizes.

use std::path::Path;

use super::support::{GEMMA3, SMOLLM2, model, shared, tokenizer};
use pplx::corpus::{read_ids, tokenize_file};

const CORPUS: &str = "corpora/wiki.test.raw";
const CORPUS_SHA256: &str = "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08";

fn check(model: &Path, reference: &Path, corpus: &Path) {
    let tokenizer = tokenizer(model);
    let expected = read_ids(reference).unwrap();
    for chunk_bytes in [997, 4096, 8192, 65536, 1 << 30] {
        let tokens = tokenize_file(corpus, &tokenizer, chunk_bytes).unwrap();
        assert_eq!(tokens.sha256, CORPUS_SHA256);
        assert_eq!(tokens.text_bytes, 1_290_590);
        assert_eq!(tokens.ids.len(), expected.len(), "{chunk_bytes}");
        let wrong = tokens.ids.iter().zip(&expected).filter(|(a, b)| a != b);
        assert_eq!(wrong.count(), 0, "{chunk_bytes}");
    }
    println!("{}: {} ids equal", model.display(), expected.len());
}

#[test]
fn smollm2() {
    let (Some(model), Some(reference), Some(corpus)) = (
        model(SMOLLM2),
        shared("reference/smollm2-q4_1.tokens"),
        shared(CORPUS),
    ) else {
        return;
    };
    check(&model, &reference, &corpus);
}

#[test]
fn gemma3() {
    let (Some(model), Some(reference), Some(corpus)) = (
        model(GEMMA3),
        shared("reference/gemma3-q4_k_m.tokens"),
        shared(CORPUS),
    ) else {
        return;
    };
    check(&model, &reference, &corpus);
}
