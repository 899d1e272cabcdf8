//! Executes a plan, run after run, and keeps its tables up to date.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::against::{AgainstError, check_same_text};
use super::cache::Cache;
use super::host::{Clock, host_name, peak_rss_mib};
use super::input::{InputError, LoadedModel, model_type};
use super::measure::{
    BaseInput, Control, MeasureError, Measurement, Observation, Settings, measure, measure_against,
};
use crate::backend::{Device, Variation};
use crate::corpus::{CorpusError, CorpusTokens, ids_sha256};
use crate::eval::EvalError;
use crate::fetch::{
    FetchError, FetchOptions, Progress, remembered_sha256, remembered_sha256_of_parts,
};
use crate::gguf::Gguf;
use crate::plan::{BaseSpec, Plan, RunSpec};
use crate::reference::References;
use crate::results::{
    CsvError, KldFigures, KldOutcome, KldRow, Outcome, Provenance, Record, RecordError, ResultRow,
    ResultsError, Tables, TimingRow, WindowRow,
};

/// Why a sweep could not go on. What concerns one run only is in its row.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Reference(#[from] CsvError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

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
    fn transfers(&self) -> &dyn Progress;
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub measured: usize,
    pub kept: usize,
    pub failed: usize,
    /// Runs with figures that could not be compared with their base.
    pub uncompared: usize,
    /// Whether it was interrupted: the run that was on its way and those after it
    /// have not been measured.
    pub interrupted: bool,
}

/// How to execute a plan.
pub struct Sweep<'a> {
    pub plan: &'a Plan,
    pub results: &'a Path,
    pub fetch: &'a FetchOptions,
    /// 0: one for each core.
    pub n_threads: usize,
    /// Windows evaluated together; chosen for speed where it is `None`.
    pub batch: Option<usize>,
    /// Keep the rows that are finished.
    pub resume: bool,
    pub control: &'a Control,
}

/// Why one run has no figures.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error(transparent)]
    Against(#[from] AgainstError),
    #[error("the model asks for BOS, but its metadata names none")]
    NoBos,
    #[error("the arithmetic of {0} cannot be varied, that of the CPU can: take placement 'cpu'")]
    NotVaried(Device),
}

impl RunError {
    /// Whether Ctrl-C is why.
    pub(super) fn is_interruption(&self) -> bool {
        matches!(
            self,
            RunError::Measure(MeasureError::Eval(EvalError::Interrupted { .. }))
                | RunError::Corpus(CorpusError::Interrupted)
        )
    }
}

