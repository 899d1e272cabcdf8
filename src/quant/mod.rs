//! ggml blocks to f32. Block formats only; nothing about layers.
//!
//! candle's decoders serve the types candle has; the others are written here.
//! Every decoder yields the same bits as the PyPI package `gguf`.

mod blocks;
mod candle;

use half::slice::HalfFloatSliceExt;

use crate::gguf::BlockType;

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

/// Whether [`dequantize`] can decode `ty`.
pub fn is_supported(ty: BlockType) -> bool {
    use BlockType::*;
    matches!(
        ty,
        F32 | F16
            | BF16
            | Q4_0
            | Q4_1
            | Q5_0
            | Q5_1
            | Q8_0
            | Q2_K
            | Q3_K
            | Q4_K
            | Q5_K
            | Q6_K
            | Q8_K
            | IQ4_NL
            | IQ4_XS
    )
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
    use BlockType::*;
    if ty.bytes_for(out.len() as u64) != Some(blocks.len() as u64) {
        return Err(QuantError::Length {
            ty,
            bytes: blocks.len(),
            elements: out.len(),
        });
    }
    match ty {
        F32 => {
            for (x, b) in out.iter_mut().zip(blocks.as_chunks::<4>().0) {
                *x = f32::from_le_bytes(*b);
            }
        }
        F16 => halves(blocks, out, half::f16::from_bits),
        BF16 => halves(blocks, out, half::bf16::from_bits),
        IQ4_NL => blocks::iq4_nl(blocks, out),
        IQ4_XS => blocks::iq4_xs(blocks, out),
        _ if is_supported(ty) => candle::dequantize(ty, blocks, out),
        _ => return Err(QuantError::Unsupported(ty)),
    }
    Ok(())
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
