//! Where layers run. A backend evaluates contiguous ranges of layers on batches
//! of corpus windows: hidden states in, hidden states out. It knows nothing of
//! corpora or statistics.

pub mod cpu;
pub mod cuda;
mod interrupt;
mod partition;
mod variation;

use std::fmt;
use std::ops::Range;

use crate::gguf::BlockType;

pub use interrupt::{Interrupt, work};
pub use partition::{Device, LayerSpan, Partition, PartitionError};
pub use variation::{Precision, SumOrder, Variation};

/// The version of the arithmetic, part of the engine's name in rows. It is raised
/// whenever a bit of any score changes, for whatever reason and on any device: rows
/// of another version are measured again. `tests/architectures/golden.rs` holds the
/// bits of this one.
pub const ARITHMETIC: u32 = 1;

/// The arithmetic of products with weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// Weights decoded to f32, products and sums in f32.
    Exact,
    /// Activations quantized to 8 bits as in ggml's CPU backend, products in
    /// integers.
    Q8,
    /// Weights and activations narrowed to half precision where they meet in
    /// products, sums in f32.
    F16,
    /// The same in bfloat16.
    Bf16,
}

impl Numerics {
    /// All of them, in the order in which messages list them.
    pub const ALL: [Numerics; 4] = [Numerics::Exact, Numerics::Q8, Numerics::F16, Numerics::Bf16];

    /// Whether layers on `device` can be computed so.
    pub fn runs_on(self, device: Device) -> bool {
        match (self, device) {
            (Numerics::Exact, _) => true,
            (Numerics::Q8, device) => device == Device::Cpu,
            (Numerics::F16 | Numerics::Bf16, device) => device == Device::Cuda,
        }
    }

    /// As in experiment files and result tables.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Exact => "exact",
            Numerics::Q8 => "q8",
            Numerics::F16 => "f16",
            Numerics::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Hidden states of a batch of sequences, row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// `rows × width`, row-major.
    pub data: Vec<f32>,
    pub width: usize,
    /// What layers hand to later layers beside the hidden state, as many values
    /// for each row; empty for most models.
    pub carried: Vec<f32>,
    /// Length of each sequence, in the order of their rows.
    pub lens: Vec<usize>,
    /// The run's context length, which some models look at; no sequence is
    /// longer.
    pub n_ctx: usize,
    /// Nobody reads what the model's last layer makes of the rows before this
    /// position of each sequence, so a backend may leave them as they are.
    pub needed_from: usize,
}

impl Hidden {
    pub fn rows(&self) -> usize {
        self.lens.iter().sum()
    }

    /// The states of each sequence, `len × width` each.
    pub fn sequences_mut(&mut self) -> Vec<&mut [f32]> {
        by_sequence(&mut self.data, &self.lens, self.width)
    }

    /// The states of each sequence, and the carried values of its rows.
    pub fn sequences_and_carried_mut(&mut self) -> Vec<(&mut [f32], &mut [f32])> {
        let n_carried = self.carried.len() / self.rows().max(1);
        let states = by_sequence(&mut self.data, &self.lens, self.width);
        let carried = by_sequence(&mut self.carried, &self.lens, n_carried);
        states.into_iter().zip(carried).collect()
    }

    /// Sequence number and position of a row.
    pub fn locate(&self, mut row: usize) -> (usize, usize) {
        for (sequence, &len) in self.lens.iter().enumerate() {
            if row < len {
                return (sequence, row);
            }
            row -= len;
        }
        (self.lens.len(), row)
    }

    /// # Errors
    /// The first target outside the vocabulary, with its place.
    fn check_targets(&self, targets: &[Target], n_vocab: usize) -> Result<(), BackendError> {
        let Some(t) = targets.iter().find(|t| t.id as usize >= n_vocab) else {
            return Ok(());
        };
        let (sequence, row) = self.locate(t.row);
        Err(BackendError::TokenId {
            sequence,
            // A row predicts the token after it.
            position: row + 1,
            id: t.id,
            n_vocab,
        })
    }
}

/// Cuts rows of `width` values into sequences.
fn by_sequence<'a>(mut rows: &'a mut [f32], lens: &[usize], width: usize) -> Vec<&'a mut [f32]> {
    lens.iter()
        .map(|len| {
            let (head, tail) = std::mem::take(&mut rows).split_at_mut(len * width);
            rows = tail;
            head
        })
        .collect()
}

/// The stage whose output was not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Embedding,
    Layer(usize),
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
    Numerics { numerics: Numerics, device: Device },
    #[error("numerics 'q8' has no product for weights of type {0}; use numerics 'exact'")]
    NoIntegerProduct(BlockType),
    #[error("cannot start worker threads: {0}")]
    Threads(String),
    #[error(transparent)]
    Cuda(#[from] cuda::CudaError),
    #[error("interrupted")]
    Interrupted,
}

impl BackendError {
    /// Any other error of a model or device.
    pub fn other(e: impl fmt::Display) -> Self {
        BackendError::Other(e.to_string())
    }
}

/// A target to score: the row whose logits predict it, and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub row: usize,
    pub id: u32,
}

/// What the softmax over the whole vocabulary says of one target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenScore {
    /// `−ln p(target)` in nats.
    pub nll: f64,
    /// Vocabulary entries with a strictly greater logit: 0 if the target is the
    /// most likely token.
    pub rank: u32,
    /// The most likely token, the first of equally likely ones.
    pub top_id: u32,
    /// Its probability.
    pub top_p: f32,
    /// Entropy of the distribution in nats, `−Σ p · ln p`.
    pub entropy: f32,
}

/// A model on one device, taken apart at layer boundaries.
pub trait LayerWindowModel: Send + Sync {
    fn n_layer(&self) -> usize;

    fn n_vocab(&self) -> usize;

    /// Width of the hidden state.
    fn n_embd(&self) -> usize;

    /// Hidden states before the first layer, in a run at context `n_ctx`.
    ///
    /// # Errors
    /// Ids outside the vocabulary, values that are not finite.
    fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError>;

    /// Puts a range of layers on the device. Dropping it frees their memory.
    ///
    /// # Errors
    /// A range outside the model, weights that cannot be decoded.
    fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError>;

    /// Says that `layers` will be asked for these next, while others compute. A
    /// device may begin to load them where it has room; nothing depends on it.
    fn prefetch(&self, _range: Range<usize>) {}

    /// The rows of `hidden` with these numbers, as the output matrix takes them
    /// (the final norm applied): `rows × width`, for [`Self::logits`].
    fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32>;

    /// The logits of a part of the vocabulary, `rows × vocab`, with all that the
    /// head does to them. What is asked for at a time bounds the memory; the
    /// values do not depend on it. They are not checked for NaN and infinity.
    ///
    /// # Errors
    /// Weights that cannot be decoded, ids outside the vocabulary, interruption.
    fn logits(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError>;

    /// Scores the targets, each by a softmax over the whole vocabulary in f64; the
    /// logits are never stored together.
    ///
    /// # Errors
    /// Logits that are not finite, interruption.
    fn score_targets(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError>;
}

/// A contiguous range of layers on one device.
pub trait LayerWindow {
    fn range(&self) -> Range<usize>;

    /// Forgets all recurrent state. Called before every batch of corpus windows
    /// in every pass.
    fn reset_state(&mut self);

    /// Runs the layers on every sequence, each from position 0, in place.
    ///
    /// # Errors
    /// Values that are not finite, with the first layer that yields one;
    /// interruption, which is looked for between layers at least.
    fn forward(&mut self, hidden: &mut Hidden, interrupt: &Interrupt) -> Result<(), BackendError>;
}
