//! How much device memory a run takes, computed from the model alone: the same
//! code that lays out weights and walks through layers, without a device.

use std::ops::Range;

use super::blas;
use super::chunk::{self, Chunk, Shape};
use super::error::CudaError;
use super::head::{self, LoadedHead};
use super::kernels::Arch;
use super::layer::LoadedLayer;
use super::ops::{Place, Queue};
use super::precision::Precision;
use super::weights::Packer;
use super::workspace::Workspace;
use crate::backend::{BackendError, Footprint, Interrupt, Share};
use crate::model::Model;
use crate::quant;

/// Windows of `n_ctx` tokens that are evaluated together: enough to keep a device
/// busy. The last token of a window is only a target.
pub fn batch_windows(n_ctx: usize) -> usize {
    (chunk::ROWS / rows_of(n_ctx)).max(1)
}

fn rows_of(n_ctx: usize) -> usize {
    n_ctx.saturating_sub(1).max(1)
}

/// What a share of a model takes on a device, at context `n_ctx`.
///
/// # Errors
/// Layers that cannot run on CUDA.
pub fn footprint(
    model: &Model,
    share: &Share,
    precision: Precision,
    n_ctx: usize,
    arch: Arch,
) -> Result<Footprint, BackendError> {
    let codebooks = quant::codebooks().len() as u64;
    let mut footprint = Footprint {
        fixed: blas::workspace_bytes(arch) + codebooks,
        ..Footprint::default()
    };
    let lens = vec![rows_of(n_ctx); batch_windows(n_ctx)];
    let shape = Shape {
        lens: &lens,
        n_ctx,
        width: model.n_embd,
        n_carried: model.n_carried(),
    };
    let mut before = 0;
    for pass in &share.passes {
        let mut weights = 0;
        for range in pass {
            let (layers, packer) = chunk::pack(model, range.clone())?;
            weights += packer.bytes();
            let activations = layers_workspace(&layers, precision, shape)?;
            footprint.activations = footprint.activations.max(activations);
        }
        footprint.weights = footprint.weights.max(weights);
        if before > 0 {
            footprint.next = footprint.next.max(before + weights);
        }
        before = weights;
    }
    // The two neighbours that are largest together, less what is counted.
    footprint.next = footprint.next.saturating_sub(footprint.weights);
    if share.head {
        let mut packer = Packer::default();
        let head = LoadedHead::pack(&mut packer, &model.head);
        footprint.head = packer.bytes();
        let rows = head::ROWS.min(lens.iter().sum());
        let activations = head_workspace(&head, precision, rows);
        footprint.activations = footprint.activations.max(activations);
    }
    Ok(footprint)
}

/// A queue without a device.
fn nowhere(precision: Precision) -> Queue<'static> {
    Queue {
        gpu: None,
        precision,
    }
}

/// Bytes of activations of layers.
pub(super) fn layers_workspace(
    layers: &[LoadedLayer],
    precision: Precision,
    shape: Shape,
) -> Result<u64, BackendError> {
    let (workspace, q) = (Workspace::measuring(), nowhere(precision));
    let place = Place {
        q: &q,
        workspace: &workspace,
        weights: 0,
    };
    let chunk = Chunk {
        shape,
        states: None,
        needed_from: None,
    };
    chunk::run_chunk(place, layers, chunk, &Interrupt::default())?;
    Ok(workspace.peak())
}

/// Bytes that the head needs for so many rows beside its weights.
pub(super) fn head_workspace(head: &LoadedHead, precision: Precision, n_rows: usize) -> u64 {
    let (workspace, q) = (Workspace::measuring(), nowhere(precision));
    let place = Place {
        q: &q,
        workspace: &workspace,
        weights: 0,
    };
    let (rows, ids) = (Vec::new(), vec![0; n_rows]);
    // Without a device there is nothing to go wrong.
    let _ = head.score_targets(place, &rows, &ids, &Interrupt::default());
    workspace.peak()
}

/// The same for logits of so many vocabulary entries.
pub(super) fn logits_workspace(
    head: &LoadedHead,
    precision: Precision,
    n_rows: usize,
    vocab: Range<usize>,
) -> u64 {
    let (workspace, q) = (Workspace::measuring(), nowhere(precision));
    let place = Place {
        q: &q,
        workspace: &workspace,
        weights: 0,
    };
    let _ = head.logits(place, &[], n_rows, vocab, &Interrupt::default());
    workspace.peak()
}

/// Adds to an error of a layer window that does not fit how many layers would.
pub(super) fn advise(error: CudaError, model: &Model, range: &Range<usize>) -> CudaError {
    match error {
        CudaError::OutOfMemory {
            what,
            asked,
            in_use,
            free,
            total,
            ..
        } => {
            let fits = |n: &usize| {
                let layers = chunk::pack(model, range.start..range.start + n);
                layers.is_ok_and(|(_, packer)| packer.bytes() <= free)
            };
            let smaller = (1..range.len()).rev().find(fits);
            let advice = match smaller {
                Some(n) => format!(
                    "; of these {} layers {n} would fit: use gpu_layers = {n}, with cycle = true for all layers on the GPU",
                    range.len()
                ),
                None => "; not even one of these layers fits: use the CPU".to_owned(),
            };
            CudaError::OutOfMemory {
                what,
                asked,
                in_use,
                free,
                total,
                advice,
            }
        }
        e => e,
    }
}
