//! RoPE with a table of cosines and sines.

use super::math;
use crate::isa::Isa;
use crate::model::{Rope, RopePairs};

/// Cosines and sines for the positions `0..len`.
pub(super) struct RopeTable {
    pairs: RopePairs,
    n_pairs: usize,
    len: usize,
    n_ctx: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    pub fn new(rope: &Rope, len: usize, n_ctx: usize) -> Self {
        let (cos, sin) = rope.table(len, n_ctx);
        Self {
            pairs: rope.pairs,
            n_pairs: rope.n_pairs(),
            len,
            n_ctx,
            cos,
            sin,
        }
    }

    /// Whether the table serves sequences of up to `len` tokens in runs at
    /// context `n_ctx`.
    pub fn serves(&self, len: usize, n_ctx: usize) -> bool {
        self.len >= len && self.n_ctx == n_ctx
    }

    /// Rotates every head of every row; row `t` of `xs` is at position `first + t`.
    /// Rows hold heads of `head_dim` values, which rotate from element `at` on.
    pub fn apply(
        &self,
        isa: Isa,
        xs: &mut [f32],
        first: usize,
        row: usize,
        head_dim: usize,
        at: usize,
    ) {
        for (t, row) in (first..).zip(xs.chunks_exact_mut(row)) {
            let angles = t * self.n_pairs..(t + 1) * self.n_pairs;
            let (cos, sin) = (&self.cos[angles.clone()], &self.sin[angles]);
            for head in row.chunks_exact_mut(head_dim) {
                let turned = &mut head[at..at + 2 * self.n_pairs];
                match self.pairs {
                    RopePairs::Adjacent => math::rotate_adjacent(isa, turned, cos, sin),
                    RopePairs::Halves => math::rotate_halves(isa, turned, cos, sin),
                }
            }
        }
    }
}
