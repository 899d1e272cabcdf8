use std::path::{Path, PathBuf};

use super::BlockType;

/// What is wrong with a GGUF file, and which file it is.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct GgufError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
}

impl GgufError {
    pub(super) fn new(path: &Path, problem: Problem) -> Self {
        Self {
            path: path.to_owned(),
            problem,
        }
    }
}

/// One way in which a GGUF file can be malformed or unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each message says it")]
pub enum Problem {
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("is not a GGUF file: it begins with {found:02x?}, not with \"GGUF\"")]
    BadMagic { found: Vec<u8> },
    #[error("has GGUF version {0}; versions 2 and 3 are supported")]
    Version(u32),
    #[error("is a big-endian GGUF file, which is not supported")]
    BigEndian,
    #[error("is truncated: {what} at byte {at} needs {need} bytes, {left} are left")]
    Truncated {
        what: String,
        at: usize,
        need: u64,
        left: usize,
    },
    #[error("declares {count} {what}, more than the {left} bytes left in the file can hold")]
    ImplausibleCount {
        what: String,
        count: u64,
        left: usize,
    },
    #[error("{what} at byte {at} is not valid UTF-8")]
    Utf8 { what: String, at: usize },
    #[error("key '{key}' has the unknown value type {id}")]
    ValueType { key: String, id: u32 },
    #[error("key '{key}' nests arrays, which is not supported")]
    NestedArray { key: String },
    #[error("key '{key}' holds {found} where a bool is 0 or 1")]
    Bool { key: String, found: u8 },
    #[error("key '{0}' occurs twice")]
    DuplicateKey(String),
    #[error("tensor '{0}' occurs twice")]
    DuplicateTensor(String),
    #[error("general.alignment is {0}; it must be a power of two from 8 to 65536")]
    Alignment(String),
    #[error("tensor '{name}' has {found} dimensions; 1 to 4 are supported")]
    DimensionCount { name: String, found: u32 },
    #[error("tensor '{name}' has the shape {dims:?}, which is empty or too large")]
    Shape { name: String, dims: Vec<u64> },
    #[error("tensor '{name}' has the unknown element type {id}")]
    ElementType { name: String, id: u32 },
    #[error(
        "tensor '{name}' has rows of {row} elements, no multiple of the {} that a {ty} block holds",
        ty.block_elements()
    )]
    RowLength {
        name: String,
        row: u64,
        ty: BlockType,
    },
    #[error("tensor '{name}' starts at offset {offset}, no multiple of the alignment {alignment}")]
    Misaligned {
        name: String,
        offset: u64,
        alignment: u64,
    },
    #[error(
        "tensor '{name}' needs {bytes} bytes from offset {offset} of the tensor data, which ends at {data_len}"
    )]
    PastEnd {
        name: String,
        offset: u64,
        bytes: u64,
        data_len: u64,
    },
    #[error("tensors '{first}' and '{second}' overlap")]
    Overlap { first: String, second: String },
    #[error(
        "is part {part} of a model in {count} files; name the first one instead{}",
        first.as_ref().map_or(String::new(), |p| format!(", {}", p.display()))
    )]
    NotFirstPart {
        part: u64,
        count: u64,
        /// `None` where the file is not named as a part is.
        first: Option<PathBuf>,
    },
    #[error(
        "is the first part of a model in {count} files; its name must end in '{suffix}' for the others to be found"
    )]
    PartName { count: u64, suffix: String },
    #[error("is missing: it is part {part} of the {count} files of {}", first.display())]
    MissingPart {
        part: u64,
        count: u64,
        first: PathBuf,
    },
    #[error("metadata key '{key}' is {found}; as part {part} of {} it must be {expected}", first.display())]
    PartKey {
        key: &'static str,
        found: u64,
        expected: u64,
        part: u64,
        first: PathBuf,
    },
    #[error("its {count} parts hold {found} tensors; split.tensors.count declares {declared}")]
    PartTensors {
        count: u64,
        found: usize,
        declared: u64,
    },
    #[error("tensor '{name}' occurs in {} too", other.display())]
    TensorInTwoParts { name: String, other: PathBuf },
    #[error("is one of {count} parts of a model; only files can be opened with their other parts")]
    PartInMemory { count: u64 },
    #[error("has no metadata key '{0}'")]
    MissingKey(String),
    #[error("metadata key '{key}' is {found}; {expected} is needed")]
    KeyType {
        key: String,
        expected: &'static str,
        found: String,
    },
}
