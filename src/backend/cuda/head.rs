//! The output head, fused with the log-softmax: logits live for one tile of the
//! vocabulary.

use super::memory::Allocation;
use super::ops::{Argument, Grid, Queue, Rows, int, launch};
use super::weights::{LoadedNorm, Mat, Packer, Values};
use super::workspace::{Buffer, Workspace};
use crate::backend::{BackendError, Interrupt};
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

    /// `−ln p` of the `ids`, each from a row of `rows`; NaN where a logit was not
    /// finite.
    pub fn target_nll(
        &self,
        (q, workspace, weights): (&Queue, &Workspace, u64),
        rows: &[f32],
        ids: &[i32],
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>, BackendError> {
        const THREADS: u32 = 256;
        let (n, n_in, n_vocab) = (ids.len(), self.weight.n_in, self.weight.n_out);
        let scope = workspace.scope();
        let x = scope.buffer(n * n_in);
        q.upload(x, rows)?;
        if let Some(norm) = &self.norm {
            norm.apply(q, weights, x, x)?;
        }
        let targets = scope.buffer::<i32>(n);
        q.upload(targets, ids)?;
        let (maxima, sums) = (scope.buffer::<f32>(n), scope.buffer::<f64>(n));
        let (target_logits, not_finite) = (scope.buffer::<f32>(n), scope.buffer::<i32>(n));
        launch!(
            q,
            begin_rows,
            q.each(n),
            maxima.address,
            sums.address,
            target_logits.address,
            not_finite.address,
            n as i64,
        )?;
        let logits = scope.buffer(n * TILE.min(n_vocab));
        let bias = self.bias.map_or(0, |b| q.values(weights, b).address);
        for first in (0..n_vocab).step_by(TILE) {
            interrupt.check()?;
            let n_tile = TILE.min(n_vocab - first);
            let tile = self.weight.rows(first, n_tile);
            let out = Rows::dense(logits, n_tile);
            q.multiply(&scope, (&tile, weights), Rows::dense(x, n_in), n, out, 1.0)?;
            let grid = Grid {
                blocks: (int(n).unsigned_abs(), 1, 1),
                threads: THREADS,
                shared_bytes: 0,
            };
            launch!(
                q,
                fold_logits,
                grid,
                maxima.address,
                sums.address,
                target_logits.address,
                not_finite.address,
                logits.address,
                bias,
                targets.address,
                int(first),
                int(n_tile),
                self.scale,
                self.softcap.unwrap_or(0.0),
            )?;
        }
        let nll: Buffer<f64> = scope.buffer(n);
        launch!(
            q,
            finish_rows,
            q.each(n),
            nll.address,
            maxima.address,
            sums.address,
            target_logits.address,
            not_finite.address,
            n as i64,
        )?;
        let mut out = vec![0.0f64; n];
        q.download(nll, &mut out)?;
        Ok(out)
    }
}
