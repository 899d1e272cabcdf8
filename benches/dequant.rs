//! `cargo bench --bench dequant [-- TYPE…]`: how fast blocks become f32, on one
//! core and in its cache, for each type that can be decoded.

use std::hint::black_box;
use std::time::Instant;

use pplx::gguf::BlockType;
use pplx::quant::{dequantize, is_supported};

/// 256 KiB of f32: about what a panel of a 4096-wide matrix takes.
const ELEMENTS: usize = 1 << 16;

/// Best of many short timings, in seconds: other processes only ever add.
fn best(mut f: impl FnMut()) -> f64 {
    (0..200)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// Bytes without a pattern. Scales may be anything: no decoder branches on them.
fn noise(n: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    println!("type       GB/s of f32   Gelements/s");
    for &ty in BlockType::ALL.iter().filter(|&&ty| is_supported(ty)) {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == ty.name()) {
            continue;
        }
        let blocks = noise(ELEMENTS / ty.block_elements() * ty.block_bytes());
        let mut out = vec![0.0f32; ELEMENTS];
        let seconds = best(|| {
            if let Err(e) = dequantize(ty, black_box(&blocks), black_box(&mut out)) {
                panic!("{e}");
            }
        });
        let rate = ELEMENTS as f64 / seconds / 1e9;
        println!("{:8}  {:12.1}  {rate:12.2}", ty.name(), 4.0 * rate);
    }
}
