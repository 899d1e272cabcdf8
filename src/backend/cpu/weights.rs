//! A layer's weights, decoded to f32 and packed for the product kernel.

use rayon::prelude::*;

use super::gemm::{self, PANEL, Packed, Product};
use super::isa::Isa;
use super::{math, spread};
use crate::backend::BackendError;
use crate::gguf::Gguf;
use crate::model::{Linear, Matrix};
use crate::quant;

/// Decodes a matrix into panels, on all threads.
pub(super) fn load(gguf: &Gguf, matrix: &Matrix) -> Result<Packed, BackendError> {
    let n_in = matrix.n_in;
    let blocks = matrix.data(gguf);
    let mut packed = Packed::zeros(n_in, matrix.n_out);
    packed.panels_mut().enumerate().try_for_each_init(
        || vec![0.0f32; PANEL * n_in],
        |rows, (p, panel)| {
            let n_rows = PANEL.min(matrix.n_out - p * PANEL);
            let rows = &mut rows[..n_rows * n_in];
            for (i, row) in rows.chunks_exact_mut(n_in).enumerate() {
                quant::dequantize(matrix.ty, blocks.row(p * PANEL + i), row)?;
            }
            gemm::pack_rows(panel, rows, n_in, n_in);
            Ok::<(), BackendError>(())
        },
    )?;
    Ok(packed)
}

/// Decodes the rows `ids` of a matrix into panels, on one thread.
pub(super) fn gather(
    gguf: &Gguf,
    matrix: &Matrix,
    ids: impl ExactSizeIterator<Item = usize>,
) -> Result<Packed, BackendError> {
    let n_in = matrix.n_in;
    let blocks = matrix.data(gguf);
    let mut rows = vec![0.0f32; ids.len() * n_in];
    let mut packed = Packed::zeros(n_in, ids.len());
    for (row, id) in rows.chunks_exact_mut(n_in).zip(ids) {
        quant::dequantize(matrix.ty, blocks.row(id), row)?;
    }
    let panels = packed.panels_mut_serial();
    for (panel, rows) in panels.zip(rows.chunks(PANEL * n_in)) {
        gemm::pack_rows(panel, rows, n_in, n_in);
    }
    Ok(packed)
}

/// A loaded matrix with its bias.
pub(super) struct LoadedLinear<'m> {
    weight: Packed,
    bias: Option<&'m [f32]>,
    scale: f32,
}

impl<'m> LoadedLinear<'m> {
    pub fn load(gguf: &Gguf, linear: &'m Linear) -> Result<Self, BackendError> {
        Ok(Self {
            weight: load(gguf, &linear.weight)?,
            bias: linear.bias.as_ref().map(|b| b.values.as_slice()),
            scale: linear.scale,
        })
    }

    pub fn n_in(&self) -> usize {
        self.weight.n_in()
    }

    pub fn n_out(&self) -> usize {
        self.weight.n_out()
    }

    /// `out ← scale · (x · wᵀ) + b` for the rows of `x`; with `spread` on all threads.
    pub fn apply(&self, isa: Isa, spread: bool, x: &[f32], out: &mut [f32]) {
        self.apply_with(isa, spread, x, out, |x, w, out| {
            gemm::multiply(
                isa,
                Product::full(x, out.len() / w.n_out(), w),
                out,
                w.n_out(),
            );
        });
    }

    /// As [`Self::apply`], with sums in f64: see [`gemm::multiply_wide`].
    pub fn apply_wide(&self, isa: Isa, spread: bool, x: &[f32], out: &mut [f32]) {
        self.apply_with(isa, spread, x, out, |x, w, out| {
            gemm::multiply_wide(isa, x, w, out);
        });
    }

    fn apply_with(
        &self,
        isa: Isa,
        spread: bool,
        x: &[f32],
        out: &mut [f32],
        multiply: impl Fn(&[f32], &Packed, &mut [f32]) + Sync,
    ) {
        /// Enough rows to reuse a panel, few enough to share out.
        const ROWS: usize = 112;
        let (n_in, n_out) = (self.weight.n_in(), self.weight.n_out());
        spread::chunks_mut(spread, out, ROWS * n_out, |i, out| {
            let n_rows = out.len() / n_out;
            let x = &x[i * ROWS * n_in..][..n_rows * n_in];
            multiply(x, &self.weight, out);
            if self.scale != 1.0 {
                math::scale(isa, out, self.scale);
            }
            if let Some(bias) = self.bias {
                math::add_bias(isa, out, bias);
            }
        });
    }
}
