//! Weights on the device: the blocks of the file, as they are, side by side in one
//! allocation. Products decode them tile by tile. A layer window thus takes what
//! its tensors take in the file, whatever the numerics.

use super::workspace::align;
use crate::gguf::{BlockType, Gguf};
use crate::model::{Matrix, Vector};

/// A matrix at a place in an allocation.
#[derive(Clone, Debug)]
pub(super) struct Mat {
    pub ty: BlockType,
    pub n_in: usize,
    pub n_out: usize,
    pub at: u64,
}

impl Mat {
    pub fn row_bytes(&self) -> usize {
        self.n_in / self.ty.block_elements() * self.ty.block_bytes()
    }

    /// The matrix in an allocation that begins at `address`: it is at an address then.
    pub fn on(&self, address: u64) -> Mat {
        Mat {
            at: self.at + address,
            ..self.clone()
        }
    }

    /// The rows `[first, first + n)`.
    pub fn rows(&self, first: usize, n: usize) -> Mat {
        Mat {
            n_out: n,
            at: self.at + (first * self.row_bytes()) as u64,
            ..self.clone()
        }
    }
}

/// f32 values at a place in an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    pub at: u64,
    pub len: usize,
}

/// Lays out what an allocation will hold.
#[derive(Default)]
pub(super) struct Packer {
    parts: Vec<(u64, Part)>,
    bytes: u64,
}

enum Part {
    Matrix(Matrix),
    Values(Vec<f32>),
}

impl Packer {
    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn place(&mut self, bytes: u64, part: Part) -> u64 {
        let at = self.bytes;
        self.bytes += align(bytes);
        self.parts.push((at, part));
        at
    }

    pub fn matrix(&mut self, matrix: &Matrix) -> Mat {
        let bytes = (matrix.n_out * matrix.row_bytes()) as u64;
        Mat {
            ty: matrix.ty,
            n_in: matrix.n_in,
            n_out: matrix.n_out,
            at: self.place(bytes, Part::Matrix(matrix.clone())),
        }
    }

    pub fn values(&mut self, values: &[f32]) -> Values {
        Values {
            at: self.place(size_of_val(values) as u64, Part::Values(values.to_vec())),
            len: values.len(),
        }
    }

    pub fn vector(&mut self, vector: &Vector) -> Values {
        self.values(&vector.values)
    }

    /// Calls `put(at, bytes)` for runs of bytes that make up all parts, in order.
    pub fn each_run<E>(
        &self,
        gguf: &Gguf,
        mut put: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (at, part) in &self.parts {
            match part {
                Part::Values(values) => put(*at, bytemuck::cast_slice(values))?,
                Part::Matrix(matrix) => {
                    let mut at = *at;
                    for run in matrix.data(gguf).contiguous(matrix.n_out) {
                        put(at, run)?;
                        at += run.len() as u64;
                    }
                }
            }
        }
        Ok(())
    }
}
