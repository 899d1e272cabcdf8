//! Where the files of the tests are; what is missing is said aloud.

use std::path::{Path, PathBuf};

use pplx::gguf::{Array, Gguf, GgufWriter, Value};
use pplx::tokenizer::{Options, Tokenizer};
use sha2::{Digest, Sha256};

pub use crate::support::{GEMMA3, SMOLLM2, model, shared};

pub fn tokenizer(path: &Path) -> Tokenizer {
    let gguf = Gguf::open(path).unwrap();
    Tokenizer::from_gguf(gguf.metadata(), &Options::default()).unwrap()
}

/// A vocabulary that shows every boundary between pieces: see `pair_vocab` in
/// oracle.py, which builds the same one.
pub fn pair_vocab(pre: &str) -> Gguf {
    let mut next = 0x100..0x200u32;
    let chars: Vec<char> = (0..=255u8)
        .map(|b| match b {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(b),
            _ => char::from_u32(next.next().unwrap()).unwrap(),
        })
        .collect();
    let words = [
        "Ġthe", "hello", "Ġhello", "2024", "ĠĠĠĠ", "ĊĊĊ", "don't", "Ġworld", "...Ċ", "<bos>",
    ];
    let pair = |i: usize| (chars[i >> 8], chars[i & 255]);
    let mut tokens: Vec<String> = chars.iter().map(char::to_string).collect();
    tokens.extend((0..65536).map(|i| format!("{}{}", pair(i).0, pair(i).1)));
    tokens.extend(words.map(String::from));
    let merges = (0..65536).map(|i| pair(i * 40503 % 65536));
    let merges = merges.map(|(a, b)| format!("{a} {b}")).collect();
    let bos = tokens.len() as u32 - 1;
    let mut kinds = vec![1; tokens.len()];
    kinds[bos as usize] = 3;

    let mut writer = GgufWriter::new("llama");
    let text = |s: &str| Value::String(s.to_owned());
    writer
        .meta("tokenizer.ggml.model", text("gpt2"))
        .meta("tokenizer.ggml.tokens", strings(tokens))
        .meta("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.merges", strings(merges))
        .meta("tokenizer.ggml.bos_token_id", Value::U32(bos))
        .meta("tokenizer.ggml.eos_token_id", Value::U32(bos));
    if !pre.is_empty() {
        writer.meta("tokenizer.ggml.pre", text(pre));
    }
    Gguf::from_bytes("pairs.gguf", writer.to_bytes()).unwrap()
}

pub fn strings(texts: Vec<String>) -> Value {
    Value::Array(Array::String(texts))
}

/// The cases of texts.txt.
pub fn cases() -> Vec<&'static str> {
    let separator = "\n__ggml_vocab_test__\n";
    let texts = include_str!("texts.txt").strip_suffix(separator).unwrap();
    texts.split(separator).collect()
}

/// Counts ids and hashes them as oracle.py does.
pub fn digest(streams: impl Iterator<Item = Vec<u32>>) -> (usize, String) {
    let mut hash = Sha256::new();
    let mut count = 0;
    for ids in streams {
        count += ids.len();
        for id in ids.into_iter().chain([u32::MAX]) {
            hash.update(id.to_le_bytes());
        }
    }
    (count, format!("{:x}", hash.finalize()))
}

/// The ids of a text with BOS and EOS, as `llama_tokenize` gives them.
pub fn with_special(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::from_iter(tokenizer.prefix());
    ids.extend(tokenizer.encode(text).unwrap());
    ids.extend(tokenizer.suffix());
    ids
}

/// A vocabulary that fixtures.py made.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tokenizer")
        .join(name)
}
