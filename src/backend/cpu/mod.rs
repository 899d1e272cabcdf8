//! The CPU backend: exact f32 arithmetic on dequantized weights, or products with
//! activations in 8 bits.
//!
//! Layers are decoded one at a time and meet a whole batch of sequences before
//! they are dropped, large ones panel by panel, so that neither a whole model nor a
//! whole corpus is in memory. Results are the same bits for any number of threads, any batch and
//! any instruction set: see [`gemm`], [`q8`] and [`isa`].

mod attention;
mod backend;
mod conv;
mod delta_net;
mod embed;
mod ffn;
pub mod footprint;
pub mod gemm;
mod head;
mod heads;
mod jitter;
mod layer;
mod mamba;
mod math;
mod mla;
mod moe;
mod norm;
pub mod pace;
pub mod q8;
mod rope;
mod rwkv;
mod scan;
mod scratch;
mod shelf;
mod short_conv;
mod spread;
mod times;
mod weights;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::prelude::*;

use self::layer::LoadedLayer;
use self::rope::RopeTable;
use self::scratch::Pool;
use self::weights::{Shelves, Source};
use super::{
    BackendError, Hidden, Interrupt, LayerWindow, LayerWindowModel, Numerics, Stage, Target,
    TokenScore, Variation, work,
};
use crate::gguf::BlockType;
use crate::isa;
use crate::model::{Model, Rope};
use crate::quant;

pub use backend::CPU;
pub(super) use embed::embed;
pub(super) use head::normed_rows;
pub use isa::Isa;
pub use times::{Part, Times};

/// Decoding a layer once for all windows of a batch is a few percent faster than
/// once for each; beyond this it is not worth the memory.
const LAYER_BYTES: usize = 256 << 20;

/// What becomes of the file's pages that have been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residency {
    /// They stay mapped, as long as the system likes.
    Mapped,
    /// They are released.
    Streamed,
}

/// The first of the types of weights that `numerics` has no products for.
pub fn no_product(
    numerics: Numerics,
    types: impl IntoIterator<Item = BlockType>,
) -> Option<BlockType> {
    match numerics {
        Numerics::Exact | Numerics::F16 | Numerics::Bf16 => None,
        Numerics::Q8 => types.into_iter().find(|&ty| {
            // What cannot be decoded is no weight, or is refused with the model.
            quant::is_supported(ty) && q8::Support::of(ty) == q8::Support::None
        }),
    }
}

/// A model on the CPU, with its worker threads.
pub struct CpuModel {
    model: Arc<Model>,
    isa: Isa,
    numerics: Numerics,
    variation: Variation,
    threads: rayon::ThreadPool,
    scratch: Pool,
    shelves: Shelves,
    /// A layer whose weights take more in f32 is decoded panel by panel.
    layer_bytes: usize,
    /// Tables that layers share; a model has one or two kinds of RoPE.
    ropes: Mutex<Vec<(Rope, Arc<RopeTable>)>>,
}

impl CpuModel {
    /// Runs `model` on `n_threads` threads (0: one for each core).
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(model: Arc<Model>, n_threads: usize) -> Result<Self, BackendError> {
        Self::with_isa(model, n_threads, Isa::detect())
    }

