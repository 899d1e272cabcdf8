//! From a GGUF vocabulary to token ids, exactly as llama.cpp makes them.
//!
//! The models of a vocabulary are `bpe` (behind a pre-tokenizer; `tokenizers` merges),
//! `spm` (SentencePiece BPE), `unigram` and `rwkv`, the latter three our own;
//! each says why. Before them, `special` takes special
//! tokens out of the text; `cut` says where a text can be taken apart without
//! changing its tokens. What llama.cpp would guess (a missing or unknown
//! pre-tokenizer) is an error here.

mod bpe;
mod charsmap;
mod cut;
mod error;
mod pretokenizer;
mod rwkv;
mod special;
mod spm;
mod table;
mod trie;
mod unigram;
mod vocab;

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::gguf::{Metadata, Value};
use cut::CutRule;
pub use error::TokenizerError;
use special::{Fragment, SpecialTokens};
use table::Bos;
use vocab::{Kind, Vocab};

/// Counts changes of this module that change ids, for [`Tokenizer::fingerprint`].
const ALGORITHM: u32 = 1;

/// What the user decides about a tokenizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Control tokens written out in the text are tokens; otherwise, as in
    /// llama-perplexity, they are plain text.
    pub parse_special: bool,
    /// The pre-tokenizer, for a file that does not name its own.
    pub pre: Option<String>,
    /// Overrides the metadata's answer to whether BOS begins a text.
    pub add_bos: Option<bool>,
}

enum Model {
    Bpe(Box<bpe::Bpe>),
    Spm(Box<spm::SpmBpe>),
    Unigram(Box<unigram::Unigram>),
    Rwkv(rwkv::Rwkv),
}

/// A tokenizer built from a GGUF vocabulary.
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    model: Model,
    cut: CutRule,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    fingerprint: String,
}

impl Tokenizer {
    /// Reads the vocabulary of a model.
    ///
    /// # Errors
    /// A vocabulary that is malformed, of an unsupported kind, or whose
    /// pre-tokenizer is missing or unknown.
    pub fn from_gguf(meta: &Metadata, options: &Options) -> Result<Self, TokenizerError> {
        let kind = meta.require_string("tokenizer.ggml.model")?;
        let unsupported = |reason: String| TokenizerError::UnsupportedModel {
            path: meta.path().to_owned(),
            reason,
        };
        // Refused by name before the vocabulary is read.
        if let Some(why) = refusal(kind) {
            return Err(unsupported(format!("the tokenizer model '{kind}' {why}")));
        }
        let vocab = Vocab::from_gguf(meta)?;
        if let (true, Some(asked)) = (kind != "gpt2", &options.pre) {
            return Err(TokenizerError::PreTokenizerUnused {
                path: vocab.path.clone(),
                asked: asked.clone(),
                model: kind.to_owned(),
            });
        }
        let special = SpecialTokens::new(&vocab, meta, options.parse_special)?;
        let defaults;
        let mut always_bos = false;
        let (model, cut) = match kind {
            "gpt2" | "gemma4" => {
                let definition = match kind {
                    "gpt2" => definition(meta, options)?,
                    own => known_definition(meta, own)?,
                };
                always_bos = definition.bos == Bos::Always;
                defaults = Defaults {
                    add_bos: definition.bos == Bos::ByDefault,
                    ..Defaults::NONE
                };
                let model = bpe::Bpe::new(&vocab, meta, definition)?;
                let cut = model.cut()?;
                (Model::Bpe(Box::new(model)), cut)
            }
            "llama" => {
                defaults = Defaults {
                    bos: Some(1),
                    eos: Some(2),
                    add_bos: true,
                    add_eos: false,
                };
                let prefix = meta.bool("tokenizer.ggml.add_space_prefix")?;
                let model = spm::SpmBpe::new(&vocab, prefix.unwrap_or(true))?;
                let cut = model.cut();
                (Model::Spm(Box::new(model)), cut)
            }
            "t5" => {
                defaults = Defaults {
                    eos: Some(1),
                    add_eos: true,
                    ..Defaults::NONE
                };
                let unknown = vocab.special_id(meta, UNKNOWN_ID, Some(2))?;
                let model = unigram::Unigram::new(&vocab, meta, unknown)?;
                let cut = model.cut(&vocab);
                (Model::Unigram(Box::new(model)), cut)
            }
            "rwkv" => {
                defaults = Defaults::NONE;
                let unknown = vocab.special_id(meta, UNKNOWN_ID, None)?;
                let model = rwkv::Rwkv::new(&vocab, unknown);
                let cut = model.cut(&vocab);
                (Model::Rwkv(model), cut)
            }
            other => {
                return Err(unsupported(format!(
                    "the tokenizer model '{other}' is not supported; gpt2, llama, t5, rwkv and gemma4 are"
                )));
            }
        };
        let bos = vocab.special_id(meta, "tokenizer.ggml.bos_token_id", defaults.bos)?;
        let eos = vocab.special_id(meta, "tokenizer.ggml.eos_token_id", defaults.eos)?;
        let stored = meta.bool("tokenizer.ggml.add_bos_token")?;
        let own = always_bos || stored.unwrap_or(defaults.add_bos);
        let add_bos = options.add_bos.unwrap_or(own);
        let add_eos = meta.bool("tokenizer.ggml.add_eos_token")?;
        let add_eos = add_eos.unwrap_or(defaults.add_eos);
        for (wanted, id, name) in [(add_bos, bos, "bos"), (add_eos, eos, "eos")] {
            if wanted && id.is_none() {
                return Err(vocab.malformed(format!(
                    "{} is to be added, but tokenizer.ggml.{name}_token_id names no token",
                    name.to_uppercase()
                )));
            }
        }
        Ok(Self {
            cut: CutRule::new(cut, &special),
            fingerprint: fingerprint(meta, options),
            vocab,
            special,
            model,
            bos,
            eos,
            add_bos,
            add_eos,
        })
    }

