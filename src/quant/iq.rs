//! The IQ types: indices into codebooks, or into non-linear levels. All but
//! IQ4_NL are super-blocks of 256 elements. Formats: ggml's `ggml-common.h`.

use super::{Element, f16_at, grids, part};

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

/// Four times eight sign bits.
#[inline(always)]
fn all_signs(sevens: u32) -> u32 {
    let mut signs = [0; 4];
    for (l, signs) in signs.iter_mut().enumerate() {
        *signs = even_signs(sevens >> (7 * l));
    }
    u32::from_le_bytes(signs)
}

/// `y ← ± d · q` with a scale for each half; negative where the sign bit is 1.
#[inline(always)]
fn signed<E: Element>(d: [f32; 2], q: &[i8; 32], signs: u32, y: &mut [E; 32]) {
    for j in 0..32 {
        let q = i32::from(q[j]);
        let q = if signs >> j & 1 == 1 { -q } else { q };
        y[j] = E::scaled(if j < 16 { d[0] } else { d[1] }, q);
    }
}

/// The nibble `i` of a byte, the low one first.
#[inline(always)]
fn nibble(byte: u8, i: usize) -> f32 {
    f32::from(byte >> (4 * i) & 0xf)
}

/// Scales of both halves, from 4 bits each.
#[inline(always)]
fn quarter_scales(d: f32, scales: u8) -> [f32; 2] {
    [
        d * (0.5 + nibble(scales, 0)) * 0.25,
        d * (0.5 + nibble(scales, 1)) * 0.25,
    ]
}

/// The 32 values of points.
#[inline(always)]
fn flat<const N: usize>(points: &[[i8; N]]) -> &[i8; 32] {
    part(points.as_flattened(), 0)
}

/// f16 scale; for each 32 elements four indices in a byte each, then 4 × 7 sign
/// bits and a scale in 4 bits.
#[inline(always)]
pub(super) fn iq2_xxs<E: Element>(b: &[u8; 66], y: &mut [E; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let indices: &[u8; 4] = part(b, 2 + 8 * i);
        let rest = u32_at(b, 6 + 8 * i);
        let d = d * (0.5 + (rest >> 28) as f32) * 0.25;
        let mut q = [[0; 8]; 4];
        for l in 0..4 {
            q[l] = grids::IQ2_XXS[usize::from(indices[l])];
        }
        signed([d; 2], flat(&q), all_signs(rest), y);
    }
}

/// f16 scale; for each 8 elements a 9-bit index and 7 sign bits; for each 16 a
/// scale in 4 bits.
#[inline(always)]
pub(super) fn iq2_xs<E: Element>(b: &[u8; 74], y: &mut [E; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (mut q, mut signs) = ([[0; 8]; 4], [0; 4]);
        for l in 0..4 {
            let bits = u16_at(b, 2 + 2 * (4 * i + l));
            q[l] = grids::IQ2_XS[usize::from(bits & 511)];
            signs[l] = even_signs(u32::from(bits >> 9));
        }
        let d = quarter_scales(d, b[66 + i]);
        signed(d, flat(&q), u32::from_le_bytes(signs), y);
    }
}

/// f16 scale; for each 8 elements the low 8 bits of an index, and 8 sign bits;
/// 2 high bits of each index; for each 16 elements a scale in 4 bits.
#[inline(always)]
pub(super) fn iq2_s<E: Element>(b: &[u8; 82], y: &mut [E; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let indices: &[u8; 4] = part(b, 2 + 4 * i);
        let high = usize::from(b[66 + i]);
        let mut q = [[0; 8]; 4];
        for l in 0..4 {
            q[l] = grids::IQ2_S[usize::from(indices[l]) | (high >> (2 * l) & 3) << 8];
        }
        let d = quarter_scales(d, b[74 + i]);
        signed(d, flat(&q), u32_at(b, 34 + 4 * i), y);
    }
}

/// f16 scale; for each 4 elements an index in a byte; for each 32 elements 4 × 7
/// sign bits and a scale in 4 bits.
#[inline(always)]
pub(super) fn iq3_xxs<E: Element>(b: &[u8; 98], y: &mut [E; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let indices: &[u8; 8] = part(b, 2 + 8 * i);
        let rest = u32_at(b, 66 + 4 * i);
        let d = d * (0.5 + (rest >> 28) as f32) * 0.5;
        let mut q = [[0; 4]; 8];
        for l in 0..8 {
            q[l] = grids::IQ3_XXS[usize::from(indices[l])];
        }
        signed([d; 2], flat(&q), all_signs(rest), y);
    }
}

