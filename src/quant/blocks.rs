//! Block types that candle does not decode. Formats: ggml's `ggml-common.h`.

use half::f16;

/// The 16 levels of the 4-bit non-linear types.
const IQ4_LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// 32 elements: f16 scale, 16 bytes of nibbles (low halves first).
pub(super) fn iq4_nl(bytes: &[u8], out: &mut [f32]) {
    for (block, y) in bytes
        .as_chunks::<18>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<32>().0)
    {
        iq4_nibbles(f16_at(block, 0), &block[2..], y);
    }
}

/// 256 elements: f16 scale, 16 bits of high scale parts, 4 bytes of low scale
/// parts, 128 bytes of nibbles; a 6-bit scale for each 32 elements.
pub(super) fn iq4_xs(bytes: &[u8], out: &mut [f32]) {
    for (block, y) in bytes
        .as_chunks::<136>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<256>().0)
    {
        let d = f16_at(block, 0);
        let high = u16::from_le_bytes([block[2], block[3]]);
        for (ib, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = (block[4 + ib / 2] >> (4 * (ib % 2))) & 0xf;
            let scale = i32::from(low) | (i32::from(high >> (2 * ib)) & 3) << 4;
            iq4_nibbles(d * (scale - 32) as f32, &block[8 + 16 * ib..], y);
        }
    }
}

fn iq4_nibbles(d: f32, qs: &[u8], y: &mut [f32; 32]) {
    for (j, &q) in qs[..16].iter().enumerate() {
        y[j] = d * f32::from(IQ4_LEVELS[usize::from(q & 0xf)]);
        y[j + 16] = d * f32::from(IQ4_LEVELS[usize::from(q >> 4)]);
    }
}
