//! Which tokens are evaluated together and which of them are scored.
//!
//! Window `w` covers the tokens `[w·S, w·S + L)` and scores the absolute
//! targets `[w·S + P, w·S + L)`. llama-perplexity's geometry is `S = L`,
//! `P = L/2 + 1`.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How a corpus is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Windows of `n_ctx` tokens, `stride` apart; targets before
    /// `unscored_prefix` are context only.
    SlidingWindow {
        /// Tokens from window to window.
        stride: usize,
        /// Position of the first scored target in a window.
        unscored_prefix: usize,
    },
    /// Adjoining blocks of `n_ctx` tokens in which every token but the first is
    /// scored; the last block may be shorter.
    TeacherForced,
    /// llama-perplexity's `--ppl-stride`: windows `stride` apart, the last
    /// `stride` targets of each scored. It differs from a sliding window in two
    /// ways that move the number: a last window that would end exactly at the
    /// corpus's end is left out, and BOS never replaces the first token.
    LlamaCppStrided {
        /// Tokens from window to window.
        stride: usize,
    },
}

impl Mode {
    /// The name used in experiment files and result tables.
    pub fn name(&self) -> &'static str {
        match self {
            Mode::SlidingWindow { .. } => "sliding-window",
            Mode::TeacherForced => "teacher-forced",
            Mode::LlamaCppStrided { .. } => "llama.cpp-strided",
        }
    }

    /// Stride and unscored prefix, where the mode has them.
    pub fn parameters(&self) -> (Option<usize>, Option<usize>) {
        match *self {
            Mode::SlidingWindow {
                stride,
                unscored_prefix,
            } => (Some(stride), Some(unscored_prefix)),
            Mode::TeacherForced => (None, None),
            Mode::LlamaCppStrided { stride } => (Some(stride), None),
        }
    }

    /// The mode with this name and these parameters; `None` where the name is
    /// unknown or its parameters are other ones.
    pub fn from_parts(
        name: &str,
        stride: Option<usize>,
        unscored_prefix: Option<usize>,
    ) -> Option<Self> {
        let mode = match (stride, unscored_prefix) {
            (Some(stride), Some(unscored_prefix)) => Mode::SlidingWindow {
                stride,
                unscored_prefix,
            },
            (Some(stride), None) => Mode::LlamaCppStrided { stride },
            (None, None) => Mode::TeacherForced,
            (None, Some(_)) => return None,
        };
        (mode.name() == name).then_some(mode)
    }

    /// Its part of a run's key.
    pub fn label(&self) -> String {
        match self {
            Mode::SlidingWindow {
                stride,
                unscored_prefix,
            } => format!("sw-s{stride}-p{unscored_prefix}"),
            Mode::TeacherForced => "tf".to_owned(),
            Mode::LlamaCppStrided { stride } => format!("llama-strided-s{stride}"),
        }
    }

    /// Whether BOS replaces the first token of each window, for models that ask
    /// for one. In its strided mode llama-perplexity writes BOS into its token
    /// buffer only after the window has been decoded, so it has no effect there.
    pub fn substitutes_bos(&self) -> bool {
        !matches!(self, Mode::LlamaCppStrided { .. })
    }
}

/// The mode with its parameters, for messages.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Mode::SlidingWindow {
                stride,
                unscored_prefix,
            } => write!(f, " (stride {stride}, unscored prefix {unscored_prefix})"),
            Mode::TeacherForced => Ok(()),
            Mode::LlamaCppStrided { stride } => write!(f, " (stride {stride})"),
        }
    }
}

/// A mode with its context length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Tokens of a (whole) window.
    pub n_ctx: usize,
    /// How windows are laid.
    pub mode: Mode,
}

impl Geometry {
    /// llama-perplexity's default geometry at context `n_ctx`.
    pub fn llama_cpp(n_ctx: usize) -> Self {
        Self::sliding_window(n_ctx, None, None)
    }

