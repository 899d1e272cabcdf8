//! A model whose file does not stay in memory.

use std::ops::Range;

use super::model::CpuModel;
use super::weights::Residency;
use crate::backend::{
    BackendError, Hidden, Interrupt, LayerWindow, LayerWindowModel, Target, TokenScore,
};
use crate::model::Model;

impl CpuModel {
    /// The same model for files larger than memory: a layer window that is dropped
    /// releases its pages of the file, the embedding and the head release theirs
    /// as they go. Not one number changes.
    pub fn streamed(&self) -> StreamedCpu<'_> {
        // What reading the header and the norms has left.
        self.model.gguf.release_all();
        StreamedCpu(self)
    }
}

/// A [`CpuModel`] that keeps no more of the file in memory than it is using: see
/// [`CpuModel::streamed`].
pub struct StreamedCpu<'a>(&'a CpuModel);

impl LayerWindowModel for StreamedCpu<'_> {
    fn n_layer(&self) -> usize {
        self.0.n_layer()
    }

    fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    fn n_embd(&self) -> usize {
        self.0.n_embd()
    }

    fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError> {
        let hidden = self.0.embed(sequences, n_ctx);
        let Model {
            gguf, embedding, ..
        } = &*self.0.model;
        embedding.table.release(gguf);
        hidden
    }

    fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
        self.0.layers_with(range, Residency::Streamed)
    }

    fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32> {
        self.0.head_rows(hidden, rows)
    }

    fn logits(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        self.0
            .logits_with(head_rows, vocab, Residency::Streamed, interrupt)
    }

    fn score_targets(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        self.0
            .score_targets_with(hidden, targets, Residency::Streamed, interrupt)
    }
}
