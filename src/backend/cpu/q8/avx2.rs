//! The kernel for AVX2 and FMA: 2 rows × 16 columns, twice a panel. Bytes are
//! widened to 16 bits, since products of bytes saturate.

use std::arch::x86_64::*;

use super::{Isa, Level, PANEL, QUAD, Tile, by_kind};

/// Rows of a tile.
pub(super) const ROWS: usize = 2;

/// Computes up to [`ROWS`] rows of a panel.
pub(super) fn tile(isa: Isa, t: &Tile, out: &mut [f32], stride: usize) {
    assert!(matches!(isa.level(), Level::Avx2 | Level::Avx512));
    assert!(t.fits(out, stride));
    let out = out.as_mut_ptr();
    // SAFETY: the processor has the instructions, as `isa` proves, and the asserts
    // bound all accesses.
    unsafe { by_kind!(t, rows(t, out, stride), [1 2]) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn rows<const N: usize, const GROUP: usize, const BLOCK: usize, const MINIMA: bool>(
    t: &Tile,
    out: *mut f32,
    stride: usize,
) {
    const LANES: usize = 8;
    let (n_groups, n_blocks, n_in) = (t.n_groups, t.n_groups * GROUP / BLOCK, t.n_groups * GROUP);
    let (codes, scales, minima) = (t.codes.as_ptr(), t.scales.as_ptr(), t.minima.as_ptr());
    let (x_codes, x_scales) = (t.x_codes.as_ptr(), t.x_scales.as_ptr());
    let (x_starts, x_sums) = (t.x_starts.as_ptr(), t.x_sums.as_ptr());
    let even = _mm256_set1_epi16(0xff);
    // SAFETY: `b < n_blocks`, `g < n_groups`, `k < n_in` and `r < N` stay within the
    // caller's bounds.
    unsafe {
        for first in (0..PANEL).step_by(2 * LANES) {
            let columns = [first, first + LANES];
            let mut total = [[_mm256_setzero_ps(); 2]; N];
            for b in 0..n_blocks {
                let mut sum = [[_mm256_setzero_ps(); 2]; N];
                for g in b * (BLOCK / GROUP)..(b + 1) * (BLOCK / GROUP) {
                    let mut dot = [[_mm256_setzero_si256(); 2]; N];
                    for (r, dot) in dot.iter_mut().enumerate() {
                        *dot = [_mm256_set1_epi32(*x_starts.add(r * n_groups + g)); 2];
                    }
                    for k in (g * GROUP..(g + 1) * GROUP).step_by(QUAD) {
                        // The even and the odd `k` of a lane, in 16 bits each.
                        let w = columns.map(|column| {
                            let w = codes.add(k * PANEL + column * QUAD).cast();
                            let w = _mm256_loadu_si256(w);
                            (_mm256_and_si256(w, even), _mm256_srli_epi16(w, 8))
                        });
                        for (r, dot) in dot.iter_mut().enumerate() {
                            let quad = x_codes.add(r * n_in + k).cast::<i32>();
                            let x = _mm256_set1_epi32(quad.read_unaligned());
                            let x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
                            let x_odd = _mm256_srai_epi16(x, 8);
                            for (dot, (w_even, w_odd)) in dot.iter_mut().zip(w) {
                                let evens = _mm256_madd_epi16(w_even, x_even);
                                let odds = _mm256_madd_epi16(w_odd, x_odd);
                                *dot = _mm256_add_epi32(*dot, _mm256_add_epi32(evens, odds));
                            }
                        }
                    }
                    for (i, column) in columns.into_iter().enumerate() {
                        let scale = _mm256_loadu_ps(scales.add(g * PANEL + column));
                        for (sum, dot) in sum.iter_mut().zip(dot) {
                            sum[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[i]), scale, sum[i]);
                        }
                        if MINIMA {
                            let minimum = _mm256_loadu_ps(minima.add(g * PANEL + column));
                            for r in 0..N {
                                let x_sum = _mm256_set1_ps(*x_sums.add(r * n_groups + g));
                                // Q8_K: the block's scale is still to come.
                                let to = if BLOCK == GROUP { &mut total } else { &mut sum };
                                to[r][i] = _mm256_fmadd_ps(minimum, x_sum, to[r][i]);
                            }
                        }
                    }
                }
                for r in 0..N {
                    let scale = _mm256_set1_ps(*x_scales.add(r * n_blocks + b));
                    for i in 0..2 {
                        total[r][i] = _mm256_fmadd_ps(sum[r][i], scale, total[r][i]);
                    }
                }
            }
            for (r, total) in total.into_iter().enumerate() {
                for (total, column) in total.into_iter().zip(columns) {
                    _mm256_storeu_ps(out.add(r * stride + column), total);
                }
            }
        }
    }
}