    /// The ids of a whole text, without BOS and EOS.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_part(text, true)
    }

    /// The ids of a part of a text that [`Self::last_cut`] allowed to be taken
    /// apart; `first` for the part that the text begins with.
    pub fn encode_part(&self, text: &str, first: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut starts = first;
        for fragment in self.special.partition(text) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => match &self.model {
                    Model::Bpe(model) => model.encode(text, &mut ids)?,
                    Model::Spm(model) => model.encode(text, starts, &mut ids)?,
                    Model::Unigram(model) => model.encode(text, starts, &mut ids),
                    Model::Rwkv(model) => model.encode(text, &mut ids)?,
                },
            }
            starts = matches!(fragment, Fragment::Token(_));
        }
        Ok(ids)
    }

    /// The last byte offset, `from` or later, at which `text` can be cut so that
    /// its parts give the tokens of the whole, whatever text follows. It is
    /// never 0 nor the end of the text.
    pub fn last_cut(&self, text: &str, from: usize) -> Option<usize> {
        let mut chars = text.char_indices().rev();
        let (mut at, mut behind) = chars.next()?;
        for (before_at, before) in chars {
            if at < from {
                return None;
            }
            if self.cut.is_safe(before, behind) {
                return Some(at);
            }
            (at, behind) = (before_at, before);
        }
        None
    }

    /// Number of tokens; ids are smaller.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether a text begins with BOS; [`Self::bos`] is then set.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether a text ends with EOS; [`Self::eos`] is then set.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// The token put before a text: BOS, if it is to be added. (llama.cpp adds
    /// none with RWKV vocabularies, whatever the flags say.)
    pub fn prefix(&self) -> Option<u32> {
        self.bos.filter(|_| self.add_bos && self.wraps())
    }

    /// The token put behind a text: EOS, if it is to be added.
    pub fn suffix(&self) -> Option<u32> {
        self.eos.filter(|_| self.add_eos && self.wraps())
    }

    fn wraps(&self) -> bool {
        !matches!(self.model, Model::Rwkv(_))
    }

    /// The bytes of text that a token stands for: none for control and unknown
    /// tokens and for ids outside the vocabulary.
    pub fn piece(&self, id: u32) -> Vec<u8> {
        let id = id as usize;
        let (Some(text), Some(kind)) = (self.vocab.texts.get(id), self.vocab.kinds.get(id)) else {
            return Vec::new();
        };
        match (kind, &self.model) {
            (Kind::Control | Kind::Unknown, _) => Vec::new(),
            (_, Model::Rwkv(_)) => rwkv::unescape(text),
            (Kind::UserDefined, _) => text.clone().into_bytes(),
            (Kind::Byte, _) => {
                byte_token(text).map_or_else(|| text.clone().into_bytes(), |b| vec![b])
            }
            (_, Model::Bpe(model)) => model.decode(text),
            (_, Model::Spm(_) | Model::Unigram(_)) => text.replace('\u{2581}', " ").into_bytes(),
        }
    }

    /// A hash (hex) of all that decides the ids of a text.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }
}

