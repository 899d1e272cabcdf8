//! KL divergence of a model from a base: both are walked in lockstep, a batch of
//! corpus windows and a run of the vocabulary at a time, so that no window's
//! logits are ever stored. A base may also be stored, and read back.

mod fold;
mod stored;

use rayon::prelude::*;

use self::fold::{ModelFold, RowKld, StoredFold};
pub use self::stored::{BaseSink, GridRow, StoredBase, StoredError, StoredRow, TopRow};
use super::checkpoint::CheckpointOptions;
use super::geometry::{Window, WindowPlan};
use super::layered::{LayerPasses, Layered, score_targets, targets};
use super::score::{Batch, EvalError, Feed, Passes, Progress, WindowScore, locate, run_passes};
use crate::backend::{
    BackendError, Hidden, Interrupt, LayerWindowModel, Stage, Target, TokenScore,
};

/// Vocabulary entries whose logits are made at a time.
const RUN: usize = 2048;
/// Bytes of whole rows of logits that are held to store them.
const ROWS_BYTES: usize = 64 << 20;

/// What a model is compared with.
pub enum Base<'a> {
    Model(&'a Layered<'a>),
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

/// A model and its base.
pub struct Pair<'m, 'b> {
    pub model: &'m Layered<'m>,
    pub base: Base<'b>,
    /// Threads that compare logits; 0 takes every core. Changes no number.
    pub n_threads: usize,
}

/// Scores as [`score_layered`](super::score_layered) does (the same bits), and
/// compares every scored target's distribution with the base's, in the order of
/// the scores. A model or a base that cycles takes its passes first; the last
/// ones are taken together.
///
/// # Errors
/// Those of scoring, of either model; vocabularies of different sizes; a stored
/// base that cannot be read.
pub fn score_against(
    pair: Pair,
    tokens: &[u32],
    plan: &WindowPlan,
    feed: Feed,
    (interrupt, checkpoints): (&Interrupt, &CheckpointOptions),
    each: &mut dyn FnMut(Progress),
) -> Result<(Vec<WindowScore>, Vec<TokenKld>), EvalError> {
    let Pair {
        model,
        base,
        n_threads,
    } = pair;
    // Both may keep hidden states.
    let checkpoints = CheckpointOptions {
        memory: checkpoints.memory / 2,
        ..checkpoints.clone()
    };
    let means = (interrupt, &checkpoints);
    let mut passes = PairPasses {
        model: LayerPasses::new(model, plan, means),
        base: match base {
            Base::Model(base) => BasePasses::Model(LayerPasses::new(base, plan, means)),
            Base::Stored(stored) => BasePasses::Stored(stored),
        },
        threads: threads(n_threads)?,
        interrupt,
        tokens: Vec::with_capacity(plan.scored()),
    };
    let scores = run_passes(&mut passes, tokens, plan, feed, interrupt, each)?;
    Ok((scores, passes.tokens))
}

/// Scores, and stores the distribution of every scored target.
///
/// # Errors
/// Those of scoring, and of storing.
pub fn save_base(
    model: &Layered,
    (sink, n_threads): (&mut dyn BaseSink, usize),
    tokens: &[u32],
    (plan, feed): (&WindowPlan, Feed),
    means: (&Interrupt, &CheckpointOptions),
    each: &mut dyn FnMut(Progress),
) -> Result<Vec<WindowScore>, EvalError> {
    let mut passes = SavePasses {
        model: LayerPasses::new(model, plan, means),
        sink,
        threads: threads(n_threads)?,
        interrupt: means.0,
    };
    run_passes(&mut passes, tokens, plan, feed, means.0, each)
}

fn threads(n: usize) -> Result<rayon::ThreadPool, EvalError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build();
    pool.map_err(|e| EvalError::Backend(BackendError::Threads(e.to_string())))
}

