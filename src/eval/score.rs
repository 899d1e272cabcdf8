//! The one loop over corpus windows.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::checkpoint::CheckpointError;
use super::geometry::{Window, WindowPlan};
use super::kld::StoredError;
use super::layered::DeviceError;
use super::model::{PerplexityModel, Sequence};
use crate::backend::{BackendError, Interrupt, Stage, TokenScore};

/// The scored targets of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowScore {
    pub window: Window,
    /// Scores of the targets at `window.first_target..window.len`.
    pub tokens: Vec<TokenScore>,
}

impl WindowScore {
    /// `−ln p` of each target, in nats.
    pub fn nll(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.tokens.iter().map(|t| t.nll)
    }

    pub fn nll_sum(&self) -> f64 {
        self.nll().sum()
    }
}

/// Why a run ended without a figure.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    #[error(
        "{stage} yields a value that is not finite (NaN or infinite), first in window {window} at position \
         {position}: the weights or the arithmetic are broken there, so there is no perplexity"
    )]
    NotFinite {
        window: usize,
        position: usize,
        stage: Stage,
    },
    #[error(
        "window {window}, position {position}: token id {id} is outside the model's vocabulary of {n_vocab}; \
         were the tokens made for another model?"
    )]
    TokenId {
        window: usize,
        position: usize,
        id: u32,
        n_vocab: usize,
    },
    #[error(
        "the model scored {found} windows of the {asked} that it was given from window {window} on; it has \
         to score each of them"
    )]
    Windows {
        window: usize,
        asked: usize,
        found: usize,
    },
    #[error("window {window}: the model scored {found} targets of {asked}")]
    Targets {
        window: usize,
        asked: usize,
        found: usize,
    },
    #[error(
        "window {window}, position {position}: the model's score is none: {problem}; is it −ln p of the target \
         in nats?"
    )]
    Score {
        window: usize,
        position: usize,
        problem: String,
    },
    #[error("window {window}: the model returns {found} logits, not {rows} rows of {n_vocab}")]
    Logits {
        window: usize,
        rows: usize,
        n_vocab: usize,
        found: usize,
    },
    #[error(transparent)]
    Backend(BackendError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("the base model: {0}")]
    Base(Box<EvalError>),
    #[error(transparent)]
    Stored(#[from] StoredError),
    #[error(
        "the base has {base} tokens in its vocabulary, the model {model}: distributions over different \
         vocabularies cannot be compared"
    )]
    Vocabulary { base: usize, model: usize },
    #[error(
        "the hidden states kept for window {window} belong to other tokens than pass {pass} evaluates"
    )]
    Replay { window: usize, pass: usize },
    #[error("interrupted after {done} of {windows} windows{}", in_pass(*pass, *passes))]
    Interrupted {
        /// From 0.
        pass: usize,
        passes: usize,
        /// In this pass.
        done: usize,
        windows: usize,
    },
}

fn in_pass(pass: usize, passes: usize) -> String {
    match passes {
        0 | 1 => String::new(),
        _ => format!(" in pass {} of {passes}", pass + 1),
    }
}

/// How windows are fed to a model.
#[derive(Clone, Copy, Debug)]
pub struct Feed {
    /// Replaces the first token of each window.
    pub bos: Option<u32>,
    /// Windows evaluated together; changes the speed, never the numbers.
    pub batch: usize,
}

/// Tokens that are evaluated together where nothing else is asked: enough to
/// amortize decoding a layer's weights and waiting for its last window.
const BATCH_TOKENS: usize = 12288;

impl Feed {
    /// As many windows as make a good batch, a whole number for each thread.
    pub fn batch_for(n_ctx: usize, n_threads: usize) -> usize {
        (BATCH_TOKENS / n_ctx.max(1))
            .max(1)
            .next_multiple_of(n_threads.max(1))
    }
}

/// How far an evaluation is, told before the first batch of each pass and after
/// every batch.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// From 0.
    pub pass: usize,
    pub passes: usize,
    /// Windows that this pass has evaluated.
    pub done: usize,
    /// The windows that were just scored; empty before the last pass.
    pub new: &'a [WindowScore],
}

/// Corpus windows that are evaluated together.
pub(super) struct Batch<'a> {
    /// Its number in a pass.
    pub index: usize,
    pub windows: &'a [Window],
    n_ctx: usize,
    tokens: &'a [u32],
    inputs: Vec<Vec<u32>>,
}

impl Batch<'_> {
    pub fn sequences(&self) -> Vec<Sequence<'_>> {
        let each = self.windows.iter().zip(&self.inputs);
        each.map(|(w, input)| Sequence {
            tokens: input,
            targets: &self.tokens[w.targets()],
            first_target: w.first_target,
            n_ctx: self.n_ctx,
        })
        .collect()
    }

    /// A hash of the ids of each window: hidden states that are kept for a window
    /// are kept under it.
    pub fn tags(&self) -> Vec<u64> {
        let tag = |input: &Vec<u32>| {
            let mut hasher = DefaultHasher::new();
            input.hash(&mut hasher);
            hasher.finish()
        };
        self.inputs.iter().map(tag).collect()
    }
}

/// What is done with the corpus windows, in one or more passes over all of them.
pub(super) trait Passes {
    fn count(&self) -> usize;

    fn begin(&mut self, pass: usize) -> Result<(), EvalError>;

    /// Evaluates a batch; the last pass yields the scores of its targets.
    fn batch(
        &mut self,
        pass: usize,
        batch: &Batch,
    ) -> Result<Option<Vec<Vec<TokenScore>>>, EvalError>;
}

