//! Layer windows on the device.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::batch::Batch;
use super::footprint;
use super::gpu::Gpu;
use super::layer::{LoadedLayer, Run};
use super::memory::Allocation;
use super::ops::Queue;
use super::upload::upload;
use super::weights::Packer;
use super::workspace::{Buffer, Workspace};
use super::{CudaError, CudaModel};
use crate::backend::{BackendError, Hidden, Interrupt, LayerWindow, Stage, work};
use crate::model::Model;

/// Rows that are on the device together: as many whole sequences as that, but one
/// at least.
pub(super) const ROWS: usize = 4096;

/// A range of layers whose weights are on the device.
pub(super) struct CudaLayers<'a> {
    cuda: &'a CudaModel,
    range: Range<usize>,
    layers: Vec<LoadedLayer<'a>>,
    weights: Allocation,
}

/// The layouts of a range of layers.
pub(super) fn pack(
    model: &Model,
    range: Range<usize>,
) -> Result<(Vec<LoadedLayer<'_>>, Packer), CudaError> {
    let mut packer = Packer::default();
    let layers = model.layers[range].iter();
    let layers = layers.map(|l| LoadedLayer::pack(&mut packer, l));
    Ok((layers.collect::<Result<_, _>>()?, packer))
}

/// Cuts sequences into runs of at most `ROWS` rows.
pub(super) fn chunks(lens: &[usize]) -> Vec<Range<usize>> {
    let (mut chunks, mut first, mut rows) = (Vec::new(), 0, 0);
    for (i, len) in lens.iter().enumerate() {
        if rows > 0 && rows + len > ROWS {
            chunks.push(first..i);
            (first, rows) = (i, 0);
        }
        rows += len;
    }
    chunks.push(first..lens.len());
    chunks
}

/// Sequences of a batch that run together.
pub(super) struct Chunk<'c> {
    pub lens: &'c [usize],
    pub n_ctx: usize,
    /// The hidden states and what they carry; for none, sizes are found only.
    pub states: Option<(&'c mut [f32], &'c mut [f32])>,
    pub width: usize,
    pub n_carried: usize,
    /// Where the last of the layers is the model's last: the first position that
    /// is wanted of it.
    pub needed_from: Option<usize>,
}

/// A row number above all.
const NONE: i32 = i32::MAX;

/// Runs layers on a chunk; returns, for each layer, the lowest row it left with a
/// value that is not finite, or [`NONE`].
pub(super) fn run_chunk(
    (q, workspace, weights): (&Queue, &Workspace, u64),
    layers: &[LoadedLayer],
    chunk: Chunk,
    interrupt: &Interrupt,
) -> Result<Vec<i32>, BackendError> {
    let scope = workspace.scope();
    let mut batch = Batch::new(q, &scope, chunk.lens)?;
    for layer in layers {
        let (ropes, temperatures) = layer.by_position();
        for rope in ropes {
            batch.add_rope(q, &scope, rope, chunk.n_ctx)?;
        }
        for temperature in temperatures {
            batch.add_temperature(q, &scope, temperature)?;
        }
    }
    let x = scope.buffer(batch.n_rows * chunk.width);
    let carried = scope.buffer(batch.n_rows * chunk.n_carried);
    let bad: Buffer<i32> = scope.buffer(layers.len());
    let mut first_bad = vec![NONE; layers.len()];
    q.upload(bad, &first_bad)?;
    if let Some((states, values)) = &chunk.states {
        q.upload(x, states)?;
        q.upload(carried, values)?;
    }
    let run = Run {
        q,
        batch: &batch,
        weights,
    };
    for (i, layer) in layers.iter().enumerate() {
        interrupt.check()?;
        layer.apply(&run, &scope, x, carried)?;
        // Nobody reads the other rows of the model's last layer.
        let from = match chunk.needed_from {
            Some(from) if i + 1 == layers.len() => from,
            _ => 0,
        };
        let positions = (batch.positions, from);
        q.find_not_finite(bad.part(i, 1), x, positions, chunk.width)?;
    }
    if let Some((states, values)) = chunk.states {
        q.download(x, states)?;
        q.download(carried, values)?;
    }
    q.download(bad, &mut first_bad)?;
    Ok(first_bad)
}

impl<'a> CudaLayers<'a> {
    pub fn new(cuda: &'a CudaModel, range: Range<usize>) -> Result<Self, BackendError> {
        let n_layer = cuda.model.n_layer();
        if range.start > range.end || range.end > n_layer {
            return Err(BackendError::Layers {
                found: range,
                n_layer,
            });
        }
        let (layers, packer) = pack(&cuda.model, range.clone())?;
        let fetched = cuda.next().take().and_then(|n| n.finish(&range));
        let weights = match fetched {
            Some(weights) => weights,
            None => upload(
                &cuda.gpu,
                &cuda.model.gguf,
                &packer,
                "the layer window's weights",
            )
            .map_err(|e| footprint::advise(e, &cuda.model, &range))?,
        };
        // The device has them; should memory be short, the file's pages may go.
        cuda.model.release_layers(range.clone());
        Ok(Self {
            cuda,
            range,
            layers,
            weights,
        })
    }
}

