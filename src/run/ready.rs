//! What a run is, before it is measured.

use std::sync::Arc;

use super::engine::engine;
use super::error::RunError;
use super::input::{LoadedModel, model_type};
use super::inputs::Inputs;
use super::measure::MeasureError;
use super::measure::Settings;
use crate::corpus::{CorpusTokens, ids_sha256};
use crate::eval::WindowPlan;
use crate::plan::RunSpec;
use crate::results::Provenance;

/// A run that can be measured.
pub(super) struct Ready {
    pub tokens: Arc<CorpusTokens>,
    pub settings: Settings,
    /// All that can move its figures.
    pub provenance: Provenance,
}

impl Ready {
    /// What `spec` is with this model and these tokens; nothing is measured.
    ///
    /// # Errors
    /// A model without the BOS that it asks for, tokens that are too few.
    pub fn new(
        spec: &RunSpec,
        loaded: &LoadedModel,
        tokens: Arc<CorpusTokens>,
        inputs: &Inputs,
    ) -> Result<Self, RunError> {
        let bos = window_bos(loaded, spec)?;
        let plan = WindowPlan::new(tokens.ids.len(), spec.geometry, spec.limits)
            .map_err(MeasureError::Geometry)?;
        let partition = spec.placement.partition(loaded.model.n_layer());
        Ok(Self {
            provenance: Provenance {
                model_type: model_type(&loaded.model.gguf),
                architecture: loaded.model.architecture.clone(),
                tokens: Some(tokens.ids.len()),
                tokens_sha256: ids_sha256(&tokens.ids),
                bos: Some(bos.is_some()),
                windows: Some(plan.windows().len()),
                scored_tokens: Some(plan.scored()),
                layer_placement: partition.to_string(),
                ..known_before(spec, inputs)
            },
            settings: Settings {
                geometry: spec.geometry,
                limits: spec.limits,
                bos,
                placement: spec.placement,
                batch: None,
            },
            tokens,
        })
    }
}

/// What is known of a run whose model and corpus nobody has looked into.
pub(super) fn known_before(run: &RunSpec, inputs: &Inputs) -> Provenance {
    Provenance {
        model: run.model.name.clone(),
        model_sha256: inputs.sha256(&run.model.path),
        model_type: String::new(),
        architecture: String::new(),
        corpus: run.corpus.name.clone(),
        corpus_sha256: inputs.sha256(&run.corpus.path),
        tokens: None,
        tokens_sha256: String::new(),
        geometry: run.geometry,
        bos: None,
        parse_special: run.model.parse_special,
        windows: None,
        scored_tokens: None,
        placement: run.placement.to_string(),
        layer_placement: String::new(),
        numerics: run.numerics.to_string(),
        engine: engine(run.gpu.as_deref()),
    }
}

/// What replaces the first token of each window.
pub(super) fn window_bos(loaded: &LoadedModel, spec: &RunSpec) -> Result<Option<u32>, RunError> {
    let tokenizer = loaded.tokenizer()?;
    match tokenizer.add_bos() && spec.geometry.mode.substitutes_bos() {
        true => tokenizer.bos().map(Some).ok_or(RunError::NoBos),
        false => Ok(None),
    }
}
