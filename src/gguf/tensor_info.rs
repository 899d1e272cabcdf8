//! What a header says of a tensor.

use std::ops::Range;

use super::block_type::BlockType;

/// Where a tensor lies and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// The tensor's name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// ggml order: `dims[0]` is the contiguous one (a matrix that maps `n_in`
    /// to `n_out` values has the dims `[n_in, n_out]`).
    pub dims: Vec<u64>,
    /// How its values are stored.
    pub ty: BlockType,
    /// Byte offset from the start of its file.
    pub offset: usize,
    /// Bytes of all its blocks.
    pub n_bytes: usize,
    /// Which of [`Gguf::paths`](super::Gguf::paths) is its file.
    pub part: usize,
}

impl TensorInfo {
    /// Number of elements; the reader has checked that it does not overflow.
    pub fn elements(&self) -> usize {
        self.dims.iter().product::<u64>() as usize
    }

    /// Where its blocks lie in the file.
    pub fn bytes(&self) -> Range<usize> {
        self.offset..self.offset + self.n_bytes
    }
}
