//! `cargo bench --bench kernels`: the product kernel against this machine's own
//! fused multiply-add peak, measured in the same run.

use std::hint::black_box;
use std::time::Instant;

use pplx::backend::cpu::Isa;
use pplx::backend::cpu::gemm::{Packed, Product, multiply};

/// Median seconds of `n` calls.
fn median(n: usize, mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..n)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[n / 2]
}

/// Chains of fused multiply-adds in registers: enough of them to hide latency,
/// no memory. Returns the number of floating-point operations.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fma_chains(rounds: usize) -> f64 {
    use std::arch::x86_64::*;
    let (a, b) = (
        _mm512_set1_ps(black_box(0.999)),
        _mm512_set1_ps(black_box(0.001)),
    );
    let mut acc = [_mm512_set1_ps(1.0); 24];
    for _ in 0..rounds {
        for x in &mut acc {
            *x = _mm512_fmadd_ps(*x, a, b);
        }
    }
    black_box(acc);
    (rounds * acc.len() * 16 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
fn fma_peak() -> Option<f64> {
    if !is_x86_feature_detected!("avx512f") {
        return None;
    }
    let mut flops = 0.0;
    // SAFETY: the processor has AVX-512.
    let seconds = median(9, || flops = unsafe { fma_chains(4_000_000) });
    Some(flops / seconds)
}

#[cfg(not(target_arch = "x86_64"))]
fn fma_peak() -> Option<f64> {
    None
}

fn main() {
    let peak = fma_peak();
    match peak {
        Some(p) => println!("f32 FMA peak, one core: {:.0} GFLOP/s", p / 1e9),
        None => println!("f32 FMA peak: not measured (no AVX-512)"),
    }
    let isa = Isa::detect();
    println!("product kernel ({}), one core:", isa.name());
    for (rows, n_in, n_out, what) in [
        (512, 576, 576, "SmolLM2 q, output"),
        (512, 576, 192, "SmolLM2 k, v"),
        (512, 576, 1536, "SmolLM2 gate, up"),
        (512, 1536, 576, "SmolLM2 down"),
        (512, 640, 2048, "Gemma 3 gate, up"),
        (512, 2048, 640, "Gemma 3 down"),
        (56, 576, 2048, "SmolLM2 head, one tile"),
        (56, 64, 512, "scores, head width 64"),
        (56, 512, 64, "values, head width 64"),
        (56, 256, 512, "scores, head width 256"),
        (512, 4096, 4096, "Llama 8B q, output"),
    ] {
        let x = vec![0.5f32; rows * n_in];
        let w = Packed::zeros(n_in, n_out);
        let mut out = vec![0.0f32; rows * n_out];
        let work = 2.0 * (rows * n_in * n_out) as f64;
        let repeats = (1e9 / work).ceil() as usize;
        let seconds = median(9, || {
            for _ in 0..repeats {
                multiply(isa, Product::full(&x, rows, &w), black_box(&mut out), n_out);
            }
        });
        let rate = work * repeats as f64 / seconds;
        let share = peak.map_or(String::new(), |p| {
            format!(" ({:.0} % of peak)", 100.0 * rate / p)
        });
        println!(
            "  {rows:4} × {n_in:4} → {n_out:4}  {:5.0} GFLOP/s{share}  {what}",
            rate / 1e9
        );
    }
}
