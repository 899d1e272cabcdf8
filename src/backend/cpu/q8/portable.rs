//! The kernel in plain Rust: the twin that the others are tested against, and what
//! processors without AVX2 run.

use super::{PANEL, QUAD, Tile};

pub(super) fn tile(t: &Tile, out: &mut [f32], stride: usize) {
    let (group, block) = (t.kind.layout.group, t.kind.format.block());
    let n_in = t.n_in();
    for r in 0..t.n_rows {
        let codes = &t.x_codes[r * n_in..][..n_in];
        let scales = &t.x_scales[r * t.n_blocks()..][..t.n_blocks()];
        let mut total = [0.0f32; PANEL];
        for (b, scale) in scales.iter().enumerate() {
            let mut sum = [0.0f32; PANEL];
            for g in b * block / group..(b + 1) * block / group {
                let mut dots = [t.x_starts[r * t.n_groups + g]; PANEL];
                let quads = codes[g * group..][..group].as_chunks::<QUAD>().0;
                let panel = t.codes[g * group * PANEL..]
                    .as_chunks::<{ PANEL * QUAD }>()
                    .0;
                for (x, lanes) in quads.iter().zip(panel) {
                    for (dot, w) in dots.iter_mut().zip(lanes.as_chunks::<QUAD>().0) {
                        for (w, x) in w.iter().zip(x) {
                            *dot += i32::from(*w) * i32::from(*x);
                        }
                    }
                }
                let w_scales = &t.scales[g * PANEL..][..PANEL];
                for ((sum, dot), w_scale) in sum.iter_mut().zip(dots).zip(w_scales) {
                    *sum = (dot as f32).mul_add(*w_scale, *sum);
                }
                if t.kind.layout.minima {
                    let minima = &t.minima[g * PANEL..][..PANEL];
                    let x_sum = t.x_sums[r * t.n_groups + g];
                    // Q8_K: the block's scale is still to come.
                    let to = if block == group { &mut total } else { &mut sum };
                    for (to, minimum) in to.iter_mut().zip(minima) {
                        *to = minimum.mul_add(x_sum, *to);
                    }
                }
            }
            for (total, sum) in total.iter_mut().zip(sum) {
                *total = sum.mul_add(*scale, *total);
            }
        }
        out[r * stride..][..PANEL].copy_from_slice(&total);
    }
}
