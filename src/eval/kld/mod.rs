//! KL divergence of a model from a base: both are walked in lockstep, a batch of
//! corpus windows and a run of the vocabulary at a time, so that no window's
//! logits are ever stored. A base may also be stored, and read back.

mod fold;
mod stored;

use rayon::prelude::*;

use self::fold::{ModelFold, RowKld, StoredFold};
pub use self::stored::{BaseSink, GridRow, StoredBase, StoredRow, TopRow};
use super::checkpoint::CheckpointOptions;
use super::ended::{Distributions, ModelPasses};
use super::error::{EvalError, locate};
use super::geometry::Window;
use super::model::Sequence;
use super::passes::{Batch, Job, Passes, Progress, WindowScore, run_passes};
use super::scorer::Scorer;
use crate::backend::{BackendError, Interrupt, Stage, TokenScore};

/// Vocabulary entries whose logits are made at a time.
const ENTRIES_AT_ONCE: usize = 2048;
/// Bytes of whole rows of logits that are held to store them.
const ROWS_BYTES: usize = 64 << 20;

/// What a model is compared with.
pub enum Base<'a> {
    /// A model that is evaluated beside the other.
    Model(Scorer<'a>),
    /// Distributions of a file.
    Stored(&'a mut dyn StoredBase),
}

/// One scored target under both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenKld {
    /// `−ln p(target)` of the base, in nats.
    pub nll_base: f64,
    /// `−ln p(target)` of the model, in nats.
    pub nll: f64,
    /// `KL(base ‖ model)` over the vocabulary, in nats; an estimate without bias
    /// where the base is stored and of its tail a sample only.
    pub kld: f64,
    /// A lower bound of it, whatever the sample; `kld` itself where there is none.
    pub kld_least: f64,
    /// Variance of the estimate.
    pub kld_variance: f64,
    /// Whether both have the same likeliest token.
    pub same_top: bool,
}

impl TokenKld {
    /// How much likelier the target is under the model.
    pub fn delta_p(&self) -> f64 {
        (-self.nll).exp() - (-self.nll_base).exp()
    }
}

/// Scores as [`score`](super::score) does (the same bits), and compares every scored
/// target's distribution with the base's, in the order of the scores. A model or a
/// base that cycles takes its passes first; the last ones are taken together.
/// `n_threads` compare logits (0: one for each core), which changes no number.
///
/// # Errors
/// Those of scoring, of either model; vocabularies of different sizes; a model that
/// gives no logits; a stored base that cannot be read.
pub fn score_against<'a>(
    model: impl Into<Scorer<'a>>,
    base: Base<'a>,
    n_threads: usize,
    job: Job<'a>,
    each: &mut dyn FnMut(Progress),
) -> Result<(Vec<WindowScore>, Vec<TokenKld>), EvalError> {
    // Both may keep hidden states.
    let checkpoints = CheckpointOptions {
        memory: job.checkpoints.memory / 2,
        ..job.checkpoints.clone()
    };
    let mut passes = PairPasses {
        model: model.into().passes(job, &checkpoints),
        base: match base {
            Base::Model(base) => BasePasses::Model(base.passes(job, &checkpoints)),
            Base::Stored(stored) => BasePasses::Stored(stored),
        },
        threads: threads(n_threads)?,
        interrupt: job.interrupt,
        tokens: Vec::with_capacity(job.plan.scored()),
    };
    let scores = run_passes(&mut passes, job, each)?;
    Ok((scores, passes.tokens))
}

/// Scores, and stores the distribution of every scored target.
///
/// # Errors
/// Those of scoring, and of storing; a model that gives no logits.
pub fn save_base<'a>(
    model: impl Into<Scorer<'a>>,
    sink: &'a mut dyn BaseSink,
    n_threads: usize,
    job: Job<'a>,
    each: &mut dyn FnMut(Progress),
) -> Result<Vec<WindowScore>, EvalError> {
    let mut passes = SavePasses {
        model: model.into().passes(job, job.checkpoints),
        sink,
        threads: threads(n_threads)?,
        interrupt: job.interrupt,
    };
    run_passes(&mut passes, job, each)
}

fn threads(n: usize) -> Result<rayon::ThreadPool, EvalError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build();
    pool.map_err(|e| EvalError::Backend(BackendError::Threads(e.to_string())))
}

enum BasePasses<'a> {
    Model(Box<dyn ModelPasses + 'a>),
    Stored(&'a mut dyn StoredBase),
}

/// The passes of the base but for its last, those of the model but for its last,
/// and the last ones together.
struct PairPasses<'a> {
    base: BasePasses<'a>,
    model: Box<dyn ModelPasses + 'a>,
    threads: rayon::ThreadPool,
    interrupt: &'a Interrupt,
    tokens: Vec<TokenKld>,
}

