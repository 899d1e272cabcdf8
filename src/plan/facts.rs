//! What the planner knows of a model from its header alone.

use std::collections::BTreeSet;
use std::path::Path;

use crate::gguf::{BlockType, Gguf, GgufError};

/// Sizes of a model that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    pub architecture: String,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Sum of all tensors in bytes, as stored.
    pub tensor_bytes: u64,
    /// Number of weights.
    pub parameters: u64,
    /// Weights of the output head; a tied head is the token embedding.
    pub head_parameters: u64,
    /// Weights that every evaluated token is multiplied with: all but the
    /// token embedding and the head.
    pub layer_parameters: u64,
    pub n_layers: usize,
    pub n_embd: usize,
    /// The types of all tensors.
    pub types: BTreeSet<BlockType>,
    /// The training context, where the file names it.
    pub context_length: Option<usize>,
}

impl ModelFacts {
    /// Reads the header of `path`.
    ///
    /// # Errors
    /// A malformed file, and one without the architecture's basic sizes.
    pub fn read(path: &Path) -> Result<Self, GgufError> {
        let gguf = Gguf::open(path)?;
        let meta = gguf.metadata();
        let architecture = meta.require_string("general.architecture")?.to_owned();
        let size = |key: &str| meta.require_u64(&format!("{architecture}.{key}"));
        let elements = |name: &str| gguf.tensor(name).map(|t| t.elements() as u64);
        let parameters = gguf.tensors().iter().map(|t| t.elements() as u64).sum();
        let embedding = elements("token_embd.weight").unwrap_or(0);
        let head = elements("output.weight");
        Ok(Self {
            file_bytes: gguf.file_len() as u64,
            tensor_bytes: gguf.tensors().iter().map(|t| t.n_bytes as u64).sum(),
            parameters,
            head_parameters: head.unwrap_or(embedding),
            layer_parameters: parameters - embedding - head.unwrap_or(0),
            n_layers: saturating(size("block_count")?),
            n_embd: saturating(size("embedding_length")?),
            types: gguf.tensors().iter().map(|t| t.ty).collect(),
            context_length: meta
                .u64(&format!("{architecture}.context_length"))?
                .map(saturating),
            architecture,
        })
    }
}

fn saturating(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