/// The one loop over corpus windows: every pass sees the windows of `plan`, in
/// order, in the same batches.
pub(super) fn run_passes(
    passes: &mut dyn Passes,
    tokens: &[u32],
    plan: &WindowPlan,
    feed: Feed,
    interrupt: &Interrupt,
    each: &mut dyn FnMut(Progress),
) -> Result<Vec<WindowScore>, EvalError> {
    let windows = plan.windows().len();
    let mut scores = Vec::with_capacity(windows);
    let n_passes = passes.count();
    for pass in 0..n_passes {
        let mut done = 0;
        let interrupted = |done| EvalError::Interrupted {
            pass,
            passes: n_passes,
            done,
            windows,
        };
        each(Progress {
            pass,
            passes: n_passes,
            done,
            new: &[],
        });
        passes.begin(pass)?;
        for (index, windows) in plan.windows().chunks(feed.batch.max(1)).enumerate() {
            if interrupt.is_raised() {
                return Err(interrupted(done));
            }
            let input = |w: &Window| {
                // The last token predicts nothing that is scored.
                let mut input = tokens[w.start..w.start + w.len - 1].to_vec();
                if let (Some(bos), Some(first)) = (feed.bos, input.first_mut()) {
                    *first = bos;
                }
                input
            };
            let batch = Batch {
                index,
                windows,
                n_ctx: plan.n_ctx(),
                tokens,
                inputs: windows.iter().map(input).collect(),
            };
            let scored = passes.batch(pass, &batch).map_err(|e| match e {
                EvalError::Backend(BackendError::Interrupted) => interrupted(done),
                EvalError::Backend(e) => locate(e, windows),
                e => e,
            })?;
            done += windows.len();
            let first_new = scores.len();
            if pass + 1 == n_passes {
                let scored = scored.unwrap_or_default();
                check_scores(windows, &scored)?;
                let scored = windows.iter().zip(scored);
                scores.extend(scored.map(|(&window, tokens)| WindowScore { window, tokens }));
            }
            each(Progress {
                pass,
                passes: n_passes,
                done,
                new: &scores[first_new..],
            });
        }
    }
    Ok(scores)
}

/// Whether a model has scored what it was given: every target of every window, with
/// what −ln p and its companions can be.
fn check_scores(windows: &[Window], scored: &[Vec<TokenScore>]) -> Result<(), EvalError> {
    if windows.len() != scored.len() {
        return Err(EvalError::Windows {
            window: windows.first().map_or(0, |w| w.index),
            asked: windows.len(),
            found: scored.len(),
        });
    }
    for (w, scores) in windows.iter().zip(scored) {
        if scores.len() != w.targets().len() {
            return Err(EvalError::Targets {
                window: w.index,
                asked: w.targets().len(),
                found: scores.len(),
            });
        }
        let checked = scores.iter().map(score_problem).enumerate();
        if let Some((i, Some(problem))) = { checked }.find(|(_, problem)| problem.is_some()) {
            return Err(EvalError::Score {
                window: w.index,
                position: w.first_target + i,
                problem,
            });
        }
    }
    Ok(())
}

/// What a score cannot be. A log-softmax in f32 may round a probability of 1 up.
fn score_problem(s: &TokenScore) -> Option<String> {
    const ROUNDING: f64 = 1e-5;
    let range = |name: &str, x: f64, most: f64| {
        let within = (-ROUNDING..=most).contains(&x);
        (!within).then(|| format!("{name} is {x}"))
    };
    range("the NLL", s.nll, f64::MAX)
        .or_else(|| range("the largest probability", s.top_p.into(), 1.0 + ROUNDING))
        .or_else(|| range("the entropy", s.entropy.into(), f64::MAX))
}

/// A model that evaluates a window from end to end: one pass.
struct OnePass<'a>(&'a mut dyn PerplexityModel);

impl Passes for OnePass<'_> {
    fn count(&self) -> usize {
        1
    }

    fn begin(&mut self, _pass: usize) -> Result<(), EvalError> {
        Ok(())
    }

    fn batch(
        &mut self,
        _pass: usize,
        batch: &Batch,
    ) -> Result<Option<Vec<Vec<TokenScore>>>, EvalError> {
        let scores = self.0.score(&batch.sequences());
        scores.map(Some).map_err(EvalError::Backend)
    }
}

/// Scores every window of `plan` over `tokens`, in order, calling `each` for
/// each batch of finished windows. `interrupt` is looked at before each batch.
///
/// # Errors
/// Values that are not finite, ids outside the vocabulary, interruption.
pub fn score_windows(
    model: &mut dyn PerplexityModel,
    tokens: &[u32],
    plan: &WindowPlan,
    feed: Feed,
    interrupt: &Interrupt,
    each: &mut dyn FnMut(Progress),
) -> Result<Vec<WindowScore>, EvalError> {
    run_passes(&mut OnePass(model), tokens, plan, feed, interrupt, each)
}

/// Turns a batch's sequence numbers into the corpus's window numbers.
pub(super) fn locate(error: BackendError, windows: &[Window]) -> EvalError {
    let window = |sequence: usize| windows.get(sequence).map_or(sequence, |w| w.index);
    match error {
        BackendError::NotFinite {
            sequence,
            position,
            stage,
        } => EvalError::NotFinite {
            window: window(sequence),
            position,
            stage,
        },
        BackendError::TokenId {
            sequence,
            position,
            id,
            n_vocab,
        } => EvalError::TokenId {
            window: window(sequence),
            position,
            id,
            n_vocab,
        },
        BackendError::Logits {
            sequence,
            rows,
            n_vocab,
            found,
        } => EvalError::Logits {
            window: window(sequence),
            rows,
            n_vocab,
            found,
        },
        other => EvalError::Backend(other),
    }
}