    /// A sliding window with llama-perplexity's defaults for what is not given:
    /// `stride = n_ctx`, and `unscored_prefix = n_ctx/2 + 1`, or
    /// `n_ctx - stride` where the former would score targets twice.
    pub fn sliding_window(
        n_ctx: usize,
        stride: Option<usize>,
        unscored_prefix: Option<usize>,
    ) -> Self {
        let stride = stride.unwrap_or(n_ctx);
        let unscored_prefix =
            unscored_prefix.unwrap_or((n_ctx / 2 + 1).max(n_ctx.saturating_sub(stride)));
        Self {
            n_ctx,
            mode: Mode::SlidingWindow {
                stride,
                unscored_prefix,
            },
        }
    }

    /// What `llama-perplexity -c C --ppl-stride S` evaluates: the tool adds
    /// `S/2` to the context, so that windows have `C + S/2` tokens (it asks for
    /// that many; since November 2025 builds round it up to a multiple of 256,
    /// and with `-b` above `C` they add it to several contexts' worth).
    pub fn llama_cpp_strided(context: usize, stride: usize) -> Self {
        Self {
            n_ctx: context.saturating_add(stride / 2),
            mode: Mode::LlamaCppStrided { stride },
        }
    }

    /// Blocks of `n_ctx` tokens in which every token but the first is scored.
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
    /// Corpus indices of its scored targets.
    pub fn targets(&self) -> Range<usize> {
        self.start + self.first_target..self.start + self.len
    }

    /// Number of scored targets.
    pub fn scored(&self) -> usize {
        self.len - self.first_target
    }
}

/// What bounds a run besides the corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// At most so many windows.
    pub windows: Option<usize>,
    /// The corpus is cut to so many tokens.
    pub max_tokens: Option<usize>,
}

/// Why a geometry cannot be laid over a corpus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
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
    n_ctx: usize,
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
                let n = geometry.most_windows(tokens)?;
                strided(n.min(cap), n_ctx, stride, unscored_prefix)
            }
            Mode::LlamaCppStrided { stride } => {
                let n = geometry.most_windows(tokens)?;
                strided(n.min(cap), n_ctx, stride, n_ctx - stride)
            }
            Mode::TeacherForced => {
                geometry.most_windows(tokens)?;
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
        Ok(Self { n_ctx, windows })
    }

    /// Tokens of a whole window.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// The windows, in corpus order.
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

/// llama-perplexity's rule for modes with whole windows.
fn require_tokens(tokens: usize, n_ctx: usize) -> Result<(), GeometryError> {
    let need = n_ctx.saturating_mul(2);
    if tokens < need {
        return Err(GeometryError::CorpusTooShort {
            tokens,
            n_ctx,
            need,
        });
    }
    Ok(())
}

fn strided(n: usize, len: usize, stride: usize, first_target: usize) -> Vec<Window> {
    (0..n)
        .map(|index| Window {
            index,
            start: index * stride,
            len,
            first_target,
        })
        .collect()
}

impl Geometry {
    /// How many windows a corpus of `tokens` tokens has, where nothing limits them.
    ///
    /// # Errors
    /// As [`WindowPlan::new`].
    pub fn most_windows(&self, tokens: usize) -> Result<usize, GeometryError> {
        self.check()?;
        let n_ctx = self.n_ctx;
        match self.mode {
            Mode::SlidingWindow { stride, .. } => {
                require_tokens(tokens, n_ctx)?;
                Ok((tokens - n_ctx) / stride + 1)
            }
            Mode::LlamaCppStrided { stride } => {
                require_tokens(tokens, n_ctx)?;
                Ok((tokens - n_ctx).div_ceil(stride))
            }
            Mode::TeacherForced if tokens < 2 => Err(GeometryError::CorpusTooShort {
                tokens,
                n_ctx,
                need: 2,
            }),
            // A lone last token has nothing before it in its block.
            Mode::TeacherForced => Ok(tokens / n_ctx + usize::from(tokens % n_ctx >= 2)),
        }
    }

    /// Scored targets of a whole window.
    fn scored_of_whole(&self) -> usize {
        match self.mode {
            Mode::SlidingWindow {
                unscored_prefix, ..
            } => self.n_ctx.saturating_sub(unscored_prefix),
            Mode::LlamaCppStrided { stride } => stride,
            Mode::TeacherForced => self.n_ctx.saturating_sub(1),
        }
    }