/// What holds where the metadata is silent.
struct Defaults {
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

impl Defaults {
    const NONE: Self = Self {
        bos: None,
        eos: None,
        add_bos: false,
        add_eos: false,
    };
}

const UNKNOWN_ID: &str = "tokenizer.ggml.unknown_token_id";

/// Why a tokenizer model that llama.cpp knows is refused.
fn refusal(kind: &str) -> Option<&'static str> {
    match kind {
        "bert" => Some("belongs to encoder models, which have no perplexity"),
        "none" | "no_vocab" => Some("means that the file holds no vocabulary; give token ids"),
        "plamo2" | "hybriddna" | "whitespace" | "test" => {
            Some("is known to llama.cpp but not supported here; give token ids")
        }
        _ => None,
    }
}

/// The pre-tokenizer of a `gpt2` vocabulary: the file's, or else the user's.
fn definition(
    meta: &Metadata,
    options: &Options,
) -> Result<&'static table::Definition, TokenizerError> {
    let path: PathBuf = meta.path().to_owned();
    let stored = meta.string("tokenizer.ggml.pre")?.filter(|s| !s.is_empty());
    let name = match (stored, &options.pre) {
        (Some(file), Some(asked)) if file != asked => {
            return Err(TokenizerError::PreTokenizerConflict {
                path,
                file: file.to_owned(),
                asked: asked.clone(),
            });
        }
        (Some(file), _) => file,
        (None, Some(asked)) => asked,
        (None, None) => return Err(TokenizerError::MissingPreTokenizer { path }),
    };
    known_definition(meta, name)
}

fn known_definition(
    meta: &Metadata,
    name: &str,
) -> Result<&'static table::Definition, TokenizerError> {
    table::find(name).ok_or_else(|| TokenizerError::UnknownPreTokenizer {
        path: meta.path().to_owned(),
        name: name.to_owned(),
        nearest: table::nearest(name),
    })
}

/// The byte of a byte token, `<0xXX>`.
fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(hex, 16).ok()
}

fn fingerprint(meta: &Metadata, options: &Options) -> String {
    let mut hash = Sha256::new();
    hash.update(ALGORITHM.to_le_bytes());
    hash.update(format!("{options:?}"));
    // Names that decide about special tokens, and the whole vocabulary.
    let decides = |key: &str| key.starts_with("tokenizer.ggml.") || key == "general.name";
    for (key, value) in meta.iter().filter(|(key, _)| decides(key)) {
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(key.as_bytes());
        match value {
            Value::Array(crate::gguf::Array::String(texts)) => {
                field(&(texts.len() as u64).to_le_bytes());
                texts.iter().for_each(|t| field(t.as_bytes()));
            }
            Value::Array(crate::gguf::Array::F32(numbers)) => field(bytemuck::cast_slice(numbers)),
            Value::Array(crate::gguf::Array::I32(numbers)) => field(bytemuck::cast_slice(numbers)),
            other => field(format!("{other:?}").as_bytes()),
        }
    }
    format!("{:x}", hash.finalize())
}
