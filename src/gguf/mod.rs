//! GGUF files: a memory-mapped reader with typed metadata, and a writer for
//! fixtures. Knows the container and the block sizes, nothing of architectures.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod block_type;
mod error;
mod header;
mod metadata;
mod reader;
mod split;
mod tensor_info;
mod writer;

pub use block_type::BlockType;
pub use error::{GgufError, Problem};
pub use metadata::{Array, Metadata, Value};
pub use reader::Gguf;
pub use split::first_part;
pub use tensor_info::TensorInfo;
pub use writer::GgufWriter;
