//! Token embedding: on the host for every device, since it reads a few rows of
//! the file.

use super::{math, norm};
use crate::backend::{BackendError, Hidden, Stage};
use crate::isa::Isa;
use crate::model::Model;
use crate::quant;

/// Hidden states before the first layer, in a run at context `n_ctx`.
///
/// # Errors
/// Ids outside the vocabulary, values that are not finite.
pub(in crate::backend) fn embed(
    isa: Isa,
    model: &Model,
    sequences: &[&[u32]],
    n_ctx: usize,
) -> Result<Hidden, BackendError> {
    let lens: Vec<usize> = sequences.iter().map(|s| s.len()).collect();
    let n_rows = lens.iter().sum::<usize>();
    let mut hidden = Hidden {
        data: vec![0.0; n_rows * model.n_embd],
        carried: vec![0.0; n_rows * model.n_carried()],
        width: model.n_embd,
        lens,
        n_ctx,
        needed_from: 0,
    };
    let rows = hidden.sequences_mut().into_iter().zip(sequences);
    for (sequence, (xs, ids)) in rows.enumerate() {
        if let Some(position) = ids.iter().position(|&id| id as usize >= model.n_vocab) {
            return Err(BackendError::TokenId {
                sequence,
                position,
                id: ids[position],
                n_vocab: model.n_vocab,
            });
        }
        embed_one(isa, model, ids, xs)?;
        let rows = RowsOf {
            sequence,
            first: 0,
            width: model.n_embd,
        };
        check_finite(isa, xs, rows, Stage::Embedding)?;
    }
    Ok(hidden)
}

/// Embeds one sequence of known ids.
fn embed_one(isa: Isa, model: &Model, ids: &[u32], xs: &mut [f32]) -> Result<(), BackendError> {
    let (e, gguf, width) = (&model.embedding, &model.gguf, model.n_embd);
    let table = e.table.data(gguf);
    for (x, &id) in xs.chunks_exact_mut(width).zip(ids) {
        quant::dequantize(e.table.ty, table.row(id as usize), x)?;
    }
    if e.scale != 1.0 {
        math::scale(isa, xs, e.scale);
    }
    if let Some(positions) = &e.positions {
        let rows = positions.data(gguf);
        let mut row = vec![0.0; width];
        for (position, x) in xs.chunks_exact_mut(width).enumerate() {
            quant::dequantize(positions.ty, rows.row(position), &mut row)?;
            math::add(isa, x, &row);
        }
    }
    if let Some(norm) = &e.norm {
        norm::apply(isa, norm, xs);
    }
    Ok(())
}

/// Rows of `width` values of a sequence, from position `first` on.
#[derive(Clone, Copy)]
pub(super) struct RowsOf {
    pub sequence: usize,
    pub first: usize,
    pub width: usize,
}

/// The error for the first row of `xs` that is not finite.
pub(super) fn check_finite(
    isa: Isa,
    xs: &[f32],
    rows: RowsOf,
    stage: Stage,
) -> Result<(), BackendError> {
    if math::all_finite(isa, xs) {
        return Ok(());
    }
    let mut each = xs.chunks_exact(rows.width);
    let position = each.position(|row| !math::all_finite(isa, row));
    Err(BackendError::NotFinite {
        sequence: rows.sequence,
        position: rows.first + position.unwrap_or(0),
        stage,
    })
}