    /// Whether a run over a corpus of `tokens` tokens can have evaluated `windows`
    /// windows with `scored` targets, under these limits and no others. Where the limits
    /// are not known (`None`), under any.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn check_counts(
        &self,
        tokens: usize,
        windows: usize,
        scored: usize,
        limits: Option<Limits>,
    ) -> Result<(), String> {
        let max_tokens = limits.and_then(|l| l.max_tokens);
        let most = self
            .most_windows(tokens.min(max_tokens.unwrap_or(usize::MAX)))
            .map_err(|e| e.to_string())?;
        let most = most.min(limits.and_then(|l| l.windows).unwrap_or(usize::MAX));
        if windows > most || windows == 0 || (limits.is_some() && windows != most) {
            return Err(format!(
                "{tokens} tokens have {most} windows of this geometry and these limits, not {windows}"
            ));
        }
        let whole = self.scored_of_whole();
        // Only in teacher-forced mode may the last window be shorter.
        let last = match self.mode {
            Mode::TeacherForced => {
                let before = (windows - 1).saturating_mul(self.n_ctx);
                let left = tokens.min(max_tokens.unwrap_or(usize::MAX)) - before.min(tokens);
                let longest = left.min(self.n_ctx) - 1;
                match limits {
                    Some(_) => longest..=longest,
                    None => 1..=longest,
                }
            }
            Mode::SlidingWindow { .. } | Mode::LlamaCppStrided { .. } => whole..=whole,
        };
        let others = (windows - 1).checked_mul(whole);
        let of_last = others.and_then(|others| scored.checked_sub(others));
        match of_last.is_some_and(|n| last.contains(&n)) {
            true => Ok(()),
            false => Err(format!(
                "{windows} windows of this geometry score {whole} targets each, not {scored} in all"
            )),
        }
    }

    /// Whether the window `index` of `windows` can have `scored` targets.
    pub fn is_window(&self, index: usize, windows: usize, scored: usize) -> bool {
        let whole = self.scored_of_whole();
        let shorter = self.mode == Mode::TeacherForced && index + 1 == windows;
        scored == whole || (shorter && (1..whole).contains(&scored))
    }

    /// Whether some target may be scored by more than one window.
    pub fn rescores_targets(&self) -> bool {
        match self.mode {
            Mode::SlidingWindow {
                stride,
                unscored_prefix,
            } => stride < self.n_ctx.saturating_sub(unscored_prefix),
            Mode::TeacherForced | Mode::LlamaCppStrided { .. } => false,
        }
    }

    /// Checks what can be checked without a corpus.
    pub fn check(&self) -> Result<(), GeometryError> {
        let n_ctx = self.n_ctx;
        if n_ctx < 2 {
            return Err(GeometryError::ContextTooShort(n_ctx));
        }
        let (stride, prefix) = match self.mode {
            Mode::TeacherForced => return Ok(()),
            Mode::SlidingWindow {
                stride,
                unscored_prefix,
            } => (stride, unscored_prefix),
            Mode::LlamaCppStrided { stride } => (stride, n_ctx.saturating_sub(stride)),
        };
        if stride == 0 {
            return Err(GeometryError::ZeroStride);
        }
        if stride > n_ctx {
            return Err(GeometryError::StrideTooLarge { stride, n_ctx });
        }
        if prefix == 0 || prefix >= n_ctx {
            return Err(GeometryError::BadPrefix { prefix, n_ctx });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn plan(tokens: usize, geometry: Geometry) -> WindowPlan {
        WindowPlan::new(tokens, geometry, Limits::default()).unwrap()
    }

    /// How often each absolute target is scored.
    fn scored_targets(plan: &WindowPlan) -> HashMap<usize, usize> {
        let mut times = HashMap::new();
        for w in plan.windows() {
            for target in w.start + w.first_target..w.start + w.len {
                *times.entry(target).or_default() += 1;
            }
        }
        times
    }

    #[test]
    fn llama_cpp_counts_on_wikitext_2() {
        // What llama-perplexity prints for SmolLM2's 303,415 tokens.
        for (n_ctx, windows, scored) in [(256, 1185, 127), (512, 592, 255), (2048, 148, 1023)] {
            let plan = plan(303_415, Geometry::llama_cpp(n_ctx));
            assert_eq!(plan.windows().len(), windows);
            assert!(plan.windows().iter().all(|w| w.scored() == scored));
            assert_eq!(plan.scored(), windows * scored);
        }
    }

    #[test]
    fn the_preset_and_contiguous_tiling_score_different_sets_of_equal_size() {
        // S = L - P also scores L - P targets a window, but adjoining ones.
        let (n_ctx, prefix) = (512, 257);
        let preset = plan(303_415, Geometry::llama_cpp(n_ctx));
        let limits = Limits {
            windows: Some(preset.windows().len()),
            max_tokens: None,
        };
        let tiling = Geometry::sliding_window(n_ctx, Some(n_ctx - prefix), Some(prefix));
        let tiling = WindowPlan::new(303_415, tiling, limits).unwrap();
        assert_eq!(preset.scored(), tiling.scored());
        let (preset, tiling) = (scored_targets(&preset), scored_targets(&tiling));
        assert_eq!(preset.len(), tiling.len());
        assert_ne!(preset, tiling);
        let last = *tiling.keys().max().unwrap();
        assert!((prefix..=last).all(|t| tiling[&t] == 1));
    }

    #[test]
    fn strided_preset_is_ppl_stride() {
        // -c 512 --ppl-stride 128: windows of 576, ceil((T - 576) / 128) of them,
        // the last 128 targets of each scored.
        let g = Geometry::llama_cpp_strided(512, 128);
        assert_eq!(g.n_ctx, 576);
        for (tokens, windows) in [(1152, 5), (1153, 5), (576 + 5 * 128, 5), (1217, 6)] {
            let plan = self::plan(tokens, g);
            assert_eq!(plan.windows().len(), windows, "{tokens} tokens");
            assert!(plan.windows().iter().all(|w| w.first_target == 448));
            assert!(scored_targets(&plan).values().all(|&n| n == 1));
            // A sliding window takes the one more that just fits.
            let sliding = Geometry::sliding_window(576, Some(128), None);
            let more = usize::from((tokens - 576) % 128 == 0);
            assert_eq!(self::plan(tokens, sliding).windows().len(), windows + more);
        }
        assert!(!g.mode.substitutes_bos());
    }

    #[test]
    fn counts_are_those_of_a_plan_and_no_others() {
        let geometries = [
            Geometry::sliding_window(8, None, None),
            Geometry::sliding_window(8, Some(3), Some(6)),
            Geometry::llama_cpp_strided(6, 4),
            Geometry::teacher_forced(8),
        ];
        for geometry in geometries {
            for tokens in 1..60 {
                let mut possible = std::collections::HashSet::new();
                for windows in (1..20).map(Some).chain([None]) {
                    for max_tokens in (1..60).map(Some).chain([None]) {
                        let limits = Limits {
                            windows,
                            max_tokens,
                        };
                        let Ok(plan) = WindowPlan::new(tokens, geometry, limits) else {
                            continue;
                        };
                        let counts = (plan.windows().len(), plan.scored());
                        possible.insert(counts);
                        let check = |(windows, scored), limits| {
                            geometry.check_counts(tokens, windows, scored, limits)
                        };
                        check(counts, Some(limits)).unwrap();
                        check((counts.0 + 1, counts.1), Some(limits)).unwrap_err();
                        check((counts.0, counts.1 + 1), Some(limits)).unwrap_err();
                        for w in plan.windows() {
                            assert!(geometry.is_window(w.index, counts.0, w.scored()));
                        }
                    }
                }
                for windows in 0..12 {
                    for scored in 0..80 {
                        let known = geometry.check_counts(tokens, windows, scored, None);
                        let is_possible = possible.contains(&(windows, scored));
                        assert_eq!(
                            known.is_ok(),
                            is_possible,
                            "{geometry:?} {tokens} {known:?}"
                        );
                    }
                }
            }
        }
        // Counts of a damaged table allocate nothing.
        let huge = usize::MAX;
        let error = Geometry::llama_cpp(512).check_counts(huge, huge / 2, huge, None);
        assert!(error.is_err());
    }

    #[test]
    fn the_default_prefix_never_scores_twice() {
        let prefix = |stride| match Geometry::sliding_window(512, stride, None).mode {
            Mode::SlidingWindow {
                unscored_prefix, ..
            } => unscored_prefix,
            other => panic!("{other:?}"),
        };
        assert_eq!(prefix(None), 257);
        assert_eq!(prefix(Some(300)), 257);
        assert_eq!(prefix(Some(128)), 384);
        assert!(Geometry::sliding_window(512, Some(128), Some(257)).rescores_targets());
    }

    #[test]
    fn refusals() {
        let g = |n, s, p| Geometry::sliding_window(n, Some(s), Some(p)).check();
        assert_eq!(g(1, 1, 1), Err(GeometryError::ContextTooShort(1)));
        assert_eq!(g(8, 0, 5), Err(GeometryError::ZeroStride));
        assert!(matches!(
            g(8, 9, 5),
            Err(GeometryError::StrideTooLarge { .. })
        ));
        assert!(matches!(g(8, 8, 8), Err(GeometryError::BadPrefix { .. })));
        assert!(matches!(g(8, 8, 0), Err(GeometryError::BadPrefix { .. })));
        // The largest --ppl-stride whose first target still has a prediction.
        assert_eq!(Geometry::llama_cpp_strided(8, 13).check(), Ok(()));
        assert!(Geometry::llama_cpp_strided(8, 16).check().is_err());
        let short = WindowPlan::new(1023, Geometry::llama_cpp(512), Limits::default());
        assert!(matches!(
            short,
            Err(GeometryError::CorpusTooShort { need: 1024, .. })
        ));
        let huge = WindowPlan::new(10, Geometry::llama_cpp(usize::MAX), Limits::default());
        assert!(matches!(huge, Err(GeometryError::CorpusTooShort { .. })));
    }

    proptest! {
        /// Closed forms, and every target at most once when S >= L - P.
        #[test]
        fn sliding_window(
            (n_ctx, stride, prefix) in (2usize..40)
                .prop_flat_map(|l| (Just(l), 1..=l, 1..l)),
            extra in 0usize..200,
            cap in proptest::option::of(1usize..20),
        ) {
            let tokens = 2 * n_ctx + extra;
            let g = Geometry::sliding_window(n_ctx, Some(stride), Some(prefix));
            let limits = Limits { windows: cap, max_tokens: None };
            let plan = WindowPlan::new(tokens, g, limits).unwrap();
            let n = ((tokens - n_ctx) / stride + 1).min(cap.unwrap_or(usize::MAX));
            prop_assert_eq!(plan.windows().len(), n);
            prop_assert_eq!(plan.scored(), n * (n_ctx - prefix));
            prop_assert_eq!(plan.evaluated(), n * n_ctx);
            let times = scored_targets(&plan);
            prop_assert!(times.keys().all(|&t| t >= 1 && t < tokens));
            let once = times.values().all(|&k| k == 1);
            if stride >= n_ctx - prefix {
                prop_assert!(once);
                prop_assert!(!g.rescores_targets());
            } else {
                prop_assert_eq!(once, n == 1);
                prop_assert!(g.rescores_targets());
            }
            // Coverage: with S <= L - P there is no gap between first and last.
            if stride <= n_ctx - prefix {
                let end = (n - 1) * stride + n_ctx;
                prop_assert!((prefix..end).all(|t| times.contains_key(&t)));
            }
        }

        /// Teacher forcing scores all but each block's first token.
        #[test]
        fn teacher_forced(n_ctx in 2usize..40, tokens in 2usize..300) {
            let plan = plan(tokens, Geometry::teacher_forced(n_ctx));
            let times = scored_targets(&plan);
            prop_assert!(times.values().all(|&k| k == 1));
            for t in 0..tokens {
                prop_assert_eq!(times.contains_key(&t), t % n_ctx != 0);
            }
            prop_assert_eq!(plan.scored(), tokens - tokens.div_ceil(n_ctx));
        }

        /// `max_tokens` is the same as a shorter corpus.
        #[test]
        fn max_tokens_cuts_the_corpus(n_ctx in 2usize..20, extra in 0usize..100, cut in 0usize..140) {
            let tokens = 2 * n_ctx + extra;
            let limits = Limits { windows: None, max_tokens: Some(cut) };
            let g = Geometry::llama_cpp(n_ctx);
            prop_assert_eq!(
                WindowPlan::new(tokens, g, limits),
                WindowPlan::new(tokens.min(cut), g, Limits::default())
            );
        }
    }
}
