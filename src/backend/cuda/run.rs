//! What layers run with.

use super::batch::Batch;
use super::error::CudaError;
use super::linear::{LoadedLinear, LoadedNorm};
use super::ops::Queue;
use super::workspace::{Buffer, Scope};

/// The queue, the batch and the weights of a walk through layers.
pub(super) struct Run<'r> {
    pub q: &'r Queue<'r>,
    pub batch: &'r Batch<'r>,
    /// Where the allocation with the layers' weights begins.
    pub weights: u64,
}

impl Run<'_> {
    /// `out ← linear(x)` for rows side by side.
    pub fn linear(
        &self,
        scope: &Scope,
        linear: &LoadedLinear,
        x: Buffer,
        out: Buffer,
    ) -> Result<(), CudaError> {
        linear.apply(self.q, scope, self.weights, x, out)
    }

    /// `out ← norm(x)`; they may be the same.
    pub fn norm(&self, norm: &LoadedNorm, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        norm.apply(self.q, self.weights, x, out)
    }
}
