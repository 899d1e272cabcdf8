//! The kernel for AVX2 and FMA: 6 rows × 16 columns in 12 registers, twice a panel.

use std::arch::x86_64::*;

use super::{Isa, K_BLOCK, Level, PANEL, Tile};

/// Rows of a tile.
pub(super) const ROWS: usize = 6;

/// Computes up to [`ROWS`] rows of a panel.
pub(super) fn tile(isa: Isa, t: Tile, out: &mut [f32], out_stride: usize) {
    let n_k = t.n_k();
    assert_eq!(isa.level(), Level::Avx2);
    assert!((1..=ROWS).contains(&t.n_rows));
    assert!(t.x.len() >= (t.n_rows - 1) * t.x_stride + n_k);
    assert!(out.len() >= (t.n_rows - 1) * out_stride + PANEL);
    let (x, w, out) = (t.x.as_ptr(), t.w.as_ptr(), out.as_mut_ptr());
    macro_rules! dispatch {
        ($($n:literal)*) => {
            // SAFETY: the processor has the instructions, as `isa` proves, and the
            // asserts bound all accesses.
            unsafe { match t.n_rows {
                $($n => rows::<$n>(n_k, x, t.x_stride, w, out, out_stride),)*
                _ => unreachable!("asserted above"),
            } }
        };
    }
    dispatch!(1 2 3 4 5 6)
}

#[target_feature(enable = "avx2,fma")]
unsafe fn rows<const N: usize>(
    n_k: usize,
    x: *const f32,
    x_stride: usize,
    w: *const f32,
    out: *mut f32,
    out_stride: usize,
) {
    const HALF: usize = 16;
    let mut k0 = 0;
    loop {
        let k1 = n_k.min(k0 + K_BLOCK);
        for col in (0..PANEL).step_by(HALF) {
            let mut sum = [[_mm256_setzero_ps(); 2]; N];
            // SAFETY: `k < n_k` and `r < N` stay within the caller's bounds.
            unsafe {
                for k in k0..k1 {
                    let w0 = _mm256_loadu_ps(w.add(k * PANEL + col));
                    let w1 = _mm256_loadu_ps(w.add(k * PANEL + col + 8));
                    for (r, s) in sum.iter_mut().enumerate() {
                        let x = _mm256_set1_ps(*x.add(r * x_stride + k));
                        s[0] = _mm256_fmadd_ps(x, w0, s[0]);
                        s[1] = _mm256_fmadd_ps(x, w1, s[1]);
                    }
                }
                for (r, s) in sum.iter().enumerate() {
                    for (half, &s) in s.iter().enumerate() {
                        let out = out.add(r * out_stride + col + 8 * half);
                        let total = if k0 == 0 {
                            s
                        } else {
                            _mm256_add_ps(_mm256_loadu_ps(out), s)
                        };
                        _mm256_storeu_ps(out, total);
                    }
                }
            }
        }
        k0 = k1;
        if k0 == n_k {
            break;
        }
    }
}
