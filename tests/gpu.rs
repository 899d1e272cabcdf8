//! On real hardware: `cargo test --release --test engine gpu_ -- --ignored`. The models
//! are those of `tests/support`.

use std::sync::Arc;

use pplx::backend::cuda::{CUDA, CudaModel, Precision, batch_windows, devices};
use pplx::backend::{CPU, Device, Interrupt, LayerWindowModel, Partition};
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{
    CheckpointOptions, Feed, Geometry, Job, Layered, Limits, WindowPlan, WindowScore, score,
};
use pplx::gguf::Gguf;
use pplx::model::Model;
use pplx::tokenizer::{Options, Tokenizer};

use crate::support::{GEMMA3, SMOLLM2, cpu, model, shared, skip};

const N_CTX: usize = 512;

/// Says why there is nothing to test.
fn has_gpu() -> bool {
    match devices() {
        Ok(devices) if !devices.is_empty() => true,
        Ok(_) => {
            skip("gpu", "no GPU");
            false
        }
        Err(e) => {
            skip("gpu", e);
            false
        }
    }
}

struct Input {
    model: Arc<Model>,
    tokens: Vec<u32>,
    bos: Option<u32>,
}

fn input(file: &str) -> Option<Input> {
    let (path, corpus) = (model(file)?, shared("corpora/wiki.test.raw")?);
    let gguf = Arc::new(Gguf::open(&path).expect("a model"));
    let tokenizer =
        Tokenizer::from_gguf(gguf.metadata(), &Options::default()).expect("a tokenizer");
    let tokens = tokenize_file(&corpus, &tokenizer, DEFAULT_CHUNK).expect("a corpus");
    Some(Input {
        model: Arc::new(Model::from_gguf(gguf).expect("a model")),
        tokens: tokens.ids,
        bos: tokenizer.bos().filter(|_| tokenizer.add_bos()),
    })
}

impl Input {
    fn cuda(&self, precision: Precision) -> CudaModel {
        CudaModel::new(self.model.clone(), precision, None).unwrap_or_else(|e| panic!("{e}"))
    }

    fn score(
        &self,
        device: &dyn LayerWindowModel,
        partition: Partition,
        windows: Option<usize>,
    ) -> Vec<WindowScore> {
        let limits = Limits {
            windows,
            max_tokens: None,
        };
        let plan = WindowPlan::new(self.tokens.len(), Geometry::llama_cpp(N_CTX), limits);
        let plan = plan.expect("a plan");
        let feed = Feed {
            bos: self.bos,
            batch: batch_windows(N_CTX),
        };
        let on = partition.spans()[0].device;
        let layered = Layered::new(vec![(on, device)], partition).expect("a device");
        score(
            &layered,
            Job {
                tokens: &self.tokens,
                plan: &plan,
                feed,
                interrupt: &Interrupt::default(),
                checkpoints: &CheckpointOptions::default(),
            },
            &mut |_| (),
        )
        .unwrap_or_else(|e| panic!("{e}"))
    }

    fn whole(&self, device: Device) -> Partition {
        Partition::whole(device, self.model.n_layer())
    }
}

fn difference(a: &[WindowScore], b: &[WindowScore]) -> f64 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.nll().zip(b.nll()));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn mean(scores: &[WindowScore]) -> f64 {
    let nll: Vec<f64> = scores.iter().flat_map(WindowScore::nll).collect();
    nll.iter().sum::<f64>() / nll.len() as f64
}

/// Exact numerics against the CPU, token by token.
fn parity(file: &str) {
    let Some(input) = input(file).filter(|_| has_gpu()) else {
        return;
    };
    let path = model(file).expect("it was there");
    let want = input.score(&cpu(&path, 0), input.whole(CPU), Some(16));
    let cuda = input.cuda(Precision::F32);
    let got = input.score(&cuda, input.whole(CUDA), Some(16));
    let max = difference(&want, &got);
    println!("{file}: max {max:.2e}");
    assert!(max < 2e-4, "{max:e}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_smollm2_agrees_with_the_cpu() {
    parity(SMOLLM2);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_gemma3_agrees_with_the_cpu() {
    parity(GEMMA3);
}

/// All of WikiText-2, twice: the same bits.
#[test]
#[ignore = "needs a GPU"]
fn gpu_runs_are_the_same_bits() {
    for file in [SMOLLM2, GEMMA3] {
        let Some(input) = input(file).filter(|_| has_gpu()) else {
            return;
        };
        for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
            let score = || input.score(&input.cuda(precision), input.whole(CUDA), None);
            let (a, b) = (score(), score());
            assert_eq!(
                crate::support::bits(&a),
                crate::support::bits(&b),
                "{file} {precision:?}"
            );
            println!("{file} {precision:?}: PPL {:.4}", mean(&a).exp());
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_cycles_agree_with_the_whole_device() {
    let Some(input) = input(SMOLLM2).filter(|_| has_gpu()) else {
        return;
    };
    let cuda = input.cuda(Precision::F32);
    let want = input.score(&cuda, input.whole(CUDA), Some(32));
    let idle = cuda.memory().expect("figures");
    for size in [1, 7, 15] {
        let partition = Partition::cycle(CUDA, input.model.n_layer(), size);
        let got = input.score(&cuda, partition, Some(32));
        let max = difference(&want, &got);
        assert!(max < 1e-5, "{size} layers: {max:e}");
        assert_eq!(cuda.memory().expect("figures").in_use, idle.in_use);
    }
}
