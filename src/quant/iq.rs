//! The IQ types: indices into codebooks, or into non-linear levels. All but
//! IQ4_NL are super-blocks of 256 elements. Formats: ggml's `ggml-common.h`.

use super::{f16_at, grids, part};

#[inline(always)]
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

#[inline(always)]
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*part(b, at))
}

/// Eight sign bits from seven: their number is even.
#[inline(always)]
fn even_signs(seven: u32) -> u8 {
    let seven = (seven & 0x7f) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// `y ← ± d · point`, negative where the sign bit is 1.
#[inline(always)]
fn signed<const N: usize>(d: f32, point: &[i8; N], signs: u8, y: &mut [f32; N]) {
    for (j, y) in y.iter_mut().enumerate() {
        let x = d * f32::from(point[j]);
        *y = if signs >> j & 1 == 1 { -x } else { x };
    }
}

/// Two points of four values, which share a byte of signs.
#[inline(always)]
fn signed_pair(d: f32, points: [&[i8; 4]; 2], signs: u8, y: &mut [f32; 8]) {
    for (half, y) in y.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        signed(d, points[half], signs >> (4 * half), y);
    }
}

/// The nibble `i` of packed 4-bit scales, low halves first.
#[inline(always)]
fn nibble(scales: &[u8], i: usize) -> f32 {
    f32::from(scales[i / 2] >> (4 * (i % 2)) & 0xf)
}

/// f16 scale; for each 32 elements four indices in a byte each, then 4 × 7 sign
/// bits and a scale in 4 bits.
#[inline(always)]
pub(super) fn iq2_xxs(b: &[u8; 66], y: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let indices: &[u8; 4] = part(b, 2 + 8 * i);
        let rest = u32_at(b, 6 + 8 * i);
        let d = d * (0.5 + (rest >> 28) as f32) * 0.25;
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let point = &grids::IQ2_XXS[usize::from(indices[l])];
            signed(d, point, even_signs(rest >> (7 * l)), y);
        }
    }
}

/// f16 scale; for each 8 elements a 9-bit index and 7 sign bits; for each 16 a
/// scale in 4 bits.
#[inline(always)]
pub(super) fn iq2_xs(b: &[u8; 74], y: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let d = d * (0.5 + nibble(&b[66..], i)) * 0.25;
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let q = u16_at(b, 2 + 2 * (2 * i + l));
            let point = &grids::IQ2_XS[usize::from(q & 511)];
            signed(d, point, even_signs(u32::from(q >> 9)), y);
        }
    }
}

/// f16 scale; for each 8 elements the low 8 bits of an index, and 8 sign bits;
/// 2 high bits of each index; for each 16 elements a scale in 4 bits.
#[inline(always)]
pub(super) fn iq2_s(b: &[u8; 82], y: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let d = d * (0.5 + nibble(&b[74..], i)) * 0.25;
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let k = 2 * i + l;
            let high = usize::from(b[66 + k / 4] >> (2 * (k % 4)) & 3);
            let point = &grids::IQ2_S[usize::from(b[2 + k]) | high << 8];
            signed(d, point, b[34 + k], y);
        }
    }
}

/// f16 scale; for each 4 elements an index in a byte; for each 32 elements 4 × 7
/// sign bits and a scale in 4 bits.
#[inline(always)]
pub(super) fn iq3_xxs(b: &[u8; 98], y: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let rest = u32_at(b, 66 + 4 * i);
        let d = d * (0.5 + (rest >> 28) as f32) * 0.5;
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let indices: &[u8; 2] = part(b, 2 + 8 * i + 2 * l);
            let points = indices.map(|q| &grids::IQ3_XXS[usize::from(q)]);
            signed_pair(d, points, even_signs(rest >> (7 * l)), y);
        }
    }
}

/// f16 scale; for each 4 elements the low 8 bits of an index; a high bit of each
/// index; for each 8 elements 8 sign bits; for each 32 a scale in 4 bits.
#[inline(always)]
pub(super) fn iq3_s(b: &[u8; 110], y: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let d = d * (1.0 + 2.0 * nibble(&b[106..], i));
        let high = usize::from(b[66 + i]);
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let points = [2 * l, 2 * l + 1].map(|k| {
                let index = usize::from(b[2 + 8 * i + k]) | (high >> k & 1) << 8;
                &grids::IQ3_S[index]
            });
            signed_pair(d, points, b[74 + 4 * i + l], y);
        }
    }
}

/// `y ← d · (point ± 1/8)`
#[inline(always)]
fn shifted(d: f32, index: usize, negative: bool, y: &mut [f32; 8]) {
    let delta = if negative { -0.125 } else { 0.125 };
    let point = &grids::IQ1_S[index];
    for (y, &x) in y.iter_mut().zip(point) {
        *y = d * (f32::from(x) + delta);
    }
}

/// f16 scale; for each 8 elements the low 8 bits of an index; for each 32 the
/// high 3 bits of four indices, a scale in 3 bits and the sign of the shift.
#[inline(always)]
pub(super) fn iq1_s(b: &[u8; 50], y: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let rest = u16_at(b, 34 + 2 * i);
        let d = d * f32::from(2 * (rest >> 12 & 7) + 1);
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let high = usize::from(rest >> (3 * l) & 7);
            let index = usize::from(b[2 + 4 * i + l]) | high << 8;
            shifted(d, index, rest & 0x8000 != 0, y);
        }
    }
}

/// For each 8 elements the low 8 bits of an index, then its high 3 bits and the
/// sign of the shift; for each 16 a scale in 3 bits. The f16 scale of the scales
/// is spread over the high nibbles of these.
#[inline(always)]
pub(super) fn iq1_m(b: &[u8; 56], y: &mut [f32; 256]) {
    let scales: [u16; 4] = std::array::from_fn(|i| u16_at(b, 48 + 2 * i));
    let bits = scales.iter().rev().fold(0, |bits, s| bits << 4 | s >> 12);
    let d = half::f16::from_bits(bits).to_f32_const();
    for (i, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = scales[i / 4] >> (3 * (i % 4)) & 7;
        let d = d * f32::from(2 * scale + 1);
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let rest = b[32 + i] >> (4 * l);
            let index = usize::from(b[2 * i + l]) | usize::from(rest & 7) << 8;
            shifted(d, index, rest & 8 != 0, y);
        }
    }
}

/// The 16 levels of the 4-bit non-linear types.
const LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

#[inline(always)]
fn levels(d: f32, qs: &[u8; 16], y: &mut [f32; 32]) {
    for j in 0..16 {
        y[j] = d * f32::from(LEVELS[usize::from(qs[j] & 0xf)]);
        y[j + 16] = d * f32::from(LEVELS[usize::from(qs[j] >> 4)]);
    }
}

/// 32 elements: f16 scale, nibbles (all low halves first).
#[inline(always)]
pub(super) fn iq4_nl(b: &[u8; 18], y: &mut [f32; 32]) {
    levels(f16_at(b, 0), part(b, 2), y);
}

/// f16 scale, 8 × 2 high and 8 × 4 low bits of scales, nibbles.
#[inline(always)]
pub(super) fn iq4_xs(b: &[u8; 136], y: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    let high = u16_at(b, 2);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let high = f32::from(high >> (2 * i) & 3);
        let scale = nibble(&b[4..8], i) + 16.0 * high - 32.0;
        levels(d * scale, part(b, 8 + 16 * i), y);
    }
}
