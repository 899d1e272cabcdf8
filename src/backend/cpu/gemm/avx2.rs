//! The kernel for AVX2 and FMA: 6 rows × 16 columns in 12 registers, twice a panel.

use std::arch::x86_64::*;

use super::{Isa, K_BLOCK, Level, PANEL, Tile};

const ROWS: usize = 6;

/// Computes `t` into the first `width` columns of `out`.
pub(super) fn panel(isa: Isa, t: Tile, out: &mut [f32], out_stride: usize, width: usize) {
    assert_eq!(isa.level(), Level::Avx2);
    let mut r = 0;
    while r < t.n_rows {
        let n = ROWS.min(t.n_rows - r);
        let x = &t.x[r * t.x_stride..];
        assert!(x.len() >= (n - 1) * t.x_stride + t.n_k());
        if width == PANEL {
            let out = &mut out[r * out_stride..];
            assert!(out.len() >= (n - 1) * out_stride + PANEL);
            // SAFETY: the processor has AVX2 and FMA; the asserts bound all accesses.
            unsafe { rows(n, x, t.x_stride, t.w, out.as_mut_ptr(), out_stride) };
        } else {
            let mut edge = [0.0f32; ROWS * PANEL];
            // SAFETY: as above; `edge` holds `ROWS` rows of a panel.
            unsafe { rows(n, x, t.x_stride, t.w, edge.as_mut_ptr(), PANEL) };
            for (i, row) in edge.chunks_exact(PANEL).take(n).enumerate() {
                out[(r + i) * out_stride..][..width].copy_from_slice(&row[..width]);
            }
        }
        r += n;
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn rows(n: usize, x: &[f32], x_stride: usize, w: &[f32], out: *mut f32, out_stride: usize) {
    let (x, k) = (x.as_ptr(), w.len() / PANEL);
    let w = w.as_ptr();
    macro_rules! dispatch {
        ($($n:literal)*) => {
            // SAFETY: the caller's bounds hold for `n` rows.
            unsafe { match n {
                $($n => tile::<$n>(k, x, x_stride, w, out, out_stride),)*
                _ => unreachable!("at most {ROWS} rows"),
            } }
        };
    }
    dispatch!(1 2 3 4 5 6)
}

#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const N: usize>(
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