impl LayerWindow for CudaLayers<'_> {
    fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Nothing is kept between batches: a recurrent layer starts each sequence
    /// from a zero state.
    fn reset_state(&mut self) {}

    fn forward(&mut self, hidden: &mut Hidden, interrupt: &Interrupt) -> Result<(), BackendError> {
        let cuda = self.cuda;
        let n_carried = hidden.carried.len() / hidden.rows().max(1);
        let (width, n_ctx) = (hidden.width, hidden.n_ctx);
        let is_last = self.range.end == cuda.model.n_layer();
        let needed_from = is_last.then_some(hidden.needed_from);
        let mut state = cuda.state();
        let (mut states, mut carried) = (&mut hidden.data[..], &mut hidden.carried[..]);
        let mut first_bad: Option<(usize, usize)> = None;
        let mut first_row = 0;
        let layers = self.range.clone();
        let weights: Vec<usize> = layers.map(|i| cuda.model.layer_elements(i)).collect();
        for range in chunks(&hidden.lens) {
            let lens = &hidden.lens[range];
            let n_rows: usize = lens.iter().sum();
            let (x, values);
            (x, states) = states.split_at_mut(n_rows * width);
            (values, carried) = carried.split_at_mut(n_rows * n_carried);
            let sizes = (lens, n_ctx, width, n_carried);
            let bytes = footprint::layers_workspace(&self.layers, cuda.precision, sizes)?;
            let workspace = state.workspace(&cuda.gpu, bytes)?;
            // Whatever this batch needs is allocated: what is left may be taken.
            let mut next = cuda.next();
            *next = next.take().and_then(|n| n.start(&cuda.gpu, &cuda.model));
            drop(next);
            let chunk = Chunk {
                lens,
                n_ctx,
                states: Some((x, values)),
                width,
                n_carried,
                needed_from,
            };
            let place = (&cuda.queue(), &workspace, self.weights.address());
            let bad = run_chunk(place, &self.layers, chunk, interrupt)?;
            // The first layer counts, then the first row.
            let found = bad.iter().enumerate().find(|(_, row)| **row != NONE);
            let found = found.map(|(i, &row)| (i, first_row + row.unsigned_abs() as usize));
            first_bad = first_bad.into_iter().chain(found).min();
            first_row += n_rows;
            interrupt.worked(weights.iter().map(|&w| work(w, n_rows)).sum());
        }
        match first_bad {
            None => Ok(()),
            Some((i, row)) => {
                let (sequence, position) = hidden.locate(row);
                Err(BackendError::NotFinite {
                    sequence,
                    position,
                    stage: Stage::Layer(self.range.start + i),
                })
            }
        }
    }
}

/// The layer window that is wanted next.
pub(super) enum Next {
    /// Nothing is on its way yet: the batch that runs now may need the room.
    Wanted(Range<usize>),
    Coming(Prefetch),
}

impl Next {
    /// Starts what is wanted.
    fn start(self, gpu: &Arc<Gpu>, model: &Arc<Model>) -> Option<Self> {
        match self {
            Next::Wanted(range) => Prefetch::start(gpu, model, range).map(Next::Coming),
            coming => Some(coming),
        }
    }

    /// The weights of `range`, if they are what was fetched.
    fn finish(self, range: &Range<usize>) -> Option<Allocation> {
        match self {
            Next::Wanted(_) => None,
            Next::Coming(prefetch) => prefetch.finish(range),
        }
    }
}

/// Weights of a layer window on their way to the device.
pub(super) struct Prefetch {
    range: Range<usize>,
    thread: Option<JoinHandle<Option<Allocation>>>,
}

impl Prefetch {
    fn start(gpu: &Arc<Gpu>, model: &Arc<Model>, range: Range<usize>) -> Option<Self> {
        let (gpu, model, layers) = (gpu.clone(), model.clone(), range.clone());
        // What goes wrong here, as where there is no room, is nothing lost but
        // time: the window is loaded when it is asked for, and errors are met then.
        let fetch = move || {
            let (_, packer) = pack(&model, layers).ok()?;
            upload(
                &gpu,
                &model.gguf,
                &packer,
                "the next layer window's weights",
            )
            .ok()
        };
        let thread = std::thread::Builder::new().name("cuda-prefetch".to_owned());
        Some(Self {
            range,
            thread: Some(thread.spawn(fetch).ok()?),
        })
    }

    fn finish(mut self, range: &Range<usize>) -> Option<Allocation> {
        let weights = self.thread.take()?.join().ok().flatten();
        weights.filter(|_| self.range == *range)
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
