//! The output head, fused with the softmax: logits live for one tile of rows and
//! one run of the vocabulary, never for a whole window.

use std::ops::Range;

use rayon::prelude::*;

use super::gemm::PANEL;
use super::math::{self, LogSumExp};
use super::norm;
use super::scratch::room;
use super::weights::{Residency, Source, Weight};
use crate::backend::{BackendError, Interrupt, Target, TokenScore, work};
use crate::isa::Isa;
use crate::model::Head;

/// Vocabulary entries decoded at a time.
pub(super) const RUN: usize = 64 * PANEL;
/// Rows whose logits a thread holds: 56 × 2048 × 4 B stay in its L2 cache.
pub(super) const ROWS: usize = 56;

/// A run of the vocabulary, decoded.
struct Run<'a> {
    head: &'a Head,
    vocab: Range<usize>,
    weight: Weight<'a>,
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
        source: Source<'a>,
        head: &'a Head,
        vocab: Range<usize>,
        residency: Residency,
    ) -> Result<Self, BackendError> {
        let rows = head.weight.rows(vocab.start, vocab.len());
        let weight = Weight::decode(source, &rows)?;
        if residency == Residency::Streamed {
            rows.release(source.gguf);
        }
        Ok(Self {
            head,
            vocab,
            weight,
        })
    }

    /// The logits of the run for normed rows, `rows × vocab`.
    fn logits(&self, isa: Isa, rows: &[f32], out: &mut [f32]) {
        self.weight.multiply(isa, rows, out);
        for logits in out.chunks_exact_mut(self.vocab.len()) {
            if let Some(bias) = &self.head.bias {
                math::add(isa, logits, &bias.values[self.vocab.clone()]);
            }
            scale_and_cap(isa, self.head, logits);
        }
    }
}

/// The rows of `hidden` with these numbers, as the output matrix takes them.
pub(in crate::backend) fn normed_rows(
    isa: Isa,
    head: &Head,
    hidden: &[f32],
    rows: &[usize],
) -> Vec<f32> {
    let mut normed = vec![0.0f32; rows.len() * head.weight.n_in];
    norm_rows(isa, head, hidden, rows, &mut normed);
    normed
}

/// As [`normed_rows`], into `normed`.
fn norm_rows(isa: Isa, head: &Head, hidden: &[f32], rows: &[usize], normed: &mut [f32]) {
    let n = head.weight.n_in;
    normed
        .par_chunks_mut(ROWS * n)
        .zip(rows.par_chunks(ROWS))
        .for_each(|(normed, rows)| {
            for (out, row) in normed.chunks_exact_mut(n).zip(rows) {
                let row = &hidden[row * n..][..n];
                match &head.norm {
                    Some(norm) => norm::apply_to(isa, norm, row, out),
                    None => out.copy_from_slice(row),
                }
            }
        });
}

/// The logits of a part of the vocabulary for normed rows, `rows × vocab`.
pub(super) fn logits(
    isa: Isa,
    source: Source,
    head: &Head,
    rows: &[f32],
    vocab: Range<usize>,
    residency: Residency,
    interrupt: &Interrupt,
) -> Result<Vec<f32>, BackendError> {
    let (n, width) = (head.weight.n_in, vocab.len());
    let mut out = vec![0.0f32; rows.len() / n * width];
    if out.is_empty() {
        return Ok(out);
    }
    for part in Run::cut(vocab.clone()) {
        interrupt.check()?;
        let (first, n_run) = (part.start - vocab.start, part.len());
        let run = Run::load(source, head, part, residency)?;
        out.par_chunks_mut(ROWS * width)
            .zip(rows.par_chunks(ROWS * n))
            .for_each_init(
                || vec![0.0f32; ROWS * n_run],
                |logits, (out, rows)| {
                    let logits = &mut logits[..rows.len() / n * n_run];
                    run.logits(isa, rows, logits);
                    let each = out.chunks_exact_mut(width);
                    for (out, logits) in each.zip(logits.chunks_exact(n_run)) {
                        out[first..][..n_run].copy_from_slice(logits);
                    }
                },
            );
        interrupt.worked(work(n * n_run, rows.len() / n));
    }
    Ok(out)
}

