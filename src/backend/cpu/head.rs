//! The output head, fused with the log-softmax: logits live for one tile of rows
//! and one run of the vocabulary, never for a whole window.

use std::ops::Range;

use rayon::prelude::*;

use super::Residency;
use super::gemm::{self, PANEL, Packed, Product};
use super::isa::Isa;
use super::math::{self, LogSumExp};
use super::{norm, weights};
use crate::backend::{BackendError, Interrupt, Target};
use crate::gguf::Gguf;
use crate::model::Head;

/// Vocabulary entries decoded at a time.
const RUN: usize = 64 * PANEL;
/// Rows whose logits a thread holds: 56 × 2048 × 4 B stay in its L2 cache.
const ROWS: usize = 56;

/// A run of the vocabulary, decoded.
struct Run<'a> {
    head: &'a Head,
    vocab: Range<usize>,
    weight: Packed,
}

impl<'a> Run<'a> {
    /// The runs of a part of the vocabulary.
    fn cut(vocab: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let end = vocab.end;
        vocab
            .step_by(RUN)
            .map(move |first| first..(first + RUN).min(end))
    }

    fn load(
        gguf: &Gguf,
        head: &'a Head,
        vocab: Range<usize>,
        residency: Residency,
    ) -> Result<Self, BackendError> {
        let rows = head.weight.rows(vocab.start, vocab.len());
        let weight = weights::load(gguf, &rows)?;
        if residency == Residency::Streamed {
            rows.release(gguf);
        }
        Ok(Self {
            head,
            vocab,
            weight,
        })
    }

    /// The logits of the run for `n_rows` normed rows, into `out`, whose rows are
    /// `stride` apart.
    fn logits(&self, isa: Isa, rows: &[f32], n_rows: usize, out: &mut [f32], stride: usize) {
        let n = self.vocab.len();
        let Head {
            bias,
            scale,
            softcap,
            ..
        } = self.head;
        gemm::multiply(isa, Product::full(rows, n_rows, &self.weight), out, stride);
        for logits in out.chunks_mut(stride).take(n_rows) {
            let logits = &mut logits[..n];
            if let Some(bias) = bias {
                math::add(isa, logits, &bias.values[self.vocab.clone()]);
            }
            if *scale != 1.0 {
                math::scale(isa, logits, *scale);
            }
            if let Some(cap) = softcap {
                math::softcap(isa, logits, *cap);
            }
        }
    }
}

/// The rows of `hidden` with these numbers, as the output matrix takes them.
pub(super) fn normed_rows(isa: Isa, head: &Head, hidden: &[f32], rows: &[usize]) -> Vec<f32> {
    let n = head.weight.n_in;
    let mut normed = vec![0.0f32; rows.len() * n];
    normed
        .par_chunks_mut(ROWS * n)
        .zip(rows.par_chunks(ROWS))
        .for_each(|(normed, rows)| {
            for (out, row) in normed.chunks_exact_mut(n).zip(rows) {
                out.copy_from_slice(&hidden[row * n..][..n]);
                if let Some(norm) = &head.norm {
                    norm::apply(isa, norm, out);
                }
            }
        });
    normed
}

/// The logits of a part of the vocabulary for normed rows, `rows × vocab`.
pub(super) fn logits(
    isa: Isa,
    gguf: &Gguf,
    head: &Head,
    rows: &[f32],
    vocab: Range<usize>,
    (residency, interrupt): (Residency, &Interrupt),
) -> Result<Vec<f32>, BackendError> {
    let (n, width) = (head.weight.n_in, vocab.len());
    let mut out = vec![0.0f32; rows.len() / n * width];
    if out.is_empty() {
        return Ok(out);
    }
    for part in Run::cut(vocab.clone()) {
        interrupt.check()?;
        let run = Run::load(gguf, head, part, residency)?;
        let first = run.vocab.start - vocab.start;
        out.par_chunks_mut(ROWS * width)
            .zip(rows.par_chunks(ROWS * n))
            .for_each(|(out, rows)| {
                run.logits(isa, rows, rows.len() / n, &mut out[first..], width);
            });
    }
    Ok(out)
}

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
    gguf: &Gguf,
    head: &Head,
    hidden: &[f32],
    targets: &[Target],
    (residency, interrupt): (Residency, &Interrupt),
) -> Result<Result<Vec<f64>, usize>, BackendError> {
    let n = head.weight.n_in;
    let numbers: Vec<usize> = targets.iter().map(|t| t.row).collect();
    let rows = normed_rows(isa, head, hidden, &numbers);
    let mut partials = vec![
        Partial {
            lse: LogSumExp::default(),
            logit: f32::NAN,
        };
        targets.len()
    ];
    for vocab in Run::cut(0..head.weight.n_out) {
        interrupt.check()?;
        let run = Run::load(gguf, head, vocab.clone(), residency)?;
        let n_run = vocab.len();
        partials
            .par_chunks_mut(ROWS)
            .zip(rows.par_chunks(ROWS * n))
            .zip(targets.par_chunks(ROWS))
            .for_each_init(
                || vec![0.0f32; ROWS * n_run],
                |logits, ((partials, rows), targets)| {
                    run.logits(isa, rows, targets.len(), logits, n_run);
                    let each = partials.iter_mut().zip(targets);
                    for ((p, target), logits) in each.zip(logits.chunks_exact(n_run)) {
                        math::log_sum_exp(isa, &mut p.lse, logits);
                        let id = target.id as usize;
                        if vocab.contains(&id) {
                            p.logit = logits[id - vocab.start];
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
