//! Plain types, and those with one level of scales. Formats: ggml's `ggml-common.h`.

use super::{Element, f16_at, part};

/// One element.
#[inline(always)]
pub(super) fn f32(b: &[u8; 4], y: &mut [f32; 1]) {
    y[0] = f32::from_le_bytes(*b);
}

/// One element: the upper half of an f32.
#[inline(always)]
pub(super) fn bf16(b: &[u8; 2], y: &mut [f32; 1]) {
    y[0] = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
}

/// 128 elements: f16 scale, a sign bit each.
#[inline(always)]
pub(super) fn q1_0<E: Element>(b: &[u8; 18], y: &mut [E; 128]) {
    let d = f16_at(b, 0);
    for (q, y) in b[2..].iter().zip(y.as_chunks_mut::<8>().0) {
        for (j, y) in y.iter_mut().enumerate() {
            *y = E::scaled(d, if q >> j & 1 == 1 { 1 } else { -1 });
        }
    }
}

/// 64 elements: f16 scale, 2 bits each, less 1.
#[inline(always)]
pub(super) fn q2_0<E: Element>(b: &[u8; 18], y: &mut [E; 64]) {
    let d = f16_at(b, 0);
    for (q, y) in b[2..].iter().zip(y.as_chunks_mut::<4>().0) {
        for (j, y) in y.iter_mut().enumerate() {
            *y = E::scaled(d, i32::from(q >> (2 * j) & 3) - 1);
        }
    }
}

/// 32 elements: f16 scale, nibbles (all low halves first) less 8.
#[inline] // With `always` the loop is unrolled too early: three times slower.
pub(super) fn q4_0<E: Element>(b: &[u8; 18], y: &mut [E; 32]) {
    let d = f16_at(b, 0);
    let qs: &[u8; 16] = part(b, 2);
    for j in 0..16 {
        y[j] = E::scaled(d, i32::from(qs[j] & 0xf) - 8);
        y[j + 16] = E::scaled(d, i32::from(qs[j] >> 4) - 8);
    }
}

/// 32 elements: f16 scale and minimum, nibbles.
#[inline] // As Q4_0.
pub(super) fn q4_1<E: Element>(b: &[u8; 20], y: &mut [E; 32]) {
    let (d, m) = (f16_at(b, 0), f16_at(b, 2));
    let qs: &[u8; 16] = part(b, 4);
    for j in 0..16 {
        y[j] = E::shifted(d, i32::from(qs[j] & 0xf), m);
        y[j + 16] = E::shifted(d, i32::from(qs[j] >> 4), m);
    }
}

/// The values `j` and `j + 16` of 5 bits, whose fifth bits are in a mask.
#[inline(always)]
fn five_bits(high: u32, qs: &[u8; 16], j: usize) -> [i32; 2] {
    let low = u32::from(qs[j] & 0xf) | (high >> j & 1) << 4;
    let up = u32::from(qs[j] >> 4) | (high >> (j + 16) & 1) << 4;
    [low as i32, up as i32]
}

/// 32 elements: f16 scale, 5 bits less 16.
#[inline(always)]
pub(super) fn q5_0<E: Element>(b: &[u8; 22], y: &mut [E; 32]) {
    let d = f16_at(b, 0);
    let high = u32::from_le_bytes(*part(b, 2));
    for j in 0..16 {
        let [low, up] = five_bits(high, part(b, 6), j);
        y[j] = E::scaled(d, low - 16);
        y[j + 16] = E::scaled(d, up - 16);
    }
}

/// 32 elements: f16 scale and minimum, 5 bits.
#[inline(always)]
pub(super) fn q5_1<E: Element>(b: &[u8; 24], y: &mut [E; 32]) {
    let (d, m) = (f16_at(b, 0), f16_at(b, 2));
    let high = u32::from_le_bytes(*part(b, 4));
    for j in 0..16 {
        let [low, up] = five_bits(high, part(b, 8), j);
        y[j] = E::shifted(d, low, m);
        y[j + 16] = E::shifted(d, up, m);
    }
}