    /// As [`CpuModel::new`], with a chosen instruction set.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn with_isa(model: Arc<Model>, n_threads: usize, isa: Isa) -> Result<Self, BackendError> {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|i| format!("cpu-{i}"))
            .build()
            .map_err(|e| BackendError::Threads(e.to_string()))?;
        Ok(Self {
            model,
            isa,
            numerics: Numerics::Exact,
            variation: Variation::default(),
            threads,
            scratch: Pool::default(),
            shelves: Shelves::default(),
            layer_bytes: LAYER_BYTES,
            ropes: Mutex::default(),
        })
    }

    /// The same model with another bound on the bytes of f32 weights that a layer is
    /// decoded to at once. It changes the speed, not one number.
    pub fn with_layer_bytes(self, layer_bytes: usize) -> Self {
        Self {
            layer_bytes,
            ..self
        }
    }

    /// The same model with other arithmetic in its products; `new` makes it exact.
    ///
    /// # Errors
    /// Weights of a type that the arithmetic has no products for.
    pub fn with_numerics(self, numerics: Numerics) -> Result<Self, BackendError> {
        if !CPU.can_do(numerics) {
            let device = CPU.name();
            return Err(BackendError::Numerics { numerics, device });
        }
        let types = self.model.gguf.tensors().iter().map(|t| t.ty);
        match no_product(numerics, types) {
            Some(ty) => Err(BackendError::NoIntegerProduct(ty)),
            None => Ok(Self { numerics, ..self }),
        }
    }

    /// The same model with arithmetic that is varied; `new` varies nothing.
    pub fn with_variation(self, variation: Variation) -> Self {
        Self { variation, ..self }
    }

    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    fn source(&self) -> Source<'_> {
        Source {
            gguf: &self.model.gguf,
            shelves: &self.shelves,
            isa: self.isa,
            numerics: self.numerics,
            variation: self.variation,
            panel_by_panel: false,
        }
    }

    /// The source of layer `i`'s weights.
    fn layer_source(&self, i: usize) -> Source<'_> {
        let bytes = self
            .model
            .layer_elements(i)
            .saturating_mul(size_of::<f32>());
        Source {
            panel_by_panel: bytes > self.layer_bytes,
            ..self.source()
        }
    }

    pub fn n_threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// The same model for files larger than memory: a layer window that is dropped
    /// releases its pages of the file, the embedding and the head release theirs
    /// as they go. Not one number changes.
    pub fn streamed(&self) -> StreamedCpu<'_> {
        // What reading the header and the norms has left.
        self.model.gguf.release_all();
        StreamedCpu(self)
    }

    fn layers_with(
        &self,
        range: Range<usize>,
        residency: Residency,
    ) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
        let n_layer = self.n_layer();
        if range.start > range.end || range.end > n_layer {
            return Err(BackendError::Layers {
                found: range,
                n_layer,
            });
        }
        Ok(Box::new(CpuLayers {
            cpu: self,
            range,
            residency,
        }))
    }

    fn logits_with(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        residency: Residency,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        let n_vocab = self.n_vocab();
        if vocab.start > vocab.end || vocab.end > n_vocab {
            return Err(BackendError::Vocabulary {
                found: vocab,
                n_vocab,
            });
        }
        let (source, head) = (self.source(), &self.model.head);
        let how = (residency, interrupt);
        self.threads
            .install(|| head::logits(self.isa, source, head, head_rows, vocab, how))
    }

    fn score_targets_with(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        residency: Residency,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        hidden.check_targets(targets, self.n_vocab())?;
        let model = &self.model;
        let start = Instant::now();
        let result = self.threads.install(|| {
            let how = (residency, interrupt);
            head::score_targets(
                self.isa,
                self.source(),
                &model.head,
                &hidden.data,
                targets,
                how,
            )
        })?;
        self.spent(Part::Head, start);
        result.map_err(|i| {
            let (sequence, position) = hidden.locate(targets[i].row);
            BackendError::NotFinite {
                sequence,
                position,
                stage: Stage::Logits,
            }
        })
    }

    /// Where the time has gone so far, summed over threads.
    pub fn times(&self) -> Times {
        *self.scratch.times()
    }

    /// Counts work of all threads that began at `start`.
    fn spent(&self, part: Part, start: Instant) {
        let mut times = self.scratch.times();
        times.add(part, start.elapsed(), self.n_threads() as u32);
    }

    /// The table of `rope` for at least `len` positions at context `n_ctx`.
    fn rope_table(&self, rope: &Rope, len: usize, n_ctx: usize) -> Arc<RopeTable> {
        let mut tables = self.ropes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = tables
            .iter()
            .find(|(r, t)| r == rope && t.serves(len, n_ctx))
        {
            return table.clone();
        }
        let table = Arc::new(RopeTable::new(rope, len, n_ctx));
        tables.retain(|(r, _)| r != rope);
        tables.push((rope.clone(), table.clone()));
        table
    }
}

impl LayerWindowModel for CpuModel {
    fn n_layer(&self) -> usize {
        self.model.n_layer()
    }

    fn n_vocab(&self) -> usize {
        self.model.n_vocab
    }

    fn n_embd(&self) -> usize {
        self.model.n_embd
    }

    fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError> {
        embed(self.isa, &self.model, sequences, n_ctx)
    }

    fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
        self.layers_with(range, Residency::Mapped)
    }

    fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32> {
        let head = &self.model.head;
        self.threads
            .install(|| head::normed_rows(self.isa, head, &hidden.data, rows))
    }

    fn logits(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        self.logits_with(head_rows, vocab, Residency::Mapped, interrupt)
    }

    fn score_targets(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        self.score_targets_with(hidden, targets, Residency::Mapped, interrupt)
    }
}

/// A [`CpuModel`] that keeps no more of the file in memory than it is using: see
/// [`CpuModel::streamed`].
pub struct StreamedCpu<'a>(&'a CpuModel);

impl LayerWindowModel for StreamedCpu<'_> {
    fn n_layer(&self) -> usize {
        self.0.n_layer()
    }

    fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    fn n_embd(&self) -> usize {
        self.0.n_embd()
    }

    fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError> {
        let hidden = self.0.embed(sequences, n_ctx);
        let Model {
            gguf, embedding, ..
        } = &*self.0.model;
        embedding.table.release(gguf);
        hidden
    }

    fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
        self.0.layers_with(range, Residency::Streamed)
    }

    fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32> {
        self.0.head_rows(hidden, rows)
    }

    fn logits(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        self.0
            .logits_with(head_rows, vocab, Residency::Streamed, interrupt)
    }

    fn score_targets(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        self.0
            .score_targets_with(hidden, targets, Residency::Streamed, interrupt)
    }
}

/// A range of layers. Their weights stay in the file's blocks; each layer is
/// decoded when its turn comes.
struct CpuLayers<'a> {
    cpu: &'a CpuModel,
    range: Range<usize>,
    residency: Residency,
}

impl Drop for CpuLayers<'_> {
    fn drop(&mut self) {
        if self.residency == Residency::Streamed {
            self.cpu.model.release_layers(self.range.clone());
        }
    }
}

impl LayerWindow for CpuLayers<'_> {
    fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Nothing is kept between batches: sequences are whole, and a recurrent
    /// layer starts each from a zero state.
    fn reset_state(&mut self) {}

    fn forward(&mut self, hidden: &mut Hidden, interrupt: &Interrupt) -> Result<(), BackendError> {
        let CpuModel {
            model,
            isa,
            threads,
            scratch,
            ..
        } = self.cpu;
        let n_ctx = hidden.n_ctx;
        let needed_from = hidden.needed_from;
        let longest = hidden.lens.iter().copied().max().unwrap_or(0);
        let spread = hidden.lens.len() < threads.current_num_threads();
        let together = match spread {
            true => threads.current_num_threads() as u32,
            false => 1,
        };
        threads.install(|| {
            for i in self.range.clone() {
                interrupt.check()?;
                let start = Instant::now();
                let layer =
                    LoadedLayer::load(self.cpu.layer_source(i), &model.layers[i], |rope| {
                        self.cpu.rope_table(rope, longest, n_ctx)
                    })?;
                self.cpu.spent(Part::Weights, start);
                // Rows that only the layers after this one would read.
                let from = match i + 1 == model.n_layer() {
                    true => needed_from,
                    false => 0,
                };
                let weights = model.layer_elements(i);
                let run = |(sequence, (x, carried)): (usize, (&mut [f32], &mut [f32]))| {
                    // A layer of a large model may take a batch many seconds.
                    interrupt.check()?;
                    scratch.with(together, |s| {
                        if let Some(seed) = self.cpu.variation.jitter {
                            jitter::apply(*isa, x, model.n_embd, jitter::of_layer(seed, i));
                        }
                        let width = model.n_embd;
                        let known = layer.apply(*isa, spread, (x, carried), (width, from), s);
                        let place = (sequence, from, width);
                        let finite = match known {
                            true => Ok(()),
                            false => {
                                let scored = &x[from * width..];
                                embed::check_finite(*isa, scored, place, Stage::Layer(i))
                            }
                        };
                        s.clock.lap(Part::Rest);
                        interrupt.worked(work(weights, x.len() / width));
                        finite
                    })
                };
                let sequences = hidden.sequences_and_carried_mut();
                let results: Vec<_> = if spread {
                    sequences.into_iter().enumerate().map(run).collect()
                } else {
                    sequences.into_par_iter().enumerate().map(run).collect()
                };
                // The first sequence's error, whatever thread was quickest.
                results.into_iter().collect::<Result<(), _>>()?;
            }
            Ok(())
        })
    }
}
