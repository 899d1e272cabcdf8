//! The K types that are decoded here: super-blocks of 256 elements with scales
//! of scales. Formats: ggml's `ggml-common.h`.

use super::{Element, f16_at, part};

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
pub(super) fn q4_k<E: Element>(b: &[u8; 144], y: &mut [E; 256]) {
    let (d, dmin) = (f16_at(b, 0), f16_at(b, 2));
    let scales = part(b, 4);
    for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (d, m) = (d * scale, dmin * min);
        let qs: &[u8; 32] = part(b, 16 + j / 2 * 32);
        let shift = 4 * (j % 2);
        for (y, q) in y.iter_mut().zip(qs) {
            *y = E::shifted(d, i32::from(q >> shift & 0xf), -m);
        }
    }
}

/// As Q4_K, with the fifth bits of group `j` in bit `j` of 32 bytes.
#[inline(always)]
pub(super) fn q5_k<E: Element>(b: &[u8; 176], y: &mut [E; 256]) {
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
            y[i] = E::shifted(d, i32::from(q), -m);
        }
    }
}

/// Nibbles, 2 high bits each, 16 signed scales, f16 scale of the scales. In each
/// half of 128 elements the groups of 32 take the low nibbles of the first and
/// second 32 bytes, then the high ones; group `j` has bits `2j` of the high part.
#[inline(always)]
pub(super) fn q6_k<E: Element>(b: &[u8; 210], y: &mut [E; 256]) {
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
                *y = E::scaled(d, i32::from(q) - 32);
            }
        }
    }
}

/// 16 scales and minima in 4 bits each, 2 bits an element, f16 scales of scales and
/// of minima at the end. In each half of 128 elements group `j` of 32 has the bits
/// `2j` of 32 bytes; a scale serves 16 elements.
#[inline(always)]
pub(super) fn q2_k<E: Element>(b: &[u8; 84], y: &mut [E; 256]) {
    let (d, dmin) = (f16_at(b, 80), f16_at(b, 82));
    for (g, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let qs: &[u8; 32] = part(b, 16 + 32 * (g / 4));
        let shift = 2 * (g % 4);
        for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let scale = b[2 * g + s];
            let (d, m) = (d * f32::from(scale & 0xf), dmin * f32::from(scale >> 4));
            for (i, y) in y.iter_mut().enumerate() {
                let q = qs[16 * s + i] >> shift & 3;
                *y = E::shifted(d, i32::from(q), -m);
            }
        }
    }
}

/// Scale `j` of 16, in 6 bits: the low four in the nibbles of 8 bytes, the high two
/// in the last four bytes.
#[inline(always)]
fn six_bits(s: &[u8; 12], j: usize) -> i32 {
    let low = s[j % 8] >> (4 * (j / 8)) & 0xf;
    let high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
    i32::from(low | high << 4)
}

/// A third bit each (group `j` of 32 in bit `j` of 32 bytes), 2 bits as in Q2_K,
/// 16 scales in 6 bits less 32, f16 scale of the scales at the end.
#[inline(always)]
pub(super) fn q3_k<E: Element>(b: &[u8; 110], y: &mut [E; 256]) {
    let d = f16_at(b, 108);
    let (high, scales): (&[u8; 32], _) = (part(b, 0), part(b, 96));
    for (g, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let qs: &[u8; 32] = part(b, 32 + 32 * (g / 4));
        let shift = 2 * (g % 4);
        for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let d = d * (six_bits(scales, 2 * g + s) - 32) as f32;
            for (i, y) in y.iter_mut().enumerate() {
                let i = 16 * s + i;
                let q = (qs[i] >> shift & 3) | (high[i] >> g & 1) << 2;
                *y = E::scaled(d, i32::from(q) - 4);
            }
        }
    }
}

/// f32 scale, signed bytes, sums of 16 each that are not needed.
#[inline(always)]
pub(super) fn q8_k<E: Element>(b: &[u8; 292], y: &mut [E; 256]) {
    let d = f32::from_le_bytes(*part(b, 0));
    let qs: &[u8; 256] = part(b, 4);
    for (y, &q) in y.iter_mut().zip(qs) {
        *y = E::scaled(d, i32::from(q as i8));
    }
}