/// 32 elements: f16 scale, signed bytes.
#[inline(always)]
pub(super) fn q8_0<E: Element>(b: &[u8; 34], y: &mut [E; 32]) {
    let d = f16_at(b, 0);
    let qs: &[u8; 32] = part(b, 2);
    for (y, &q) in y.iter_mut().zip(qs) {
        *y = E::scaled(d, i32::from(q as i8));
    }
}

/// 256 ternary elements, five or four of them in a byte: the byte is the base-3
/// number as a fraction of 256, so that tripling it moves digits out at the top.
#[inline(always)]
pub(super) fn tq1_0<E: Element>(b: &[u8; 54], y: &mut [E; 256]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    let d = f16_at(b, 52);
    let digit = |byte: u8, power: u8| {
        let q = u16::from(byte.wrapping_mul(power));
        E::scaled(d, i32::from((q * 3) >> 8) - 1)
    };
    for (n, power) in POWERS.into_iter().enumerate() {
        for j in 0..32 {
            y[32 * n + j] = digit(b[j], power);
        }
        for j in 0..16 {
            y[160 + 16 * n + j] = digit(b[32 + j], power);
        }
    }
    for (n, power) in POWERS.into_iter().take(4).enumerate() {
        for j in 0..4 {
            y[240 + 4 * n + j] = digit(b[48 + j], power);
        }
    }
}

/// 256 ternary elements in 2 bits each, f16 scale at the end.
#[inline(always)]
pub(super) fn tq2_0<E: Element>(b: &[u8; 66], y: &mut [E; 256]) {
    let d = f16_at(b, 64);
    for (half, y) in y.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        let qs: &[u8; 32] = part(b, 32 * half);
        for (n, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for j in 0..32 {
                y[j] = E::scaled(d, i32::from(qs[j] >> (2 * n) & 3) - 1);
            }
        }
    }
}

/// Twice the value of an E2M1 float: 0, 1, 2, 3, 4, 6, 8 or 12 with a sign.
#[inline(always)]
fn e2m1_doubled(code: u8) -> i8 {
    // The slope doubles at 4, and again from 6 on. Arithmetic, since a table
    // would keep the loop from being vectorized.
    let q = code & 7;
    let magnitude = (q + q.saturating_sub(4) + 2 * q.saturating_sub(6)) as i8;
    if code & 8 == 0 { magnitude } else { -magnitude }
}

/// 32 elements (OCP microscaling): a power of two as a biased exponent, nibbles
/// that are E2M1 floats.
#[inline(always)]
pub(super) fn mxfp4<E: Element>(b: &[u8; 17], y: &mut [E; 32]) {
    // Half the power, since the values are doubled; subnormal at both low ends.
    let half = match b[0] {
        e @ 0..2 => f32::from_bits(0x0020_0000 << e),
        e => f32::from_bits(u32::from(e - 1) << 23),
    };
    let qs: &[u8; 16] = part(b, 1);
    for j in 0..16 {
        y[j] = E::scaled(half, i32::from(e2m1_doubled(qs[j] & 0xf)));
        y[j + 16] = E::scaled(half, i32::from(e2m1_doubled(qs[j] >> 4)));
    }
}

/// Half the value of an unsigned E4M3 float; its NaN counts as 0, as in ggml.
#[inline(always)]
fn ue4m3_halved(x: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(x >> 3 & 0xf), x & 7);
    if x == 0x7f {
        return 0.0;
    }
    let ulp = f32::from_bits((127 - 11 + exponent.max(1)) << 23);
    let hidden = if exponent == 0 { 0 } else { 8 };
    ulp * (hidden + mantissa) as f32
}

/// 64 elements: a UE4M3 scale for each 16, nibbles that are E2M1 floats.
#[inline(always)]
pub(super) fn nvfp4<E: Element>(b: &[u8; 36], y: &mut [E; 64]) {
    for (s, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let half = ue4m3_halved(b[s]);
        let qs: &[u8; 8] = part(b, 4 + 8 * s);
        for j in 0..8 {
            y[j] = E::scaled(half, i32::from(e2m1_doubled(qs[j] & 0xf)));
            y[j + 8] = E::scaled(half, i32::from(e2m1_doubled(qs[j] >> 4)));
        }
    }
}
