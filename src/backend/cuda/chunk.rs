//! The walk of some sequences through layers, on a device or, to find sizes, on none.

use std::ops::Range;

use super::batch::Batch;
use super::error::CudaError;
use super::layer::LoadedLayer;
use super::ops::Place;
use super::run::Run;
use super::weights::Packer;
use super::workspace::Buffer;
use crate::backend::{BackendError, Interrupt};
use crate::model::Model;

/// Rows that are on the device together: as many whole sequences as that, but one
/// at least.
pub(super) const ROWS: usize = 4096;

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

/// What sizes depend on.
#[derive(Clone, Copy)]
pub(super) struct Shape<'c> {
    /// Lengths of the sequences.
    pub lens: &'c [usize],
    pub n_ctx: usize,
    /// Values of a row, and values that it carries.
    pub width: usize,
    pub n_carried: usize,
}

/// Sequences of a batch that run together.
pub(super) struct Chunk<'c> {
    pub shape: Shape<'c>,
    /// The hidden states and what they carry; for none, sizes are found only.
    pub states: Option<(&'c mut [f32], &'c mut [f32])>,
    /// Where the last of the layers is the model's last: the first position that
    /// is wanted of it.
    pub needed_from: Option<usize>,
}

/// A row number above all.
pub(super) const NONE: i32 = i32::MAX;

/// Runs layers on a chunk; returns, for each layer, the lowest row it left with a
/// value that is not finite, or [`NONE`].
pub(super) fn run_chunk(
    place: Place,
    layers: &[LoadedLayer],
    chunk: Chunk,
    interrupt: &Interrupt,
) -> Result<Vec<i32>, BackendError> {
    let Place {
        q,
        workspace,
        weights,
    } = place;
    let scope = workspace.scope();
    let mut batch = Batch::new(q, &scope, chunk.shape.lens)?;
    for layer in layers {
        let (ropes, temperatures) = layer.by_position();
        for rope in ropes {
            batch.add_rope(q, &scope, rope, chunk.shape.n_ctx)?;
        }
        for temperature in temperatures {
            batch.add_temperature(q, &scope, temperature)?;
        }
    }
    let x = scope.buffer(batch.n_rows * chunk.shape.width);
    let carried = scope.buffer(batch.n_rows * chunk.shape.n_carried);
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
        let bad = bad.part(i, 1);
        q.find_not_finite(bad, x, batch.positions, from, chunk.shape.width)?;
    }
    if let Some((states, values)) = chunk.states {
        q.download(x, states)?;
        q.download(carried, values)?;
    }
    q.download(bad, &mut first_bad)?;
    Ok(first_bad)
}
