//! Executes a plan, run after run, and keeps its tables up to date.

use std::path::Path;
use std::time::Duration;

use super::against::check_same_text;
use super::cache::{Cache, ModelCache, Wanted};
use super::error::{RunError, SweepError};
use super::finished::{Finished, row};
use super::host::{Clock, host_name, peak_rss_mib};
use super::input::LoadedModel;
use super::inputs::Inputs;
use super::measure::{BaseInput, Control, Measurement, Observation, measure, measure_against};
use super::ready::{Ready, identity, window_bos};
use super::remarks::remarks;
use super::selection::{Selection, check_foreign};
use crate::backend::Variation;
use crate::compare::NoiseFloor;
use crate::compare::diff::{Diff, Evidence};
use crate::eval::TokenKld;
use crate::fault::caught;
use crate::fetch::{FetchOptions, TransferProgress};
use crate::plan::{BaseSpec, Plan, RunSpec};
use crate::reference::References;
use crate::results::{
    CsvError, KldFigures, KldOutcome, KldRow, Outcome, Provenance, ResultRow, ResultsError,
    TableLock, TablePaths, Tables, TimingRow, Wait, arithmetic_of, write_atomic,
};

/// Hears how a sweep goes.
pub trait Reporter {
    /// Run `n` of `of` begins (counted from 1).
    fn begin(&mut self, n: usize, of: usize, run: &RunSpec);
    /// A batch of its windows is done.
    fn progress(&mut self, observation: &Observation);
    /// It has ended, well or not.
    fn end(&mut self, row: &ResultRow, took: Duration);
    /// Run `n` was found finished.
    fn kept(&mut self, n: usize, of: usize, row: &ResultRow);
    /// Receives the progress of hashing.
    fn transfers(&self) -> &dyn TransferProgress;
}

/// How a sweep ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Runs that have figures now.
    pub measured: usize,
    /// Runs whose row was kept.
    pub kept: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Runs with figures that could not be compared with their base.
    pub uncompared: usize,
    /// Whether it was interrupted: the run that was on its way and those after it
    /// have not been measured.
    pub interrupted: bool,
    /// What `[compare]` asks for, of all rows that there are.
    pub comparison: Option<Diff>,
}

/// How to execute a plan.
pub struct Sweep<'a> {
    /// The runs.
    pub plan: &'a Plan,
    /// Directory of the tables.
    pub results: &'a Path,
    /// Where the cache is, and how files are fetched.
    pub fetch: &'a FetchOptions,
    /// 0: one for each core.
    pub n_threads: usize,
    /// Windows evaluated together; chosen for speed where it is `None`.
    pub batch: Option<usize>,
    /// Keep the rows that are finished.
    pub resume: bool,
    /// Which runs to measure.
    pub selection: &'a Selection,
    /// Drop the rows of runs that the plan does not have.
    pub prune: bool,
    /// For how long to wait for another writer of the tables.
    pub wait: Wait,
    /// How it is interrupted, and where hidden states are kept.
    pub control: &'a Control,
}

/// Why a run has no figures, and what is known of it all the same.
struct Failed {
    error: Box<RunError>,
    known: Option<Box<Provenance>>,
}

impl From<RunError> for Failed {
    fn from(error: RunError) -> Self {
        Self {
            error: Box::new(error),
            known: None,
        }
    }
}

