use std::path::PathBuf;

use crate::gguf::GgufError;

/// Why a vocabulary cannot be used, or a text cannot be tokenized with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each message says it")]
pub enum TokenizerError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("{}: {reason}", path.display())]
    UnsupportedModel { path: PathBuf, reason: String },
    #[error(
        "{}: has no metadata key 'tokenizer.ggml.pre', so how its text is split before merging is \
         unknown. Name it yourself: pre = \"...\" for this model in the experiment, or --pre NAME \
         (llama.cpp would use \"default\")",
        path.display()
    )]
    MissingPreTokenizer { path: PathBuf },
    #[error(
        "{}: the pre-tokenizer '{name}' is unknown; nearest known names: {nearest} \
         (docs/tokenizers.md lists them all)",
        path.display()
    )]
    UnknownPreTokenizer {
        path: PathBuf,
        name: String,
        nearest: String,
    },
    #[error(
        "{}: names the pre-tokenizer '{file}', but '{asked}' was asked for; a name can only be given \
         for a file that has none",
        path.display()
    )]
    PreTokenizerConflict {
        path: PathBuf,
        file: String,
        asked: String,
    },
    #[error(
        "{}: the pre-tokenizer '{asked}' was asked for, but vocabularies of the kind '{model}' have \
         none",
        path.display()
    )]
    PreTokenizerUnused {
        path: PathBuf,
        asked: String,
        model: String,
    },
    #[error("{}: malformed vocabulary: {what}", path.display())]
    Malformed { path: PathBuf, what: String },
    #[error(
        "the vocabulary has no token for {piece:?}, so this text cannot be tokenized without losing \
         bytes (llama.cpp drops them silently)"
    )]
    NoToken { piece: String },
    #[error("internal error in the tokenizer: {0}")]
    Internal(String),
}
