//! What a run will take, roughly, before anything is loaded.

use super::{ModelFacts, Placement, RunSpec};
use crate::backend::cpu::footprint::{Footprint, LayerSizes, Load, Speed};
use crate::backend::cpu::{Isa, pace};
use crate::backend::{self, CPU, LayerSpan, Numerics, Partition};
use crate::eval::{Feed, GeometryError, WindowPlan};

/// Bytes of English text a token, for corpora that have not been tokenized.
const BYTES_PER_TOKEN: u64 = 4;

/// The length of a corpus in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// They have been counted.
    Exact(usize),
    /// From the corpus's bytes.
    Estimated(usize),
    /// The corpus is not on disk.
    Unknown,
}

/// Estimates; `None` where the model or the corpus is not on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Tokens of the corpus.
    pub tokens: Tokens,
    /// Windows, evaluated and scored tokens; exact if `tokens` is.
    pub work: Option<Result<Work, GeometryError>>,
    /// Main memory at its peak, resident pages of the file included; what a cycle keeps
    /// between its passes is in `checkpoint_bytes`.
    pub memory_bytes: Option<u64>,
    /// Device memory, to the byte but for what the driver rounds up; `None` without
    /// a GPU.
    pub device_bytes: Option<u64>,
    /// Hidden states that a cycle keeps between its passes; 0 without a cycle.
    pub checkpoint_bytes: Option<u64>,
    /// How long it should take, where that can be told.
    pub seconds: Option<f64>,
    /// What of all this is the base's; `None` for a run without one.
    pub base: Option<Cost>,
}

/// A model's share of what a run takes; `None` where it is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Main memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// The accelerator's memory, in bytes.
    pub device_bytes: Option<u64>,
    /// Hidden states that are kept between passes, in bytes.
    pub checkpoint_bytes: Option<u64>,
    /// How long it should take, where that can be told.
    pub seconds: Option<f64>,
}

/// How much a run evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Windows.
    pub windows: usize,
    /// Tokens that go through the model.
    pub evaluated: usize,
    /// Targets that are scored.
    pub scored: usize,
}

/// How fast a machine is: what times are estimated with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Worker threads.
    pub threads: usize,
    /// Of what [`Speed`] assumes.
    pub part: f64,
}

impl Pace {
    /// That of this machine at the moment; see [`pace::measure`].
    pub fn measured(threads: usize) -> Self {
        Self {
            threads,
            part: pace::measure(Isa::detect(), threads),
        }
    }

    /// Products with weights, in GFLOP/s.
    pub fn gflops(self, numerics: Numerics) -> f64 {
        Speed::assumed(Isa::detect(), numerics).products * self.part * self.threads as f64
    }
}

impl Estimate {
    /// `tokens` is the corpus's length in this model's tokens, where known.
    pub fn new(run: &RunSpec, tokens: Option<usize>, pace: Pace) -> Self {
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
        let n_ctx = run.geometry.n_ctx;
        let cost = |part: Part| Cost {
            memory_bytes: part.memory(n_ctx, work.as_ref(), pace.threads),
            device_bytes: part.device.map(|f| f.least()),
            checkpoint_bytes: part.checkpoints(work.as_ref()),
            seconds: match &work {
                Some(Ok(work)) => part.seconds(n_ctx, work, pace),
                _ => None,
            },
        };
        let own = cost(Part {
            facts: run.model.facts.as_ref(),
            placement: run.placement,
            device: run.footprint,
            numerics: run.numerics,
        });
        // A comparison evaluates two models at the same time.
        let base = run.base.as_ref().map(|base| {
            cost(Part {
                facts: base.model.facts.as_ref(),
                placement: base.placement,
                device: base.footprint,
                numerics: base.numerics,
            })
        });
        let both = || [own].into_iter().chain(base);
        let corpus = count.unwrap_or(0) as u64 * size_of::<u32>() as u64;
        let memory = both().map(|c| c.memory_bytes).sum::<Option<u64>>();
        let device: Vec<u64> = both().filter_map(|c| c.device_bytes).collect();
        Self {
            tokens,
            device_bytes: (!device.is_empty()).then(|| device.iter().sum()),
            memory_bytes: memory.map(|bytes| bytes + corpus),
            checkpoint_bytes: both().map(|c| c.checkpoint_bytes).sum(),
            seconds: both().map(|c| c.seconds).sum(),
            base,
            work,
        }
    }
}

/// A model of a run: the one that is measured, or its base.
struct Part<'a> {
    facts: Option<&'a ModelFacts>,
    placement: Placement,
    /// Of a GPU's memory.
    device: Option<backend::Footprint>,
    numerics: Numerics,
}