impl Sweep<'_> {
    /// Executes all runs. Rows are written as runs finish; a run that fails
    /// leaves a row that says why, and the others go on. An interrupt ends the
    /// sweep: the rows of the runs that are left say that they did not run.
    ///
    /// # Errors
    /// Tables or reference files that cannot be read or written.
    pub fn run(&self, reporter: &mut dyn Reporter) -> Result<(Tables, Summary), SweepError> {
        let references = References::load(&self.plan.reference_files)?;
        let hashes = hashes(self.plan, self.fetch, reporter.transfers())?;
        let mut tables = match self.resume {
            true => Tables::load_or_new(self.results, &self.plan.name)?,
            false => Tables::new(self.results, &self.plan.name),
        };
        let blanks: Vec<ResultRow> = self.plan.runs.iter().map(|r| blank(r, &hashes)).collect();
        tables.retain(|key| blanks.iter().any(|row| row.key == key));
        let mut keep = Vec::with_capacity(blanks.len());
        for (spec, row) in self.plan.runs.iter().zip(&blanks) {
            let finished = tables.get(&row.key).filter(|old| is_result_of(old, row));
            let kld = spec.base.as_ref().map(|b| blank_kld(row, b, &hashes));
            let compared = match &kld {
                Some(blank) => (tables.kld(&row.key)).is_some_and(|old| is_kld_of(old, blank)),
                None => true,
            };
            let kept = finished.is_some() && compared;
            keep.push(kept);
            if !kept {
                tables.put(row.clone(), Vec::new(), None)?;
                tables.put_kld(&row.key, kld)?;
            } else if kld.is_none() {
                tables.put_kld(&row.key, None)?;
            }
        }
        // Rows that are kept follow the reference files as they are now.
        tables.update(|row| references.annotate(row));
        tables.save()?;
        let records = tables.paths().records.clone();
        let kept = blanks.iter().zip(&keep).filter(|(_, keep)| **keep);
        records.keep_only(kept.map(|(row, _)| row.key.as_str()))?;

        let of = blanks.len();
        let mut summary = Summary::default();
        let mut cache = Cache::new(self.fetch);
        for (i, (spec, mut row)) in self.plan.runs.iter().zip(blanks).enumerate() {
            if keep[i] {
                if let Some(old) = tables.get(&row.key) {
                    reporter.kept(i + 1, of, old);
                }
                summary.kept += 1;
                continue;
            }
            if self.control.interrupt.is_raised() {
                summary.interrupted = true;
                break;
            }
            reporter.begin(i + 1, of, spec);
            let clock = Clock::start();
            let mut kld = spec.base.as_ref().map(|b| blank_kld(&row, b, &hashes));
            let result = self.one(spec, (&mut row, &mut kld), &mut cache, reporter);
            cache.note_trouble(reporter.transfers());
            let (windows, timing) = match result {
                Ok((measurement, record)) => {
                    summary.measured += 1;
                    let failed = |k: &KldRow| matches!(k.outcome, KldOutcome::Failed(_));
                    summary.uncompared += usize::from(kld.as_ref().is_some_and(failed));
                    let timing = self.timing(&clock, &measurement, &cache);
                    references.annotate(&mut row);
                    // First, so that a row that is written has its record.
                    records.save(&row.key, &record)?;
                    (measurement.windows, Some(timing))
                }
                Err(e) if e.is_interruption() => {
                    summary.interrupted = true;
                    break;
                }
                Err(e) => {
                    summary.failed += 1;
                    row.outcome = Outcome::Failed(status(&e));
                    (Vec::<WindowRow>::new(), None)
                }
            };
            reporter.end(&row, clock.elapsed());
            tables.put_kld(&row.key, kld)?;
            tables.put(row, windows, timing)?;
            tables.save()?;
        }
        Ok((tables, summary))
    }

    /// Executes one run; fills in what becomes known of it on the way, its figures
    /// at last.
    fn one(
        &self,
        spec: &RunSpec,
        (row, kld): (&mut ResultRow, &mut Option<KldRow>),
        cache: &mut Cache,
        reporter: &mut dyn Reporter,
    ) -> Result<(Measurement, Record), RunError> {
        let Cache {
            run: run_cache,
            base: base_cache,
        } = cache;
        let (loaded, tokens) = run_cache.get(
            (&spec.model, (spec.numerics, Variation::default())),
            &spec.corpus.path,
            self.n_threads,
        )?;
        let p = &mut row.provenance;
        let settings = Settings {
            batch: self.batch,
            ..settings(spec, loaded, &tokens, p)?
        };
        let bos = settings.bos;
        let mut progress = |o: Observation| reporter.progress(&o);
        let compared = match (&spec.base, kld) {
            (Some(base), Some(kld)) => {
                kld.tokens_sha256.clone_from(&p.tokens_sha256);
                let cache = base_cache.get(
                    (&base.model, (base.numerics, Variation::default())),
                    &spec.corpus.path,
                    self.n_threads,
                );
                let compared = cache.and_then(|(base_model, base_tokens)| {
                    let base_bos = window_bos(base_model, spec)?;
                    check_same_text((&base_tokens.ids, base_bos), (&tokens.ids, bos))?;
                    let input = BaseInput::Model {
                        loaded: base_model,
                        placement: base.placement,
                    };
                    let control = self.control;
                    let m = measure_against(
                        loaded,
                        input,
                        &tokens.ids,
                        settings,
                        control,
                        &mut progress,
                    );
                    Ok(m?)
                });
                match compared {
                    Ok((measurement, klds)) => {
                        kld.outcome = match KldFigures::new(&klds) {
                            Some(figures) => KldOutcome::Ok(Box::new((&figures).into())),
                            None => KldOutcome::Failed("one token is too few".to_owned()),
                        };
                        Some(measurement)
                    }
                    Err(e) if is_of_run(&e) => return Err(e),
                    // The base's matter, not the run's.
                    Err(e) => {
                        kld.outcome = KldOutcome::Failed(status(&e));
                        None
                    }
                }
            }
            _ => None,
        };
        let measurement = match compared {
            Some(measurement) => measurement,
            None => measure(loaded, &tokens.ids, settings, self.control, &mut progress)?,
        };
        p.windows = Some(measurement.windows.len());
        p.scored_tokens = Some(measurement.scored);
        row.outcome = Outcome::Ok(measurement.figures.clone());
        let tokenizer = loaded.tokenizer()?;
        let record = Record::new(row, &measurement.scores, &tokens.ids, |id| {
            tokenizer.piece(id)
        });
        Ok((measurement, record))
    }

    fn timing(&self, clock: &Clock, m: &Measurement, cache: &Cache) -> TimingRow {
        let wall_s = clock.elapsed().as_secs_f64();
        TimingRow {
            wall_s,
            tokens_per_s: m.evaluated as f64 / m.seconds,
            peak_rss_mib: peak_rss_mib(),
            threads: cache.run.n_threads(),
            host: host_name(),
            started_at: clock.started_at(),
        }
    }
}

