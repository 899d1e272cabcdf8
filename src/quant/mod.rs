//! ggml blocks to f32. Block formats only; nothing about layers.
//!
//! Every decoder yields the same bits as the PyPI package `gguf`, on every
//! instruction set. A decoder is a function from one block to its elements, with
//! both sizes in its type; loops are plain, so that they vectorize. candle's
//! decoders serve the types for which they are as fast.

mod candle;
mod grids;
mod iq;
mod k;
mod simple;
#[cfg(test)]
mod tests;

use half::slice::HalfFloatSliceExt;

use crate::gguf::BlockType;
use crate::isa::{Isa, multiversion};

/// Why blocks could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    #[error("block type {0} cannot be decoded; supported are {list}", list = supported_names())]
    Unsupported(BlockType),
    #[error("{bytes} bytes of {ty} blocks hold no {elements} elements")]
    Length {
        ty: BlockType,
        bytes: usize,
        elements: usize,
    },
}

/// Whether [`dequantize`] can decode `ty`. The others are what ggml keeps for
/// intermediate results and indices; no weight has them.
pub fn is_supported(ty: BlockType) -> bool {
    use BlockType::*;
    !matches!(ty, Q8_1 | I8 | I16 | I32 | I64 | F64)
}

fn supported_names() -> String {
    let names: Vec<_> = BlockType::ALL
        .iter()
        .filter(|t| is_supported(**t))
        .map(|t| t.name())
        .collect();
    names.join(", ")
}

/// Decodes `blocks` into `out`, whose length is the number of elements.
///
/// # Errors
/// An unsupported type, or lengths that do not fit each other.
pub fn dequantize(ty: BlockType, blocks: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    dequantize_with(Isa::detect(), ty, blocks, out)
}

fn dequantize_with(
    isa: Isa,
    ty: BlockType,
    blocks: &[u8],
    out: &mut [f32],
) -> Result<(), QuantError> {
    if ty.bytes_for(out.len() as u64) != Some(blocks.len() as u64) {
        return Err(QuantError::Length {
            ty,
            bytes: blocks.len(),
            elements: out.len(),
        });
    }
    match decode(isa, ty, blocks, out) {
        true => Ok(()),
        false => Err(QuantError::Unsupported(ty)),
    }
}

multiversion! {
    /// Decodes whole blocks; `false` where the type cannot be decoded.
    fn decode(ty: BlockType, bytes: &[u8], out: &mut [f32]) -> bool {
        use BlockType::*;
        match ty {
            F32 => each(bytes, out, |b, y: &mut [f32; 1]| y[0] = f32::from_le_bytes(*b)),
            F16 => halves(bytes, out, half::f16::from_bits),
            BF16 => halves(bytes, out, half::bf16::from_bits),
            Q1_0 => each(bytes, out, simple::q1_0),
            Q2_0 => each(bytes, out, simple::q2_0),
            Q4_0 => each(bytes, out, simple::q4_0),
            Q4_1 => each(bytes, out, simple::q4_1),
            Q5_0 => each(bytes, out, simple::q5_0),
            Q5_1 => each(bytes, out, simple::q5_1),
            Q8_0 => each(bytes, out, simple::q8_0),
            TQ1_0 => each(bytes, out, simple::tq1_0),
            TQ2_0 => each(bytes, out, simple::tq2_0),
            MXFP4 => each(bytes, out, simple::mxfp4),
            NVFP4 => each(bytes, out, simple::nvfp4),
            Q2_K | Q3_K | Q8_K => candle::dequantize(ty, bytes, out),
            Q4_K => each(bytes, out, k::q4_k),
            Q5_K => each(bytes, out, k::q5_k),
            Q6_K => each(bytes, out, k::q6_k),
            IQ1_S => each(bytes, out, iq::iq1_s),
            IQ1_M => each(bytes, out, iq::iq1_m),
            IQ2_XXS => each(bytes, out, iq::iq2_xxs),
            IQ2_XS => each(bytes, out, iq::iq2_xs),
            IQ2_S => each(bytes, out, iq::iq2_s),
            IQ3_XXS => each(bytes, out, iq::iq3_xxs),
            IQ3_S => each(bytes, out, iq::iq3_s),
            IQ4_NL => each(bytes, out, iq::iq4_nl),
            IQ4_XS => each(bytes, out, iq::iq4_xs),
            Q8_1 | I8 | I16 | I32 | I64 | F64 => return false,
        }
        true
    }
}

/// Applies a decoder of one block to all blocks.
#[inline(always)]
fn each<const BYTES: usize, const ELEMENTS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decoder: impl Fn(&[u8; BYTES], &mut [f32; ELEMENTS]),
) {
    let blocks = bytes.as_chunks::<BYTES>().0;
    for (block, y) in blocks.iter().zip(out.as_chunks_mut::<ELEMENTS>().0) {
        decoder(block, y);
    }
}

/// Converts 16-bit floats through `half`'s slice conversion (F16C where present).
fn halves<T: Copy + Default>(bytes: &[u8], out: &mut [f32], from_bits: impl Fn(u16) -> T)
where
    [T]: HalfFloatSliceExt,
{
    const RUN: usize = 256;
    let mut run = [T::default(); RUN];
    for (xs, bytes) in out.chunks_mut(RUN).zip(bytes.chunks(2 * RUN)) {
        for (h, b) in run.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *h = from_bits(u16::from_le_bytes(*b));
        }
        run[..xs.len()].convert_to_f32_slice(xs);
    }
}

/// The f16 at byte `at` of a block. Inlined arithmetic: for one value that is
/// faster than `half`'s choice between instruction sets at run time.
#[inline(always)]
fn f16_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes(*part(block, at)).to_f32_const()
}

/// The `N` bytes of a block from byte `at` on.
#[inline(always)]
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    match block[at..].first_chunk() {
        Some(bytes) => bytes,
        None => unreachable!("a block ends before byte {}", at + N),
    }
}