/// Whose pass it is.
enum Turn {
    Base(usize),
    Model(usize),
    Both,
}

impl PairPasses<'_> {
    fn turn(&self, pass: usize) -> Turn {
        let (base, model) = (self.base_count() - 1, self.model.count() - 1);
        match pass {
            pass if pass < base => Turn::Base(pass),
            pass if pass < base + model => Turn::Model(pass - base),
            _ => Turn::Both,
        }
    }

    fn base_count(&self) -> usize {
        match &self.base {
            BasePasses::Model(base) => base.count(),
            BasePasses::Stored(_) => 1,
        }
    }

    /// The last pass of both.
    fn compare(&mut self, batch: &Batch) -> Result<Option<Vec<Vec<TokenScore>>>, EvalError> {
        let sequences = batch.sequences();
        let last = self.model.count() - 1;
        let Some(ended) = self.model.advance(last, batch)? else {
            return Ok(None);
        };
        // The scores first: making them looks for values that are not finite.
        let (scores, model) = ended.both(&sequences, self.interrupt)?;
        let n_vocab = model.n_vocab();
        let comparison = Comparison {
            model,
            targets: sequences.iter().flat_map(|s| s.targets).copied().collect(),
            threads: &self.threads,
            interrupt: self.interrupt,
        };
        let klds = match &mut self.base {
            BasePasses::Model(base) => {
                let last = base.count() - 1;
                let of_base = |e| of_base(e, batch.windows);
                let Some(ended) = base.advance(last, batch).map_err(of_base)? else {
                    return Ok(None);
                };
                let base = ended.distributions(&sequences).map_err(of_base)?;
                check_vocabulary(base.n_vocab(), n_vocab)?;
                let klds = comparison.with_model(&base, batch.windows)?;
                check_finite(&klds, &sequences, batch.windows)?;
                klds
            }
            BasePasses::Stored(stored) => {
                check_vocabulary(stored.n_vocab(), n_vocab)?;
                comparison.with_stored(&stored.rows(batch.windows)?)?
            }
        };
        let each = klds.iter().zip(scores.iter().flatten());
        self.tokens.extend(each.map(|(row, score)| TokenKld {
            nll_base: row.nll_base,
            nll: score.nll,
            kld: row.kld,
            kld_least: row.least,
            kld_variance: row.variance,
            same_top: row.same_top,
        }));
        Ok(Some(scores))
    }
}

impl Passes for PairPasses<'_> {
    fn count(&self) -> usize {
        self.base_count() + self.model.count() - 1
    }

    fn begin(&mut self, pass: usize) -> Result<(), EvalError> {
        let (last_base, last_model) = (self.base_count() - 1, self.model.count() - 1);
        let (base, model) = match self.turn(pass) {
            Turn::Base(pass) => (Some(pass), None),
            Turn::Model(pass) => (None, Some(pass)),
            Turn::Both => (Some(last_base), Some(last_model)),
        };
        if let (Some(pass), BasePasses::Model(base)) = (base, &mut self.base) {
            base.begin(pass).map_err(|e| of_base(e, &[]))?;
        }
        model.map_or(Ok(()), |pass| self.model.begin(pass))
    }

    fn batch(
        &mut self,
        pass: usize,
        batch: &Batch,
    ) -> Result<Option<Vec<Vec<TokenScore>>>, EvalError> {
        match (self.turn(pass), &mut self.base) {
            (Turn::Base(pass), BasePasses::Model(base)) => {
                let advanced = base.advance(pass, batch);
                advanced.map_err(|e| of_base(e, batch.windows))?;
                Ok(None)
            }
            (Turn::Model(pass), _) => {
                self.model.advance(pass, batch)?;
                Ok(None)
            }
            _ => self.compare(batch),
        }
    }
}

/// Says that it was the base that failed.
fn of_base(e: EvalError, windows: &[Window]) -> EvalError {
    match e {
        EvalError::Backend(BackendError::Interrupted) => e,
        EvalError::Backend(e) => EvalError::Base(Box::new(locate(e, windows))),
        e => EvalError::Base(Box::new(e)),
    }
}

fn check_vocabulary(base: usize, model: usize) -> Result<(), EvalError> {
    match base == model {
        true => Ok(()),
        false => Err(EvalError::Vocabulary { base, model }),
    }
}

/// The model's logits are known to be finite, so what is not is the base's.
fn check_finite(
    rows: &[RowKld],
    sequences: &[Sequence],
    windows: &[Window],
) -> Result<(), EvalError> {
    let places = sequences.iter().enumerate().flat_map(|(i, s)| {
        let rows = s.first_target - 1..;
        rows.take(s.targets.len())
            .map(move |position| (i, position))
    });
    let finite = |r: &RowKld| r.kld.is_finite() && r.nll_base.is_finite();
    match rows.iter().zip(places).find(|(row, _)| !finite(row)) {
        None => Ok(()),
        Some((_, (sequence, position))) => {
            let e = BackendError::NotFinite {
                sequence,
                position,
                stage: Stage::Logits,
            };
            Err(of_base(EvalError::Backend(e), windows))
        }
    }
}

