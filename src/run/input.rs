//! A model made ready for scoring.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::backend::cpu::CpuModel;
use crate::backend::{BackendError, CPU, Numerics, Variation};
use crate::gguf::{BlockType, Gguf, GgufError};
use crate::model::{Model, ModelError};
use crate::tokenizer::{self, Tokenizer, TokenizerError};

/// Why a model is not ready.
#[derive(Debug, thiserror::Error)]
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
    pub path: PathBuf,
    pub model: Arc<Model>,
    pub cpu: CpuModel,
    pub numerics: Numerics,
    tokenizer: Result<Tokenizer, Arc<TokenizerError>>,
    /// Bytes of text that each token stands for; empty without a tokenizer.
    piece_bytes: Vec<u64>,
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
        let piece_bytes = match &tokenizer {
            Ok(t) => (0..t.vocab_size() as u32)
                .map(|id| t.piece(id).len() as u64)
                .collect(),
            Err(_) => Vec::new(),
        };
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
            piece_bytes,
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

    /// Bytes of text that `ids` stand for; 0 where that is not known.
    pub fn text_bytes(&self, ids: &[u32]) -> u64 {
        ids.iter()
            .map(|&id| self.piece_bytes.get(id as usize).copied().unwrap_or(0))
            .sum()
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
