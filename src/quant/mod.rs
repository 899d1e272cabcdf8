//! ggml blocks to f32, or to integers with scales. Block formats only; nothing
//! about layers.
//!
//! Every decoder yields the same bits as the PyPI package `gguf`, on every
//! instruction set. A decoder is a function from one block to its elements, with
//! both sizes in its type, and plain loops. These vectorize where a loop has 32
//! rounds or a long body; a short one is unrolled first. `benches/dequant.rs`
//! shows it. What it stores of an element is the caller's choice: see `Element`.

mod grids;
mod integers;
mod iq;
mod k;
mod simple;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

use half::slice::HalfFloatSliceExt;

use crate::gguf::BlockType;
use crate::isa::{Isa, multiversion};

pub use integers::{IntegerLayout, Minimum, Scale, decode_integers};

/// Why blocks could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
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

/// The codebooks of the IQ types, one after the other: IQ2_XXS, IQ2_XS, IQ2_S,
/// IQ3_XXS, IQ3_S, IQ1_S, for decoders that run elsewhere.
pub fn codebooks() -> Vec<i8> {
    let mut all = Vec::new();
    all.extend(grids::IQ2_XXS.as_flattened());
    all.extend(grids::IQ2_XS.as_flattened());
    all.extend(grids::IQ2_S.as_flattened());
    all.extend(grids::IQ3_XXS.as_flattened());
    all.extend(grids::IQ3_S.as_flattened());
    all.extend(grids::IQ1_S.as_flattened());
    all
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

/// Applies a decoder of one block to all blocks. A macro, since a function that
/// takes a function is optimized before it is known for which instructions.
macro_rules! each {
    ($bytes:ident, $out:ident, $decoder:path) => {
        for (block, y) in pairs($bytes, $out) {
            $decoder(block, y);
        }
    };
}

multiversion! {
    /// Decodes whole blocks; `false` where the type cannot be decoded.
    fn decode(ty: BlockType, bytes: &[u8], out: &mut [f32]) -> bool {
        match ty {
            BlockType::F32 => each!(bytes, out, simple::f32),
            BlockType::F16 => f16s(bytes, out),
            BlockType::BF16 => each!(bytes, out, simple::bf16),
            _ => return decode_quantized(ty, bytes, out),
        }
        true
    }
}

/// [`decode`] for the types that are integers with scales.
#[inline(always)]
fn decode_quantized<E: Element>(ty: BlockType, bytes: &[u8], out: &mut [E]) -> bool {
    use BlockType::*;
    match ty {
        Q1_0 => each!(bytes, out, simple::q1_0),
        Q2_0 => each!(bytes, out, simple::q2_0),
        Q4_0 => each!(bytes, out, simple::q4_0),
        Q4_1 => each!(bytes, out, simple::q4_1),
        Q5_0 => each!(bytes, out, simple::q5_0),
        Q5_1 => each!(bytes, out, simple::q5_1),
        Q8_0 => each!(bytes, out, simple::q8_0),
        TQ1_0 => each!(bytes, out, simple::tq1_0),
        TQ2_0 => each!(bytes, out, simple::tq2_0),
        MXFP4 => each!(bytes, out, simple::mxfp4),
        NVFP4 => each!(bytes, out, simple::nvfp4),
        Q2_K => each!(bytes, out, k::q2_k),
        Q3_K => each!(bytes, out, k::q3_k),
        Q4_K => each!(bytes, out, k::q4_k),
        Q5_K => each!(bytes, out, k::q5_k),
        Q6_K => each!(bytes, out, k::q6_k),
        Q8_K => each!(bytes, out, k::q8_k),
        IQ1_S => each!(bytes, out, iq::iq1_s),
        IQ1_M => each!(bytes, out, iq::iq1_m),
        IQ2_XXS => each!(bytes, out, iq::iq2_xxs),
        IQ2_XS => each!(bytes, out, iq::iq2_xs),
        IQ2_S => each!(bytes, out, iq::iq2_s),
        IQ3_XXS => each!(bytes, out, iq::iq3_xxs),
        IQ3_S => each!(bytes, out, iq::iq3_s),
        IQ4_NL => each!(bytes, out, iq::iq4_nl),
        IQ4_XS => each!(bytes, out, iq::iq4_xs),
        F32 | F16 | BF16 | Q8_1 | I8 | I16 | I32 | I64 | F64 => return false,
    }
    true
}

/// What a decoder stores of an element, which is `scale · code` or
/// `scale · code + minimum`.
trait Element: Copy {
    fn scaled(scale: f32, code: i32) -> Self;
    fn shifted(scale: f32, code: i32, minimum: f32) -> Self;
}

/// The value itself.
impl Element for f32 {
    #[inline(always)]
    fn scaled(scale: f32, code: i32) -> Self {
        scale * code as f32
    }

    #[inline(always)]
    fn shifted(scale: f32, code: i32, minimum: f32) -> Self {
        scale * code as f32 + minimum
    }
}

/// The blocks, each with the place of its elements.
#[inline(always)]
fn pairs<'a, E, const BYTES: usize, const ELEMENTS: usize>(
    bytes: &'a [u8],
    out: &'a mut [E],
) -> impl Iterator<Item = (&'a [u8; BYTES], &'a mut [E; ELEMENTS])> {
    let blocks = bytes.as_chunks().0;
    blocks.iter().zip(out.as_chunks_mut().0)
}

/// Converts f16 through `half`'s slice conversion (F16C where present).
fn f16s(bytes: &[u8], out: &mut [f32]) {
    const CHUNK: usize = 256;
    let mut run = [half::f16::ZERO; CHUNK];
    for (xs, bytes) in out.chunks_mut(CHUNK).zip(bytes.chunks(2 * CHUNK)) {
        for (h, b) in run.iter_mut().zip(bytes.as_chunks().0) {
            *h = half::f16::from_le_bytes(*b);
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

/// The `N` elements from `at` on.
#[inline(always)]
fn part<T, const N: usize>(block: &[T], at: usize) -> &[T; N] {
    match block[at..].first_chunk() {
        Some(part) => part,
        None => unreachable!("a block ends before {}", at + N),
    }
}
