//! The K types that are decoded here: super-blocks of 256 elements with scales
//! of scales. Formats: ggml's `ggml-common.h`.

use super::{f16_at, part};

/// Scale and minimum `j` of 8, in 6 bits each: the first four lie whole in the
/// low bits, the others in the last four bytes and the high bits left over.
#[inline(always)]
fn scale_min(s: &[u8; 12], j: usize) -> (f32, f32) {
    let (scale, min) = match j {
        0..4 => (s[j] & 0x3f, s[j + 4] & 0x3f),
        _ => (
            s[j + 4] & 0xf | s[j - 4] >> 6 << 4,
            s[j + 4] >> 4 | s[j] >> 6 << 4,
        ),
    };
    (f32::from(scale), f32::from(min))
}

/// f16 scales of scales and of minima, 8 packed scales and minima, nibbles: 32
/// low halves and 32 high halves in turn.
#[inline(always)]
pub(super) fn q4_k(b: &[u8; 144], y: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(b, 0), f16_at(b, 2));
    let scales = part(b, 4);
    for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (d, m) = (d * scale, dmin * min);
        let qs: &[u8; 32] = part(b, 16 + j / 2 * 32);
        let shift = 4 * (j % 2);
        for (y, q) in y.iter_mut().zip(qs) {
            *y = d * (q >> shift & 0xf) as f32 - m;
        }
    }
}

/// As Q4_K, with the fifth bits of group `j` in bit `j` of 32 bytes.
#[inline(always)]
pub(super) fn q5_k(b: &[u8; 176], y: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(b, 0), f16_at(b, 2));
    let scales = part(b, 4);
    let high: &[u8; 32] = part(b, 16);
    for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (d, m) = (d * scale, dmin * min);
        let qs: &[u8; 32] = part(b, 48 + j / 2 * 32);
        let shift = 4 * (j % 2);
        for i in 0..32 {
            let q = qs[i] >> shift & 0xf | (high[i] >> j & 1) << 4;
            y[i] = d * q as f32 - m;
        }
    }
}

/// Nibbles, 2 high bits each, 16 signed scales, f16 scale of the scales. In each
/// half of 128 elements the groups of 32 take the low nibbles of the first and
/// second 32 bytes, then the high ones; group `j` has bits `2j` of the high part.
#[inline(always)]
pub(super) fn q6_k(b: &[u8; 210], y: &mut [f32; 256]) {
    let d = f16_at(b, 208);
    let scales: &[u8; 16] = part(b, 192);
    for (g, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (half, j) = (g / 4, g % 4);
        let low: &[u8; 32] = part(b, 64 * half + 32 * (j % 2));
        let high: &[u8; 32] = part(b, 128 + 32 * half);
        let shift = 4 * (j / 2);
        for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let d = d * (scales[2 * g + s] as i8) as f32;
            for (i, y) in y.iter_mut().enumerate() {
                let i = 16 * s + i;
                let q = low[i] >> shift & 0xf | (high[i] >> (2 * j) & 3) << 4;
                *y = d * (q as i8 - 32) as f32;
            }
        }
    }
}
