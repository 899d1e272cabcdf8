//! Measures how far each run of a plan moves under changes that should not
//! matter.

use std::path::Path;

use super::cache::ModelCache;
use super::error::{RunError, SweepError};
use super::inputs::Inputs;
use super::measure::{Control, MeasureError};
use super::rerun::{Base, Change, Rerun, RerunReporter};
use super::selection::{Selection, check_foreign};
use super::sweep::Summary;
use crate::backend::{Numerics, Storage, SumOrder};
use crate::experiment;
use crate::fault::caught;
use crate::fetch::FetchOptions;
use crate::plan::{Plan, RunSpec};
use crate::results::noise::{Calibration, Component, NoiseRow, RunNoise, Shift, Subject};
use crate::results::{NoFigures, TableLock, TablePaths, Wait, arithmetic_of};

/// How to calibrate the runs of a plan.
pub struct Calibrate<'a> {
    /// The runs.
    pub plan: &'a Plan,
    /// Directory of the tables.
    pub results: &'a Path,
    /// What is tried, and what counts for the floor.
    pub noise: &'a experiment::Noise,
    /// Where the cache is.
    pub fetch: &'a FetchOptions,
    /// 0: one for each core.
    pub n_threads: usize,
    /// Keep the runs that are calibrated.
    pub resume: bool,
    /// Which runs to calibrate.
    pub selection: &'a Selection,
    /// Drop the rows of runs that the plan does not have.
    pub prune: bool,
    /// For how long to wait for another writer of the table.
    pub wait: Wait,
    /// How it is interrupted, and where hidden states are kept.
    pub control: &'a Control,
}

/// A change that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Trial {
    component: Component,
    seed: Option<u64>,
    in_floor: bool,
    change: Change,
}

