//! The kernel for AVX-512 with VNNI: 6 rows × 32 columns: 12 registers for a group's
//! integer sums, 12 for sums of f32.

use std::arch::x86_64::*;

use super::{Isa, Level, PANEL, QUAD, Tile, by_kind};

/// Rows of a tile.
pub(super) const ROWS: usize = 6;

/// Computes up to [`ROWS`] rows of a panel.
pub(super) fn tile(isa: Isa, t: &Tile, out: &mut [f32], stride: usize) {
    assert_eq!(isa.level(), Level::Avx512Vnni);
    assert!(t.fits(out, stride));
    let out = out.as_mut_ptr();
    // SAFETY: the processor has the instructions, as `isa` proves, and the asserts
    // bound all accesses.
    unsafe { by_kind!(t, rows(t, out, stride), [1 2 3 4 5 6]) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn rows<const N: usize, const GROUP: usize, const BLOCK: usize, const MINIMA: bool>(
    t: &Tile,
    out: *mut f32,
    stride: usize,
) {
    const HALF: usize = PANEL / 2;
    let (n_groups, n_blocks, n_in) = (t.n_groups, t.n_groups * GROUP / BLOCK, t.n_groups * GROUP);
    let (codes, scales, minima) = (t.codes.as_ptr(), t.scales.as_ptr(), t.minima.as_ptr());
    let (x_codes, x_scales) = (t.x_codes.as_ptr(), t.x_scales.as_ptr());
    let (x_starts, x_sums) = (t.x_starts.as_ptr(), t.x_sums.as_ptr());
    let mut total = [[_mm512_setzero_ps(); 2]; N];
    // SAFETY: `b < n_blocks`, `g < n_groups`, `k < n_in` and `r < N` stay within the
    // caller's bounds.
    unsafe {
        for b in 0..n_blocks {
            let mut sum = [[_mm512_setzero_ps(); 2]; N];
            for g in b * (BLOCK / GROUP)..(b + 1) * (BLOCK / GROUP) {
                let mut dot = [[_mm512_setzero_si512(); 2]; N];
                for (r, dot) in dot.iter_mut().enumerate() {
                    *dot = [_mm512_set1_epi32(*x_starts.add(r * n_groups + g)); 2];
                }
                for k in (g * GROUP..(g + 1) * GROUP).step_by(QUAD) {
                    let w0 = _mm512_loadu_si512(codes.add(k * PANEL).cast());
                    let w1 = _mm512_loadu_si512(codes.add(k * PANEL + HALF * QUAD).cast());
                    for (r, dot) in dot.iter_mut().enumerate() {
                        let quad = x_codes.add(r * n_in + k).cast::<i32>();
                        let x = _mm512_set1_epi32(quad.read_unaligned());
                        dot[0] = _mm512_dpbusd_epi32(dot[0], w0, x);
                        dot[1] = _mm512_dpbusd_epi32(dot[1], w1, x);
                    }
                }
                for half in 0..2 {
                    let scale = _mm512_loadu_ps(scales.add(g * PANEL + half * HALF));
                    for (sum, dot) in sum.iter_mut().zip(dot) {
                        let dot = _mm512_cvtepi32_ps(dot[half]);
                        sum[half] = _mm512_fmadd_ps(dot, scale, sum[half]);
                    }
                    if MINIMA {
                        let minimum = _mm512_loadu_ps(minima.add(g * PANEL + half * HALF));
                        for r in 0..N {
                            let x_sum = _mm512_set1_ps(*x_sums.add(r * n_groups + g));
                            // Q8_K: the block's scale is still to come.
                            let to = if BLOCK == GROUP { &mut total } else { &mut sum };
                            to[r][half] = _mm512_fmadd_ps(minimum, x_sum, to[r][half]);
                        }
                    }
                }
            }
            for r in 0..N {
                let scale = _mm512_set1_ps(*x_scales.add(r * n_blocks + b));
                for half in 0..2 {
                    total[r][half] = _mm512_fmadd_ps(sum[r][half], scale, total[r][half]);
                }
            }
        }
        for (r, total) in total.into_iter().enumerate() {
            _mm512_storeu_ps(out.add(r * stride), total[0]);
            _mm512_storeu_ps(out.add(r * stride + HALF), total[1]);
        }
    }
}
