use crate::gguf::{BlockType, GgufError};

/// Why a model file cannot be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each message says it")]
pub enum ModelError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("architecture '{found}' is not supported; supported are {supported}")]
    Architecture { found: String, supported: String },
    #[error("tensor '{name}' is missing; the architecture needs it with the shape {expected:?}")]
    MissingTensor { name: String, expected: Vec<usize> },
    #[error("tensor '{name}' has the shape {found:?}; the hyper-parameters ask for {expected:?}")]
    Shape {
        name: String,
        expected: Vec<usize>,
        found: Vec<u64>,
    },
    #[error("tensor '{name}' has the block type {ty}, which cannot be decoded")]
    BlockType { name: String, ty: BlockType },
    #[error(
        "the file holds {count} tensors that architecture '{architecture}' does not use, so scoring \
         it would leave something out: {names}"
    )]
    UnusedTensors {
        architecture: String,
        count: usize,
        names: String,
    },
    #[error(
        "tensor '{lacking}' is missing, while '{found}' is there: without it one layer would be \
         computed differently from the others"
    )]
    Uneven { found: String, lacking: String },
    #[error("metadata key '{key}' is {found}: {problem}")]
    Key {
        key: String,
        found: String,
        problem: String,
    },
    #[error("RoPE scaling '{0}' is not supported; supported are none, linear, yarn")]
    RopeScaling(String),
}
