//! Measures what a residual is made of: one change at a time, then together.

use super::cache::ModelCache;
use super::error::RunError;
use super::inputs::Inputs;
use super::measure::{Control, MeasureError, Measurement};
use super::noise::apply;
use super::rerun::{Base, Change, Rerun, RerunReporter};
use crate::compare::{Attribution, Effect, Residual};
use crate::eval::{Geometry, Mode};
use crate::fetch::FetchOptions;
use crate::plan::RunSpec;
use crate::reference::TokenReference;
use crate::results::NoFigures;
use crate::results::noise::{Component, Shift, shift_of_means};
use crate::stats::correlation;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The arithmetic.
    Component(Component),
    /// BOS in place of the first token of each window where there is none, the
    /// first token itself where there is.
    Bos,
    /// Every target of a window is scored, not only those after a prefix.
    AllTargets,
}

impl Cause {
    /// All of them, in the order in which tables list them.
    pub const ALL: [Cause; 7] = [
        Cause::Component(Component::Q8),
        Cause::Component(Component::KvF16),
        Cause::Component(Component::AttentionF16),
        Cause::Component(Component::SummationOrder),
        Cause::Component(Component::Jitter),
        Cause::Bos,
        Cause::AllTargets,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Component(component) => component.name(),
            Cause::Bos => "bos",
            Cause::AllTargets => "all-targets",
        }
    }

    /// The cause of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

/// How to attribute.
pub struct Attribute<'a> {
    /// What is tried.
    pub causes: &'a [Cause],
    /// Another engine's NLLs of the run.
    pub reference: Option<&'a TokenReference>,
    /// Where the cache is.
    pub fetch: &'a FetchOptions,
    /// 0: one for each core.
    pub n_threads: usize,
    /// How it is interrupted, and where hidden states are kept.
    pub control: &'a Control,
}

/// Why a run was not attributed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AttributeError {
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Reference(String),
    #[error("interrupted")]
    Interrupted,
}

impl From<RunError> for AttributeError {
    fn from(e: RunError) -> Self {
        match e.is_interruption() {
            true => AttributeError::Interrupted,
            false => AttributeError::Failed(e.status()),
        }
    }
}

impl Attribute<'_> {
    /// Measures `spec`, which is run `n` of `of`, as it is and once for each cause;
    /// then with all causes in the arithmetic, if there are several, and that once
    /// more with jitter.
    ///
    /// # Errors
    /// A run that fails, a reference that has not scored its targets.
    pub fn run(
        &self,
        n: usize,
        of: usize,
        spec: &RunSpec,
        reporter: &mut dyn RerunReporter,
    ) -> Result<Attribution, AttributeError> {
        let mut rerun = Rerun {
            spec,
            cache: &mut ModelCache::new(self.fetch),
            inputs: &Inputs::none(),
            n_threads: self.n_threads,
            control: self.control,
        };
        reporter.begin(n, of, spec, "as it is");
        let base = rerun.base()?;
        rerun.cache.note_trouble(reporter.transfers());
        let unchanged = rerun.measure(&base, Change::default(), reporter)?;
        let nll = match self.reference {
            None => None,
            Some(reference) => {
                let nll = reference.nll(&unchanged.scores, &base.tokens.ids);
                Some(nll.map_err(AttributeError::Reference)?)
            }
        };
        let nll = nll.as_deref();

        let (mut all, mut in_all) = (Change::default(), Vec::new());
        let mut arithmetic = None;
        let mut effects = Vec::new();
        for &cause in self.causes {
            let mut change = Change::default();
            if let Err(why) = self::change(cause, spec, &base, &mut change) {
                reporter.note(spec, &format!("{} is left out: {why}", cause.name()));
                continue;
            }
            reporter.begin(n, of, spec, cause.name());
            let changed = rerun.measure(&base, change, reporter)?;
            effects.push(effect(cause.name(), &unchanged, &changed, nll)?);
            if let Cause::Component(component) = cause
                && apply(component, Some(1), spec, &base, &mut all).is_ok()
            {
                in_all.push(component.name());
                arithmetic = Some(changed);
            }
        }
        if in_all.len() > 1 {
            let name = format!("{} together", in_all.join(", "));
            reporter.begin(n, of, spec, &name);
            let changed = rerun.measure(&base, all, reporter)?;
            effects.push(effect("together", &unchanged, &changed, nll)?);
            arithmetic = Some(changed);
        }
        let chance = match arithmetic {
            None => None,
            Some(changed) => {
                reporter.begin(n, of, spec, "jittered");
                // The cause itself is drawn with seed 1.
                all.variation.jitter = Some(2);
                let jittered = rerun.measure(&base, all, reporter)?;
                Shift::between(&changed.scores, &jittered.scores)
            }
        };
        let before = nll.and_then(|nll| Shift::of_nll(&by_window(&unchanged), nll));
        Ok(Attribution {
            key: spec.key.clone(),
            windows: unchanged.windows.len(),
            scored_tokens: unchanged.scored,
            reference: self.reference.map(|r| r.path().to_owned()).zip(before),
            effects,
            chance,
        })
    }
}

fn by_window(m: &Measurement) -> Vec<Vec<f64>> {
    m.scores.iter().map(|s| s.nll().collect()).collect()
}

/// What a change does, and what it leaves of the residual of `reference`.
fn effect(
    name: &str,
    unchanged: &Measurement,
    changed: &Measurement,
    reference: Option<&[Vec<f64>]>,
) -> Result<Effect, AttributeError> {
    let (a, b) = (&unchanged.scores, &changed.scores);
    let delta =
        shift_of_means(a, b).ok_or(RunError::Measure(MeasureError::NoFigures(NoFigures::Empty)))?;
    let same = Shift::between(a, b);
    let residual = reference.filter(|_| same.is_some()).and_then(|reference| {
        let (a, b) = (by_window(unchanged), by_window(changed));
        let left = Shift::of_nll(&b, reference)?;
        let tokens = a.iter().flatten().zip(b.iter().flatten());
        let moves = tokens.zip(reference.iter().flatten());
        let correlation = correlation(moves.map(|((a, b), r)| (b - a, r - a)));
        Some(Residual { left, correlation })
    });
    Ok(Effect {
        name: name.to_owned(),
        delta,
        rms: same.map(|s| s.rms),
        residual,
    })
}

/// What a cause does to a run, or why it does nothing there.
fn change(
    cause: Cause,
    spec: &RunSpec,
    base: &Base,
    change: &mut Change,
) -> Result<(), &'static str> {
    match cause {
        Cause::Component(component) => return apply(component, Some(1), spec, base, change),
        Cause::Bos if !spec.geometry.mode.substitutes_bos() => {
            return Err("no mode but the sliding window has BOS");
        }
        Cause::Bos => match (base.settings.bos, base.bos) {
            (Some(_), _) => change.bos = Some(None),
            (None, Some(bos)) => change.bos = Some(Some(bos)),
            (None, None) => return Err("the model has no BOS"),
        },
        Cause::AllTargets => match spec.geometry.mode {
            Mode::SlidingWindow {
                stride,
                unscored_prefix,
            } if unscored_prefix > 1 => {
                change.geometry = Some(Geometry {
                    mode: Mode::SlidingWindow {
                        stride,
                        unscored_prefix: 1,
                    },
                    ..spec.geometry
                });
            }
            _ => return Err("the run has no unscored prefix"),
        },
    }
    Ok(())
}
