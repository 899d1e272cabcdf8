//! One run measured again and again, each time with something changed.

use std::sync::Arc;

use super::cache::{ModelCache, Wanted};
use super::error::RunError;
use super::inputs::Inputs;
use super::measure::{Control, Measurement, Observation, Settings, measure};
use super::ready::Ready;
use crate::backend::cpu::no_product;
use crate::backend::{CPU, Numerics, Variation};
use crate::corpus::CorpusTokens;
use crate::eval::{Feed, Geometry};
use crate::fetch::TransferProgress;
use crate::plan::RunSpec;
use crate::results::Provenance;

/// Hears how the same runs are measured again and again.
pub trait RerunReporter {
    /// A measurement begins: run `n` of `of` (counted from 1), with `change`.
    fn begin(&mut self, n: usize, of: usize, run: &RunSpec, change: &str);
    /// A batch of its windows is done.
    fn progress(&mut self, observation: &Observation);
    /// The run has no figures, and why.
    fn failed(&mut self, run: &RunSpec, reason: &str);
    /// What the user should know of a run.
    fn note(&mut self, run: &RunSpec, note: &str);
    /// Receives the progress of hashing.
    fn transfers(&self) -> &dyn TransferProgress;
}

/// What is not as the experiment has it; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub numerics: Option<Numerics>,
    pub variation: Variation,
    pub batch: Option<usize>,
    /// What replaces the first token of each window, if anything does.
    pub bos: Option<Option<u32>>,
    pub geometry: Option<Geometry>,
}

/// Measures one run.
pub(super) struct Rerun<'a> {
    pub spec: &'a RunSpec,
    pub cache: &'a mut ModelCache,
    pub inputs: &'a Inputs,
    pub n_threads: usize,
    pub control: &'a Control,
}

/// What a run is, before anything is changed.
pub(super) struct Base {
    pub settings: Settings,
    pub tokens: Arc<CorpusTokens>,
    /// All that can move its figures.
    pub provenance: Provenance,
    /// Windows that are evaluated together.
    pub batch: usize,
    /// The model's, whether it is used or not.
    pub bos: Option<u32>,
    /// Whether activations can be quantized for the model's weights.
    pub has_q8: bool,
}

impl<'a> Rerun<'a> {
    /// Loads the run.
    pub fn base(&mut self) -> Result<Base, RunError> {
        let wanted = self.wanted(Change::default());
        let (loaded, tokens) = self.cache.get(&wanted, self.inputs)?;
        let partition = self.spec.placement.partition(loaded.model.n_layer());
        let mut devices = partition.spans().iter().map(|span| span.device);
        if let Some(other) = devices.find(|&d| d != CPU) {
            return Err(RunError::NotVaried(other));
        }
        let types = loaded.model.gguf.tensors().iter().map(|t| t.ty);
        let ready = Ready::new(self.spec, loaded, tokens, self.inputs)?;
        Ok(Base {
            settings: ready.settings,
            tokens: ready.tokens,
            provenance: ready.provenance,
            batch: Feed::batch_for(self.spec.geometry.n_ctx, loaded.cpu.n_threads()),
            bos: loaded.tokenizer()?.bos(),
            has_q8: no_product(Numerics::Q8, types).is_none(),
        })
    }

    fn wanted(&self, change: Change) -> Wanted<'a> {
        Wanted {
            model: &self.spec.model,
            corpus: &self.spec.corpus.path,
            numerics: change.numerics.unwrap_or(self.spec.numerics),
            variation: change.variation,
            n_threads: self.n_threads,
        }
    }

    /// Measures the run with `change`.
    pub fn measure(
        &mut self,
        base: &Base,
        change: Change,
        reporter: &mut dyn RerunReporter,
    ) -> Result<Measurement, RunError> {
        let wanted = self.wanted(change);
        let (loaded, _) = self.cache.get(&wanted, self.inputs)?;
        let settings = Settings {
            batch: change.batch,
            bos: change.bos.unwrap_or(base.settings.bos),
            geometry: change.geometry.unwrap_or(base.settings.geometry),
            ..base.settings
        };
        let text = loaded.text(&base.tokens.ids);
        let m = loaded.placed(self.spec.placement, self.control, |subject| {
            let observe = &mut |o: Observation| reporter.progress(&o);
            measure(subject, text, &settings, self.control, observe)
        })?;
        self.inputs.check_model(wanted.model, &loaded.model.gguf)?;
        Ok(m)
    }
}