impl Part<'_> {
    /// Hidden states that a cycle keeps: windows × context × hidden × 4 bytes.
    fn checkpoints(&self, work: Option<&Result<Work, GeometryError>>) -> Option<u64> {
        if !self.placement.cycles() {
            return Some(0);
        }
        let model = self.facts?;
        if !self.placement.partition(model.n_layers).keeps_states() {
            return Some(0);
        }
        let evaluated = work?.as_ref().ok()?.evaluated as u64;
        Some(
            evaluated
                .saturating_mul(model.n_embd as u64)
                .saturating_mul(4),
        )
    }

    /// `None` without the model, and on a GPU: no GPU's speed is assumed.
    fn seconds(&self, n_ctx: usize, work: &Work, pace: Pace) -> Option<f64> {
        let model = self
            .facts
            .filter(|_| self.placement.accelerator().is_none())?;
        let speed = Speed::assumed(Isa::detect(), self.numerics);
        let giga = products(model, work) / speed.products
            + attention(model, n_ctx, work) / speed.attention
            + decoded(model, self.numerics, n_ctx, work, pace.threads) / speed.decoding;
        Some(giga / (1e9 * pace.part * pace.threads as f64))
    }

    /// Peak of resident main memory.
    fn memory(
        &self,
        n_ctx: usize,
        work: Option<&Result<Work, GeometryError>>,
        threads: usize,
    ) -> Option<u64> {
        let model = self.facts?;
        let partition = self.placement.partition(model.n_layers);
        let work = work.and_then(|w| w.as_ref().ok());
        let batch = Feed::batch_for(n_ctx, threads) as u64;
        let batch = work.map_or(batch, |w| batch.min(w.windows as u64)).max(1);
        let scored = work.map_or(0, |w| w.scored as u64);
        let windows = work.map_or(1, |w| w.windows.max(1) as u64);
        let load = Load {
            rows: (n_ctx as u64).saturating_sub(1),
            batch,
            scored_together: scored / windows * batch,
            scored,
            n_threads: threads as u64,
            numerics: self.numerics,
        };
        let cpu_layers = |pass: &[LayerSpan]| {
            let spans = pass.iter().filter(|s| s.device == CPU);
            let layers = spans.flat_map(|s| model.layers.get(s.layers.clone()).unwrap_or_default());
            layers.copied().collect::<Vec<_>>()
        };
        let passes = partition.passes();
        let of_file = match self.placement.cycles() {
            // Of a cycle, a layer window is mapped at a time; the rows of the
            // vocabulary are released as soon as they have been read.
            true => {
                let bytes =
                    |pass: &&[LayerSpan]| -> u64 { cpu_layers(pass).iter().map(|l| l.bytes).sum() };
                passes.iter().map(bytes).max().unwrap_or(0)
            }
            false => model.file_bytes,
        };
        let on_cpu: Vec<_> = passes.iter().flat_map(|pass| cpu_layers(pass)).collect();
        let head = last_device(&partition).then_some(&model.head);
        let entries = model.vocabulary_entries;
        let n_embd = model.n_embd as u64;
        Some(Footprint::new(&on_cpu, head, of_file, entries, n_embd, load).total())
    }
}

/// Whether the head is on the CPU.
fn last_device(partition: &Partition) -> bool {
    let last = partition.spans().last();
    last.is_none_or(|s| s.device == CPU)
}

/// Two operations a weight and token; the last layer and the head on rows that are
/// scored only.
fn products(model: &ModelFacts, work: &Work) -> f64 {
    let (evaluated, scored) = (work.evaluated as f64, work.scored as f64);
    let layers = model.n_layers.max(1) as f64;
    let a_layer = model.layer_parameters as f64 / layers;
    2.0 * a_layer * (evaluated * (layers - 1.0) + scored)
        + 2.0 * scored * model.head_parameters as f64
}

/// Queries and values against half a window of keys on average.
fn attention(model: &ModelFacts, n_ctx: usize, work: &Work) -> f64 {
    4.0 * (n_ctx as f64 / 2.0) * model.attention_values as f64 * work.evaluated as f64
}

/// Bytes of f32 that weights are decoded to: once for each batch, or for each window
/// where a layer is too large.
fn decoded(
    model: &ModelFacts,
    numerics: Numerics,
    n_ctx: usize,
    work: &Work,
    threads: usize,
) -> f64 {
    let batches = work.windows.div_ceil(Feed::batch_for(n_ctx, threads));
    let times = |layer: &LayerSizes| match layer.is_decoded_by_window(numerics) {
        true => work.windows,
        false => batches,
    };
    let layers = model
        .layers
        .iter()
        .map(|l| l.elements as f64 * times(l) as f64);
    4.0 * (layers.sum::<f64>() + model.head_parameters as f64 * batches as f64)
}

fn saturating(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
