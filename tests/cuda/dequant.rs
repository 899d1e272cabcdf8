//! The device's decoders against the CPU's, to the bit, on blocks of any content.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use half::{bf16, f16};
use sha2::{Digest, Sha256};

use pplx::backend::cuda::{Arch, compile_kernels};
use pplx::gguf::BlockType;
use pplx::quant::{codebooks, dequantize, is_supported};

use crate::cuda_standin::standin;

const ELEMENTS: usize = 1 << 13;

/// The first block is all zeros, the second all ones, the others are anything.
fn blocks(ty: BlockType) -> Vec<u8> {
    let size = ty.block_bytes();
    let len = ELEMENTS / ty.block_elements() * size;
    let mut bytes: Vec<u8> = (0..=len / 32)
        .flat_map(|i| Sha256::digest(format!("{ty}:{i}")))
        .collect();
    bytes.truncate(len);
    bytes[..size].fill(0x00);
    bytes[size..2 * size].fill(0xff);
    bytes
}

#[test]
fn every_block_type_is_decoded_to_the_bit() {
    let Some(_standin) = standin() else { return };
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let code = compile_kernels(Arch { major: 8, minor: 0 }).unwrap();
    let module = context.load_module(Ptx::from_binary(code)).unwrap();
    let grids = stream.clone_htod(&codebooks()).unwrap();
    let config = LaunchConfig::for_num_elems(1024);
    let n = ELEMENTS as i64;
    let mut types = 0;
    for &ty in BlockType::ALL.iter().filter(|t| is_supported(**t)) {
        types += 1;
        let blocks = blocks(ty);
        let mut want = vec![0.0f32; ELEMENTS];
        dequantize(ty, &blocks, &mut want).unwrap();
        let blocks = stream.clone_htod(&blocks).unwrap();
        let number = ty.id() as i32;

        let decode = module.load_function("dequantize_f32").unwrap();
        let mut out = stream.alloc_zeros::<f32>(ELEMENTS).unwrap();
        let mut launch = stream.launch_builder(&decode);
        launch
            .arg(&mut out)
            .arg(&blocks)
            .arg(&number)
            .arg(&n)
            .arg(&grids);
        // SAFETY: what the kernel takes, with room for `n` elements.
        unsafe { launch.launch(config) }.unwrap();
        let got = stream.clone_dtoh(&out).unwrap();
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{ty} element {i}: {got} for {want}");
        }

        for (name, narrow) in [
            (
                "dequantize_f16",
                (|x| f16::from_f32(x).to_bits()) as fn(f32) -> u16,
            ),
            ("dequantize_bf16", |x| bf16::from_f32(x).to_bits()),
        ] {
            let decode = module.load_function(name).unwrap();
            let mut out = stream.alloc_zeros::<u16>(ELEMENTS).unwrap();
            let mut launch = stream.launch_builder(&decode);
            launch
                .arg(&mut out)
                .arg(&blocks)
                .arg(&number)
                .arg(&n)
                .arg(&grids);
            // SAFETY: as above.
            unsafe { launch.launch(config) }.unwrap();
            let got = stream.clone_dtoh(&out).unwrap();
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = *got == narrow(*want) || want.is_nan();
                assert!(same, "{name} {ty} element {i}: {got:#x} for {want}");
            }
        }
    }
    assert_eq!(types, 29);
}
