//! Measures how far each run of a plan moves under changes that should not
//! matter.

use std::path::Path;

use super::cache::ModelCache;
use super::measure::{Control, MeasureError};
use super::rerun::{Base, Change, Rerun, RerunReporter};
use super::sweep::{RunError, Summary, SweepError, blank, hashes, status};
use crate::backend::{Numerics, Precision, SumOrder};
use crate::experiment;
use crate::fetch::FetchOptions;
use crate::plan::{Plan, RunSpec};
use crate::results::noise::{Calibration, Component, NoiseRow, RunNoise, Shift, Subject};
use crate::results::{Provenance, TablePaths};

/// How to calibrate the runs of a plan.
pub struct Calibrate<'a> {
    pub plan: &'a Plan,
    pub results: &'a Path,
    pub noise: &'a experiment::Noise,
    pub fetch: &'a FetchOptions,
    /// 0: one for each core.
    pub n_threads: usize,
    pub control: &'a Control,
}

impl Calibrate<'_> {
    /// Measures every component of every run, and writes `NAME.noise.csv` as runs
    /// finish. A run that fails has no rows; the others go on.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn run(
        &self,
        reporter: &mut dyn RerunReporter,
    ) -> Result<(Calibration, Summary), SweepError> {
        let hashes = hashes(self.plan, self.fetch, reporter.transfers())?;
        let path = TablePaths::new(self.results, &self.plan.name).noise;
        let mut calibration = Calibration::new(&path);
        let mut summary = Summary::default();
        let mut cache = ModelCache::new(self.fetch);
        for (i, spec) in self.plan.runs.iter().enumerate() {
            let mut provenance = blank(spec, &hashes).provenance;
            let rerun = Rerun {
                spec,
                cache: &mut cache,
                n_threads: self.n_threads,
                control: self.control,
            };
            let result = self.one(i + 1, rerun, &mut provenance, reporter);
            cache.note_trouble(reporter.transfers());
            match result {
                Ok(run) => {
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
                    reporter.failed(spec, &status(&e));
                }
            }
        }
        calibration.save()?;
        Ok((calibration, summary))
    }

    fn one(
        &self,
        n: usize,
        mut rerun: Rerun,
        provenance: &mut Provenance,
        reporter: &mut dyn RerunReporter,
    ) -> Result<RunNoise, RunError> {
        let (spec, of) = (rerun.spec, self.plan.runs.len());
        reporter.begin(n, of, spec, "as it is");
        let base = rerun.base(provenance)?;
        let unchanged = rerun.measure(&base, Change::default(), reporter)?;
        let mut rows = Vec::new();
        for (component, seed) in self.trials() {
            let mut change = Change::default();
            if let Err(why) = apply(component, seed, spec, &base, &mut change) {
                reporter.note(spec, &format!("{component} is left out: {why}"));
                continue;
            }
            let name = match seed {
                Some(seed) => format!("{component} {seed}"),
                None => component.to_string(),
            };
            reporter.begin(n, of, spec, &name);
            let changed = rerun.measure(&base, change, reporter)?;
            rows.push(NoiseRow {
                component,
                seed,
                in_floor: self.noise.components.contains(&component),
                shift: Shift::between(&unchanged.scores, &changed.scores)
                    .ok_or(MeasureError::Empty)?,
            });
        }
        let p = &*provenance;
        Ok(RunNoise {
            subject: Subject {
                model_sha256: p.model_sha256.clone(),
                tokens_sha256: p.tokens_sha256.clone(),
                bos: base.settings.bos.is_some(),
                windows: unchanged.windows.len(),
                scored_tokens: unchanged.scored,
                engine: p.engine.clone(),
            },
            rows,
        })
    }

    /// Every component; jitter once for each seed.
    fn trials(&self) -> impl Iterator<Item = (Component, Option<u64>)> {
        let seeds = self.noise.seeds as u64;
        Component::ALL.into_iter().flat_map(move |c| {
            let seeds: Vec<Option<u64>> = match c {
                Component::Jitter => (1..=seeds).map(Some).collect(),
                _ => vec![None],
            };
            seeds.into_iter().map(move |seed| (c, seed))
        })
    }
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
        Component::KvF16 => change.variation.kv = Precision::F16,
        Component::AttentionF16 => change.variation.attention = Precision::F16,
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
