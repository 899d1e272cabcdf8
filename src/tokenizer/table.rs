//! The pre-tokenizers that llama.cpp knows by name, and what each name means.
//!
//! The patterns are the models' own, in the form in which llama.cpp applies
//! them: it knows no cases of letters beyond ASCII (its `\p{Lu}` is any letter),
//! so the classes here say just that.

use super::pretokenizer::{Step, White};
use Step::{DigitsFromRight, NumbersFromRight, Split, SplitWhite};
use White::{Cascade, LeaveLast};

/// What a pre-tokenizer name decides.
#[derive(Debug)]
pub(super) struct Definition {
    pub names: &'static [&'static str],
    pub steps: &'static [Step],
    /// A piece that is a token as a whole is taken as it is, unmerged.
    pub ignore_merges: bool,
    /// Whether BOS is added.
    pub bos: Bos,
    pub spelling: Spelling,
    /// The class of characters after which text spelled in bytes can be cut
    /// before a space: each is in a piece that ends there, whatever follows. See
    /// [`super::cut`].
    pub cut_after: &'static str,
}

/// Whether a pre-tokenizer's vocabularies begin texts with BOS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bos {
    /// Where the metadata says so.
    IfAsked,
    /// Unless the metadata says not to.
    ByDefault,
    /// Whatever the metadata says.
    Always,
}

/// How text is written for merging.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spelling {
    /// Each byte as one character, as GPT-2 does.
    Bytes,
    /// As it is, with U+2581 for spaces; what is not a token becomes byte tokens.
    Text {
        /// A run of newlines that is a token is taken as it is, unmerged.
        whole_newlines: bool,
    },
}

/// The definition of a name.
pub(super) fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|d| d.names.contains(&name))
}

/// Up to five known names, the nearest first.
pub(super) fn nearest(name: &str) -> String {
    let mut names: Vec<_> = DEFINITIONS.iter().flat_map(|d| d.names).collect();
    names.sort_by(|a, b| {
        let distance = |n| strsim::jaro_winkler(name, n);
        distance(b).total_cmp(&distance(a))
    });
    names.truncate(5);
    let quoted: Vec<_> = names.iter().map(|n| format!("'{n}'")).collect();
    quoted.join(", ")
}

macro_rules! contraction {
    () => {
        r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    };
}

/// llama.cpp's ranges of Han characters.
macro_rules! han {
    () => {
        concat!(
            r"\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{20000}-\u{2a6df}\u{2a700}-\u{2ebef}",
            r"\u{f900}-\u{faff}\u{2f800}-\u{2fa1f}"
        )
    };
}

macro_rules! newlines {
    () => {
        r"\s*[\r\n]+"
    };
}

/// Contractions, words, numbers as given, punctuation, newlines.
macro_rules! llama3_like {
    ($number:literal) => {
        concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $number,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|",
            newlines!()
        )
    };
}

/// Words that change case once, with the contraction at their end, where
/// `$letters` is the class of their characters.
macro_rules! cased_words {
    ($letters:literal, $contraction:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[",
            $letters,
            "--[a-z]]*[",
            $letters,
            "--[A-Z]]+",
            $contraction,
            r"|[^\r\n\p{L}\p{N}]?[",
            $letters,
            "--[a-z]]+[",
            $letters,
            "--[A-Z]]*",
            $contraction
        )
    };
}

macro_rules! optional_contraction {
    () => {
        concat!("(?:", contraction!(), ")?")
    };
}

const GPT2: Step = SplitWhite(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+",
    LeaveLast,
);
const LLAMA3: Step = SplitWhite(llama3_like!(r"\p{N}{1,3}"), LeaveLast);
const QWEN2: Step = SplitWhite(llama3_like!(r"\p{N}"), LeaveLast);
const ONE_NUMBER: Step = Split(r"\p{N}");
const THREE_NUMBERS: Step = Split(r"\p{N}{1,3}");
const HAN_AND_KANA: Step = Split(r"[一-龥぀-ゟ゠-ヿ]+");
const DEEPSEEK_CJK: Step = Split(r"[[一-龥ࠀ-一가-퟿]&&\S]+");
const LINES: Step = Split(r"[^\n]+|\n+");
const BLOOM: Step = Split(r" ?[^(\s|.,!?…。，、।۔،)]+");

