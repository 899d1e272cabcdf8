//! `cargo bench --bench kernels`: the product kernels against this machine's own
//! peaks of fused multiply-adds and of dot products of bytes, measured in the same
//! run.

use std::hint::black_box;
use std::time::Instant;

use pplx::backend::cpu::Isa;
use pplx::backend::cpu::gemm::{PANEL, Packed, Product, multiply};
use pplx::backend::cpu::q8::{Activations, Kind, Panels, RowBuffers, multiply_quantized};
use pplx::gguf::BlockType;

/// Values as activations have them. With zeros, processors use less power and may run
/// faster.
fn noise() -> impl Iterator<Item = f32> {
    let mut state = 1u32;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

/// Least seconds of `n` calls: other processes only ever add.
fn best(n: usize, mut f: impl FnMut()) -> f64 {
    (0..n)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
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
    let seconds = best(40, || flops = unsafe { fma_chains(200_000) });
    Some(flops / seconds)
}

#[cfg(not(target_arch = "x86_64"))]
fn fma_peak() -> Option<f64> {
    None
}

/// As [`fma_chains`], of dot products of bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_chains(rounds: usize) -> f64 {
    use std::arch::x86_64::*;
    let (a, b) = (
        _mm512_set1_epi8(black_box(3)),
        _mm512_set1_epi8(black_box(-5)),
    );
    let mut acc = [_mm512_setzero_si512(); 24];
    for _ in 0..rounds {
        for x in &mut acc {
            *x = _mm512_dpbusd_epi32(*x, a, b);
        }
    }
    black_box(acc);
    (rounds * acc.len() * 64 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
fn dot_peak() -> Option<f64> {
    if !is_x86_feature_detected!("avx512vnni") {
        return None;
    }
    let mut operations = 0.0;
    // SAFETY: the processor has AVX-512 VNNI.
    let seconds = best(40, || operations = unsafe { dot_chains(100_000) });
    Some(operations / seconds)
}

#[cfg(not(target_arch = "x86_64"))]
fn dot_peak() -> Option<f64> {
    None
}

fn main() {
    f32_products();
    integer_products();
}

fn percent(rate: f64, peak: Option<f64>) -> String {
    peak.map_or(String::new(), |p| {
        format!(" ({:.0} % of peak)", 100.0 * rate / p)
    })
}

/// One layout of blocks each, and what the benchmarks' models are made of.
const TYPES: [BlockType; 7] = [
    BlockType::Q4_1,
    BlockType::Q8_0,
    BlockType::NVFP4,
    BlockType::Q4_K,
    BlockType::Q6_K,
    BlockType::Q2_K,
    BlockType::IQ4_XS,
];

fn integer_products() {
    let peak = dot_peak();
    match peak {
        Some(p) => println!(
            "dot products of bytes, peak, one core: {:.0} GOP/s",
            p / 1e9
        ),
        None => println!("dot products of bytes, peak: not measured (no AVX-512 VNNI)"),
    }
    let isa = Isa::detect();
    println!("integer product kernel ({}), one core:", isa.name());
    for (rows, n_in, n_out) in [(480, 576, 576), (480, 576, 1536), (168, 1536, 576)] {
        for ty in TYPES {
            let Some(kind) = Kind::of(ty) else { continue };
            if n_in % ty.block_elements() != 0 || n_in % kind.format.block() != 0 {
                continue;
            }
            let x: Vec<f32> = noise().take(rows * n_in).collect();
            let mut w = Panels::zeros(kind, n_in, n_out);
            let row_bytes = n_in / ty.block_elements() * ty.block_bytes();
            let blocks: Vec<u8> = noise()
                .map(|x| (x * 127.0) as i8 as u8)
                .take(row_bytes)
                .collect();
            let mut row = RowBuffers::new(kind, n_in);
            for mut panel in w.panels_mut() {
                for o in 0..PANEL {
                    panel
                        .fill(isa, ty, o, &blocks, &mut row)
                        .expect("a row of blocks");
                }
            }
            let mut quantized = Activations::default();
            let mut out = vec![0.0f32; rows * n_out];
            let work = 2.0 * (rows * n_in * n_out) as f64;
            let repeats = (1e8 / work).ceil() as usize;
            let mut quantizing =
                || quantized.quantize(isa, kind.format, kind.layout.group, &x, n_in);
            let quantize_s = best(40, || (0..repeats).for_each(|_| quantizing())) / repeats as f64;
            let seconds = best(40, || {
                for _ in 0..repeats {
                    multiply_quantized(isa, &quantized, &w, black_box(&mut out));
                }
            });
            let rate = work * repeats as f64 / seconds;
            println!(
                "  {rows:4} × {n_in:4} → {n_out:4}  {ty:7}  {:5.0} GOP/s{}; quantizing: {:.2} ns an element",
                rate / 1e9,
                percent(rate, peak),
                1e9 * quantize_s / x.len() as f64,
            );
        }
    }
}

fn f32_products() {
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
        let x: Vec<f32> = noise().take(rows * n_in).collect();
        let mut w = Packed::zeros(n_in, n_out);
        let elements = w.panels_mut_serial().flatten();
        elements.zip(noise()).for_each(|(w, noise)| *w = noise);
        let mut out = vec![0.0f32; rows * n_out];
        let work = 2.0 * (rows * n_in * n_out) as f64;
        let repeats = (1e8 / work).ceil() as usize;
        let seconds = best(40, || {
            for _ in 0..repeats {
                multiply(isa, Product::full(&x, rows, &w), black_box(&mut out), n_out);
            }
        });
        let rate = work * repeats as f64 / seconds;
        let share = percent(rate, peak);
        println!(
            "  {rows:4} × {n_in:4} → {n_out:4}  {:5.0} GFLOP/s{share}  {what}",
            rate / 1e9
        );
    }
}
