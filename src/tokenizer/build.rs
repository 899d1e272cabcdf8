//! From metadata to the parts of a tokenizer: which model, which pre-tokenizer,
//! which defaults.

use super::cut::ModelCut;
use super::table::{self, Bos, Definition};
use super::vocab::Vocab;
use super::{TokenizerError, bpe, rwkv, spm, unigram};
use crate::gguf::Metadata;

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

/// The model of a vocabulary.
pub(super) enum Model {
    Bpe(Box<bpe::Bpe>),
    Spm(Box<spm::SpmBpe>),
    Unigram(Box<unigram::Unigram>),
    Rwkv(rwkv::Rwkv),
}

impl Model {
    /// Its name in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Model::Bpe(_) => "byte-level BPE",
            Model::Spm(_) => "SentencePiece BPE",
            Model::Unigram(_) => "unigram",
            Model::Rwkv(_) => "RWKV",
        }
    }
}

/// What a vocabulary makes, special tokens aside.
pub(super) struct Built {
    pub vocab: Vocab,
    pub model: Model,
    pub cut: ModelCut,
    pub ends: Ends,
}

/// What is put before and behind a text.
pub(super) struct Ends {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
}

impl Ends {
    /// Of a model that adds neither.
    const NONE: Self = Self {
        bos: None,
        eos: None,
        add_bos: false,
        add_eos: false,
    };
}

const UNKNOWN_ID: &str = "tokenizer.ggml.unknown_token_id";

pub(super) fn build(meta: &Metadata, options: &Options) -> Result<Built, TokenizerError> {
    let kind = meta.require_string("tokenizer.ggml.model")?;
    if let Some(why) = refusal(kind) {
        return Err(TokenizerError::UnsupportedModel {
            path: meta.path().to_owned(),
            reason: format!("the tokenizer model '{kind}' {why}"),
        });
    }
    if let (true, Some(asked)) = (kind != "gpt2", &options.pre) {
        return Err(TokenizerError::PreTokenizerUnused {
            path: meta.path().to_owned(),
            asked: asked.clone(),
            model: kind.to_owned(),
        });
    }
    let vocab = Vocab::from_gguf(meta)?;
    let mut always_bos = false;
    let (model, cut, defaults) = match kind {
        "llama" => {
            let prefix = meta.bool("tokenizer.ggml.add_space_prefix")?;
            let model = spm::SpmBpe::new(&vocab, prefix.unwrap_or(true))?;
            let cut = model.cut();
            let defaults = Ends {
                bos: Some(1),
                eos: Some(2),
                add_bos: true,
                ..Ends::NONE
            };
            (Model::Spm(Box::new(model)), cut, defaults)
        }
        "t5" => {
            let unknown = vocab.special_id(meta, UNKNOWN_ID, Some(2))?;
            let model = unigram::Unigram::new(&vocab, meta, unknown)?;
            let cut = model.cut(&vocab);
            let defaults = Ends {
                eos: Some(1),
                add_eos: true,
                ..Ends::NONE
            };
            (Model::Unigram(Box::new(model)), cut, defaults)
        }
        "rwkv" => {
            let unknown = vocab.special_id(meta, UNKNOWN_ID, None)?;
            let model = rwkv::Rwkv::new(&vocab, unknown);
            let cut = model.cut(&vocab);
            (Model::Rwkv(model), cut, Ends::NONE)
        }
        // `refusal` leaves these two.
        kind => {
            let definition = match kind {
                "gemma4" => known_definition(meta, kind)?,
                _ => definition(meta, options)?,
            };
            always_bos = definition.bos == Bos::Always;
            let model = bpe::Bpe::new(&vocab, meta, definition)?;
            let cut = model.cut()?;
            let defaults = Ends {
                add_bos: definition.bos == Bos::ByDefault,
                ..Ends::NONE
            };
            (Model::Bpe(Box::new(model)), cut, defaults)
        }
    };
    let ends = ends(&vocab, meta, options, always_bos, defaults)?;
    Ok(Built {
        vocab,
        model,
        cut,
        ends,
    })
}

/// BOS and EOS as the user, the metadata or the model's defaults have them, in
/// this order.
fn ends(
    vocab: &Vocab,
    meta: &Metadata,
    options: &Options,
    always_bos: bool,
    defaults: Ends,
) -> Result<Ends, TokenizerError> {
    let add_bos = meta.bool("tokenizer.ggml.add_bos_token")?;
    let add_bos = always_bos || add_bos.unwrap_or(defaults.add_bos);
    let add_eos = meta.bool("tokenizer.ggml.add_eos_token")?;
    let ends = Ends {
        bos: vocab.special_id(meta, "tokenizer.ggml.bos_token_id", defaults.bos)?,
        eos: vocab.special_id(meta, "tokenizer.ggml.eos_token_id", defaults.eos)?,
        add_bos: options.add_bos.unwrap_or(add_bos),
        add_eos: add_eos.unwrap_or(defaults.add_eos),
    };
    for (wanted, id, name) in [
        (ends.add_bos, ends.bos, "bos"),
        (ends.add_eos, ends.eos, "eos"),
    ] {
        if wanted && id.is_none() {
            return Err(vocab.malformed(format!(
                "{} is to be added, but tokenizer.ggml.{name}_token_id names no token",
                name.to_uppercase()
            )));
        }
    }
    Ok(ends)
}

/// Why a tokenizer model is refused.
fn refusal(kind: &str) -> Option<&'static str> {
    match kind {
        "gpt2" | "gemma4" | "llama" | "t5" | "rwkv" => None,
        "bert" => Some("belongs to encoder models, which have no perplexity"),
        "none" | "no_vocab" => Some("means that the file holds no vocabulary; give token ids"),
        _ => Some("is not supported; gpt2, gemma4, llama, t5 and rwkv are. Give token ids"),
    }
}

/// The pre-tokenizer of a `gpt2` vocabulary: the file's, or else the user's.
fn definition(meta: &Metadata, options: &Options) -> Result<&'static Definition, TokenizerError> {
    let path = meta.path().to_owned();
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

fn known_definition(meta: &Metadata, name: &str) -> Result<&'static Definition, TokenizerError> {
    table::find(name).ok_or_else(|| TokenizerError::UnknownPreTokenizer {
        path: meta.path().to_owned(),
        name: name.to_owned(),
        nearest: table::nearest(name),
    })
}
