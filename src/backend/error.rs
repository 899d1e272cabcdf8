//! Why a device cannot be used, or a batch not be evaluated.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::numerics::Numerics;
use crate::gguf::BlockType;

/// The stage whose output was not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Hidden states of embedded tokens.
    Embedding,
    /// Hidden states after this layer.
    Layer(usize),
    /// The output head.
    Logits,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Embedding => f.write_str("the token embedding"),
            Stage::Layer(i) => write!(f, "layer {i}"),
            Stage::Logits => f.write_str("the output head"),
        }
    }
}

/// Why a batch could not be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each message says it")]
pub enum BackendError {
    /// A value was NaN or infinite; `stage` is the first that produced one.
    #[error(
        "{stage} yields a value that is not finite at position {position} of sequence {sequence}"
    )]
    NotFinite {
        sequence: usize,
        position: usize,
        stage: Stage,
    },
    #[error(
        "token id {id} at position {position} of sequence {sequence} is outside the vocabulary of {n_vocab}"
    )]
    TokenId {
        sequence: usize,
        position: usize,
        id: u32,
        n_vocab: usize,
    },
    #[error("the ids {found:?} are no part of the vocabulary of {n_vocab}")]
    Vocabulary { found: Range<usize>, n_vocab: usize },
    #[error("layers {found:?} are no part of the model's {n_layer} layers")]
    Layers { found: Range<usize>, n_layer: usize },
    #[error(transparent)]
    Quant(#[from] crate::quant::QuantError),
    #[error(
        "the model returns {found} logits for sequence {sequence}, not {rows} rows of {n_vocab}"
    )]
    Logits {
        sequence: usize,
        rows: usize,
        n_vocab: usize,
        found: usize,
    },
    /// Of a model or device that is not pplx's own, in its words.
    #[error("{0}")]
    Other(String),
    #[error("numerics '{numerics}' is not for layers on {device}")]
    Numerics {
        numerics: Numerics,
        /// The device's name.
        device: &'static str,
    },
    #[error("numerics 'q8' has no product for weights of type {0}; use numerics 'exact'")]
    NoIntegerProduct(BlockType),
    #[error("cannot start worker threads: {0}")]
    Threads(String),
    #[error(transparent)]
    Device(#[from] DeviceFailure),
    #[error("interrupted")]
    Interrupted,
}

impl BackendError {
    /// What is wrong in a few words, for a reason that is one of several.
    pub fn brief(&self) -> String {
        match self {
            BackendError::Device(failure) => failure.brief.clone(),
            e => e.to_string(),
        }
    }

    /// Any other error of a model or device.
    pub fn other(e: impl fmt::Display) -> Self {
        BackendError::Other(e.to_string())
    }
}

/// What a backend says of its own libraries and devices: its error, whose type the
/// backend knows.
#[derive(Clone, Debug)]
pub struct DeviceFailure {
    error: Arc<dyn Error + Send + Sync>,
    brief: String,
}

impl DeviceFailure {
    /// `brief` is what there is to say in a few words.
    pub fn new(error: impl Error + Send + Sync + 'static, brief: String) -> Self {
        let error = Arc::new(error);
        Self { error, brief }
    }

    /// The backend's own error, where it is an `E`.
    pub fn of_type<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }
}

impl PartialEq for DeviceFailure {
    fn eq(&self, other: &Self) -> bool {
        self.error.to_string() == other.error.to_string()
    }
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for DeviceFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
