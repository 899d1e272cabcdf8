//! candle's decoders: independent twins. Its block structs can only be filled from
//! raw bytes, which is this module's one unsafe line.

use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0, BlockQ8K, GgmlType,
};

use crate::gguf::BlockType;

/// Decodes whole blocks; `None` where candle lacks the type.
pub fn dequantize(ty: BlockType, blocks: &[u8], out: &mut [f32]) -> Option<()> {
    match ty {
        BlockType::Q4_0 => decode::<BlockQ4_0>(blocks, out),
        BlockType::Q4_1 => decode::<BlockQ4_1>(blocks, out),
        BlockType::Q5_0 => decode::<BlockQ5_0>(blocks, out),
        BlockType::Q5_1 => decode::<BlockQ5_1>(blocks, out),
        BlockType::Q8_0 => decode::<BlockQ8_0>(blocks, out),
        BlockType::Q2_K => decode::<BlockQ2K>(blocks, out),
        BlockType::Q3_K => decode::<BlockQ3K>(blocks, out),
        BlockType::Q4_K => decode::<BlockQ4K>(blocks, out),
        BlockType::Q5_K => decode::<BlockQ5K>(blocks, out),
        BlockType::Q6_K => decode::<BlockQ6K>(blocks, out),
        BlockType::Q8_K => decode::<BlockQ8K>(blocks, out),
        _ => return None,
    }
    Some(())
}

fn decode<B: GgmlType>(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes
        .chunks_exact(size_of::<B>())
        .zip(out.chunks_exact_mut(B::BLCK_SIZE))
    {
        let mut block = B::zeros();
        // SAFETY: `B` is a `repr(C)` struct of integers and floats, valid for every
        // bit pattern, and `bytes` has its size.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut block).cast(), bytes.len());
        }
        B::to_float(&[block], out);
    }
}

#[test]
fn block_sizes_are_the_files() {
    assert_eq!(size_of::<BlockQ4_0>(), BlockType::Q4_0.block_bytes());
    assert_eq!(size_of::<BlockQ4_1>(), BlockType::Q4_1.block_bytes());
    assert_eq!(size_of::<BlockQ5_0>(), BlockType::Q5_0.block_bytes());
    assert_eq!(size_of::<BlockQ5_1>(), BlockType::Q5_1.block_bytes());
    assert_eq!(size_of::<BlockQ8_0>(), BlockType::Q8_0.block_bytes());
    assert_eq!(size_of::<BlockQ2K>(), BlockType::Q2_K.block_bytes());
    assert_eq!(size_of::<BlockQ3K>(), BlockType::Q3_K.block_bytes());
    assert_eq!(size_of::<BlockQ4K>(), BlockType::Q4_K.block_bytes());
    assert_eq!(size_of::<BlockQ5K>(), BlockType::Q5_K.block_bytes());
    assert_eq!(size_of::<BlockQ6K>(), BlockType::Q6_K.block_bytes());
    assert_eq!(size_of::<BlockQ8K>(), BlockType::Q8_K.block_bytes());
}
