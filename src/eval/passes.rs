//! The one loop over corpus windows.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::checkpoint::CheckpointOptions;
use super::error::{EvalError, locate};
use super::geometry::{Window, WindowPlan};
use super::model::Sequence;
use crate::backend::{BackendError, Interrupt, TokenScore};

/// The scored targets of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowScore {
    /// Which window.
    pub window: Window,
    /// Scores of the targets at `window.first_target..window.len`.
    pub tokens: Vec<TokenScore>,
}

impl WindowScore {
    /// `−ln p` of each target, in nats.
    pub fn nll(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.tokens.iter().map(|t| t.nll)
    }

    /// Sum of the NLLs of its targets, in nats.
    pub fn nll_sum(&self) -> f64 {
        self.nll().sum()
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
    /// How many passes there are.
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

impl<'a> Batch<'a> {
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

/// What is evaluated, and what that may use.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The corpus.
    pub tokens: &'a [u32],
    /// Its windows.
    pub plan: &'a WindowPlan,
    /// How windows are handed out.
    pub feed: Feed,
    /// Looked at before each batch at least.
    pub interrupt: &'a Interrupt,
    /// Where hidden states are kept between passes.
    pub checkpoints: &'a CheckpointOptions,
}

/// The one loop over corpus windows: every pass sees the windows of the plan, in
/// order, in the same batches.
pub(super) fn run_passes(
    passes: &mut dyn Passes,
    job: Job,
    each: &mut dyn FnMut(Progress),
) -> Result<Vec<WindowScore>, EvalError> {
    let Job {
        tokens,
        plan,
        feed,
        interrupt,
        ..
    } = job;
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
