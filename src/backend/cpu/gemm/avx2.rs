//! The kernel for AVX2 and FMA: 3 rows × 16 columns, twice a panel: 6 registers for a
//! block's sums, 6 for the totals.

use std::arch::x86_64::*;

use super::{Isa, K_BLOCK, LINE, Level, PANEL, Tile};

/// Rows of a tile.
pub(super) const ROWS: usize = 3;

/// Computes up to [`ROWS`] rows of a panel.
pub(super) fn tile(isa: Isa, t: Tile, out: &mut [f32], out_stride: usize) {
    let n_k = t.n_k();
    assert_eq!(isa.level(), Level::Avx2);
    assert!((1..=ROWS).contains(&t.n_rows));
    assert!(t.x.len() >= (t.n_rows - 1) * t.x_stride + n_k);
    assert!(out.len() >= (t.n_rows - 1) * out_stride + PANEL);
    let (x, w, out) = (t.x.as_ptr(), t.w.as_ptr(), out.as_mut_ptr());
    let ahead = t.ahead.as_ptr();
    macro_rules! dispatch {
        ($($n:literal)*) => {
            // SAFETY: the processor has the instructions, as `isa` proves, and the
            // asserts bound all accesses.
            unsafe { match t.n_rows {
                $($n => rows::<$n>(n_k, (x, t.x_stride), w, (out, out_stride), t.adds, (ahead, t.lines)),)*
                _ => unreachable!("asserted above"),
            } }
        };
    }
    dispatch!(1 2 3)
}

#[target_feature(enable = "avx2,fma")]
unsafe fn rows<const N: usize>(
    n_k: usize,
    (x, x_stride): (*const f32, usize),
    w: *const f32,
    (out, out_stride): (*mut f32, usize),
    adds: bool,
    (mut ahead, mut lines): (*const f32, usize),
) {
    const HALF: usize = 16;
    // SAFETY: `k < n_k` and `r < N` stay within the caller's bounds.
    unsafe {
        for col in (0..PANEL).step_by(HALF) {
            let mut total = [[_mm256_setzero_ps(); 2]; N];
            if adds {
                for (r, t) in total.iter_mut().enumerate() {
                    t[0] = _mm256_loadu_ps(out.add(r * out_stride + col));
                    t[1] = _mm256_loadu_ps(out.add(r * out_stride + col + 8));
                }
            }
            for k0 in (0..n_k).step_by(K_BLOCK) {
                let mut sum = [[_mm256_setzero_ps(); 2]; N];
                for k in k0..n_k.min(k0 + K_BLOCK) {
                    let w0 = _mm256_loadu_ps(w.add(k * PANEL + col));
                    let w1 = _mm256_loadu_ps(w.add(k * PANEL + col + 8));
                    for (r, s) in sum.iter_mut().enumerate() {
                        let x = _mm256_set1_ps(*x.add(r * x_stride + k));
                        s[0] = _mm256_fmadd_ps(x, w0, s[0]);
                        s[1] = _mm256_fmadd_ps(x, w1, s[1]);
                    }
                }
                for _ in 0..lines {
                    // Never faults, wherever it points.
                    _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                    ahead = ahead.wrapping_add(LINE);
                }
                for (t, s) in total.iter_mut().zip(sum) {
                    t[0] = _mm256_add_ps(t[0], s[0]);
                    t[1] = _mm256_add_ps(t[1], s[1]);
                }
            }
            lines = 0;
            for (r, t) in total.into_iter().enumerate() {
                _mm256_storeu_ps(out.add(r * out_stride + col), t[0]);
                _mm256_storeu_ps(out.add(r * out_stride + col + 8), t[1]);
            }
        }
    }
}
