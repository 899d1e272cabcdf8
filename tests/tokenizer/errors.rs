//! Vocabularies that are refused, and what the messages say.

use pplx::gguf::{Array, Gguf, GgufWriter, Value};
use pplx::tokenizer::{Options, Tokenizer};

use super::support::{pair_vocab, strings};

fn text(s: &str) -> Value {
    Value::String(s.to_owned())
}

/// The error for a vocabulary of the given kind, tokens and further pairs.
fn message(model: &str, tokens: &[&str], more: &[(&str, Value)], options: &Options) -> String {
    let mut writer = GgufWriter::new("llama");
    writer.meta("tokenizer.ggml.model", text(model)).meta(
        "tokenizer.ggml.tokens",
        strings(tokens.iter().map(|t| t.to_string()).collect()),
    );
    for (key, value) in more {
        writer.meta(key, value.clone());
    }
    let gguf = Gguf::from_bytes("vocab.gguf", writer.to_bytes()).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata(), options);
    tokenizer.err().expect("an error").to_string()
}

fn pre(name: &str) -> Options {
    Options {
        pre: Some(name.to_owned()),
        ..Options::default()
    }
}

#[test]
fn a_missing_pre_tokenizer_is_never_guessed() {
    for missing in [vec![], vec![("tokenizer.ggml.pre", text(""))]] {
        let error = message("gpt2", &["a"], &missing, &Options::default());
        for part in ["vocab.gguf", "tokenizer.ggml.pre", "pre = ", "--pre"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn the_user_can_name_a_missing_pre_tokenizer() {
    let named = Tokenizer::from_gguf(pair_vocab("qwen2").metadata(), &Options::default());
    let given = Tokenizer::from_gguf(pair_vocab("").metadata(), &pre("qwen2"));
    let text = "It's 12345, isn't it?\n\n  Yes.";
    assert_eq!(
        named.unwrap().encode(text).unwrap(),
        given.unwrap().encode(text).unwrap()
    );
}

#[test]
fn an_unknown_pre_tokenizer_names_the_nearest() {
    let error = message(
        "gpt2",
        &["a"],
        &[("tokenizer.ggml.pre", text("qwen3"))],
        &Options::default(),
    );
    assert!(
        error.contains("'qwen3'") && error.contains("'qwen35'"),
        "{error}"
    );
}

#[test]
fn a_named_pre_tokenizer_cannot_be_overridden() {
    let named = [("tokenizer.ggml.pre", text("gpt-2"))];
    let error = message("gpt2", &["a"], &named, &pre("qwen2"));
    assert!(
        error.contains("'gpt-2'") && error.contains("'qwen2'"),
        "{error}"
    );
    let error = message("llama", &["a"], &[], &pre("qwen2"));
    assert!(error.contains("'llama'"), "{error}");
}

#[test]
fn other_models_are_refused_by_name() {
    for (model, part) in [
        ("bert", "encoder"),
        ("none", "token ids"),
        ("plamo2", "not supported"),
        ("tiktoken", "gpt2, gemma4, llama, t5 and rwkv"),
    ] {
        let error = message(model, &["a"], &[], &Options::default());
        assert!(error.contains(part) && error.contains(model), "{error}");
    }
}

#[test]
fn malformed_vocabularies_are_named() {
    let floats = |v: &[f32]| Value::Array(Array::F32(v.to_vec()));
    let none = Options::default();
    let check = |error: String, part: &str| assert!(error.contains(part), "{error}");
    check(
        message("llama", &["a", "b", "a"], &[], &none),
        "tokens 0 and 2",
    );
    check(message("llama", &[], &[], &none), "0 tokens");
    check(
        message("llama", &["a"], &[], &none),
        "tokenizer.ggml.scores",
    );
    let short = [("tokenizer.ggml.scores", floats(&[1.0]))];
    check(
        message("llama", &["a", "b"], &short, &none),
        "1 entries for 2 tokens",
    );
    let nan = [("tokenizer.ggml.scores", floats(&[f32::NAN]))];
    check(message("llama", &["a"], &nan, &none), "not a number");
    let scores = [("tokenizer.ggml.scores", floats(&[1.0]))];
    check(message("llama", &["a"], &scores, &none), "bos_token_id");
    check(message("t5", &["a"], &scores, &none), "unknown_token_id");
    let kinds = Value::Array(Array::I32(vec![]));
    check(
        message(
            "llama",
            &["a"],
            &[("tokenizer.ggml.token_type", kinds)],
            &none,
        ),
        "0 entries",
    );
    let merges = [
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.merges", strings(vec!["ab".to_owned()])),
    ];
    check(message("gpt2", &["a"], &merges, &none), "merge 0");
    check(
        message("gpt2", &["a"], &merges[..1], &none),
        "tokenizer.ggml.merges",
    );
}

#[test]
fn a_damaged_character_map_is_named() {
    let gguf = Gguf::from_bytes("u", include_bytes!("unigram.gguf").to_vec()).unwrap();
    let key = "tokenizer.ggml.precompiled_charsmap";
    let Some(Value::Array(Array::U8(whole))) = gguf.metadata().get(key) else {
        panic!("no character map")
    };
    let build = |map: Vec<u8>| {
        let mut writer = GgufWriter::default();
        for (k, value) in gguf.metadata().iter() {
            let map = Value::Array(Array::U8(map.clone()));
            writer.meta(k, if k == key { map } else { value.clone() });
        }
        let gguf = Gguf::from_bytes("u", writer.to_bytes()).unwrap();
        Tokenizer::from_gguf(gguf.metadata(), &Options::default()).map(|_| ())
    };
    assert!(build(whole.clone()).is_ok());
    for len in [1, 3, 4, 100, whole.len() - 1] {
        assert!(
            build(whole[..len].to_vec())
                .unwrap_err()
                .to_string()
                .contains("damaged")
        );
    }
    // Any damage is an error or a different map, never a panic or a hang.
    for at in (0..whole.len()).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let _ = build(damaged);
    }
}

#[test]
fn text_that_the_vocabulary_cannot_express_is_refused() {
    let merges = [
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.merges", strings(vec!["a b".to_owned()])),
    ];
    let mut writer = GgufWriter::new("llama");
    writer.meta("tokenizer.ggml.model", text("gpt2"));
    writer.meta(
        "tokenizer.ggml.tokens",
        strings(vec!["a".to_owned(), "b".to_owned()]),
    );
    for (key, value) in merges {
        writer.meta(key, value);
    }
    let gguf = Gguf::from_bytes("v", writer.to_bytes()).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &Options::default()).unwrap();
    // "ab" is merged, is no token, and falls back to its characters.
    assert_eq!(tokenizer.encode("abba").unwrap(), [0, 1, 1, 0]);
    assert!(
        tokenizer
            .encode("ac")
            .unwrap_err()
            .to_string()
            .contains("\"c\"")
    );
}
