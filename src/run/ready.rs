//! What a run is, before it is measured.

use std::sync::Arc;

use super::engine::engine;
use super::error::RunError;
use super::input::{LoadedModel, model_size, model_type};
use super::inputs::Inputs;
use super::measure::{MeasureError, Settings};
use crate::corpus::{CorpusTokens, ids_sha256};
use crate::eval::{GeometryError, WindowPlan};
use crate::plan::RunSpec;
use crate::results::{Identity, Provenance};

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
        let settings = Settings {
            geometry: spec.geometry,
            limits: spec.limits,
            bos: window_bos(loaded, spec)?,
            batch: None,
        };
        let partition = spec.placement.partition(loaded.model.n_layer());
        let identity = Identity {
            model_type: model_type(&loaded.model.gguf),
            size: model_size(&loaded.model.gguf),
            architecture: loaded.model.architecture.clone(),
            layer_placement: partition.to_string(),
            ..identity(spec, inputs)
        };
        let provenance = identify(identity, &tokens.ids, &settings);
        Ok(Self {
            provenance: provenance.map_err(MeasureError::Geometry)?,
            settings,
            tokens,
        })
    }
}

/// All that can move the figures of a run: what is measured, the ids of its corpus,
/// and how it is measured.
///
/// # Errors
/// A geometry that does not fit the tokens.
pub fn identify(
    identity: Identity,
    ids: &[u32],
    settings: &Settings,
) -> Result<Provenance, GeometryError> {
    let plan = WindowPlan::new(ids.len(), settings.geometry, settings.limits)?;
    Ok(Provenance {
        tokens: Some(ids.len()),
        tokens_sha256: ids_sha256(ids),
        bos: Some(settings.bos.is_some()),
        windows: Some(plan.windows().len()),
        scored_tokens: Some(plan.scored()),
        ..identity.unread(settings.geometry)
    })
}

/// What is known of a run whose model and corpus nobody has looked into.
pub(super) fn identity(run: &RunSpec, inputs: &Inputs) -> Identity {
    Identity {
        model: run.model.name.clone(),
        model_sha256: inputs.sha256(&run.model.path),
        corpus: run.corpus.name.clone(),
        corpus_sha256: inputs.sha256(&run.corpus.path),
        parse_special: run.model.parse_special,
        placement: run.placement.to_string(),
        numerics: run.numerics.to_string(),
        engine: engine(run.gpu.as_deref()),
        ..Identity::default()
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
