//! A model made ready for scoring.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::measure::{Control, Measurable, MeasureError, NoPieces, Pieces, Text};
use crate::backend::cpu::CpuModel;
use crate::backend::{BackendError, CPU, LayerWindowModel, Numerics, OpenOptions, Variation, work};
use crate::eval::{Feed, Layered, Scorer};
use crate::gguf::{BlockType, Gguf, GgufError};
use crate::model::{Model, ModelError};
use crate::plan::Placement;
use crate::results::ModelSize;
use crate::tokenizer::{self, Tokenizer, TokenizerError};

/// Why a model is not ready.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum InputError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("{}: {error}", path.display())]
    Model { path: PathBuf, error: ModelError },
    /// It names the file itself.
    #[error("{0}")]
    Tokenizer(Arc<TokenizerError>),
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// A model on its device, with its tokenizer.
pub struct LoadedModel {
    /// Its file.
    pub path: PathBuf,
    /// What the file holds.
    pub model: Arc<Model>,
    /// Its layers on the CPU.
    pub cpu: CpuModel,
    /// The arithmetic that it is made ready for.
    pub numerics: Numerics,
    tokenizer: Result<Tokenizer, Arc<TokenizerError>>,
    /// Of each file when it was opened.
    written: Vec<Written>,
}

/// What every write to a file changes: its length or its time. `None` where the
/// system does not tell.
type Written = Option<(u64, SystemTime)>;

fn written(file: &File) -> Written {
    let meta = file.metadata().ok()?;
    Some((meta.len(), meta.modified().ok()?))
}

impl LoadedModel {
    /// Loads `path`; `n_threads` of 0 takes every core. A vocabulary that cannot
    /// be used is an error only when [`Self::tokenizer`] is asked for it.
    ///
    /// # Errors
    /// A file that is malformed or that cannot be scored.
    pub fn open(
        path: &Path,
        options: &tokenizer::Options,
        n_threads: usize,
    ) -> Result<Self, InputError> {
        let gguf = Arc::new(Gguf::open(path)?);
        let written = gguf.files().map(written).collect();
        let tokenizer = Tokenizer::from_gguf(gguf.metadata(), options);
        let model = Model::from_gguf(gguf).map_err(|error| match error {
            // It names the file itself.
            ModelError::Gguf(e) => InputError::Gguf(e),
            error => InputError::Model {
                path: path.to_owned(),
                error,
            },
        })?;
        let model = Arc::new(model);
        Ok(Self {
            path: path.to_owned(),
            cpu: CpuModel::new(model.clone(), n_threads)?,
            numerics: Numerics::Exact,
            model,
            tokenizer: tokenizer.map_err(Arc::new),
            written,
        })
    }

    /// The first file that was written to since it was opened. The weights are read
    /// from it all the time.
    pub fn written_to(&self) -> Option<&Path> {
        let gguf = &self.model.gguf;
        let mut files = gguf.paths().iter().zip(gguf.files()).zip(&self.written);
        let found = files.find(|((_, file), then)| written(file) != **then);
        found.map(|((path, _), _)| path.as_path())
    }

    /// The same model with other arithmetic; `open` makes it exact. What is for a
    /// GPU leaves the model on the CPU as it is.
    ///
    /// # Errors
    /// Weights of a type that the arithmetic has no products for.
    pub fn with_numerics(self, numerics: Numerics) -> Result<Self, InputError> {
        let cpu = match CPU.can_do(numerics) {
            true => self.cpu.with_numerics(numerics)?,
            false => self.cpu,
        };
        Ok(Self {
            cpu,
            numerics,
            ..self
        })
    }

    /// The same model with arithmetic that is varied; `open` varies nothing.
    pub fn with_variation(self, variation: Variation) -> Self {
        Self {
            cpu: self.cpu.with_variation(variation),
            ..self
        }
    }

    /// # Errors
    /// Why the file's vocabulary cannot be used.
    pub fn tokenizer(&self) -> Result<&Tokenizer, InputError> {
        let tokenizer = self.tokenizer.as_ref();
        tokenizer.map_err(|e| InputError::Tokenizer(e.clone()))
    }