/// ASCII punctuation before ASCII letters; words with their marks; punctuation.
macro_rules! deepseek3_words {
    ($after_punctuation:literal) => {
        concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+",
            $after_punctuation
        )
    };
}
const DEEPSEEK3: Step = SplitWhite(deepseek3_words!(r"[\r\n]*|\s*[\r\n]+"), LeaveLast);

/// A definition without flags whose pieces all end before a space.
const fn plain(names: &'static [&'static str], steps: &'static [Step]) -> Definition {
    Definition {
        names,
        steps,
        ignore_merges: false,
        bos: Bos::IfAsked,
        spelling: Spelling::Bytes,
        cut_after: r"\S",
    }
}

static DEFINITIONS: &[Definition] = &[
    plain(
        &["default"],
        &[
            Split(r"[\p{P}$+<=>^~|]+"),
            GPT2,
            Split(r"\p{N}+"),
            Split("[0-9][0-9][0-9]"),
        ],
    ),
    Definition {
        ignore_merges: true,
        bos: Bos::ByDefault,
        ..plain(
            &[
                "llama3",
                "llama-v3",
                "llama-bpe",
                "falcon3",
                "falcon-h1",
                "pixtral",
                "midm-2.0",
                "lfm2",
                "jina-v5-nano",
            ],
            &[LLAMA3],
        )
    },
    Definition {
        ignore_merges: true,
        ..plain(
            &["minicpm5"],
            &[
                THREE_NUMBERS,
                SplitWhite(llama3_like!(r"\p{N}+"), LeaveLast),
            ],
        )
    },
    plain(
        &["jais-2"],
        &[SplitWhite(llama3_like!(r"\p{N}{1,3}"), Cascade)],
    ),
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    Definition {
        ignore_merges: true,
        ..plain(&["glm4", "glm5"], &[LLAMA3])
    },
    Definition {
        // Other scripts are left in one piece with the spaces around them.
        cut_after: r"[!-~一-龥\p{N}]",
        ..plain(
            &["deepseek-llm"],
            &[
                Split(r"[\r\n]"),
                Split(concat!(
                    r"\s?[",
                    r"A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}",
                    r"\u{1c4}-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}",
                    r"\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
                    r"\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}",
                    r"\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}",
                    r"\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}",
                    r"\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}",
                    r"\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}",
                    r"\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}",
                    r"\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}",
                    r"\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}",
                    r"\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}",
                    r"\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}",
                    r"\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}",
                    r"\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}",
                    r"\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}",
                    r"\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}",
                    r"\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}",
                    r"\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}",
                    "]+"
                )),
                Split(r"\s?[!-/:-~！-／：-～‘-‟、-。]+"),
                Split(r"\s+$"),
                DEEPSEEK_CJK,
                Split(r"\p{N}+"),
            ],
        )
    },
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[THREE_NUMBERS, HAN_AND_KANA, DEEPSEEK3],
    ),
    plain(
        &["spark2_5"],
        &[
            THREE_NUMBERS,
            HAN_AND_KANA,
            SplitWhite(deepseek3_words!(r"|[\r\n]"), LeaveLast),
            ONE_NUMBER,
        ],
    ),
    Definition {
        ignore_merges: true,
        ..plain(
            &["youtu"],
            &[
                Split("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
                SplitWhite(
                    concat!(
                        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
                        optional_contraction!(),
                        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
                        newlines!()
                    ),
                    LeaveLast,
                ),
            ],
        )
    },
    Definition {
        // Symbols and marks are left in one piece with the spaces around them.
        cut_after: r"[\p{L}\p{P}\p{N}]",
        ..plain(
            &["deepseek-coder"],
            &[
                Split(r"[\r\n]"),
                Split(r"\s?\p{L}+"),
                Split(r"\s?\p{P}+"),
                DEEPSEEK_CJK,
                ONE_NUMBER,
            ],
        )
    },
    plain(
        &["falcon"],
        &[Split(r"[\p{P}$+<=>^~|`]+"), GPT2, Split("[0-9][0-9][0-9]")],
    ),
    plain(
        &[
            "starcoder",
            "refact",
            "command-r",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[ONE_NUMBER, GPT2],
    ),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        &[GPT2],
    ),
    plain(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[QWEN2],
    ),
    plain(
        &["qwen35"],
        &[SplitWhite(
            concat!(
                contraction!(),
                r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
                newlines!()
            ),
            LeaveLast,
        )],
    ),
    Definition {
        // The characters that BLOOM matches; others run on over spaces.
        cut_after: r"[^(\s|.,!?…。，、।۔،)]",
        ..plain(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM])
    },
    Definition {
        cut_after: r"[^(\s|.,!?…。，、।۔،)]",
        ..plain(&["viking"], &[BLOOM, ONE_NUMBER])
    },
    Definition {
        ignore_merges: true,
        bos: Bos::ByDefault,
        ..plain(
            &["tekken"],
            &[SplitWhite(
                concat!(
                    cased_words!(r"\p{L}", ""),
                    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
                    newlines!()
                ),
                LeaveLast,
            )],
        )
    },
    Definition {
        bos: Bos::ByDefault,
        ..plain(
            &["chameleon"],
            &[
                Split("<sentinel:[0-9]+>"),
                Split("IMGIMG[A-I]{1,4}Z"),
                Split(r"[\t\n]|    |  "),
                ONE_NUMBER,
                Split(r"[\p{P}!-/:-@\[-`{-~]"),
                GPT2,
            ],
        )
    },
    plain(
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        &[SplitWhite(
            concat!(
                cased_words!(r"\p{L}", optional_contraction!()),
                r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
                newlines!()
            ),
            LeaveLast,
        )],
    ),
    Definition {
        ignore_merges: true,
        ..plain(
            &["granite-embed-multi-97m"],
            &[SplitWhite(
                concat!(
                    cased_words!(r"\p{L}\p{M}", optional_contraction!()),
                    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
                    newlines!()
                ),
                LeaveLast,
            )],
        )
    },
    plain(
        &["tiny_aya", "cohere2moe"],
        &[
            NumbersFromRight,
            SplitWhite(
                concat!(
                    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
                    optional_contraction!(),
                    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
                    newlines!()
                ),
                LeaveLast,
            ),
        ],
    ),
    plain(
        &["kimi-k2"],
        &[SplitWhite(
            concat!(
                concat!("[", han!(), "]+"),
                r"|[^\r\n\p{L}\p{N}]?[\p{L}--[",
                han!(),
                "]]+",
                optional_contraction!(),
                r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
                newlines!()
            ),
            LeaveLast,
        )],
    ),
    Definition {
        // Words are left in one piece with the spaces between them.
        cut_after: r"\p{N}",
        ..plain(&["superbpe"], &[Split(r"\p{N}+"), DigitsFromRight])
    },
    plain(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[SplitWhite(
            r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]",
            LeaveLast,
        )],
    ),
    plain(
        &["seed-coder"],
        &[SplitWhite(
            concat!(
                contraction!(),
                r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|",
                newlines!()
            ),
            LeaveLast,
        )],
    ),
    plain(
        &["ufakzeka"],
        &[SplitWhite(
            concat!(
                r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
                newlines!()
            ),
            LeaveLast,
        )],
    ),
    plain(
        &["afmoe"],
        &[
            NumbersFromRight,
            Split(concat!(
                // Meant to begin with the compatibility ideographs, U+F900, which
                // llama.cpp's source holds as U+8C48.
                r"[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{8c48}-\u{faff}\u{3040}-\u{309f}",
                r"\u{30a0}-\u{30ff}\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}\u{e40}-\u{e7f}",
                r"\u{e80}-\u{eff}\u{1780}-\u{17ff}\u{1000}-\u{109f}\u{aa60}-\u{aa7f}",
                r"\u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+"
            )),
            DEEPSEEK3,
        ],
    ),
    plain(&["laguna"], &[LINES, QWEN2]),
    Definition {
        // A space between two letters joins them.
        cut_after: r"[^\s\p{L}\p{M}]",
        ..plain(
            &["exaone-moe"],
            &[SplitWhite(
                concat!(
                    contraction!(),
                    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
                    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
                ),
                LeaveLast,
            )],
        )
    },
    Definition {
        bos: Bos::Always,
        spelling: Spelling::Text {
            whole_newlines: true,
        },
        ..plain(&["gemma4", "granite-embed-multi-311m"], &[LINES])
    },
    Definition {
        spelling: Spelling::Text {
            whole_newlines: false,
        },
        ..plain(&["sarvam-moe"], &[LINES])
    },
];
