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
    fn n_vocab(&self) -> usize;

    /// Scores every target of every sequence by `p(target | tokens before it)`.
    /// Sequences do not see each other.
    ///
    /// # Errors
    /// Values that are not finite, with the sequence's number in the batch.
    fn score(&mut self, batch: &[Sequence]) -> Result<Vec<Vec<TokenScore>>, BackendError>;
}

/// A model that hands out logits.
pub trait LogitsModel {
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
}

/// Scores a [`LogitsModel`]. A model that returns only the last row is given
/// growing prefixes, which costs O(n²) and yields the same number.
pub struct FromLogits<M>(pub M);

impl<M: LogitsModel> PerplexityModel for FromLogits<M> {
    fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    fn score(&mut self, batch: &[Sequence]) -> Result<Vec<Vec<TokenScore>>, BackendError> {
        let score = |(i, s): (usize, &Sequence)| self.score_sequence(i, s);
        batch.iter().enumerate().map(score).collect()
    }
}

impl<M: LogitsModel> FromLogits<M> {
    fn score_sequence(
        &mut self,
        sequence: usize,
        s: &Sequence,
    ) -> Result<Vec<TokenScore>, BackendError> {
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
        let mut scores = Vec::with_capacity(s.targets.len());
        for (i, &id) in s.targets.iter().enumerate() {
            let row = s.first_target + i - 1;
            let last;
            let logits = match &all {
                Some(logits) => &logits[row * n_vocab..][..n_vocab],
                None => {
                    last = forward(&s.tokens[..row + 1], 1)?;
                    &last[..]
                }
            };
            let Some(&logit) = logits.get(id as usize) else {
                return Err(BackendError::TokenId {
                    sequence,
                    position: row + 1,
                    id,
                    n_vocab,
                });
            };
            // One of −∞ would leave the sum finite.
            if !logits.iter().all(|l| l.is_finite()) {
                return Err(BackendError::NotFinite {
                    sequence,
                    position: row,
                    stage: Stage::Logits,
                });
            }
            scores.push(score_row(logits, logit));
        }
        Ok(scores)
    }
}

/// A target with the logit `own` in a row of logits, in f64.
fn score_row(logits: &[f32], own: f32) -> TokenScore {
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
    TokenScore {
        nll: f64::from(max) + sum.ln() - f64::from(own),
        rank: logits.iter().filter(|&&l| l > own).count() as u32,
        top_id: top as u32,
        top_p: (1.0 / sum) as f32,
        entropy: terms.sum::<f64>() as f32,
    }
}