    /// Token ids as a text for the model.
    pub fn text<'a>(&'a self, ids: &'a [u32]) -> Text<'a> {
        let pieces: &dyn Pieces = match &self.tokenizer {
            Ok(tokenizer) => tokenizer,
            Err(_) => &NoPieces,
        };
        Text { ids, pieces }
    }

    /// Puts the model's layers where a placement wants them, to be measured there.
    ///
    /// # Errors
    /// A device that is missing or cannot do the model's numerics; a model that was
    /// written to meanwhile.
    pub fn placed<T>(
        &self,
        placement: Placement,
        control: &Control,
        measure: impl FnOnce(Measurable) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let (model, numerics) = (&self.model, self.numerics);
        let partition = placement.partition(model.n_layer());
        let mut used = partition.devices();
        if let Some(&device) = used.iter().find(|device| !device.can_do(numerics)) {
            return Err(MeasureError::Numerics { numerics, device });
        }
        let streamed;
        let cpu: &dyn LayerWindowModel = match partition.cycles() {
            true => {
                streamed = self.cpu.streamed();
                &streamed
            }
            false => &self.cpu,
        };
        let n_threads = self.cpu.n_threads();
        let options = OpenOptions {
            numerics,
            n_threads,
            cache: control.kernels.as_deref(),
        };
        used.retain(|&device| device != CPU);
        let opened: Vec<Box<dyn LayerWindowModel>> = used
            .iter()
            .map(|device| device.open(model.clone(), &options))
            .collect::<Result<_, _>>()?;
        let opened = opened.iter().map(|model| &**model);
        let mut devices = vec![(CPU, cpu)];
        devices.extend(used.into_iter().zip(opened));
        let layered = Layered::new(devices, partition)?;
        let layers = (0..model.n_layer()).map(|i| work(model.layer_elements(i), 1));
        let head = &model.head.weight;
        let result = measure(Measurable {
            scorer: Scorer::Layers(&layered),
            n_ctx_max: Some(model.n_ctx_train),
            batch_for: Box::new(move |n_ctx| {
                let by_device = placement.device().batch_windows(n_ctx);
                by_device.unwrap_or_else(|| Feed::batch_for(n_ctx, n_threads))
            }),
            n_threads,
            row_work: layers.sum(),
            target_work: work(head.n_in * head.n_out, 1),
        })?;
        match self.written_to() {
            None => Ok(result),
            Some(path) => Err(MeasureError::Changed {
                path: path.to_owned(),
            }),
        }
    }
}

/// The block type that holds most of a file's weights.
pub fn model_type(gguf: &Gguf) -> String {
    let mut elements: BTreeMap<BlockType, usize> = BTreeMap::new();
    for t in gguf.tensors() {
        *elements.entry(t.ty).or_default() += t.elements();
    }
    elements
        .into_iter()
        .max_by_key(|&(_, n)| n)
        .map_or_else(String::new, |(ty, _)| ty.name().to_owned())
}

/// How large a file is, and what it says that it is.
pub fn model_size(gguf: &Gguf) -> ModelSize {
    let bytes: usize = gguf.tensors().iter().map(|t| t.n_bytes).sum();
    let weights: usize = gguf.tensors().iter().map(|t| t.elements()).sum();
    let file_type = gguf.metadata().u64("general.file_type");
    ModelSize {
        bytes: Some(gguf.file_len() as u64),
        bits_per_weight: (weights > 0).then(|| 8.0 * bytes as f64 / weights as f64),
        quantization: file_type
            .ok()
            .flatten()
            .map_or_else(String::new, quantization),
    }
}

/// What llama.cpp calls a `general.file_type` (`llama_ftype`).
fn quantization(file_type: u64) -> String {
    /// Set where the type was guessed from the tensors.
    const GUESSED: u64 = 1024;
    let name = match file_type & !GUESSED {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4_MOE",
        39 => "NVFP4",
        40 => "Q1_0",
        other => return format!("file type {other}"),
    };
    name.to_owned()
}
