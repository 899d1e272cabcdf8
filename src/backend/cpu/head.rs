//! The output head, fused with the log-softmax: logits live for one tile of rows
//! and one run of the vocabulary, never for a whole window.

use rayon::prelude::*;

use super::Residency;
use super::gemm::PANEL;
use super::isa::Isa;
use super::math::{self, LogSumExp};
use super::norm;
use super::weights::{Source, Weight};
use crate::backend::{BackendError, Interrupt, Target};
use crate::model::Head;

/// Vocabulary entries decoded at a time.
const RUN: usize = 64 * PANEL;
/// Rows whose logits a thread holds: 56 × 2048 × 4 B stay in its L2 cache.
const ROWS: usize = 56;

/// What is known of a target's log-likelihood after some runs.
#[derive(Clone, Copy)]
struct Partial {
    lse: LogSumExp,
    logit: f32,
}

/// `−ln p(target)` for each target, or the number of the first target whose
/// logits are not finite. `hidden` rows have the norm's width.
pub(super) fn target_nll(
    isa: Isa,
    source: Source,
    head: &Head,
    hidden: &[f32],
    targets: &[Target],
    (residency, interrupt): (Residency, &Interrupt),
) -> Result<Result<Vec<f64>, usize>, BackendError> {
    let n = head.weight.n_in;
    let mut rows = vec![0.0f32; targets.len() * n];
    rows.par_chunks_mut(ROWS * n)
        .zip(targets.par_chunks(ROWS))
        .for_each(|(rows, targets)| {
            for (row, target) in rows.chunks_exact_mut(n).zip(targets) {
                row.copy_from_slice(&hidden[target.row * n..][..n]);
                if let Some(norm) = &head.norm {
                    norm::apply(isa, norm, row);
                }
            }
        });
    let mut partials = vec![
        Partial {
            lse: LogSumExp::default(),
            logit: f32::NAN,
        };
        targets.len()
    ];
    for first in (0..head.weight.n_out).step_by(RUN) {
        interrupt.check()?;
        let n_run = RUN.min(head.weight.n_out - first);
        let run = head.weight.rows(first, n_run);
        let w = Weight::load(source, &run)?;
        if residency == Residency::Streamed {
            run.release(source.gguf);
        }
        partials
            .par_chunks_mut(ROWS)
            .zip(rows.par_chunks(ROWS * n))
            .zip(targets.par_chunks(ROWS))
            .for_each_init(
                || vec![0.0f32; ROWS * n_run],
                |logits, ((partials, rows), targets)| {
                    let logits = &mut logits[..targets.len() * n_run];
                    w.multiply(isa, rows, logits);
                    let each = partials.iter_mut().zip(targets);
                    for ((p, target), logits) in each.zip(logits.chunks_exact_mut(n_run)) {
                        if let Some(bias) = &head.bias {
                            math::add(isa, logits, &bias.values[first..first + n_run]);
                        }
                        if head.scale != 1.0 {
                            math::scale(isa, logits, head.scale);
                        }
                        if let Some(cap) = head.softcap {
                            math::softcap(isa, logits, cap);
                        }
                        math::log_sum_exp(isa, &mut p.lse, logits);
                        let id = target.id as usize;
                        if (first..first + n_run).contains(&id) {
                            p.logit = logits[id - first];
                        }
                    }
                },
            );
    }
    let nll: Vec<f64> = partials
        .iter()
        .map(|p| p.lse.value() - f64::from(p.logit))
        .collect();
    Ok(match nll.iter().position(|x| !x.is_finite()) {
        Some(i) => Err(i),
        None => Ok(nll),
    })
}
