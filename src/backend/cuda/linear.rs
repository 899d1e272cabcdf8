//! Linear maps and norms on the device.

use super::error::CudaError;
use super::ops::{Normalization, Queue, Rows, Scaling};
use super::weights::{Mat, Packer, Values};
use super::workspace::{Buffer, Scope};
use crate::model::{Linear, Norm, NormKind};

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
        q.multiply(scope, &self.weight.on(weights), x, n_rows, rows, self.scale)?;
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
        x: Rows,
        n_rows: usize,
        out: Rows,
    ) -> Result<(), CudaError> {
        q.multiply(scope, &self.weight.on(weights), x, n_rows, out, self.scale)
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
        let how = Normalization {
            scaling: self.scaling,
            eps: self.eps,
            width: self.width,
            weight: values(self.weight),
            bias: values(self.bias),
        };
        q.normalize(how, x, out, n_runs)
    }
}