impl Sweep<'_> {
    /// Executes the runs that are selected. A row is replaced when its run ends, and
    /// the tables with it: a run that fails leaves a row that says why, and the
    /// others go on. An interrupt ends the sweep; runs that are left keep the rows
    /// that they had, or say that they did not run.
    ///
    /// # Errors
    /// Tables or reference files that cannot be read or written, another writer,
    /// rows of runs that the plan does not have.
    pub fn run(&self, reporter: &mut dyn Reporter) -> Result<(Tables, Summary), SweepError> {
        let selected = self.selection.of(self.plan)?;
        let paths = TablePaths::new(self.results, &self.plan.name);
        let _lock = TableLock::acquire(
            &paths.table,
            &paths.lock,
            self.wait,
            &mut |note| reporter.transfers().note(note),
            &|| self.control.interrupt.is_raised(),
        )?;
        let references = References::load(&self.plan.reference_files)?;
        let mut tables = match Tables::load_or_new(self.results, &self.plan.name) {
            Err(_) if self.prune => Tables::new(self.results, &self.plan.name),
            tables => tables?,
        };
        if self.prune {
            self.drop_foreign(&mut tables)?;
        } else if self.selection.is_all() {
            let rows = tables.rows().filter(|row| row.outcome != Outcome::NotRun);
            check_foreign(self.plan, &paths.table, rows.map(|row| row.key.as_str()))?;
            tables.retain(|key| self.plan.runs.iter().any(|run| run.key == key));
        }
        if !self.prune {
            self.check_comparisons(&selected, &tables)?;
        }
        paths.clean();
        let inputs = Inputs::new(self.plan, self.fetch, reporter.transfers())?;
        for run in &selected {
            if tables.get(&run.key).is_none() {
                let known = identity(run, &inputs).unread(run.geometry);
                let row = row(&run.key, known, Outcome::NotRun);
                tables.put(row, Vec::new(), None)?;
                let kld = run.base.as_ref();
                tables.put_kld(&run.key, kld.map(|base| blank_kld(run, base, &inputs)))?;
            }
        }
        if let Some(pairing) = &self.plan.compare {
            let rows = Vec::from_iter(tables.rows());
            let pairs = pairing.pairs(&rows, &rows, true);
            pairs.map_err(SweepError::Compare)?;
        }
        // Rows that are kept follow the reference files as they are now.
        tables.update(|row| references.annotate(row));
        tables.save()?;

        let of = selected.len();
        let mut summary = Summary::default();
        let mut cache = Cache::new(self.fetch);
        for (i, run) in selected.into_iter().enumerate() {
            if self.control.interrupt.is_raised() {
                summary.interrupted = true;
                break;
            }
            if self.resume && self.is_finished(run, &tables, &mut cache.run, &inputs) {
                if let Some(row) = tables.get(&run.key) {
                    reporter.kept(i + 1, of, row);
                }
                if run.base.is_none() {
                    tables.put_kld(&run.key, None)?;
                }
                summary.kept += 1;
                continue;
            }
            reporter.begin(i + 1, of, run);
            let clock = Clock::start();
            // A panic is a fault of ours that must not cost the other runs.
            let result = caught(|| self.one(run, &mut cache, &inputs, &clock, reporter));
            let result = result.unwrap_or_else(|fault| {
                cache = Cache::new(self.fetch);
                Err(RunError::Internal(fault).into())
            });
            cache.note_trouble(reporter.transfers());
            let row = match result {
                Ok(mut m) => {
                    summary.measured += 1;
                    let failed = |k: &KldRow| matches!(k.outcome, KldOutcome::Failed(_));
                    summary.uncompared += usize::from(m.kld.as_ref().is_some_and(failed));
                    references.annotate(&mut m.row);
                    let row = m.row.clone();
                    m.save(&mut tables)?;
                    row
                }
                Err(Failed { error, .. }) if error.is_interruption() => {
                    summary.interrupted = true;
                    break;
                }
                Err(Failed { error, known }) => {
                    summary.failed += 1;
                    let unread = || identity(run, &inputs).unread(run.geometry);
                    let known = known.map_or_else(unread, |known| *known);
                    let row = row(&run.key, known, Outcome::Failed(error.status()));
                    self.drop_record(&tables, &run.key)?;
                    let kld = run.base.as_ref();
                    let kld = kld.map(|base| blank_kld(run, base, &inputs));
                    tables.put_and_save(row.clone(), Vec::new(), None, kld)?;
                    row
                }
            };
            reporter.end(&row, clock.elapsed());
        }
        tables.save()?;
        summary.comparison = self.compare(&tables)?;
        Ok((tables, summary))
    }

    /// Compares runs of the table as `[compare]` asks, and writes what comes out. It
    /// looks at what is committed, so that the bytes are the same wherever that is.
    fn compare(&self, tables: &Tables) -> Result<Option<Diff>, SweepError> {
        let Some(pairing) = &self.plan.compare else {
            return Ok(None);
        };
        let paths = tables.paths();
        let noise = NoiseFloor::beside(&paths.table)?;
        let evidence = Evidence::Windows;
        let diff = Diff::new(tables, tables, pairing, evidence, self.plan.gate, &noise)
            .map_err(SweepError::Compare)?;
        let written = diff
            .to_csv()
            .and_then(|bytes| write_atomic(&paths.compare, &bytes).map_err(std::io::Error::other));
        written.map_err(|source| CsvError::Write {
            path: paths.compare.clone(),
            source,
        })?;
        Ok(Some(diff))
    }

    /// Refuses to measure runs whose comparison with a base would be lost, since the
    /// experiment names no base (any more).
    fn check_comparisons(&self, runs: &[&RunSpec], tables: &Tables) -> Result<(), SweepError> {
        let compared = |run: &&&RunSpec| {
            let kld = tables.kld(&run.key).filter(|_| run.base.is_none());
            kld.is_some_and(|kld| matches!(kld.outcome, KldOutcome::Ok(_)))
        };
        let mut lost = runs.iter().filter(compared);
        match lost.next() {
            None => Ok(()),
            Some(run) => Err(SweepError::Foreign {
                table: tables.paths().kld.clone(),
                example: run.key.clone(),
                count: 1 + lost.count(),
            }),
        }
    }

    /// Drops the rows of runs that the plan does not have, and their records.
    fn drop_foreign(&self, tables: &mut Tables) -> Result<(), SweepError> {
        let planned = |key: &str| self.plan.runs.iter().any(|run| run.key == key);
        let keys: Vec<String> = tables.rows().map(|row| row.key.clone()).collect();
        for key in keys.iter().filter(|key| !planned(key)) {
            self.drop_record(tables, key)?;
        }
        tables.retain(planned);
        Ok(())
    }

    /// Deletes the record of a row that is about to go.
    fn drop_record(&self, tables: &Tables, key: &str) -> Result<(), SweepError> {
        if let Some(row) = tables.get(key).filter(|row| row.figures().is_some()) {
            let records = &tables.paths().records;
            records.remove(row).map_err(ResultsError::from)?;
        }
        Ok(())
    }

    /// Whether the table has the figures of this very run.
    fn is_finished(
        &self,
        run: &RunSpec,
        tables: &Tables,
        cache: &mut ModelCache,
        inputs: &Inputs,
    ) -> bool {
        let Some(row) = tables.get(&run.key).filter(|row| row.figures().is_some()) else {
            return false;
        };
        // What cannot be made ready fails again, and its row says why.
        let ready = self.ready(run, cache, inputs);
        let same = |(_, ready): &(_, Ready)| row.provenance.is_same_run(&ready.provenance);
        // A row without its windows was being replaced when its process died.
        if !ready.is_ok_and(|ready| same(&ready)) || tables.windows(&run.key).is_empty() {
            return false;
        }
        match (&run.base, tables.kld(&run.key)) {
            (None, _) => true,
            (Some(base), Some(old)) => is_kld_of(old, base, &row.provenance, inputs),
            (Some(_), None) => false,
        }
    }

    /// A run's model, and all that is known of the run before it is measured.
    fn ready<'c>(
        &self,
        run: &RunSpec,
        cache: &'c mut ModelCache,
        inputs: &Inputs,
    ) -> Result<(&'c LoadedModel, Ready), RunError> {
        let wanted = Wanted {
            model: &run.model,
            corpus: &run.corpus.path,
            numerics: run.numerics,
            variation: Variation::default(),
            n_threads: self.n_threads,
        };
        let (loaded, tokens) = cache.get(&wanted, inputs)?;
        Ok((loaded, Ready::new(run, loaded, tokens, inputs)?))
    }

    /// Executes one run.
    fn one(
        &self,
        run: &RunSpec,
        cache: &mut Cache,
        inputs: &Inputs,
        clock: &Clock,
        reporter: &mut dyn Reporter,
    ) -> Result<Finished, Failed> {
        let Cache { run: models, base } = cache;
        let (loaded, mut ready) = self.ready(run, models, inputs)?;
        ready.settings.batch = self.batch;
        let known = Provenance {
            windows: None,
            scored_tokens: None,
            ..ready.provenance.clone()
        };
        let mut this = This {
            run,
            loaded,
            ready,
            inputs,
            progress: &mut |o| reporter.progress(&o),
        };
        let measured = self.measured(&mut this, base, clock);
        measured.map_err(|error| Failed {
            error: Box::new(error),
            known: Some(Box::new(known)),
        })
    }

    /// Measures a run that is ready.
    fn measured(
        &self,
        this: &mut This,
        base_cache: &mut ModelCache,
        clock: &Clock,
    ) -> Result<Finished, RunError> {
        let mut kld = this.run.base.as_ref().map(|base| KldRow {
            tokens_sha256: this.ready.provenance.tokens_sha256.clone(),
            ..blank_kld(this.run, base, this.inputs)
        });
        let mut measurement = None;
        if let (Some(base), Some(kld)) = (&this.run.base, &mut kld) {
            match self.compared(this, base, base_cache) {
                Ok((m, tokens)) => {
                    kld.outcome = match KldFigures::new(&tokens) {
                        Ok(figures) => KldOutcome::Ok(Box::new((&figures).into())),
                        Err(e) => KldOutcome::Failed(e.to_string()),
                    };
                    measurement = Some(m);
                }
                Err(e) if e.is_of_run() => return Err(e),
                // The base's matter, not the run's.
                Err(e) => kld.outcome = KldOutcome::Failed(e.status()),
            }
        }
        let This {
            run, loaded, ready, ..
        } = this;
        let (text, settings) = (loaded.text(&ready.tokens.ids), &ready.settings);
        let m = match measurement {
            Some(m) => m,
            None => loaded.placed(run.placement, self.control, |subject| {
                measure(subject, text, settings, self.control, this.progress)
            })?,
        };
        this.inputs.check_model(&run.model, &loaded.model.gguf)?;
        let timing = timing(clock, &m, loaded.cpu.n_threads());
        let mut finished = Finished::new(&run.key, ready.provenance.clone(), text, m);
        finished.row.note = remarks(loaded, text.ids, settings).join("; ");
        Ok(Finished {
            kld,
            timing: Some(timing),
            ..finished
        })
    }

    /// Measures a run beside its base.
    fn compared(
        &self,
        this: &mut This,
        base: &BaseSpec,
        cache: &mut ModelCache,
    ) -> Result<(Measurement, Vec<TokenKld>), RunError> {
        let This {
            run, loaded, ready, ..
        } = this;
        let wanted = Wanted {
            model: &base.model,
            corpus: &run.corpus.path,
            numerics: base.numerics,
            variation: Variation::default(),
            n_threads: self.n_threads,
        };
        let (base_model, base_tokens) = cache.get(&wanted, this.inputs)?;
        let base_bos = window_bos(base_model, run)?;
        let (text, settings) = (loaded.text(&ready.tokens.ids), &ready.settings);
        check_same_text((&base_tokens.ids, base_bos), (text.ids, settings.bos))?;
        let control = self.control;
        let m = loaded.placed(run.placement, control, |subject| {
            base_model.placed(base.placement, control, |base| {
                let base = BaseInput::Model(base);
                measure_against(subject, base, text, settings, control, this.progress)
            })
        })?;
        this.inputs
            .check_model(&base.model, &base_model.model.gguf)?;
        Ok(m)
    }
}