impl Calibrate<'_> {
    /// Measures every component of every run that is selected, and writes
    /// `NAME.noise.csv` as runs finish. A run's rows are replaced when all of them
    /// are measured; a run that fails or is not reached keeps those that it had.
    ///
    /// # Errors
    /// Files that cannot be read or written, another writer, rows of runs that the
    /// plan does not have.
    pub fn run(
        &self,
        reporter: &mut dyn RerunReporter,
    ) -> Result<(Calibration, Summary), SweepError> {
        let selected = self.selection.of(self.plan)?;
        let paths = TablePaths::new(self.results, &self.plan.name);
        let _lock = TableLock::acquire(
            &paths.noise,
            &paths.noise_lock(),
            self.wait,
            &mut |note| reporter.transfers().note(note),
            &|| self.control.interrupt.is_raised(),
        )?;
        paths.clean();
        let mut calibration = match Calibration::load_to_extend(&paths.noise) {
            Err(_) if self.prune => Calibration::new(&paths.noise),
            found => found?.unwrap_or_else(|| Calibration::new(&paths.noise)),
        };
        if self.prune {
            calibration.retain(|key| self.plan.runs.iter().any(|run| run.key == key));
        } else if self.selection.is_all() {
            let keys = calibration.runs().map(|(key, _)| key);
            check_foreign(self.plan, &paths.noise, keys)?;
        }
        let inputs = Inputs::new(self.plan, self.fetch, reporter.transfers())?;
        let of = selected.len();
        let mut summary = Summary::default();
        let mut cache = ModelCache::new(self.fetch);
        for (i, spec) in selected.into_iter().enumerate() {
            if self.control.interrupt.is_raised() {
                summary.interrupted = true;
                break;
            }
            let rerun = Rerun {
                spec,
                cache: &mut cache,
                inputs: &inputs,
                n_threads: self.n_threads,
                control: self.control,
            };
            let old = calibration.run(&spec.key).filter(|_| self.resume);
            let result = caught(|| self.one(i + 1, of, rerun, old, reporter));
            let result = result.unwrap_or_else(|fault| {
                cache = ModelCache::new(self.fetch);
                Err(RunError::Internal(fault))
            });
            cache.note_trouble(reporter.transfers());
            match result {
                Ok(None) => summary.kept += 1,
                Ok(Some(run)) => {
                    summary.measured += 1;
                    calibration.put(&spec.key, run);
                    calibration.save()?;
                }
                Err(e) if e.is_interruption() => {
                    summary.interrupted = true;
                    break;
                }
                Err(e) => {
                    summary.failed += 1;
                    reporter.failed(spec, &e.status());
                }
            }
        }
        Ok((calibration, summary))
    }

    /// Calibrates one run, which is `n` of `of`; `None` where `old` is its
    /// calibration already.
    fn one(
        &self,
        n: usize,
        of: usize,
        mut rerun: Rerun,
        old: Option<&RunNoise>,
        reporter: &mut dyn RerunReporter,
    ) -> Result<Option<RunNoise>, RunError> {
        let spec = rerun.spec;
        let base = rerun.base()?;
        let p = &base.provenance;
        let subject = Subject {
            model_sha256: p.model_sha256.clone(),
            tokens_sha256: p.tokens_sha256.clone(),
            bos: base.settings.bos.is_some(),
            windows: p.windows.unwrap_or(0),
            scored_tokens: p.scored_tokens.unwrap_or(0),
            engine: p.engine.clone(),
        };
        let (trials, left_out) = self.trials(spec, &base);
        if old.is_some_and(|old| is_calibration_of(old, &subject, &trials)) {
            reporter.note(spec, "kept");
            return Ok(None);
        }
        reporter.begin(n, of, spec, "as it is");
        for (component, why) in left_out {
            reporter.note(spec, &format!("{component} is left out: {why}"));
        }
        let unchanged = rerun.measure(&base, Change::default(), reporter)?;
        let mut rows = Vec::new();
        for trial in trials {
            let Trial {
                component,
                seed,
                in_floor,
                change,
            } = trial;
            let name = match seed {
                Some(seed) => format!("{component} {seed}"),
                None => component.to_string(),
            };
            reporter.begin(n, of, spec, &name);
            let changed = rerun.measure(&base, change, reporter)?;
            rows.push(NoiseRow {
                component,
                seed,
                in_floor,
                shift: Shift::between(&unchanged.scores, &changed.scores)
                    .ok_or(MeasureError::NoFigures(NoFigures::Empty))?,
            });
        }
        Ok(Some(RunNoise { subject, rows }))
    }

    /// What is measured of a run, jitter once for each seed; and what is not, and
    /// why.
    fn trials(&self, spec: &RunSpec, base: &Base) -> (Vec<Trial>, Vec<(Component, &'static str)>) {
        let seeds = self.noise.seeds as u64;
        let (mut trials, mut left_out) = (Vec::new(), Vec::new());
        for component in Component::ALL {
            let seeds: Vec<Option<u64>> = match component {
                Component::Jitter => (1..=seeds).map(Some).collect(),
                _ => vec![None],
            };
            for seed in seeds {
                let mut change = Change::default();
                match apply(component, seed, spec, base, &mut change) {
                    Ok(()) => trials.push(Trial {
                        component,
                        seed,
                        in_floor: self.noise.components.contains(&component),
                        change,
                    }),
                    Err(why) => left_out.push((component, why)),
                }
            }
        }
        (trials, left_out)
    }
}

/// Whether `old` is what would be measured.
fn is_calibration_of(old: &RunNoise, subject: &Subject, trials: &[Trial]) -> bool {
    let plain = |s: &Subject| Subject {
        engine: arithmetic_of(&s.engine),
        ..s.clone()
    };
    let rows = old.rows.iter().map(|r| (r.component, r.seed, r.in_floor));
    plain(&old.subject) == plain(subject)
        && rows.eq(trials.iter().map(|t| (t.component, t.seed, t.in_floor)))
}

/// Makes `change` do what a component does to a run, or says why it does nothing
/// there.
pub(super) fn apply(
    component: Component,
    seed: Option<u64>,
    spec: &RunSpec,
    base: &Base,
    change: &mut Change,
) -> Result<(), &'static str> {
    match component {
        Component::SummationOrder => change.variation.order = SumOrder::Descending,
        Component::Jitter => change.variation.jitter = seed,
        Component::KvF16 => change.variation.kv = Storage::F16,
        Component::AttentionF16 => change.variation.attention = Storage::F16,
        Component::Q8 if spec.numerics == Numerics::Q8 => return Err("the run is q8 itself"),
        Component::Q8 if !base.has_q8 => {
            return Err("the model has weights of a type without products in integers");
        }
        Component::Q8 => change.numerics = Some(Numerics::Q8),
        Component::BatchShape => {
            change.batch = Some(match base.batch {
                1 => 2,
                _ => 1,
            });
        }
    }
    Ok(())
}
