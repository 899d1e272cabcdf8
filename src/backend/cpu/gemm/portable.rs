//! The kernel in plain Rust: the twin that the others are tested against, and
//! what processors without AVX2 run.

use super::{K_BLOCK, PANEL, Tile};

pub(super) fn panel(t: Tile, out: &mut [f32], out_stride: usize, width: usize) {
    for r in 0..t.n_rows {
        let x = &t.x[r * t.x_stride..][..t.n_k()];
        let out = &mut out[r * out_stride..][..width];
        let mut total = [0.0f32; PANEL];
        if t.adds {
            total[..width].copy_from_slice(out);
        }
        for (x, w) in x.chunks(K_BLOCK).zip(t.w.chunks(K_BLOCK * PANEL)) {
            let mut sum = [0.0f32; PANEL];
            for (x, w) in x.iter().zip(w.as_chunks::<PANEL>().0) {
                for (s, w) in sum.iter_mut().zip(w) {
                    *s = x.mul_add(*w, *s);
                }
            }
            for (t, s) in total.iter_mut().zip(sum) {
                *t += s;
            }
        }
        out.copy_from_slice(&total[..width]);
    }
}
