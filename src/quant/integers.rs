//! Quantized blocks as integers: codes of 8 bits, and scales and minima that serve
//! groups of elements.

use super::{Element, QuantError, decode_quantized};
use crate::gguf::BlockType;
use crate::isa::{Isa, multiversion};

/// How the elements of a type share scales and minima.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerLayout {
    /// Neighbours with one scale and one minimum: 16 or 32.
    pub group: usize,
    /// Whether there are minima.
    pub minima: bool,
}

impl IntegerLayout {
    /// `None` for types that are not integers with scales.
    pub fn of(ty: BlockType) -> Option<Self> {
        use BlockType::*;
        let (group, minima) = match ty {
            Q1_0 | Q2_0 | Q4_0 | Q5_0 | Q8_0 | Q8_K | MXFP4 | TQ1_0 | TQ2_0 => (32, false),
            IQ1_S | IQ2_XXS | IQ3_XXS | IQ3_S | IQ4_NL | IQ4_XS => (32, false),
            NVFP4 | Q3_K | Q6_K | IQ1_M | IQ2_XS | IQ2_S => (16, false),
            Q4_1 | Q5_1 | Q4_K | Q5_K => (32, true),
            Q2_K => (16, true),
            F32 | F16 | BF16 | Q8_1 | I8 | I16 | I32 | I64 | F64 => return None,
        };
        Some(Self { group, minima })
    }
}

/// The scale of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scale(pub f32);

/// The minimum of an element; 0 where the type has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Minimum(pub f32);

/// The code. All types' codes fit: IQ1 types count in eighths of a scale.
impl Element for i8 {
    #[inline(always)]
    fn scaled(_: f32, code: i32) -> Self {
        code as i8
    }

    #[inline(always)]
    fn shifted(_: f32, code: i32, _: f32) -> Self {
        code as i8
    }
}

impl Element for Scale {
    #[inline(always)]
    fn scaled(scale: f32, _: i32) -> Self {
        Scale(scale)
    }

    #[inline(always)]
    fn shifted(scale: f32, _: i32, _: f32) -> Self {
        Scale(scale)
    }
}

impl Element for Minimum {
    #[inline(always)]
    fn scaled(_: f32, _: i32) -> Self {
        Minimum(0.0)
    }

    #[inline(always)]
    fn shifted(_: f32, _: i32, minimum: f32) -> Self {
        Minimum(minimum)
    }
}

multiversion! {
    fn decode_codes(ty: BlockType, bytes: &[u8], out: &mut [i8]) -> bool {
        decode_quantized(ty, bytes, out)
    }
}

multiversion! {
    fn decode_scales(ty: BlockType, bytes: &[u8], out: &mut [Scale]) -> bool {
        decode_quantized(ty, bytes, out)
    }
}

multiversion! {
    fn decode_minima(ty: BlockType, bytes: &[u8], out: &mut [Minimum]) -> bool {
        decode_quantized(ty, bytes, out)
    }
}

/// Takes blocks apart: element `i` is `scales[i] · codes[i] + minima[i]`, the value
/// that [`super::dequantize`] yields but for rounding. `minima` may be empty for
/// types without any.
///
/// # Errors
/// A type that is not integers with scales, or lengths that do not fit each other.
pub fn decode_integers(
    isa: Isa,
    ty: BlockType,
    blocks: &[u8],
    codes: &mut [i8],
    scales: &mut [Scale],
    minima: &mut [Minimum],
) -> Result<(), QuantError> {
    let layout = IntegerLayout::of(ty).ok_or(QuantError::Unsupported(ty))?;
    let n = codes.len();
    if ty.bytes_for(n as u64) != Some(blocks.len() as u64)
        || scales.len() != n
        || minima.len() != if layout.minima { n } else { 0 }
    {
        return Err(QuantError::Length {
            ty,
            bytes: blocks.len(),
            elements: n,
        });
    }
    decode_codes(isa, ty, blocks, codes);
    decode_scales(isa, ty, blocks, scales);
    if layout.minima {
        decode_minima(isa, ty, blocks, minima);
    }
    Ok(())
}
