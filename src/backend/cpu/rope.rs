//! RoPE with a table of cosines and sines.

use super::isa::Isa;
use super::math;
use crate::model::{Rope, RopePairs};

/// Cosines and sines for the positions `0..len`.
pub(super) struct RopeTable {
    pairs: RopePairs,
    n_pairs: usize,
    len: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    pub fn new(rope: &Rope, len: usize) -> Self {
        let (cos, sin) = rope.table(len);
        Self {
            pairs: rope.pairs,
            n_pairs: rope.n_pairs(),
            len,
            cos,
            sin,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Rotates every head of every row; row `t` of `xs` is at position `t`.
    pub fn apply(&self, isa: Isa, xs: &mut [f32], n_head: usize, head_dim: usize) {
        for (t, row) in xs.chunks_exact_mut(n_head * head_dim).enumerate() {
            let angles = t * self.n_pairs..(t + 1) * self.n_pairs;
            let (cos, sin) = (&self.cos[angles.clone()], &self.sin[angles]);
            for head in row.chunks_exact_mut(head_dim) {
                let turned = &mut head[..2 * self.n_pairs];
                match self.pairs {
                    RopePairs::Adjacent => math::rotate_adjacent(isa, turned, cos, sin),
                    RopePairs::Halves => math::rotate_halves(isa, turned, cos, sin),
                }
            }
        }
    }
}
