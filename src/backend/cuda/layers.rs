//! Layer windows on the device.

use std::ops::Range;

use super::chunk::{Chunk, NONE, Shape, chunks, pack, run_chunk};
use super::footprint;
use super::layer::LoadedLayer;
use super::memory::Allocation;
use super::ops::Place;
use super::session::Session;
use super::upload::upload;
use crate::backend::{BackendError, Hidden, Interrupt, LayerWindow, Stage, work};

/// A range of layers whose weights are on the device.
pub(super) struct CudaLayers<'a> {
    cuda: &'a Session,
    range: Range<usize>,
    layers: Vec<LoadedLayer<'a>>,
    weights: Allocation,
}

impl<'a> CudaLayers<'a> {
    pub fn new(cuda: &'a Session, range: Range<usize>) -> Result<Self, BackendError> {
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
            let shape = Shape {
                lens,
                n_ctx,
                width,
                n_carried,
            };
            let bytes = footprint::layers_workspace(&self.layers, cuda.precision, shape)?;
            let workspace = state.workspace(&cuda.gpu, bytes)?;
            // Whatever this batch needs is allocated: what is left may be taken.
            let mut next = cuda.next();
            *next = next.take().and_then(|n| n.start(&cuda.gpu, &cuda.model));
            drop(next);
            let chunk = Chunk {
                shape,
                states: Some((x, values)),
                needed_from,
            };
            let place = Place {
                q: &cuda.queue(),
                workspace: &workspace,
                weights: self.weights.address(),
            };
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
