//! Simple quantizers for models in tests: one scale a block, no search.

use half::f16;
use pplx::gguf::BlockType;

/// Blocks of `ty` that stand for about `values`.
pub fn encode(ty: BlockType, values: &[f32]) -> Vec<u8> {
    let block = match ty {
        BlockType::Q8_0 => q8_0,
        BlockType::Q4_1 => q4_1,
        BlockType::Q4_K => q4_k,
        BlockType::Q6_K => q6_k,
        BlockType::Q8_K => q8_k,
        other => panic!("no quantizer for {other}"),
    };
    let mut out = Vec::new();
    for values in values.chunks_exact(ty.block_elements()) {
        block(values, &mut out);
    }
    out
}

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// Scale and minimum of `levels` levels, rounded as a file stores them.
fn levels(x: &[f32], levels: f32) -> (f16, f16) {
    let least = x.iter().fold(0.0, |m: f32, x| m.min(*x));
    let most = x.iter().fold(0.0, |m: f32, x| m.max(*x));
    let scale = (most - least) / (levels - 1.0);
    (f16::from_f32(scale), f16::from_f32(least))
}

fn codes(x: &[f32], scale: f16, minimum: f16, most: f32) -> Vec<u8> {
    let (scale, minimum) = (scale.to_f32(), minimum.to_f32());
    let code = |x: &f32| ((x - minimum) / scale).round().clamp(0.0, most) as u8;
    x.iter().map(code).collect()
}

fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let scale = f16::from_f32(largest(x) / 127.0);
    out.extend(scale.to_le_bytes());
    out.extend(x.iter().map(|x| (x / scale.to_f32()).round() as i8 as u8));
}

fn q4_1(x: &[f32], out: &mut Vec<u8>) {
    let (scale, minimum) = levels(x, 16.0);
    let q = codes(x, scale, minimum, 15.0);
    out.extend(scale.to_le_bytes());
    out.extend(minimum.to_le_bytes());
    out.extend((0..16).map(|j| q[j] | q[j + 16] << 4));
}

fn q4_k(x: &[f32], out: &mut Vec<u8>) {
    let (scale, minimum) = levels(x, 16.0);
    let q = codes(x, scale, minimum, 15.0);
    out.extend(scale.to_le_bytes());
    out.extend((-minimum).to_le_bytes());
    // All eight scales and minima of 6 bits are 1.
    out.extend([1; 8]);
    out.extend([0x11; 4]);
    for q in q.chunks_exact(64) {
        out.extend((0..32).map(|j| q[j] | q[j + 32] << 4));
    }
}

fn q6_k(x: &[f32], out: &mut Vec<u8>) {
    let scale = f16::from_f32(largest(x) / 31.0);
    let minimum = f16::from_f32(-32.0 * scale.to_f32());
    let q = codes(x, scale, minimum, 63.0);
    for q in q.chunks_exact(128) {
        out.extend((0..64).map(|j| q[j] & 0xf | (q[j + 64] & 0xf) << 4));
    }
    for q in q.chunks_exact(128) {
        let high = |j: usize| (0..4).fold(0, |h, g| h | q[j + 32 * g] >> 4 << (2 * g));
        out.extend((0..32).map(high));
    }
    out.extend([1; 16]);
    out.extend(scale.to_le_bytes());
}

fn q8_k(x: &[f32], out: &mut Vec<u8>) {
    let scale = largest(x) / 127.0;
    out.extend(scale.to_le_bytes());
    out.extend(x.iter().map(|x| (x / scale).round() as i8 as u8));
    out.extend([0; 32]);
}
