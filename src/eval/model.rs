//! What the evaluator scores, and the ways to provide it.

use crate::backend::{BackendError, Stage, TokenScore};

/// One sequence, evaluated from position 0, and the positions whose tokens are
/// to be scored.
#[derive(Clone, Debug)]
pub struct Sequence<'a> {
    /// What the model reads.
    pub tokens: &'a [u32],
    /// Ids to score: `targets[i]` is the token at position `first_target + i`,
    /// predicted by the row before it.
    pub targets: &'a [u32],
    /// Position of the first token that is scored.
    pub first_target: usize,
    /// The run's context length, the same for all sequences of a run.
    pub n_ctx: usize,
}

/// A model as the evaluator sees it: scores of given targets.
///
/// The head and the log-softmax are the model's business, so that logits for a
/// whole window need never exist; models that do produce logits come in through
/// [`FromLogits`].
pub trait PerplexityModel {
    /// Entries of the vocabulary.
    fn n_vocab(&self) -> usize;

    /// Scores every target of every sequence by `p(target | tokens before it)`.
    /// Sequences do not see each other.
    ///
    /// # Errors
    /// Values that are not finite, with the sequence's number in the batch.
    fn score(&mut self, batch: &[Sequence]) -> Result<Vec<Vec<TokenScore>>, BackendError>;

    /// The logits that predict every target, `n_vocab` for each, sequence after
    /// sequence; `None` from a model that has scores only. KL divergences need them,
    /// and the scores beside them are made of them.
    ///
    /// # Errors
    /// Those of [`Self::score`].
    fn logits(&mut self, _batch: &[Sequence]) -> Result<Option<Vec<f32>>, BackendError> {
        Ok(None)
    }

    /// The largest context that the model can take; `None`: any.
    fn n_ctx_max(&self) -> Option<usize> {
        None
    }
}

/// A model that hands out logits.
pub trait LogitsModel {
    /// Entries of the vocabulary.
    fn n_vocab(&self) -> usize;

    /// Whether [`Self::forward`] returns a row for every position, or for the
    /// last one only.
    fn returns_all_rows(&self) -> bool;

    /// Logits of the tokens at positions `0..tokens.len()`: `len × n_vocab`
    /// values, or the last row's `n_vocab`.
    ///
    /// # Errors
    /// Whatever keeps the model from evaluating.
    fn forward(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError>;

    /// The largest context that the model can take; `None`: any.
    fn n_ctx_max(&self) -> Option<usize> {
        None
    }
}

/// Scores a [`LogitsModel`]. A model that returns only the last row is given
/// growing prefixes, which costs O(n²) and yields the same number.
pub struct FromLogits<M>(pub M);

impl<M: LogitsModel> PerplexityModel for FromLogits<M> {
    fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    fn score(&mut self, batch: &[Sequence]) -> Result<Vec<Vec<TokenScore>>, BackendError> {
        let each = batch.iter().enumerate().map(|(i, s)| {
            let mut scores = Vec::with_capacity(s.targets.len());
            self.rows(i, s, |row, id, position| {
                scores.push(score_row(row, id, i, position)?);
                Ok(())
            })?;
            Ok(scores)
        });
        each.collect()
    }

    fn logits(&mut self, batch: &[Sequence]) -> Result<Option<Vec<f32>>, BackendError> {
        let mut rows = Vec::new();
        for (i, s) in batch.iter().enumerate() {
            self.rows(i, s, |row, _, _| {
                rows.extend_from_slice(row);
                Ok(())
            })?;
        }
        Ok(Some(rows))
    }

    fn n_ctx_max(&self) -> Option<usize> {
        self.0.n_ctx_max()
    }
}

impl<M: LogitsModel> FromLogits<M> {
    /// Hands out the row of logits of every target, with its id and position.
    fn rows(
        &mut self,
        sequence: usize,
        s: &Sequence,
        mut each: impl FnMut(&[f32], u32, usize) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let (n_vocab, returns_all_rows) = (self.0.n_vocab(), self.0.returns_all_rows());
        let mut forward = |tokens: &[u32], rows: usize| {
            let logits = self.0.forward(tokens)?;
            match logits.len() == rows * n_vocab {
                true => Ok(logits),
                false => Err(BackendError::Logits {
                    sequence,
                    rows,
                    n_vocab,
                    found: logits.len(),
                }),
            }
        };
        let all = match returns_all_rows {
            true => Some(forward(s.tokens, s.tokens.len())?),
            false => None,
        };
        for (&id, position) in s.targets.iter().zip(s.first_target..) {
            let row = position - 1;
            match &all {
                Some(logits) => each(&logits[row * n_vocab..][..n_vocab], id, position)?,
                None => each(&forward(&s.tokens[..position], 1)?, id, position)?,
            }
        }
        Ok(())
    }
}

/// The score of the target `id` at `position`, from the row of logits that predicts
/// it; in f64.
///
/// # Errors
/// An id outside the vocabulary; a logit that is not finite: one of −∞ would leave
/// the sum finite.
pub(super) fn score_row(
    logits: &[f32],
    id: u32,
    sequence: usize,
    position: usize,
) -> Result<TokenScore, BackendError> {
    let Some(&own) = logits.get(id as usize) else {
        return Err(BackendError::TokenId {
            sequence,
            position,
            id,
            n_vocab: logits.len(),
        });
    };
    if !logits.iter().all(|l| l.is_finite()) {
        return Err(BackendError::NotFinite {
            sequence,
            position: position - 1,
            stage: Stage::Logits,
        });
    }
    let (mut top, mut max) = (0, f32::NEG_INFINITY);
    for (id, &l) in logits.iter().enumerate() {
        if l > max {
            (top, max) = (id, l);
        }
    }
    let below = |l: &f32| f64::from(*l) - f64::from(max);
    let sum: f64 = logits.iter().map(|l| below(l).exp()).sum();
    // −ln p of an entry is ln(sum) − below.
    let terms = logits.iter().map(|l| {
        let x = below(l);
        x.exp() / sum * (sum.ln() - x)
    });
    Ok(TokenScore {
        nll: f64::from(max) + sum.ln() - f64::from(own),
        rank: logits.iter().filter(|&&l| l > own).count() as u32,
        top_id: top as u32,
        top_p: (1.0 / sum) as f32,
        entropy: terms.sum::<f64>() as f32,
    })
}