/// The targets of a batch under the model, to be compared with their base.
struct Comparison<'a> {
    model: Distributions<'a>,
    targets: Vec<u32>,
    threads: &'a rayon::ThreadPool,
    interrupt: &'a Interrupt,
}

impl Comparison<'_> {
    /// The logits of some entries of the vocabulary, from `first` on, for all targets.
    fn logits(&self, side: &Distributions, first: usize) -> Result<Vec<f32>, BackendError> {
        let end = (first + ENTRIES_AT_ONCE).min(side.n_vocab());
        side.logits(0..self.targets.len(), first..end, self.interrupt)
    }

    /// The first entry and the number of those that are compared at a time.
    fn parts(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let n_vocab = self.model.n_vocab();
        (0..n_vocab)
            .step_by(ENTRIES_AT_ONCE)
            .map(move |first| (first, ENTRIES_AT_ONCE.min(n_vocab - first)))
    }

    fn with_model(
        &self,
        base: &Distributions,
        windows: &[Window],
    ) -> Result<Vec<RowKld>, EvalError> {
        let targets = self.targets.iter();
        let mut folds: Vec<ModelFold> = targets.map(|&id| ModelFold::new(id)).collect();
        for (first, n) in self.parts() {
            let b = self.logits(base, first);
            let b = b.map_err(|e| of_base(EvalError::Backend(e), windows))?;
            let q = self
                .logits(&self.model, first)
                .map_err(EvalError::Backend)?;
            self.threads.install(|| {
                let logits = b.par_chunks(n).zip(q.par_chunks(n));
                folds
                    .par_iter_mut()
                    .zip(logits)
                    .for_each(|(fold, (b, q))| fold.add(first, b, q));
            });
        }
        Ok(folds.iter().map(ModelFold::finish).collect())
    }

    fn with_stored(&self, rows: &[StoredRow]) -> Result<Vec<RowKld>, EvalError> {
        let each = rows.iter().zip(&self.targets);
        let mut folds: Vec<StoredFold> = each.map(|(row, &id)| StoredFold::new(row, id)).collect();
        for (first, n) in self.parts() {
            let q = self
                .logits(&self.model, first)
                .map_err(EvalError::Backend)?;
            self.threads.install(|| {
                let each = folds.par_iter_mut().zip(q.par_chunks(n));
                each.for_each_init(Vec::new, |scratch, (fold, q)| fold.add(first, q, scratch));
            });
        }
        Ok(folds.iter().map(StoredFold::finish).collect())
    }
}

struct SavePasses<'a> {
    model: Box<dyn ModelPasses + 'a>,
    sink: &'a mut dyn BaseSink,
    threads: rayon::ThreadPool,
    interrupt: &'a Interrupt,
}

impl Passes for SavePasses<'_> {
    fn count(&self) -> usize {
        self.model.count()
    }

    fn begin(&mut self, pass: usize) -> Result<(), EvalError> {
        self.model.begin(pass)
    }

    fn batch(
        &mut self,
        pass: usize,
        batch: &Batch,
    ) -> Result<Option<Vec<Vec<TokenScore>>>, EvalError> {
        let Some(ended) = self.model.advance(pass, batch)? else {
            return Ok(None);
        };
        let sequences = batch.sequences();
        let (scores, distributions) = ended.both(&sequences, self.interrupt)?;
        let n_vocab = distributions.n_vocab();
        let at_once = (ROWS_BYTES / (size_of::<f32>() * n_vocab)).max(1);
        let mut first = 0;
        for (window, sequence) in batch.windows.iter().zip(&sequences) {
            let mut encoded = Vec::with_capacity(sequence.targets.len());
            for (i, targets) in sequence.targets.chunks(at_once).enumerate() {
                let at = window.targets().start + i * at_once;
                let rows = first..first + targets.len();
                first = rows.end;
                let logits = distributions.logits(rows, 0..n_vocab, self.interrupt);
                let logits = logits.map_err(EvalError::Backend)?;
                let sink = &*self.sink;
                encoded.extend(self.threads.install(|| {
                    let rows = logits.par_chunks(n_vocab).zip(targets).enumerate();
                    rows.map(|(i, (logits, &target))| sink.encode(logits, target, at + i))
                        .collect::<Vec<_>>()
                }));
            }
            self.sink.put(window, &encoded)?;
        }
        Ok(Some(scores))
    }
}
