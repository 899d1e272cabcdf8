//! llama.cpp's own test vectors: texts and their ids for eleven vocabularies.

use super::support::{shared, tokenizer};

fn check(name: &str) {
    let Some(vocab) = shared(&format!("vocab/ggml-vocab-{name}.gguf")) else {
        return;
    };
    let tokenizer = tokenizer(&vocab);
    let read = |suffix: &str| {
        let path = format!("{}.{suffix}", vocab.display());
        std::fs::read_to_string(path).unwrap()
    };
    let (texts, ids) = (read("inp"), read("out"));
    let separator = "\n__ggml_vocab_test__\n"; // also behind the last text
    let texts = texts.strip_suffix(separator).unwrap().split(separator);
    let texts: Vec<&str> = texts.collect();
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(texts.len(), ids.len());
    for (text, ids) in texts.iter().zip(ids) {
        let expected: Vec<u32> = ids.split_whitespace().map(|i| i.parse().unwrap()).collect();
        assert_eq!(tokenizer.encode(text).unwrap(), expected, "{text:?}");
    }
    println!("{name}: {} cases equal", texts.len());
}

macro_rules! vectors {
    ($($test:ident: $name:literal,)*) => {$(
        #[test]
        fn $test() {
            check($name);
        }
    )*};
}

vectors! {
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
}
