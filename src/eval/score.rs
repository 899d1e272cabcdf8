//! The one loop over corpus windows.

use super::geometry::{Window, WindowPlan};
use super::model::{PerplexityModel, Sequence};
use crate::backend::{BackendError, Stage};

/// The scored targets of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowScore {
    pub window: Window,
    /// `−ln p` in nats of the targets at `window.first_target..window.len`.
    pub nll: Vec<f64>,
}

impl WindowScore {
    pub fn nll_sum(&self) -> f64 {
        self.nll.iter().sum()
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
    #[error(transparent)]
    Backend(BackendError),
    #[error("interrupted after {done} of {windows} windows")]
    Interrupted { done: usize, windows: usize },
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
/// amortize decoding a layer's weights.
const BATCH_TOKENS: usize = 8192;

impl Feed {
    /// As many windows as make a good batch, a whole number for each thread.
    pub fn batch_for(n_ctx: usize, n_threads: usize) -> usize {
        (BATCH_TOKENS / n_ctx.max(1))
            .max(1)
            .next_multiple_of(n_threads.max(1))
    }
}

/// Scores every window of `plan` over `tokens`, in order, calling `each` for
/// each batch of finished windows; `each` returns whether to go on.
///
/// # Errors
/// Values that are not finite, ids outside the vocabulary, interruption.
pub fn score_windows(
    model: &mut dyn PerplexityModel,
    tokens: &[u32],
    plan: &WindowPlan,
    feed: Feed,
    each: &mut dyn FnMut(&[WindowScore]) -> bool,
) -> Result<Vec<WindowScore>, EvalError> {
    let mut scores = Vec::with_capacity(plan.windows().len());
    for windows in plan.windows().chunks(feed.batch.max(1)) {
        let inputs: Vec<Vec<u32>> = windows
            .iter()
            .map(|w| {
                let mut input = tokens[w.start..w.start + w.len].to_vec();
                if let Some(bos) = feed.bos {
                    input[0] = bos;
                }
                input
            })
            .collect();
        let batch: Vec<Sequence> = windows
            .iter()
            .zip(&inputs)
            .map(|(w, input)| Sequence {
                // The last token predicts nothing that is scored.
                tokens: &input[..w.len - 1],
                targets: &tokens[w.targets()],
                first_target: w.first_target,
                n_ctx: plan.n_ctx(),
            })
            .collect();
        let nll = model.target_nll(&batch).map_err(|e| locate(e, windows))?;
        let done = windows.iter().zip(nll);
        scores.extend(done.map(|(&window, nll)| WindowScore { window, nll }));
        if !each(&scores[scores.len() - windows.len()..]) {
            return Err(EvalError::Interrupted {
                done: scores.len(),
                windows: plan.windows().len(),
            });
        }
    }
    Ok(scores)
}

/// Turns a batch's sequence numbers into the corpus's window numbers.
fn locate(error: BackendError, windows: &[Window]) -> EvalError {
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
        other => EvalError::Backend(other),
    }
}
