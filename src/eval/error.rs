//! Why an evaluation ends without scores.

use std::path::PathBuf;

use super::geometry::Window;
use crate::backend::{BackendError, Device, LayerSpan, Stage};

/// Why a run ended without a figure.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum EvalError {
    #[error(
        "{stage} yields a value that is not finite (NaN or infinite), first in window {window} at position \
         {position}: the weights or the arithmetic are broken there, so there is no perplexity"
    )]
    NotFinite {
        window: usize,
        position: usize,
        stage: Stage,
    },
    #[error(
        "window {window}, position {position}: token id {id} is outside the model's vocabulary of {n_vocab}; \
         were the tokens made for another model?"
    )]
    TokenId {
        window: usize,
        position: usize,
        id: u32,
        n_vocab: usize,
    },
    #[error(
        "the model scored {found} windows of the {asked} that it was given from window {window} on; it has \
         to score each of them"
    )]
    Windows {
        window: usize,
        asked: usize,
        found: usize,
    },
    #[error("window {window}: the model scored {found} targets of {asked}")]
    Targets {
        window: usize,
        asked: usize,
        found: usize,
    },
    #[error(
        "window {window}, position {position}: the model's score is invalid: {problem}; is it −ln p of the target \
         in nats?"
    )]
    Score {
        window: usize,
        position: usize,
        problem: String,
    },
    #[error("window {window}: the model returns {found} logits, not {rows} rows of {n_vocab}")]
    Logits {
        window: usize,
        rows: usize,
        n_vocab: usize,
        found: usize,
    },
    #[error(transparent)]
    Backend(BackendError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(
        "the model gives scores and no logits, which KL divergences are made of (PerplexityModel::logits)"
    )]
    NoLogits,
    #[error("the base model: {0}")]
    Base(Box<EvalError>),
    #[error(transparent)]
    Stored(#[from] StoredError),
    #[error(
        "the base has {base} tokens in its vocabulary, the model {model}: distributions over different \
         vocabularies cannot be compared"
    )]
    Vocabulary { base: usize, model: usize },
    #[error(
        "the hidden states kept for window {window} belong to other tokens than pass {pass} evaluates"
    )]
    Replay { window: usize, pass: usize },
    #[error("interrupted after {done} of {windows} windows{}", in_pass(*pass, *passes))]
    Interrupted {
        /// From 0.
        pass: usize,
        passes: usize,
        /// In this pass.
        done: usize,
        windows: usize,
    },
}

fn in_pass(pass: usize, passes: usize) -> String {
    match passes {
        0 | 1 => String::new(),
        _ => format!(" in pass {} of {passes}", pass + 1),
    }
}

/// Why devices and a partition do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum DeviceError {
    #[error("there is no model on the device of the layer window {0}")]
    Missing(LayerSpan),
    #[error("the partition has {partition} layers, the model on {device} has {model}")]
    Layers {
        partition: usize,
        device: Device,
        model: usize,
    },
}

/// Why hidden states cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum CheckpointError {
    #[error(
        "the hidden states at a cut need {need} MiB on disk beyond the memory they may take, but {} \
         has {free} MiB left: free some, name another folder (--checkpoint-dir), allow more memory \
         (--checkpoint-memory), or score fewer windows",
        dir.display()
    )]
    Space { dir: PathBuf, need: u64, free: u64 },
    #[error("the disk of {} is full: the hidden states at a cut do not fit", dir.display())]
    Full { dir: PathBuf },
    #[error("cannot keep hidden states in {}: {message}", dir.display())]
    Io { dir: PathBuf, message: String },
    #[error("no hidden states were kept for batch {0}")]
    Missing(usize),
}

/// A stored base that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
#[allow(missing_docs, reason = "each message says it")]
pub struct StoredError {
    pub path: PathBuf,
    pub problem: String,
}

/// Turns a batch's sequence numbers into the corpus's window numbers.
pub(super) fn locate(error: BackendError, windows: &[Window]) -> EvalError {
    let window = |sequence: usize| windows.get(sequence).map_or(sequence, |w| w.index);
    match error {
        BackendError::NotFinite {
            sequence,
            position,
            stage,
        } => EvalError::NotFinite {
            window: window(sequence),
            position,
            stage,
        },
        BackendError::TokenId {
            sequence,
            position,
            id,
            n_vocab,
        } => EvalError::TokenId {
            window: window(sequence),
            position,
            id,
            n_vocab,
        },
        BackendError::Logits {
            sequence,
            rows,
            n_vocab,
            found,
        } => EvalError::Logits {
            window: window(sequence),
            rows,
            n_vocab,
            found,
        },
        other => EvalError::Backend(other),
    }
}
