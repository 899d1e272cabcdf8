//! The contract of a layer-window model, on the device.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::error::CudaError;
use super::layers::CudaLayers;
use super::memory::MemoryUse;
use super::ops::Place;
use super::precision::Precision;
use super::prefetch::Next;
use super::session::Session;
use super::{footprint, head};
use crate::backend::{
    BackendError, Hidden, Interrupt, LayerWindow, LayerWindowModel, Stage, Target, TokenScore, cpu,
    work,
};
use crate::isa::Isa;
use crate::model::Model;

/// A model on a CUDA device.
pub struct CudaModel(Session);

impl CudaModel {
    /// Runs `model` on the first device. Compiled kernels are kept under `cache`.
    ///
    /// # Errors
    /// A missing library or device, kernels that do not compile.
    pub fn new(
        model: Arc<Model>,
        precision: Precision,
        cache: Option<&Path>,
    ) -> Result<Self, CudaError> {
        Session::open(model, precision, cache).map(Self)
    }

    /// The device's memory.
    ///
    /// # Errors
    /// A device that does not answer.
    pub fn memory(&self) -> Result<MemoryUse, CudaError> {
        self.0.gpu.memory.figures()
    }
}

impl LayerWindowModel for CudaModel {
    fn n_layer(&self) -> usize {
        self.0.model.n_layer()
    }

    fn n_vocab(&self) -> usize {
        self.0.model.n_vocab
    }

    fn n_embd(&self) -> usize {
        self.0.model.n_embd
    }

    fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError> {
        cpu::embed(Isa::detect(), &self.0.model, sequences, n_ctx)
    }

    fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
        Ok(Box::new(CudaLayers::new(&self.0, range)?))
    }

    fn prefetch(&self, range: Range<usize>) {
        if range.start <= range.end && range.end <= self.n_layer() {
            *self.0.next() = Some(Next::Wanted(range));
        }
    }

    /// On the host: a row of the norm costs less than its way there and back.
    fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32> {
        cpu::normed_rows(Isa::detect(), &self.0.model.head, &hidden.data, rows)
    }

    fn logits(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        let n_vocab = self.n_vocab();
        if vocab.start > vocab.end || vocab.end > n_vocab {
            let found = vocab;
            return Err(BackendError::Vocabulary { found, n_vocab });
        }
        let mut state = self.0.state();
        self.0.load_head(&mut state)?;
        let n_in = self.0.model.head.weight.n_in;
        let mut logits = Vec::with_capacity(head_rows.len() / n_in * vocab.len());
        for rows in head_rows.chunks(head::ROWS * n_in) {
            let n = rows.len() / n_in;
            let Some(layout) = state.head.as_ref().map(|h| &h.layout) else {
                break;
            };
            let bytes = footprint::logits_workspace(layout, self.0.precision, n, vocab.clone());
            let workspace = state.workspace(&self.0.gpu, bytes)?;
            let Some(head) = &state.head else { break };
            let place = Place {
                q: &self.0.queue(),
                workspace: &workspace,
                weights: head.weights.address(),
            };
            logits.extend(
                head.layout
                    .logits(place, rows, n, vocab.clone(), interrupt)?,
            );
            interrupt.worked(work(n_in * vocab.len(), n));
        }
        Ok(logits)
    }

    fn score_targets(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        hidden.check_targets(targets, self.n_vocab())?;
        let width = hidden.width;
        let mut state = self.0.state();
        self.0.load_head(&mut state)?;
        let mut scores = Vec::with_capacity(targets.len());
        for targets in targets.chunks(head::ROWS) {
            let rows: Vec<f32> = targets
                .iter()
                .flat_map(|t| &hidden.data[t.row * width..][..width])
                .copied()
                .collect();
            let ids: Vec<i32> = targets.iter().map(|t| t.id as i32).collect();
            let Some(layout) = state.head.as_ref().map(|h| &h.layout) else {
                break;
            };
            let bytes = footprint::head_workspace(layout, self.0.precision, targets.len());
            let workspace = state.workspace(&self.0.gpu, bytes)?;
            let Some(head) = &state.head else { break };
            let place = Place {
                q: &self.0.queue(),
                workspace: &workspace,
                weights: head.weights.address(),
            };
            scores.extend(head.layout.score_targets(place, &rows, &ids, interrupt)?);
            interrupt.worked(work(width * self.n_vocab(), targets.len()));
        }
        match scores.iter().position(|s| !s.nll.is_finite()) {
            None => Ok(scores),
            Some(i) => {
                let (sequence, position) = hidden.locate(targets[i].row);
                Err(BackendError::NotFinite {
                    sequence,
                    position,
                    stage: Stage::Logits,
                })
            }
        }
    }
}