/// The run that is being measured.
struct This<'a> {
    run: &'a RunSpec,
    loaded: &'a LoadedModel,
    ready: Ready,
    inputs: &'a Inputs,
    progress: &'a mut dyn FnMut(Observation),
}

fn timing(clock: &Clock, m: &Measurement, threads: usize) -> TimingRow {
    TimingRow {
        wall_s: clock.elapsed().as_secs_f64(),
        tokens_per_s: m.evaluated as f64 / m.seconds,
        peak_rss_mib: peak_rss_mib(),
        threads,
        host: host_name(),
        started_at: clock.started_at(),
    }
}

/// The row of a comparison that has not begun.
fn blank_kld(run: &RunSpec, base: &BaseSpec, inputs: &Inputs) -> KldRow {
    let known = identity(run, inputs);
    KldRow {
        key: run.key.clone(),
        base: base.key.clone(),
        engine: known.engine,
        model_sha256: known.model_sha256,
        base_sha256: inputs.sha256(&base.model.path),
        tokens_sha256: String::new(),
        outcome: KldOutcome::NotRun,
    }
}

/// Whether `old` is a finished comparison with `base` of the run that `run` is. Both
/// read the same tokens with the same BOS, or could not be compared.
fn is_kld_of(old: &KldRow, base: &BaseSpec, run: &Provenance, inputs: &Inputs) -> bool {
    matches!(old.outcome, KldOutcome::Ok(_))
        && old.base == base.key
        && arithmetic_of(&old.engine) == arithmetic_of(&run.engine)
        && (&old.model_sha256, &old.tokens_sha256) == (&run.model_sha256, &run.tokens_sha256)
        && old.base_sha256 == inputs.sha256(&base.model.path)
}
