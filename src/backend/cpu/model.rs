//! A model on the CPU: the contract of layer windows, a layer at a time.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::prelude::*;

use super::embed::{RowsOf, check_finite, embed};
use super::exec::Exec;
use super::layer::LoadedLayer;
use super::numerics::{NAME, NUMERICS, no_product};
use super::rope::RopeTable;
use super::scratch::Pool;
use super::times::{Part, Times};
use super::weights::{LAYER_BYTES, Residency, Shelves, Source};
use super::{head, jitter};
use crate::backend::{
    BackendError, Hidden, Interrupt, LayerWindow, LayerWindowModel, Numerics, Stage, Target,
    TokenScore, Variation, work,
};
use crate::isa::Isa;
use crate::model::{Model, Rope};

/// A model on the CPU, with its worker threads.
pub struct CpuModel {
    pub(super) model: Arc<Model>,
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
        if !NUMERICS.contains(&numerics) {
            let device = NAME;
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

    /// The arithmetic.
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

    /// Worker threads.
    pub fn n_threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    pub(super) fn layers_with(
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

    pub(super) fn logits_with(
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
        self.threads.install(|| {
            head::logits(
                self.isa, source, head, head_rows, vocab, residency, interrupt,
            )
        })
    }

    pub(super) fn score_targets_with(
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
            head::score_targets(
                self.isa,
                self.source(),
                &model.head,
                &hidden.data,
                targets,
                residency,
                interrupt,
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
        let exec = Exec {
            isa: *isa,
            spread: hidden.lens.len() < threads.current_num_threads(),
        };
        let together = match exec.spread {
            true => threads.current_num_threads() as u32,
            false => 1,
        };
        threads.install(|| {
            for i in self.range.clone() {
                interrupt.check()?;
                let start = Instant::now();
                let layer = LoadedLayer::load(
                    self.cpu.layer_source(i),
                    &model.layers[i],
                    model.n_embd,
                    |rope| self.cpu.rope_table(rope, longest, n_ctx),
                )?;
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
                        let known = layer.apply(&exec, x, carried, from, s);
                        let place = RowsOf {
                            sequence,
                            first: from,
                            width,
                        };
                        let finite = match known {
                            true => Ok(()),
                            false => {
                                let scored = &x[from * width..];
                                check_finite(*isa, scored, place, Stage::Layer(i))
                            }
                        };
                        s.clock.lap(Part::Rest);
                        interrupt.worked(work(weights, x.len() / width));
                        finite
                    })
                };
                let sequences = hidden.sequences_and_carried_mut();
                let results: Vec<_> = if exec.spread {
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
