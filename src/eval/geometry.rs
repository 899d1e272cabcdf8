//! Which tokens are evaluated together and which of them are scored.
//!
//! Window `w` covers the tokens `[w·S, w·S + L)` and scores the absolute
//! targets `[w·S + P, w·S + L)`. llama-perplexity's geometry is `S = L`,
//! `P = L/2 + 1`.

use serde::{Deserialize, Serialize};

/// How a corpus is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Windows of `n_ctx` tokens, `stride` apart; targets before
    /// `unscored_prefix` are context only.
    SlidingWindow {
        stride: usize,
        unscored_prefix: usize,
    },
    /// Adjoining blocks of `n_ctx` tokens in which every token but the first is
    /// scored; the last block may be shorter.
    TeacherForced,
}

/// A mode with its context length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    pub n_ctx: usize,
    pub mode: Mode,
}

impl Geometry {
    /// llama-perplexity's default geometry at context `n_ctx`.
    pub fn llama_cpp(n_ctx: usize) -> Self {
        Self {
            n_ctx,
            mode: Mode::SlidingWindow {
                stride: n_ctx,
                unscored_prefix: n_ctx / 2 + 1,
            },
        }
    }

    pub fn teacher_forced(n_ctx: usize) -> Self {
        Self {
            n_ctx,
            mode: Mode::TeacherForced,
        }
    }
}

/// One corpus window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its number, from 0.
    pub index: usize,
    /// Corpus index of its first token.
    pub start: usize,
    /// Tokens in it.
    pub len: usize,
    /// Position in the window of the first scored target (at least 1).
    pub first_target: usize,
}

impl Window {
    /// Number of scored targets.
    pub fn scored(&self) -> usize {
        self.len - self.first_target
    }
}

/// What bounds a run besides the corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    pub windows: Option<usize>,
    pub max_tokens: Option<usize>,
}

/// Why a geometry cannot be laid over a corpus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    #[error("context {0} is too short: at least 2 tokens are needed to score one")]
    ContextTooShort(usize),
    #[error("stride 0 would never move: use a stride from 1 to the context length")]
    ZeroStride,
    #[error(
        "stride {stride} is larger than the context {n_ctx}: tokens between windows would be lost"
    )]
    StrideTooLarge { stride: usize, n_ctx: usize },
    #[error(
        "unscored_prefix {prefix} must be at least 1 and below the context {n_ctx}: the first token has no \
         prediction and something must be scored"
    )]
    BadPrefix { prefix: usize, n_ctx: usize },
    #[error(
        "the corpus has {tokens} tokens, context {n_ctx} needs at least {need}: use a longer corpus or a \
         context of at most {}",
        tokens / 2
    )]
    CorpusTooShort {
        tokens: usize,
        n_ctx: usize,
        need: usize,
    },
}

/// The windows of one run, enumerated once and shared by scoring and by every
/// pass of a layer cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    windows: Vec<Window>,
}

impl WindowPlan {
    /// Lays `geometry` over a corpus of `n_tokens` tokens. `max_tokens` cuts the
    /// corpus, `windows` the number of windows.
    ///
    /// # Errors
    /// A geometry that scores nothing or loses tokens, and a corpus shorter than
    /// `2·n_ctx` tokens (sliding window; 2 tokens in teacher-forced mode).
    pub fn new(n_tokens: usize, geometry: Geometry, limits: Limits) -> Result<Self, GeometryError> {
        let n_ctx = geometry.n_ctx;
        geometry.check()?;
        let tokens = limits.max_tokens.map_or(n_tokens, |m| m.min(n_tokens));
        let cap = limits.windows.unwrap_or(usize::MAX);
        let windows = match geometry.mode {
            Mode::SlidingWindow {
                stride,
                unscored_prefix,
            } => {
                let need = 2 * n_ctx;
                if tokens < need {
                    return Err(GeometryError::CorpusTooShort {
                        tokens,
                        n_ctx,
                        need,
                    });
                }
                let n = ((tokens - n_ctx) / stride + 1).min(cap);
                (0..n)
                    .map(|index| Window {
                        index,
                        start: index * stride,
                        len: n_ctx,
                        first_target: unscored_prefix,
                    })
                    .collect()
            }
            Mode::TeacherForced => {
                if tokens < 2 {
                    return Err(GeometryError::CorpusTooShort {
                        tokens,
                        n_ctx,
                        need: 2,
                    });
                }
                (0..tokens)
                    .step_by(n_ctx)
                    .map(|start| (start, n_ctx.min(tokens - start)))
                    // A lone last token has nothing before it in its block.
                    .filter(|&(_, len)| len >= 2)
                    .take(cap)
                    .enumerate()
                    .map(|(index, (start, len))| Window {
                        index,
                        start,
                        len,
                        first_target: 1,
                    })
                    .collect()
            }
        };
        Ok(Self { windows })
    }

    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Scored targets of all windows.
    pub fn scored(&self) -> usize {
        self.windows.iter().map(Window::scored).sum()
    }

    /// Tokens that are evaluated, those of the unscored prefixes included.
    pub fn evaluated(&self) -> usize {
        self.windows.iter().map(|w| w.len).sum()
    }
}

impl Geometry {
    /// Checks what can be checked without a corpus.
    pub fn check(&self) -> Result<(), GeometryError> {
        let n_ctx = self.n_ctx;
        if n_ctx < 2 {
            return Err(GeometryError::ContextTooShort(n_ctx));
        }
        if let Mode::SlidingWindow {
            stride,
            unscored_prefix,
        } = self.mode
        {
            if stride == 0 {
                return Err(GeometryError::ZeroStride);
            }
            if stride > n_ctx {
                return Err(GeometryError::StrideTooLarge { stride, n_ctx });
            }
            if unscored_prefix == 0 || unscored_prefix >= n_ctx {
                return Err(GeometryError::BadPrefix {
                    prefix: unscored_prefix,
                    n_ctx,
                });
            }
        }
        Ok(())
    }
}
