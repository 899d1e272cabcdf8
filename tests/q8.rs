//! Numerics q8: activations in 8 bits. What a product computes is tested beside the
//! kernels; here are whole models.

use std::sync::Arc;

use crate::support::tiny::{self, BOS, Tiny};
use crate::support::{SMOLLM2, bits, ids, model, score, shared};
use pplx::backend::Numerics;
use pplx::backend::cpu::{CpuModel, Isa};
use pplx::eval::{Geometry, Mode, WindowScore};
use pplx::gguf::BlockType;
use pplx::model::Model;

const GEOMETRY: Geometry = Geometry {
    n_ctx: 40,
    mode: Mode::SlidingWindow {
        stride: 40,
        unscored_prefix: 1,
    },
};
const WINDOWS: usize = 3;

const TYPES: [BlockType; 4] = [
    BlockType::Q8_0,
    BlockType::Q4_1,
    BlockType::Q4_K,
    BlockType::Q6_K,
];

fn quantized(ty: BlockType) -> Arc<Model> {
    let writer = Tiny::wide_llama().quantized(ty);
    Arc::new(tiny::build(&writer).unwrap_or_else(|e| panic!("{e}")))
}

fn run(
    model: &Arc<Model>,
    numerics: Numerics,
    isa: Isa,
    threads: usize,
    batch: usize,
) -> Vec<WindowScore> {
    let cpu = CpuModel::with_isa(model.clone(), threads, isa).unwrap();
    let cpu = cpu.with_numerics(numerics).unwrap();
    let tokens = tiny::ids(WINDOWS * 40 + 1);
    score(&cpu, &tokens, GEOMETRY, WINDOWS, Some(BOS), batch)
}

fn nll(scores: &[WindowScore]) -> Vec<f64> {
    scores.iter().flat_map(WindowScore::nll).collect()
}

#[test]
fn threads_batches_and_instruction_sets_change_no_bit() {
    for ty in TYPES {
        let model = quantized(ty);
        let want = bits(&run(&model, Numerics::Q8, Isa::detect(), 1, 1));
        assert_eq!(want.len(), WINDOWS * 39);
        for isa in Isa::available() {
            // Portable code is slow where the build's target has no fused
            // multiply-add.
            let few = isa.name() == "portable";
            let all = [(2, 1), (1, 3), (2, 2), (3, 2)];
            for &(threads, batch) in &all[..if few { 1 } else { all.len() }] {
                let ours = bits(&run(&model, Numerics::Q8, isa, threads, batch));
                let name = isa.name();
                assert!(
                    ours == want,
                    "{ty}, {name}, {threads} threads, batch {batch}"
                );
            }
        }
    }
}

/// Activations of 8 bits are off by 1/254 of a block's largest at most: that shows,
/// and it is little.
#[test]
fn close_to_exact_but_not_the_same() {
    for ty in TYPES {
        let model = quantized(ty);
        let [exact, q8] = [Numerics::Exact, Numerics::Q8]
            .map(|numerics| nll(&run(&model, numerics, Isa::detect(), 2, 2)));
        let moved: Vec<f64> = exact.iter().zip(&q8).map(|(a, b)| (a - b).abs()).collect();
        let mean = moved.iter().sum::<f64>() / moved.len() as f64;
        println!("{ty}: mean |Δ NLL| {mean:.1e}");
        assert!((1e-4..5e-2).contains(&mean), "{ty}: {mean:e}");
    }
}

#[test]
fn float_weights_are_multiplied_as_in_exact() {
    let model = Arc::new(Tiny::wide_llama().model().unwrap());
    let [exact, q8] = [Numerics::Exact, Numerics::Q8]
        .map(|numerics| bits(&run(&model, numerics, Isa::detect(), 2, 2)));
    assert!(exact == q8);
}

#[test]
fn a_type_without_integer_product_is_refused_by_name() {
    let cpu = CpuModel::new(quantized(BlockType::Q8_K), 1).unwrap();
    let error = cpu.with_numerics(Numerics::Q8).err().expect("a refusal");
    assert_eq!(
        error.to_string(),
        "numerics 'q8' has no product for weights of type Q8_K; use numerics 'exact'"
    );
}

#[test]
fn smollm2() {
    let Some(path) = model(SMOLLM2) else { return };
    let Some(tokens) = shared("reference/smollm2-q4_1.tokens") else {
        return;
    };
    let tokens = ids(&tokens);
    let model = Arc::new(Model::open(path).unwrap());
    let [exact, q8] = [Numerics::Exact, Numerics::Q8].map(|numerics| {
        let cpu = CpuModel::new(model.clone(), 0).unwrap();
        let cpu = cpu.with_numerics(numerics).unwrap();
        nll(&score(&cpu, &tokens, Geometry::llama_cpp(512), 8, None, 8))
    });
    let n = exact.len() as f64;
    let moved: Vec<f64> = exact.iter().zip(&q8).map(|(a, b)| b - a).collect();
    let mean = moved.iter().sum::<f64>() / n;
    let spread = (moved.iter().map(|d| d * d).sum::<f64>() / n).sqrt();
    println!("Δ ln PPL {mean:.1e}, per token {spread:.1e}");
    assert!(
        mean.abs() < 1e-2 && (1e-3..0.3).contains(&spread),
        "{mean:e}, {spread:e}"
    );
}
