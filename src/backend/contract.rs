//! What the evaluator sees of a device: hidden states, targets and their scores, and
//! the two traits of a model that runs in layer windows.

use std::ops::Range;

use super::error::BackendError;
use super::interrupt::Interrupt;

/// Hidden states of a batch of sequences, row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// `rows × width`, row-major.
    pub data: Vec<f32>,
    /// Values in a row.
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
    /// How many rows there are.
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
    pub(super) fn check_targets(
        &self,
        targets: &[Target],
        n_vocab: usize,
    ) -> Result<(), BackendError> {
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

/// A target to score: the row whose logits predict it, and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its row.
    pub row: usize,
    /// The id that is scored.
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
    /// Layers of the whole model.
    fn n_layer(&self) -> usize;

    /// Entries of the vocabulary.
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
    /// The layers that it holds.
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
