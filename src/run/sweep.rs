//! Executes a plan, run after run, and keeps its tables up to date.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::host::{Clock, host_name, peak_rss_mib};
use super::input::{InputError, LoadedModel, model_type};
use super::measure::{Control, MeasureError, Measurement, Observation, Settings, measure};
use crate::backend::{Device, Numerics, Variation};
use crate::corpus::{CorpusError, CorpusTokens, DEFAULT_CHUNK, TokenCache, ids_sha256};
use crate::eval::EvalError;
use crate::fetch::{
    FetchError, FetchOptions, Progress, remembered_sha256, remembered_sha256_of_parts,
};
use crate::gguf::Gguf;
use crate::plan::{Plan, RunSpec};
use crate::reference::References;
use crate::results::{
    CsvError, Outcome, Provenance, Record, RecordError, ResultRow, ResultsError, Tables, TimingRow,
    WindowRow,
};
use crate::tokenizer;

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
        for row in &blanks {
            let finished = tables.get(&row.key).filter(|old| is_result_of(old, row));
            keep.push(finished.is_some());
            if finished.is_none() {
                tables.put(row.clone(), Vec::new(), None)?;
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
        let mut cache = Cache::new(&self.fetch.cache_dir);
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
            let (windows, timing) = match self.one(spec, &mut row, &mut cache, reporter) {
                Ok((measurement, record)) => {
                    summary.measured += 1;
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
        row: &mut ResultRow,
        cache: &mut Cache,
        reporter: &mut dyn Reporter,
    ) -> Result<(Measurement, Record), RunError> {
        let arithmetic = (spec.numerics, Variation::default());
        let (loaded, tokens) = cache.get(spec, arithmetic, self.n_threads)?;
        let p = &mut row.provenance;
        let settings = Settings {
            batch: self.batch,
            ..settings(spec, loaded, &tokens, p)?
        };
        let measurement = measure(loaded, &tokens.ids, settings, self.control, &mut |o| {
            reporter.progress(&o);
        })?;
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
            threads: cache
                .model
                .as_ref()
                .map_or(0, |(_, loaded)| loaded.cpu.n_threads()),
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
        let (model, corpus) = (&run.model.path, &run.corpus.path);
        if !hashes.contains_key(model) {
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
    let tokenizer = loaded.tokenizer()?;
    let with_bos = tokenizer.add_bos() && spec.geometry.mode.substitutes_bos();
    p.bos = Some(with_bos);
    let bos = match with_bos {
        true => Some(tokenizer.bos().ok_or(RunError::NoBos)?),
        false => None,
    };
    Ok(Settings {
        geometry: spec.geometry,
        limits: spec.limits,
        bos,
        placement: spec.placement,
        batch: None,
    })
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
            engine: super::engine(),
        },
        outcome: Outcome::NotRun,
        ref_note: String::new(),
        note: String::new(),
    }
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

/// What runs share: the last model, and the tokens of each corpus for it.
pub(super) struct Cache {
    model: Option<(ModelKey, LoadedModel)>,
    tokens: HashMap<PathBuf, Arc<CorpusTokens>>,
    disk: TokenCache,
}

/// A model's file, and how it is tokenized.
type ModelKey = (PathBuf, tokenizer::Options);

/// How it is multiplied, and what is varied.
pub(super) type Arithmetic = (Numerics, Variation);

impl Cache {
    pub(super) fn new(cache_dir: &Path) -> Self {
        Self {
            model: None,
            tokens: HashMap::new(),
            disk: TokenCache::new(cache_dir.join("tokens")),
        }
    }

    /// The model and the tokens of a run. A plan lists the runs of a model
    /// together, so one model is in memory at a time.
    pub(super) fn get(
        &mut self,
        spec: &RunSpec,
        (numerics, variation): Arithmetic,
        n_threads: usize,
    ) -> Result<(&LoadedModel, Arc<CorpusTokens>), RunError> {
        let key = (spec.model.path.clone(), spec.model.tokenizer_options());
        let loaded = match self.model.take() {
            Some((old, loaded)) if old == key => loaded,
            old => {
                // Its memory is wanted for the next one.
                drop(old);
                self.tokens.clear();
                LoadedModel::open(&key.0, &key.1, n_threads)?
            }
        };
        let loaded = loaded.with_numerics(numerics)?.with_variation(variation);
        let (_, loaded) = self.model.insert((key, loaded));
        let path = &spec.corpus.path;
        let tokens = match self.tokens.get(path) {
            Some(tokens) => tokens.clone(),
            None => {
                let tokens = self
                    .disk
                    .tokenize(path, loaded.tokenizer()?, DEFAULT_CHUNK)?;
                let tokens = Arc::new(tokens);
                self.tokens.insert(path.clone(), tokens.clone());
                tokens
            }
        };
        Ok((loaded, tokens))
    }
}
