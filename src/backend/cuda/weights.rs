//! Weights on the device: the blocks of the file, as they are, side by side in one
//! allocation. Products decode them tile by tile. A layer window thus takes what
//! its tensors take in the file, whatever the numerics.

use crate::gguf::{BlockType, Gguf};
use crate::model::{Linear, Matrix, Norm, NormKind, Vector};

use super::CudaError;
use super::ops::{Queue, Rows, Scaling};
use super::workspace::{Buffer, Scope, align};

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

/// A matrix with its bias.
#[derive(Clone, Debug)]
pub(super) struct LoadedLinear {
    pub weight: Mat,
    pub bias: Option<Values>,
    scale: f32,
}

impl LoadedLinear {
    pub fn pack(packer: &mut Packer, linear: &Linear) -> Self {
        Self {
            weight: packer.matrix(&linear.weight),
            bias: linear.bias.as_ref().map(|b| packer.vector(b)),
            scale: linear.scale,
        }
    }

    pub fn n_in(&self) -> usize {
        self.weight.n_in
    }

    pub fn n_out(&self) -> usize {
        self.weight.n_out
    }

    /// `out ← scale · (x · wᵀ) + b` for rows side by side.
    pub fn apply(
        &self,
        q: &Queue,
        scope: &Scope,
        weights: u64,
        x: Buffer,
        out: Buffer,
    ) -> Result<(), CudaError> {
        let (n_in, n_out) = (self.n_in(), self.n_out());
        let n_rows = out.len / n_out.max(1);
        let (x, rows) = (Rows::dense(x, n_in), Rows::dense(out, n_out));
        q.multiply(scope, (&self.weight, weights), x, n_rows, rows, self.scale)?;
        match self.bias {
            Some(bias) => q.add_row(out, q.values(weights, bias)),
            None => Ok(()),
        }
    }

    /// As [`Self::apply`], for rows with other columns between; without a bias.
    pub fn apply_strided(
        &self,
        q: &Queue,
        scope: &Scope,
        weights: u64,
        (x, n_rows): (Rows, usize),
        out: Rows,
    ) -> Result<(), CudaError> {
        q.multiply(scope, (&self.weight, weights), x, n_rows, out, self.scale)
    }
}

/// A norm with its weights.
#[derive(Clone, Debug)]
pub(super) struct LoadedNorm {
    scaling: Scaling,
    pub width: usize,
    weight: Option<Values>,
    bias: Option<Values>,
    eps: f32,
}

impl LoadedNorm {
    pub fn pack(packer: &mut Packer, norm: &Norm) -> Self {
        Self {
            scaling: match norm.kind {
                NormKind::Rms => Scaling::Rms,
                NormKind::Layer => Scaling::Layer,
            },
            width: norm.width,
            weight: norm.weight.as_ref().map(|w| packer.vector(w)),
            bias: norm.bias.as_ref().map(|b| packer.vector(b)),
            eps: norm.eps,
        }
    }

    /// `out ← norm(x)`, for every run of the norm's width; they may be the same.
    pub fn apply(&self, q: &Queue, weights: u64, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let (x, out) = (Rows::dense(x, self.width), Rows::dense(out, self.width));
        let n_runs = out.data.len / self.width.max(1);
        self.apply_strided(q, weights, x, out, n_runs)
    }

    /// As [`Self::apply`], for `n_runs` runs with other values between.
    pub fn apply_strided(
        &self,
        q: &Queue,
        weights: u64,
        x: Rows,
        out: Rows,
        n_runs: usize,
    ) -> Result<(), CudaError> {
        let values = |v: Option<Values>| v.map(|v| q.values(weights, v));
        let both = (values(self.weight), values(self.bias));
        q.normalize((out, x), n_runs, self.width, both, (self.scaling, self.eps))
    }
}