/// The scores of the targets, or the number of the first target whose logits are
/// not finite. `hidden` rows have the norm's width.
pub(super) fn score_targets(
    isa: Isa,
    source: Source,
    head: &Head,
    hidden: &[f32],
    targets: &[Target],
    residency: Residency,
    interrupt: &Interrupt,
) -> Result<Result<Vec<TokenScore>, usize>, BackendError> {
    let n = head.weight.n_in;
    let numbers: Vec<usize> = targets.iter().map(|t| t.row).collect();
    let mut kept = source.shelves.rows.take(numbers.len() * n);
    let rows = room(&mut kept, numbers.len() * n);
    norm_rows(isa, head, hidden, &numbers, rows);
    let rows = &*rows;
    let own = target_logits(isa, source, head, rows, targets)?;
    if residency == Residency::Streamed {
        head.weight.release(source.gguf);
    }
    let mut sums = vec![LogSumExp::default(); targets.len()];
    for vocab in Run::cut(0..head.weight.n_out) {
        interrupt.check()?;
        let n_run = vocab.len();
        let run = Run::load(source, head, vocab, residency)?;
        sums.par_chunks_mut(ROWS)
            .zip(rows.par_chunks(ROWS * n))
            .zip(own.par_chunks(ROWS))
            .for_each_init(
                || vec![0.0f32; ROWS * n_run],
                |logits, ((sums, rows), own)| {
                    let logits = &mut logits[..own.len() * n_run];
                    run.logits(isa, rows, logits);
                    let each = sums.iter_mut().zip(own);
                    for ((lse, &own), logits) in each.zip(logits.chunks_exact(n_run)) {
                        math::log_sum_exp(isa, lse, logits, own);
                    }
                },
            );
        interrupt.worked(work(n * n_run, targets.len()));
    }
    let score = |(lse, &own): (&LogSumExp, &f32)| TokenScore {
        nll: lse.value() - f64::from(own),
        rank: lse.above(),
        top_id: lse.top(),
        top_p: lse.top_p() as f32,
        entropy: lse.entropy() as f32,
    };
    let scores: Vec<TokenScore> = sums.iter().zip(&own).map(score).collect();
    Ok(match scores.iter().position(|s| !s.nll.is_finite()) {
        Some(i) => Err(i),
        None => Ok(scores),
    })
}

/// Each target's own logit: ranks are counted from it, so it is wanted before the
/// vocabulary is walked. Products do not depend on the shape, so these are the
/// bits that the walk yields.
fn target_logits(
    isa: Isa,
    source: Source,
    head: &Head,
    rows: &[f32],
    targets: &[Target],
) -> Result<Vec<f32>, BackendError> {
    let mut own = vec![0.0f32; targets.len()];
    own.par_chunks_mut(PANEL)
        .zip(rows.par_chunks(PANEL * head.weight.n_in))
        .zip(targets.par_chunks(PANEL))
        .try_for_each_init(
            || vec![0.0f32; PANEL * PANEL],
            |products, ((own, rows), targets)| {
                let ids = targets.iter().map(|t| t.id as usize);
                let w = Weight::gather(source, &head.weight, ids.clone())?;
                let n = own.len();
                w.multiply(isa, rows, &mut products[..n * n]);
                // Row i against target i.
                let diagonal = products.iter().step_by(n + 1);
                for ((own, x), id) in own.iter_mut().zip(diagonal).zip(ids) {
                    *own = *x;
                    if let Some(bias) = &head.bias {
                        *own += bias.values[id];
                    }
                }
                scale_and_cap(isa, head, own);
                Ok::<(), BackendError>(())
            },
        )?;
    Ok(own)
}

fn scale_and_cap(isa: Isa, head: &Head, logits: &mut [f32]) {
    if head.scale != 1.0 {
        math::scale(isa, logits, head.scale);
    }
    if let Some(cap) = head.softcap {
        math::softcap(isa, logits, cap);
    }
}
