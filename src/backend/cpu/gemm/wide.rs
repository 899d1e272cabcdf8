//! Products summed in f64, for maps whose rounding errors a model magnifies.

use super::{PANEL, Packed, with_rows_reversed};
use crate::isa::{Isa, multiversion};

/// Rows whose sums are in registers together.
const ROWS: usize = 4;

/// `out ← x · wᵀ` for the rows of `x`, which have no gaps; those of `out` are
/// `out_stride` apart. Each element is the exact products' f64 sum in the order of
/// `k`, rounded to f32 once.
///
/// # Panics
/// If a slice is too short for the shape.
pub fn multiply_wide(isa: Isa, x: &[f32], w: &Packed, out: &mut [f32], out_stride: usize) {
    if !w.descending {
        return multiply_in_order(isa, x, w, out, out_stride);
    }
    let n_rows = x.len() / w.n_in.max(1);
    with_rows_reversed(x, w.n_in, n_rows, w.n_in, |x| {
        multiply_in_order(isa, x, w, out, out_stride);
    });
}

/// [`multiply_wide`], the terms in the order in which the panels hold them.
fn multiply_in_order(isa: Isa, x: &[f32], w: &Packed, out: &mut [f32], out_stride: usize) {
    let (n_in, n_out) = (w.n_in, w.n_out);
    if n_in == 0 || n_out == 0 {
        return out.fill(0.0);
    }
    for (p, panel) in w.elements().chunks_exact(n_in * PANEL).enumerate() {
        let col = p * PANEL;
        let width = PANEL.min(n_out - col);
        let rows = x
            .chunks(ROWS * n_in)
            .zip(out.chunks_mut(ROWS * out_stride))
            .map(|(x, out)| (x, &mut out[col..]));
        for (x, out) in rows {
            let mut sums = [[0.0f32; PANEL]; ROWS];
            tile(isa, &mut sums, x, panel, n_in);
            let n_rows = x.len() / n_in;
            for (r, sums) in sums[..n_rows].iter().enumerate() {
                out[r * out_stride..][..width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

multiversion! {
    /// Up to [`ROWS`] rows of a panel.
    fn tile(out: &mut [[f32; PANEL]; ROWS], x: &[f32], panel: &[f32], n_in: usize) {
        let mut sums = [[0.0f64; PANEL]; ROWS];
        for (k, w) in panel.as_chunks::<PANEL>().0.iter().enumerate() {
            let w = w.map(f64::from);
            for (sums, x) in sums.iter_mut().zip(x[k..].iter().step_by(n_in)) {
                let x = f64::from(*x);
                for (s, w) in sums.iter_mut().zip(w) {
                    *s = x.mul_add(w, *s);
                }
            }
        }
        *out = sums.map(|sums| sums.map(|s| s as f32));
    }
}
