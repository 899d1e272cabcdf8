//! The output head, fused with the softmax: logits live for one tile of the
//! vocabulary.

use std::ops::Range;

use super::linear::LoadedNorm;
use super::memory::Allocation;
use super::ops::{Argument, Grid, Place, Queue, Rows, int, launch};
use super::weights::{Mat, Packer, Values};
use super::workspace::{Buffer, Scope};
use crate::backend::{BackendError, Interrupt, TokenScore};
use crate::model::Head;

/// Vocabulary entries of a tile.
const TILE: usize = 4096;
/// Rows whose logits are made together.
pub(super) const ROWS: usize = 2048;

/// The layout of the head's weights.
pub(super) struct LoadedHead {
    norm: Option<LoadedNorm>,
    weight: Mat,
    bias: Option<Values>,
    scale: f32,
    softcap: Option<f32>,
}

/// A head on the device.
pub(super) struct ResidentHead {
    pub layout: LoadedHead,
    pub weights: Allocation,
}

impl LoadedHead {
    pub fn pack(packer: &mut Packer, head: &Head) -> Self {
        Self {
            norm: head.norm.as_ref().map(|n| LoadedNorm::pack(packer, n)),
            weight: packer.matrix(&head.weight),
            bias: head.bias.as_ref().map(|b| packer.vector(b)),
            scale: head.scale,
            softcap: head.softcap,
        }
    }

    /// The scores of the `ids`, each from a row of `rows`; NaN for an NLL whose
    /// logits were not all finite.
    pub fn score_targets(
        &self,
        place: Place,
        rows: &[f32],
        ids: &[i32],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        const THREADS: u32 = 256;
        let Place {
            q,
            workspace,
            weights,
        } = place;
        let (n, n_in, n_vocab) = (ids.len(), self.weight.n_in, self.weight.n_out);
        let scope = workspace.scope();
        let x = self.normed(q, &scope, weights, rows, n)?;
        let targets = scope.buffer::<i32>(n);
        q.upload(targets, ids)?;
        let folded = scope.buffer::<DeviceRow>(n);
        let bias = self.bias.map_or(0, |b| q.values(weights, b).address);
        let softcap = self.softcap.unwrap_or(0.0);
        launch!(
            q,
            begin_rows,
            q.warps(n),
            folded.address,
            x.address,
            weights + self.weight.at,
            self.weight.row_bytes() as i64,
            int(self.weight.ty.id() as usize),
            int(n_in),
            targets.address,
            q.codebooks(),
            q.precision.number(),
            bias,
            self.scale,
            softcap,
            n as i64,
        )?;
        let products = scope.buffer(n * TILE.min(n_vocab));
        for first in (0..n_vocab).step_by(TILE) {
            interrupt.check()?;
            let n_tile = TILE.min(n_vocab - first);
            let tile = self.weight.rows(first, n_tile);
            let out = Rows::dense(products, n_tile);
            q.multiply(&scope, &tile.on(weights), Rows::dense(x, n_in), n, out, 1.0)?;
            let grid = Grid {
                blocks: (int(n).unsigned_abs(), 1, 1),
                threads: THREADS,
                shared_bytes: 0,
            };
            launch!(
                q,
                fold_logits,
                grid,
                folded.address,
                products.address,
                bias,
                targets.address,
                int(first),
                int(n_tile),
                self.scale,
                softcap,
            )?;
        }
        let scores = scope.buffer::<DeviceScore>(n);
        launch!(
            q,
            finish_rows,
            q.each(n),
            scores.address,
            folded.address,
            n as i64
        )?;
        let mut out = vec![DeviceScore::default(); n];
        q.download(scores, &mut out)?;
        Ok(out.iter().map(score).collect())
    }

    /// The logits of a part of the vocabulary, `n × vocab`, for `n` rows as the
    /// output matrix takes them.
    pub fn logits(
        &self,
        place: Place,
        rows: &[f32],
        n: usize,
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        let Place {
            q,
            workspace,
            weights,
        } = place;
        let (n_in, width) = (self.weight.n_in, vocab.len());
        let scope = workspace.scope();
        let x = scope.buffer(n * n_in);
        q.upload(x, rows)?;
        let bias = self.bias.map_or(0, |b| q.values(weights, b).address);
        let products = scope.buffer(n * TILE.min(width));
        // Without a device only the workspace's size is wanted.
        let mut out = vec![0.0f32; if q.gpu.is_some() { n * width } else { 0 }];
        let mut tile_logits = vec![0.0f32; products.len];
        for first in vocab.clone().step_by(TILE) {
            interrupt.check()?;
            let n_tile = TILE.min(vocab.end - first);
            let tile = self.weight.rows(first, n_tile);
            let to = Rows::dense(products, n_tile);
            q.multiply(&scope, &tile.on(weights), Rows::dense(x, n_in), n, to, 1.0)?;
            launch!(
                q,
                finish_logits,
                q.each(n * n_tile),
                products.address,
                bias,
                int(first),
                int(n_tile),
                self.scale,
                self.softcap.unwrap_or(0.0),
                (n * n_tile) as i64,
            )?;
            let tile_logits = &mut tile_logits[..n * n_tile];
            q.download(products, tile_logits)?;
            let rows = out.chunks_exact_mut(width.max(1));
            for (row, logits) in rows.zip(tile_logits.chunks_exact(n_tile)) {
                row[first - vocab.start..][..n_tile].copy_from_slice(logits);
            }
        }
        Ok(out)
    }

    /// Rows of hidden states on the device, as the output matrix takes them.
    fn normed<'s>(
        &self,
        q: &Queue,
        scope: &'s Scope,
        weights: u64,
        rows: &[f32],
        n: usize,
    ) -> Result<Buffer<'s>, BackendError> {
        let x = scope.buffer(n * self.weight.n_in);
        q.upload(x, rows)?;
        if let Some(norm) = &self.norm {
            norm.apply(q, weights, x, x)?;
        }
        Ok(x)
    }
}

/// `Row` in `head.cu`.
type DeviceRow = [u64; 5];

/// `Score` in `head.cu`, in words.
type DeviceScore = [u64; 3];

fn score(&[nll, ids, shares]: &DeviceScore) -> TokenScore {
    let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
    TokenScore {
        nll: f64::from_bits(nll),
        rank: low(ids),
        top_id: high(ids),
        top_p: f32::from_bits(low(shares)),
        entropy: f32::from_bits(high(shares)),
    }
}
