//! What a run will take, roughly, before anything is loaded.

use super::{ModelFacts, RunSpec};
use crate::backend::{Device, LayerSpan, Partition};
use crate::eval::{GeometryError, WindowPlan};

/// Bytes of English text a token, for corpora that have not been tokenized.
const BYTES_PER_TOKEN: u64 = 4;
/// Sustained f32 GFLOP/s a thread: matrix products reach about 140 on the
/// reference machine (AVX-512), attention and normalization less.
const GFLOPS_PER_THREAD: f64 = 100.0;

/// The length of a corpus in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    Exact(usize),
    /// From the corpus's bytes.
    Estimated(usize),
    /// The corpus is not on disk.
    Unknown,
}

/// Estimates; `None` where the model or the corpus is not on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub tokens: Tokens,
    /// Windows, evaluated and scored tokens; exact if `tokens` is.
    pub work: Option<Result<Work, GeometryError>>,
    /// Main memory: the weights that are on the CPU together, as f32, and the
    /// activations of one window.
    pub memory_bytes: Option<u64>,
    /// Device memory, to the byte but for what the driver rounds up; `None` without
    /// a GPU.
    pub device_bytes: Option<u64>,
    /// Hidden states that a cycle keeps between its passes; 0 without a cycle.
    pub checkpoint_bytes: Option<u64>,
    pub seconds: Option<f64>,
}

/// How much a run evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub windows: usize,
    pub evaluated: usize,
    pub scored: usize,
}

/// The speed that times are estimated with, in GFLOP/s.
pub fn assumed_gflops(threads: usize) -> f64 {
    GFLOPS_PER_THREAD * threads as f64
}

impl Estimate {
    /// `tokens` is the corpus's length in this model's tokens, where known.
    pub fn new(run: &RunSpec, tokens: Option<usize>, gflops: f64) -> Self {
        let tokens = match (tokens, run.corpus.bytes) {
            (Some(n), _) => Tokens::Exact(n),
            (None, Some(bytes)) => Tokens::Estimated(saturating(bytes / BYTES_PER_TOKEN)),
            (None, None) => Tokens::Unknown,
        };
        let count = match tokens {
            Tokens::Exact(n) | Tokens::Estimated(n) => Some(n),
            Tokens::Unknown => None,
        };
        let work = count.map(|n| {
            WindowPlan::new(n, run.geometry, run.limits).map(|plan| Work {
                windows: plan.windows().len(),
                evaluated: plan.evaluated(),
                scored: plan.scored(),
            })
        });
        let facts = run.model.facts.as_ref();
        let seconds = match (facts, &work) {
            // No GPU's speed is assumed.
            _ if run.placement.uses_gpu() => None,
            (Some(f), Some(Ok(work))) => Some(flops(f, run.geometry.n_ctx, work) / (gflops * 1e9)),
            _ => None,
        };
        let partition = facts.map(|f| (f, run.placement.partition(f.n_layers)));
        let checkpoint_bytes = match (&partition, &work) {
            _ if !run.placement.cycles() => Some(0),
            (Some((_, p)), _) if !p.keeps_states() => Some(0),
            (Some((f, _)), Some(Ok(work))) => Some(checkpoints(f, work)),
            _ => None,
        };
        Self {
            tokens,
            device_bytes: run.footprint.map(|f| f.least()),
            memory_bytes: partition.map(|(f, p)| memory(f, &p, run.geometry.n_ctx)),
            checkpoint_bytes,
            work,
            seconds,
        }
    }
}

/// Two operations a weight and token; the head only on scored tokens; queries
/// and values against half a window of keys on average.
fn flops(model: &ModelFacts, n_ctx: usize, work: &Work) -> f64 {
    let evaluated = work.evaluated as f64;
    let attention = 4.0 * (n_ctx as f64 / 2.0) * model.n_embd as f64 * model.n_layers as f64;
    evaluated * (2.0 * model.layer_parameters as f64 + attention)
        + 2.0 * work.scored as f64 * model.head_parameters as f64
}

/// Windows × context × hidden × 4 bytes.
fn checkpoints(model: &ModelFacts, work: &Work) -> u64 {
    (work.evaluated as u64)
        .saturating_mul(model.n_embd as u64)
        .saturating_mul(4)
}

/// Four bytes a weight on the CPU, and about sixteen f32 vectors of the model's
/// width for each token of a window (residual, norms, queries, keys, values, FFN).
fn memory(model: &ModelFacts, partition: &Partition, n_ctx: usize) -> u64 {
    let activations = (n_ctx as u64)
        .saturating_mul(model.n_embd as u64)
        .saturating_mul(16 * 4);
    let on_cpu = |pass: &&[LayerSpan]| -> usize {
        let spans = pass.iter().filter(|s| s.device == Device::Cpu);
        spans.map(|s| s.layers.len()).sum()
    };
    let n_layers = partition.passes().iter().map(on_cpu).max().unwrap_or(0);
    let layers = match n_layers {
        n if n == model.n_layers => model.layer_parameters,
        n => model.layer_parameters / model.n_layers.max(1) as u64 * n as u64,
    };
    let has_head = partition
        .spans()
        .last()
        .is_none_or(|s| s.device == Device::Cpu);
    let others = match has_head {
        true => model.parameters - model.layer_parameters,
        false => 0,
    };
    others
        .saturating_add(layers)
        .saturating_mul(4)
        .saturating_add(activations)
}

fn saturating(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
