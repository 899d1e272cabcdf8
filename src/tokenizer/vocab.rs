//! The vocabulary part of a GGUF file: token texts, kinds, scores and special
//! ids, with the corrections that llama.cpp makes by token text.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::TokenizerError;
use crate::gguf::{Array, Metadata, Value};

/// What a token is. The codes are those of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Undefined,
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    fn from_code(code: i64) -> Self {
        match code {
            1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Undefined,
        }
    }
}

/// The tokens of a vocabulary.
pub(super) struct Vocab {
    pub path: PathBuf,
    pub texts: Vec<String>,
    /// Kinds as stored in the file.
    pub stored_kinds: Vec<Kind>,
    /// Kinds after llama.cpp's corrections.
    pub kinds: Vec<Kind>,
    /// Log-probabilities or merge priorities; empty where the file has none.
    pub scores: Vec<f32>,
    pub index: Arc<HashMap<String, u32>>,
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";

impl Vocab {
    pub(super) fn from_gguf(meta: &Metadata) -> Result<Self, TokenizerError> {
        let path = meta.path().to_owned();
        let malformed = |what: String| TokenizerError::Malformed {
            path: path.clone(),
            what,
        };
        let mut texts = meta.require_strings(TOKENS)?.to_vec();
        if texts.is_empty() || u32::try_from(texts.len()).is_err() {
            return Err(malformed(format!("{TOKENS} holds {} tokens", texts.len())));
        }
        let mut index = HashMap::with_capacity(texts.len());
        for (id, text) in texts.iter_mut().enumerate() {
            if text.is_empty() {
                *text = format!("[EMPTY_{id}]"); // llama.cpp's name for it
            }
            if let Some(first) = index.insert(text.clone(), id as u32) {
                return Err(malformed(format!(
                    "tokens {first} and {id} have the same text {text:?}"
                )));
            }
        }
        let short = |key: &str, len: usize| {
            malformed(format!(
                "{key} has {len} entries for {} tokens",
                texts.len()
            ))
        };
        let stored_kinds = match meta.i64s(TYPES)? {
            None => vec![Kind::Normal; texts.len()],
            Some(codes) if codes.len() < texts.len() => return Err(short(TYPES, codes.len())),
            Some(codes) => codes[..texts.len()]
                .iter()
                .map(|&c| Kind::from_code(c))
                .collect(),
        };
        let scores = match meta.get(SCORES) {
            None => Vec::new(),
            // Some converters store whole numbers.
            Some(Value::Array(Array::I32(v))) => v.iter().map(|&x| x as f32).collect(),
            Some(_) => meta.f32s(SCORES)?.unwrap_or_default(),
        };
        if !scores.is_empty() && scores.len() < texts.len() {
            return Err(short(SCORES, scores.len()));
        }
        if let Some(id) = scores.iter().position(|s| s.is_nan()) {
            return Err(malformed(format!(
                "the score of token {id} is not a number"
            )));
        }
        let mut vocab = Self {
            path,
            kinds: stored_kinds.clone(),
            stored_kinds,
            texts,
            scores,
            index: Arc::new(index),
        };
        vocab.correct_kinds(meta)?;
        Ok(vocab)
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.index.get(text).copied()
    }

    /// An error about this vocabulary.
    pub(super) fn malformed(&self, what: impl Into<String>) -> TokenizerError {
        TokenizerError::Malformed {
            path: self.path.clone(),
            what: what.into(),
        }
    }

    /// The scores, which the model kind `model` cannot do without.
    pub(super) fn require_scores(&self, model: &str) -> Result<&[f32], TokenizerError> {
        if self.scores.is_empty() {
            return Err(self.malformed(format!(
                "a vocabulary of the kind '{model}' needs {SCORES}, which is missing"
            )));
        }
        Ok(&self.scores)
    }

    /// The id under `key`, or `default` where the key is missing; `None` if the
    /// id is not a token of this vocabulary.
    pub(super) fn special_id(
        &self,
        meta: &Metadata,
        key: &str,
        default: Option<u32>,
    ) -> Result<Option<u32>, TokenizerError> {
        let id = meta.u32(key)?.or(default);
        Ok(id.filter(|&id| (id as usize) < self.len()))
    }

    /// llama.cpp overrides the stored kind of well-known tokens by their text;
    /// that decides which of them are found in plain text.
    fn correct_kinds(&mut self, meta: &Metadata) -> Result<(), TokenizerError> {
        for text in END_OF_GENERATION {
            self.set_kind(text, Kind::Control);
        }
        for (key, deprecated_key, texts) in FILL_IN_THE_MIDDLE {
            let named = [key, deprecated_key].into_iter().any(|k| meta.contains(k));
            // llama.cpp takes whichever of them its hash table yields first;
            // real vocabularies have at most one family of these.
            let first = texts.iter().filter_map(|t| self.id(t)).min();
            if let (false, Some(id)) = (named, first) {
                self.kinds[id as usize] = Kind::Control;
            }
        }
        for text in ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"] {
            self.set_kind(text, Kind::UserDefined);
        }
        let has = |t: &str| self.index.contains_key(t);
        let call = has("<|call|>") || has("<|calls|>");
        if call && (has("<|return|>") || has("<|flush|>")) {
            self.set_kind("<|end|>", Kind::UserDefined);
        }
        let eos = meta.u32("tokenizer.ggml.eos_token_id")?;
        let plamo = self.id("<|plamo:eos|>").is_some_and(|id| eos == Some(id));
        if plamo || self.index.contains_key("<|tool_response>") {
            self.set_kind("</s>", Kind::Normal);
        }
        Ok(())
    }

    fn set_kind(&mut self, text: &str, kind: Kind) {
        if let Some(id) = self.id(text) {
            self.kinds[id as usize] = kind;
        }
    }
}

/// Tokens that end a generation; llama.cpp makes them control tokens.
const END_OF_GENERATION: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Fill-in-the-middle tokens: metadata key, deprecated key, known texts. They
/// become control tokens where the file does not name them by id.
const FILL_IN_THE_MIDDLE: [(&str, &str, &[&str]); 6] = [
    (
        "tokenizer.ggml.fim_pre_token_id",
        "tokenizer.ggml.prefix_token_id",
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_suf_token_id",
        "tokenizer.ggml.suffix_token_id",
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_mid_token_id",
        "tokenizer.ggml.middle_token_id",
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_pad_token_id",
        "",
        &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    ),
    (
        "tokenizer.ggml.fim_rep_token_id",
        "",
        &[
            "<|fim_repo|>",
            "<|repo_name|>",
            "<fim-repo>",
            "<REPO>",
            "<reponame>",
        ],
    ),
    ("tokenizer.ggml.fim_sep_token_id", "", &["<|file_sep|>"]),
];