/// f16 scale; for each 4 elements the low 8 bits of an index; a high bit of each
/// index; for each 8 elements 8 sign bits; for each 32 a scale in 4 bits.
#[inline(always)]
pub(super) fn iq3_s<E: Element>(b: &[u8; 110], y: &mut [E; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let indices: &[u8; 8] = part(b, 2 + 8 * i);
        let high = usize::from(b[66 + i]);
        let d = d * (1.0 + 2.0 * nibble(b[106 + i / 2], i % 2));
        let mut q = [[0; 4]; 8];
        for l in 0..8 {
            q[l] = grids::IQ3_S[usize::from(indices[l]) | (high >> l & 1) << 8];
        }
        signed([d; 2], flat(&q), u32_at(b, 74 + 4 * i), y);
    }
}

/// `y ← d · (q ± 1/8)`, as `d/8 · (8q ± 1)`, with a scale for each half and a sign
/// for each quarter.
#[inline(always)]
fn eighths<E: Element>(d: [f32; 2], q: &[i8; 32], negative: [bool; 4], y: &mut [E; 32]) {
    let d = d.map(|d| d * 0.125);
    for j in 0..32 {
        let shift = if negative[j / 8] { -1 } else { 1 };
        let q = 8 * i32::from(q[j]) + shift;
        y[j] = E::scaled(if j < 16 { d[0] } else { d[1] }, q);
    }
}

/// f16 scale; for each 8 elements the low 8 bits of an index; for each 32 the
/// high 3 bits of four indices, a scale in 3 bits and the sign of the shift.
#[inline(always)]
pub(super) fn iq1_s<E: Element>(b: &[u8; 50], y: &mut [E; 256]) {
    let d = f16_at(b, 0);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let indices: &[u8; 4] = part(b, 2 + 4 * i);
        let rest = u16_at(b, 34 + 2 * i);
        let d = d * f32::from(2 * (rest >> 12 & 7) + 1);
        let mut q = [[0; 8]; 4];
        for l in 0..4 {
            let high = usize::from(rest >> (3 * l) & 7);
            q[l] = grids::IQ1_S[usize::from(indices[l]) | high << 8];
        }
        eighths([d; 2], flat(&q), [rest & 0x8000 != 0; 4], y);
    }
}

/// For each 8 elements the low 8 bits of an index, then its high 3 bits and the
/// sign of the shift; for each 16 a scale in 3 bits. The f16 scale of the scales
/// is spread over the high nibbles of these.
#[inline(always)]
pub(super) fn iq1_m<E: Element>(b: &[u8; 56], y: &mut [E; 256]) {
    let scales = u64::from_le_bytes(*part(b, 48));
    let mut bits = 0;
    for i in 0..4 {
        bits |= (scales >> (16 * i + 12) & 0xf) << (4 * i);
    }
    let d = half::f16::from_bits(bits as u16).to_f32_const();
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let indices: &[u8; 4] = part(b, 4 * i);
        let rest = u16_at(b, 32 + 2 * i);
        // Two scales for each 32, four in each 16 bits.
        let scale = scales >> (16 * (i / 2) + 6 * (i % 2));
        let d = [
            d * (2 * (scale & 7) + 1) as f32,
            d * (2 * (scale >> 3 & 7) + 1) as f32,
        ];
        let (mut q, mut negative) = ([[0; 8]; 4], [false; 4]);
        for l in 0..4 {
            let rest = rest >> (4 * l);
            q[l] = grids::IQ1_S[usize::from(indices[l]) | usize::from(rest & 7) << 8];
            negative[l] = rest & 8 != 0;
        }
        eighths(d, flat(&q), negative, y);
    }
}

/// The 16 levels of the 4-bit non-linear types.
const LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// The levels of both halves of a byte.
static LEVEL_PAIRS: [[i8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [LEVELS[byte & 0xf], LEVELS[byte >> 4]];
        byte += 1;
    }
    pairs
};

#[inline(always)]
fn levels<E: Element>(d: f32, qs: &[u8; 16], y: &mut [E; 32]) {
    let mut q = [[0; 16]; 2];
    for j in 0..16 {
        [q[0][j], q[1][j]] = LEVEL_PAIRS[usize::from(qs[j])];
    }
    for (y, &q) in y.iter_mut().zip(q.as_flattened()) {
        *y = E::scaled(d, i32::from(q));
    }
}

/// 32 elements: f16 scale, nibbles (all low halves first).
#[inline(always)]
pub(super) fn iq4_nl<E: Element>(b: &[u8; 18], y: &mut [E; 32]) {
    levels(f16_at(b, 0), part(b, 2), y);
}

/// f16 scale, 8 × 2 high and 8 × 4 low bits of scales, nibbles.
#[inline(always)]
pub(super) fn iq4_xs<E: Element>(b: &[u8; 136], y: &mut [E; 256]) {
    let d = f16_at(b, 0);
    let high = u16_at(b, 2);
    for (i, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let high = f32::from(high >> (2 * i) & 3);
        let scale = nibble(b[4 + i / 2], i % 2) + 16.0 * high - 32.0;
        levels(d * scale, part(b, 8 + 16 * i), y);
    }
}
