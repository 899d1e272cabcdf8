//! Activations in 8 bits, by the formulas of ggml's CPU backend.

use crate::backend::cpu::math::round_to_f16;
use crate::gguf::BlockType;
use crate::isa::{Isa, multiversion};

/// ggml's block formats of activations. What a product takes depends on the type of
/// its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Format {
    /// 32 elements: an f16 scale.
    Q8_0,
    /// 32 elements: an f16 scale, and the elements' sum as f16.
    Q8_1,
    /// 256 elements: an f32 scale, sums of integers.
    Q8_K,
}

impl Format {
    /// What ggml multiplies weights of type `ty` with (`vec_dot_type` in
    /// `ggml-cpu.c`); `None` where it has no product in integers.
    pub fn of(ty: BlockType) -> Option<Self> {
        use BlockType::*;
        Some(match ty {
            Q1_0 | Q2_0 | Q4_0 | Q5_0 | Q8_0 | IQ4_NL | MXFP4 | NVFP4 => Self::Q8_0,
            Q4_1 | Q5_1 => Self::Q8_1,
            Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | TQ1_0 | TQ2_0 => Self::Q8_K,
            IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ4_XS => Self::Q8_K,
            F32 | F16 | BF16 | F64 | Q8_1 | Q8_K | I8 | I16 | I32 | I64 => return None,
        })
    }

    /// Elements of a block.
    pub fn block(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q8_1 => 32,
            Self::Q8_K => 256,
        }
    }
}

/// What is subtracted from weights to make them signed: kernels multiply unsigned
/// weights with signed activations.
pub(super) const OFFSET: i32 = 128;

/// Rows of activations.
#[derive(Default)]
pub struct Activations {
    pub(super) n_rows: usize,
    /// `rows × n_in`.
    pub(super) codes: Vec<i8>,
    /// `rows × blocks`.
    pub(super) scales: Vec<f32>,
    /// `−OFFSET · Σ codes`, where a group's integer sum starts: `rows × groups`.
    pub(super) starts: Vec<i32>,
    /// What a group's minimum is multiplied with, `rows × groups`; Q8_K: `Σ codes`,
    /// which the block's scale is still to be applied to.
    pub(super) sums: Vec<f32>,
}

impl Activations {
    /// Quantizes the rows of `x`, `n_in` elements each; reuses the memory of `self`.
    /// A block that holds a NaN or an infinity gets a scale that is not finite.
    ///
    /// # Panics
    /// If rows are no whole number of blocks.
    pub fn quantize(&mut self, isa: Isa, format: Format, group: usize, x: &[f32], n_in: usize) {
        let block = format.block();
        assert!(n_in.is_multiple_of(block) && block.is_multiple_of(group));
        self.n_rows = x.len() / n_in;
        self.codes.resize(x.len(), 0);
        self.scales.resize(x.len() / block, 0.0);
        self.starts.resize(x.len() / group, 0);
        self.sums.resize(x.len() / group, 0.0);
        let (codes, scales) = (&mut self.codes, &mut self.scales);
        match format {
            Format::Q8_0 | Format::Q8_1 => quantize_32(isa, x, codes, scales),
            Format::Q8_K => quantize_256(isa, x, codes, scales),
        }
        match group {
            16 => sum_groups_16(isa, codes, &mut self.starts),
            _ => sum_groups_32(isa, codes, &mut self.starts),
        }
        for (sum, start) in self.sums.iter_mut().zip(&mut self.starts) {
            *sum = *start as f32;
            *start *= -OFFSET;
        }
        if format == Format::Q8_1 {
            // From the scale before it is rounded, as in ggml.
            for (sum, scale) in self.sums.iter_mut().zip(&self.scales) {
                *sum *= scale;
            }
            round_to_f16(isa, &mut self.sums);
        }
        if format != Format::Q8_K {
            round_to_f16(isa, &mut self.scales);
        }
    }
}

/// The largest magnitude. A NaN counts as larger than an infinity, and that as
/// larger than all else.
#[inline(always)]
fn largest<const N: usize>(x: &[f32; N]) -> f32 {
    let magnitudes = x.iter().map(|x| x.to_bits() & 0x7fff_ffff);
    f32::from_bits(magnitudes.fold(0, u32::max))
}

/// `code ← x · factor`, rounded to the nearest integer, ties to even; products are
/// within ±128.
#[inline(always)]
fn round<const N: usize>(x: &[f32; N], factor: f32, codes: &mut [i8; N]) {
    // Adding 1.5·2²³ leaves the integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    for (code, x) in codes.iter_mut().zip(x) {
        *code = (x * factor + ROUND).to_bits() as i8;
    }
}

/// Blocks of Q8_0 and Q8_1, the scales not yet rounded.
fn quantize_32(isa: Isa, x: &[f32], codes: &mut [i8], scales: &mut [f32]) {
    let codes = codes.as_chunks_mut::<32>().0.iter_mut();
    for ((x, codes), scale) in x.as_chunks::<32>().0.iter().zip(codes).zip(scales) {
        *scale = block_32(isa, x, codes);
    }
}

// One block a call: a loop over blocks would be vectorized across them, by gathers.
multiversion! {
    /// As in ggml's AVX code, the factor is 127 by the largest magnitude and ties go
    /// to even; its portable code takes 1 by the scale, and ties go away from zero.
    fn block_32(x: &[f32; 32], codes: &mut [i8; 32]) -> f32 {
        let largest = largest(x);
        let factor = if largest == 0.0 { 0.0 } else { 127.0 / largest };
        round(x, factor, codes);
        largest / 127.0
    }
}

/// Blocks of Q8_K.
fn quantize_256(isa: Isa, x: &[f32], codes: &mut [i8], scales: &mut [f32]) {
    let codes = codes.as_chunks_mut::<256>().0.iter_mut();
    for ((x, codes), scale) in x.as_chunks::<256>().0.iter().zip(codes).zip(scales) {
        *scale = block_256(isa, x, codes);
    }
}

multiversion! {
    /// The element of the largest magnitude, the first of several, becomes −127.
    fn block_256(x: &[f32; 256], codes: &mut [i8; 256]) -> f32 {
        let largest = largest(x);
        if largest == 0.0 {
            codes.fill(0);
            return 0.0;
        }
        let first = x.iter().find(|x| x.abs() == largest);
        let factor = -127.0 / first.copied().unwrap_or(f32::NAN);
        round(x, factor, codes);
        // By an infinity the factor is 0, the scale infinite.
        1.0 / factor
    }
}

/// Sums of groups.
#[inline(always)]
fn sum_groups<const N: usize>(codes: &[i8], sums: &mut [i32]) {
    for (codes, sum) in codes.as_chunks::<N>().0.iter().zip(sums) {
        *sum = codes.iter().map(|&c| i32::from(c)).sum();
    }
}

multiversion! {
    fn sum_groups_16(codes: &[i8], sums: &mut [i32]) {
        sum_groups::<16>(codes, sums);
    }
}

multiversion! {
    fn sum_groups_32(codes: &[i8], sums: &mut [i32]) {
        sum_groups::<32>(codes, sums);
    }
}