/// SHA-256 of every model and corpus of the plan.
pub(super) fn hashes(
    plan: &Plan,
    fetch: &FetchOptions,
    progress: &dyn Progress,
) -> Result<HashMap<PathBuf, String>, SweepError> {
    let mut hashes = HashMap::new();
    for run in &plan.runs {
        let corpus = &run.corpus.path;
        let base = run.base.as_ref().map(|base| &base.model.path);
        for model in [&run.model.path].into_iter().chain(base) {
            if hashes.contains_key(model) {
                continue;
            }
            // A file that cannot be opened gets a row that says why.
            let sha256 = match Gguf::open(model) {
                Ok(gguf) => remembered_sha256_of_parts(gguf.paths(), fetch, progress)?,
                Err(_) => remembered_sha256(model, fetch, progress)?,
            };
            hashes.insert(model.clone(), sha256);
        }
        if !hashes.contains_key(corpus) {
            let sha256 = remembered_sha256(corpus, fetch, progress)?;
            hashes.insert(corpus.clone(), sha256);
        }
    }
    Ok(hashes)
}

/// How a run is measured; fills in what becomes known of it on the way.
pub(super) fn settings(
    spec: &RunSpec,
    loaded: &LoadedModel,
    tokens: &CorpusTokens,
    p: &mut Provenance,
) -> Result<Settings, RunError> {
    p.model_type = model_type(&loaded.model.gguf);
    p.architecture.clone_from(&loaded.model.architecture);
    let partition = spec.placement.partition(loaded.model.n_layer());
    p.layer_placement = partition.to_string();
    p.tokens = Some(tokens.ids.len());
    p.tokens_sha256 = ids_sha256(&tokens.ids);
    let bos = window_bos(loaded, spec)?;
    p.bos = Some(bos.is_some());
    Ok(Settings {
        geometry: spec.geometry,
        limits: spec.limits,
        bos,
        placement: spec.placement,
        batch: None,
    })
}

/// What replaces the first token of each window.
fn window_bos(loaded: &LoadedModel, spec: &RunSpec) -> Result<Option<u32>, RunError> {
    let tokenizer = loaded.tokenizer()?;
    match tokenizer.add_bos() && spec.geometry.mode.substitutes_bos() {
        true => tokenizer.bos().map(Some).ok_or(RunError::NoBos),
        false => Ok(None),
    }
}

/// Whether what ended a comparison would have ended the run without a base, too.
fn is_of_run(e: &RunError) -> bool {
    match e {
        RunError::Measure(MeasureError::Eval(e)) => !matches!(
            e,
            EvalError::Base(_) | EvalError::Vocabulary { .. } | EvalError::Stored(_)
        ),
        _ => false,
    }
}

/// A failure in the words of the status column.
pub(super) fn status(e: &RunError) -> String {
    let text = match e {
        RunError::Measure(MeasureError::Eval(EvalError::NotFinite {
            window,
            position,
            stage,
        })) => format!("not finite: {stage}, window {window}, position {position}"),
        e => e.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The row of a run that has not begun.
pub(super) fn blank(run: &RunSpec, hashes: &HashMap<PathBuf, String>) -> ResultRow {
    let hash = |path: &Path| hashes.get(path).cloned().unwrap_or_default();
    ResultRow {
        key: run.key.clone(),
        provenance: Provenance {
            model: run.model.name.clone(),
            model_sha256: hash(&run.model.path),
            model_type: String::new(),
            architecture: String::new(),
            corpus: run.corpus.name.clone(),
            corpus_sha256: hash(&run.corpus.path),
            tokens: None,
            tokens_sha256: String::new(),
            geometry: run.geometry,
            bos: None,
            parse_special: run.model.parse_special,
            windows: None,
            scored_tokens: None,
            placement: run.placement.to_string(),
            layer_placement: String::new(),
            numerics: run.numerics.to_string(),
            engine: super::engine(run.gpu.as_deref()),
        },
        outcome: Outcome::NotRun,
        ref_note: String::new(),
        note: String::new(),
    }
}

/// The row of a comparison that has not begun.
fn blank_kld(row: &ResultRow, base: &BaseSpec, hashes: &HashMap<PathBuf, String>) -> KldRow {
    KldRow {
        key: row.key.clone(),
        base: base.key.clone(),
        engine: row.provenance.engine.clone(),
        model_sha256: row.provenance.model_sha256.clone(),
        base_sha256: hashes.get(&base.model.path).cloned().unwrap_or_default(),
        tokens_sha256: String::new(),
        outcome: KldOutcome::NotRun,
    }
}

/// Whether `old` is a finished comparison of what `blank` is to compare.
fn is_kld_of(old: &KldRow, blank: &KldRow) -> bool {
    matches!(old.outcome, KldOutcome::Ok(_))
        && (&old.base, &old.engine) == (&blank.base, &blank.engine)
        && (&old.model_sha256, &old.base_sha256) == (&blank.model_sha256, &blank.base_sha256)
}

/// Whether `old` is a finished row of the run whose blank row is `blank`: what
/// is known before a run must be the same.
fn is_result_of(old: &ResultRow, blank: &ResultRow) -> bool {
    let (o, b) = (&old.provenance, &blank.provenance);
    old.figures().is_some()
        && (&o.model_sha256, &o.corpus_sha256) == (&b.model_sha256, &b.corpus_sha256)
        && (o.geometry, o.parse_special) == (b.geometry, b.parse_special)
        && (&o.placement, &o.numerics, &o.engine) == (&b.placement, &b.numerics, &b.engine)
}
