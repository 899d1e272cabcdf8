//! Causal convolutions along the positions, each channel by itself.

use super::isa::{Isa, multiversion};
use super::spread;
use crate::model::CausalConv;

pub(super) struct LoadedConv<'m> {
    n_channels: usize,
    /// `width × n_channels`, so that channels lie side by side.
    taps: Vec<f32>,
    bias: Option<&'m [f32]>,
}

impl<'m> LoadedConv<'m> {
    pub fn load(spec: &'m CausalConv) -> Self {
        let taps = (0..spec.width)
            .flat_map(|j| spec.weight.values.iter().skip(j).step_by(spec.width))
            .copied()
            .collect();
        Self {
            n_channels: spec.n_channels,
            taps,
            bias: spec.bias.as_ref().map(|b| b.values.as_slice()),
        }
    }

    /// `out ← conv(x)` for the rows of one sequence.
    pub fn apply(&self, isa: Isa, spread: bool, x: &[f32], out: &mut [f32]) {
        const ROWS: usize = 32;
        let n = self.n_channels;
        spread::chunks_mut(spread, out, ROWS * n, |i, out| {
            rows(isa, out, i * ROWS, x, &self.taps, self.bias, n);
        });
    }
}

multiversion! {
    /// The output rows from row `first` on.
    fn rows(out: &mut [f32], first: usize, x: &[f32], taps: &[f32], bias: Option<&[f32]>, n: usize) {
        let width = taps.len() / n;
        for (t, out) in (first..).zip(out.chunks_exact_mut(n)) {
            match bias {
                Some(bias) => out.copy_from_slice(bias),
                None => out.fill(0.0),
            }
            for (j, tap) in taps.chunks_exact(n).enumerate() {
                // The row `width − 1 − j` positions back.
                let Some(row) = (t + j + 1).checked_sub(width) else { continue };
                for ((o, w), x) in out.iter_mut().zip(tap).zip(&x[row * n..][..n]) {
                    *o = w.mul_add(*x, *o);
                }
            }
        }
    }
}
