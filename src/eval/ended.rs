//! Windows that a model has evaluated, up to their scores and distributions.

use std::ops::Range;

use super::error::EvalError;
use super::model::{PerplexityModel, Sequence, score_row};
use super::passes::Batch;
use crate::backend::{BackendError, Hidden, Interrupt, LayerWindowModel, Target, TokenScore};

/// One model's passes over the corpus windows.
pub(super) trait ModelPasses {
    fn count(&self) -> usize;

    fn begin(&mut self, pass: usize) -> Result<(), EvalError>;

    /// Takes a batch through a pass; `None` before the last one.
    fn advance(&mut self, pass: usize, batch: &Batch) -> Result<Option<Ended<'_>>, EvalError>;
}

/// A batch that its last pass has evaluated.
pub(super) enum Ended<'a> {
    /// All but the head.
    Hidden {
        hidden: Hidden,
        head: &'a dyn LayerWindowModel,
    },
    /// Not yet: a model that takes windows as a whole is asked for what is wanted.
    Whole(&'a mut dyn PerplexityModel),
}

/// What a model says at the places of scored targets, the targets of one sequence
/// after those of the other.
pub(super) enum Distributions<'a> {
    /// Rows before the output matrix.
    Head {
        head: &'a dyn LayerWindowModel,
        rows: Vec<f32>,
        width: usize,
    },
    /// Rows of logits.
    Logits { rows: Vec<f32>, n_vocab: usize },
}

impl<'a> Ended<'a> {
    /// The scores of each sequence's targets.
    pub fn scores(
        self,
        sequences: &[Sequence],
        interrupt: &Interrupt,
    ) -> Result<Vec<Vec<TokenScore>>, EvalError> {
        let scores = match self {
            Ended::Hidden { hidden, head } => head_scores(head, &hidden, sequences, interrupt),
            Ended::Whole(model) => model.score(sequences),
        };
        scores.map_err(EvalError::Backend)
    }

    /// Their distributions.
    pub fn distributions(self, sequences: &[Sequence]) -> Result<Distributions<'a>, EvalError> {
        match self {
            Ended::Hidden { hidden, head } => Ok(head_rows(head, &hidden, sequences)),
            Ended::Whole(model) => Ok(Distributions::Logits {
                n_vocab: model.n_vocab(),
                rows: logits(model, sequences)?,
            }),
        }
    }

    /// Both; of values that are not finite there are neither.
    pub fn both(
        self,
        sequences: &[Sequence],
        interrupt: &Interrupt,
    ) -> Result<(Vec<Vec<TokenScore>>, Distributions<'a>), EvalError> {
        match self {
            Ended::Hidden { hidden, head } => {
                let scores = head_scores(head, &hidden, sequences, interrupt);
                let scores = scores.map_err(EvalError::Backend)?;
                Ok((scores, head_rows(head, &hidden, sequences)))
            }
            Ended::Whole(model) => {
                let (n_vocab, rows) = (model.n_vocab(), logits(model, sequences)?);
                let scores = scores_of(&rows, n_vocab, sequences);
                let scores = scores.map_err(EvalError::Backend)?;
                Ok((scores, Distributions::Logits { rows, n_vocab }))
            }
        }
    }
}

fn head_scores(
    head: &dyn LayerWindowModel,
    hidden: &Hidden,
    sequences: &[Sequence],
    interrupt: &Interrupt,
) -> Result<Vec<Vec<TokenScore>>, BackendError> {
    let scores = head.score_targets(hidden, &targets(sequences), interrupt)?;
    let mut rest = scores.into_iter();
    // What is missing is noticed where scores are checked.
    let each = sequences
        .iter()
        .map(|s| rest.by_ref().take(s.targets.len()).collect());
    Ok(each.collect())
}

fn head_rows<'a>(
    head: &'a dyn LayerWindowModel,
    hidden: &Hidden,
    sequences: &[Sequence],
) -> Distributions<'a> {
    let rows: Vec<usize> = targets(sequences).iter().map(|t| t.row).collect();
    Distributions::Head {
        rows: head.head_rows(hidden, &rows),
        width: head.n_embd(),
        head,
    }
}

/// The targets of all sequences, by their rows in the batch.
fn targets(sequences: &[Sequence]) -> Vec<Target> {
    let mut targets = Vec::with_capacity(sequences.iter().map(|s| s.targets.len()).sum());
    let mut first_row = 0;
    for s in sequences {
        let rows = first_row + s.first_target - 1..;
        targets.extend(rows.zip(s.targets).map(|(row, &id)| Target { row, id }));
        first_row += s.tokens.len();
    }
    targets
}

/// Rows of logits, one for each target.
fn logits(model: &mut dyn PerplexityModel, sequences: &[Sequence]) -> Result<Vec<f32>, EvalError> {
    let n_vocab = model.n_vocab();
    let rows = model.logits(sequences).map_err(EvalError::Backend)?;
    let rows = rows.ok_or(EvalError::NoLogits)?;
    let n_targets: usize = sequences.iter().map(|s| s.targets.len()).sum();
    match rows.len() == n_targets * n_vocab {
        true => Ok(rows),
        false => Err(EvalError::Backend(BackendError::Logits {
            sequence: 0,
            rows: n_targets,
            n_vocab,
            found: rows.len(),
        })),
    }
}

fn scores_of(
    rows: &[f32],
    n_vocab: usize,
    sequences: &[Sequence],
) -> Result<Vec<Vec<TokenScore>>, BackendError> {
    let mut rows = rows.chunks(n_vocab.max(1));
    let each = sequences.iter().enumerate().map(|(sequence, s)| {
        let places = s.targets.iter().zip(s.first_target..).zip(rows.by_ref());
        places
            .map(|((&id, position), row)| score_row(row, id, sequence, position))
            .collect()
    });
    each.collect()
}

impl Distributions<'_> {
    pub fn n_vocab(&self) -> usize {
        match self {
            Distributions::Head { head, .. } => head.n_vocab(),
            Distributions::Logits { n_vocab, .. } => *n_vocab,
        }
    }

    /// The logits of a part of the vocabulary for some of the targets, row by row.
    pub fn logits(
        &self,
        targets: Range<usize>,
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        match self {
            Distributions::Head { head, rows, width } => {
                let rows = &rows[targets.start * width..targets.end * width];
                head.logits(rows, vocab, interrupt)
            }
            Distributions::Logits { rows, n_vocab } => {
                let rows = &rows[targets.start * n_vocab..targets.end * n_vocab];
                let parts = rows.chunks(*n_vocab).map(|row| &row[vocab.clone()]);
                Ok(parts.collect::<Vec<_>>().concat())
            }
        }
    }
}