enum BasePasses<'a> {
    Model(LayerPasses<'a>),
    Stored(&'a mut dyn StoredBase),
}

/// The passes of the base but for its last, those of the model but for its last,
/// and the last ones together.
struct PairPasses<'a> {
    base: BasePasses<'a>,
    model: LayerPasses<'a>,
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
        let targets = targets(&sequences);
        let rows: Vec<usize> = targets.iter().map(|t| t.row).collect();
        let last = self.model.count() - 1;
        let Some((hidden, head)) = self.model.advance(last, batch)? else {
            return Ok(None);
        };
        // First, since it looks for values that are not finite.
        let scores = score_targets(head, &hidden, &sequences, self.interrupt)?;
        let model = Side {
            rows: head.head_rows(&hidden, &rows),
            head,
        };
        let run = Comparison {
            model,
            targets: &targets,
            threads: &self.threads,
            interrupt: self.interrupt,
        };
        let klds = match &mut self.base {
            BasePasses::Model(base) => {
                let last = base.count() - 1;
                let advanced = base.advance(last, batch);
                let Some((hidden, head)) = advanced.map_err(|e| of_base(e, batch.windows))? else {
                    return Ok(None);
                };
                check_vocabulary(head.n_vocab(), run.model.head.n_vocab())?;
                let base = Side {
                    rows: head.head_rows(&hidden, &rows),
                    head,
                };
                let klds = run.with_model(&base, batch.windows)?;
                check_finite(&klds, &targets, &hidden, batch.windows)?;
                klds
            }
            BasePasses::Stored(stored) => {
                check_vocabulary(stored.n_vocab(), run.model.head.n_vocab())?;
                run.with_stored(&stored.rows(batch.windows)?)?
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
    targets: &[Target],
    hidden: &Hidden,
    windows: &[Window],
) -> Result<(), EvalError> {
    let finite = |r: &RowKld| r.kld.is_finite() && r.nll_base.is_finite();
    let Some(i) = rows.iter().position(|r| !finite(r)) else {
        return Ok(());
    };
    let (sequence, position) = hidden.locate(targets[i].row);
    let stage = Stage::Logits;
    let e = BackendError::NotFinite {
        sequence,
        position,
        stage,
    };
    Err(of_base(EvalError::Backend(e), windows))
}

/// A model's rows before the output matrix.
struct Side<'a> {
    head: &'a dyn LayerWindowModel,
    rows: Vec<f32>,
}

struct Comparison<'a> {
    model: Side<'a>,
    targets: &'a [Target],
    threads: &'a rayon::ThreadPool,
    interrupt: &'a Interrupt,
}

impl Comparison<'_> {
    /// The logits of a run of the vocabulary for all rows.
    fn logits(&self, side: &Side, first: usize) -> Result<Vec<f32>, BackendError> {
        let end = (first + RUN).min(side.head.n_vocab());
        side.head.logits(&side.rows, first..end, self.interrupt)
    }

    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let n_vocab = self.model.head.n_vocab();
        (0..n_vocab)
            .step_by(RUN)
            .map(move |first| (first, RUN.min(n_vocab - first)))
    }

    fn with_model(&self, base: &Side, windows: &[Window]) -> Result<Vec<RowKld>, EvalError> {
        let new = |t: &Target| ModelFold::new(t.id);
        let mut folds: Vec<ModelFold> = self.targets.iter().map(new).collect();
        for (first, n) in self.runs() {
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
        let each = rows.iter().zip(self.targets);
        let mut folds: Vec<StoredFold> = each.map(|(row, t)| StoredFold::new(row, t.id)).collect();
        for (first, n) in self.runs() {
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
    model: LayerPasses<'a>,
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
        let Some((hidden, head)) = self.model.advance(pass, batch)? else {
            return Ok(None);
        };
        let sequences = batch.sequences();
        let scores = score_targets(head, &hidden, &sequences, self.interrupt)?;
        let n_vocab = head.n_vocab();
        let at_once = (ROWS_BYTES / (size_of::<f32>() * n_vocab)).max(1);
        let targets = targets(&sequences);
        let mut rest = targets.as_slice();
        for (window, sequence) in batch.windows.iter().zip(&sequences) {
            let (targets, others) = rest.split_at(sequence.targets.len());
            rest = others;
            let mut encoded = Vec::with_capacity(targets.len());
            for (i, targets) in targets.chunks(at_once).enumerate() {
                let first = window.targets().start + i * at_once;
                let rows: Vec<usize> = targets.iter().map(|t| t.row).collect();
                let rows = head.head_rows(&hidden, &rows);
                let logits = head.logits(&rows, 0..n_vocab, self.interrupt);
                let logits = logits.map_err(EvalError::Backend)?;
                let sink = &*self.sink;
                encoded.extend(self.threads.install(|| {
                    let rows = logits.par_chunks(n_vocab).zip(targets).enumerate();
                    rows.map(|(i, (logits, target))| sink.encode(logits, target.id, first + i))
                        .collect::<Vec<_>>()
                }));
            }
            self.sink.put(window, &encoded)?;
        }
        Ok(Some(scores))
    }
}
