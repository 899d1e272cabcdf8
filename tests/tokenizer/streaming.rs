//! Reading a corpus in parts gives the ids of the whole, for any text and any
//! sizes of what each read returns.

use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use pplx::corpus::tokenize_reader;
use pplx::gguf::Gguf;
use pplx::tokenizer::{Options, Tokenizer};
use proptest::prelude::*;

use super::support::{pair_vocab, shared, tokenizer, with_special};

/// One name of each pre-tokenizer.
const PRE_TOKENIZERS: [&str; 31] = [
    "default",
    "llama-bpe",
    "minicpm5",
    "jais-2",
    "glm4",
    "deepseek-llm",
    "deepseek-v3",
    "spark2_5",
    "youtu",
    "deepseek-coder",
    "falcon",
    "smollm",
    "gpt-2",
    "qwen2",
    "qwen35",
    "bloom",
    "viking",
    "tekken",
    "chameleon",
    "gpt-4o",
    "granite-embed-multi-97m",
    "tiny_aya",
    "kimi-k2",
    "superbpe",
    "bailingmoe",
    "seed-coder",
    "ufakzeka",
    "afmoe",
    "laguna",
    "exaone-moe",
    "dbrx",
];

static TOKENIZERS: LazyLock<Vec<(String, Tokenizer)>> = LazyLock::new(|| {
    let mut all: Vec<(String, Tokenizer)> = Vec::new();
    let build = |gguf: &Gguf, parse_special| {
        let options = Options {
            parse_special,
            ..Options::default()
        };
        Tokenizer::from_gguf(gguf.metadata(), &options).unwrap()
    };
    for name in PRE_TOKENIZERS {
        all.push((name.to_owned(), build(&pair_vocab(name), false)));
    }
    for (name, bytes) in [
        ("unigram", include_bytes!("unigram.gguf").as_slice()),
        ("unigram-merged", include_bytes!("unigram-merged.gguf")),
        ("rwkv", include_bytes!("rwkv.gguf")),
        ("gemma4", include_bytes!("gemma4.gguf")),
        ("sarvam-moe", include_bytes!("sarvam-moe.gguf")),
    ] {
        let gguf = Gguf::from_bytes(name, bytes.to_vec()).unwrap();
        all.push((name.to_owned(), build(&gguf, false)));
    }
    // SentencePiece, special tokens that strip white space, runs of spaces as
    // user-defined tokens.
    for name in ["llama-spm", "phi-3", "mpt"] {
        if let Some(path) = shared(&format!("vocab/ggml-vocab-{name}.gguf")) {
            let gguf = Gguf::open(path).unwrap();
            for parse_special in [false, true] {
                let label = format!("{name}, parse_special = {parse_special}");
                all.push((label, build(&gguf, parse_special)));
            }
        }
    }
    all
});

/// Returns as many bytes a read as it is told, over and over.
struct Pieces<'a> {
    rest: &'a [u8],
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = self.sizes.next().copied().unwrap_or(1);
        let n = size.min(buffer.len()).min(self.rest.len());
        buffer[..n].copy_from_slice(&self.rest[..n]);
        self.rest = &self.rest[n..];
        Ok(n)
    }
}

fn text() -> impl Strategy<Value = String> {
    let pools = [
        "abcdefgstmdrevlSTMDREVLX",
        " ",
        " ",
        " ",
        "  ",
        "\t\n\r",
        "\r\n",
        "0123456789",
        ".,:;!?'\"-_()[]{}/\\#@&*%$+<=>^`|~",
        "éÉßſμΩяЖǅʰ",
        "漢字中一々〇㐀ひらカナ한글ㄱㄅ",
        "กำไทยខ្ម",
        "سلامअनि",
        "\u{301}\u{308}\u{93f}",
        "٠١½²Ⅷ",
        "🦙👩\u{200d}💻❤\u{fe0f}",
        "\u{a0}\u{2003}\u{3000}\u{85}",
        "\u{200b}\u{1}\u{7f}\u{378}",
        "。、，！…—“”",
        "▁",
    ];
    let words = [
        "don't",
        "hello",
        " the",
        "2024",
        "1234567",
        "</s>",
        "<s>",
        "<|user|>",
        "<mark>",
        "漢字!",
        "a\u{301}",
        "<|end|>\n",
        "</s>  ",
        "...\n",
        "longwordlongwordlongword",
    ];
    let character = prop::sample::select(pools.to_vec()).prop_flat_map(|pool| {
        let chars: Vec<char> = pool.chars().collect();
        prop::collection::vec(prop::sample::select(chars), 1..4)
            .prop_map(|chars| chars.into_iter().collect::<String>())
    });
    let word = prop::sample::select(words.to_vec()).prop_map(String::from);
    prop::collection::vec(prop_oneof![4 => character, 1 => word], 0..40)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn parts_give_the_tokens_of_the_whole(
        text in text(),
        sizes in prop::collection::vec(1usize..30, 1..5),
    ) {
        for (name, tokenizer) in TOKENIZERS.iter() {
            let whole = with_special(tokenizer, &text);
            let mut source = Pieces { rest: text.as_bytes(), sizes: sizes.iter().cycle() };
            let parts = tokenize_reader(&mut source, Path::new("text"), tokenizer, 64).unwrap();
            prop_assert_eq!(&parts.ids, &whole, "{}", name);
            prop_assert_eq!(parts.text_bytes, text.len() as u64);
        }
    }
}

/// The property above would hold too if nothing were ever cut.
#[test]
fn english_can_be_cut() {
    let text = "Years 12 34 pass, and more; so do words";
    for (name, tokenizer) in TOKENIZERS.iter() {
        let cut = tokenizer.last_cut(text, 0);
        assert!(cut.is_some(), "{name}");
        let expected = match name.as_str() {
            "superbpe" => 11,   // words are joined over spaces, numbers are not
            "exaone-moe" => 27, // only behind what is no letter
            _ => continue,
        };
        assert_eq!(cut, Some(expected), "{name}");
    }
}

#[test]
fn the_thread_count_does_not_matter() {
    let Some(vocab) = shared("vocab/ggml-vocab-llama-spm.gguf") else {
        return;
    };
    let tokenizer = tokenizer(&vocab);
    let text: String = super::support::cases().concat();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let run = || tokenize_reader(&mut text.as_bytes(), Path::new("text"), &tokenizer, 1000);
        pool.build().unwrap().install(run).unwrap()
    };
    assert_eq!(on(1), on(3));
}
