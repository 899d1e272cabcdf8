//! From tokens to figures.

use std::path::PathBuf;
use std::time::Instant;

use crate::backend::{BackendError, Device, Interrupt, Numerics};
use crate::eval::{
    Base, BaseSink, CheckpointOptions, DeviceError, EvalError, Feed, Geometry, GeometryError, Job,
    Limits, Moments, PerplexityModel, Progress, Scorer, StoredBase, TokenKld, WindowPlan,
    WindowScore, save_base, score, score_against,
};
use crate::results::{Figures, NoFigures, WindowRow};
use crate::tokenizer::Tokenizer;

/// A model to measure: anybody's.
pub struct Measurable<'a> {
    /// What gives the scores.
    pub scorer: Scorer<'a>,
    /// The largest context that it can take; `None`: any.
    pub n_ctx_max: Option<usize>,
    /// How many windows of a context are evaluated together where nothing is asked.
    pub batch_for: Box<dyn Fn(usize) -> usize + 'a>,
    /// Threads that compare and store distributions; 0: one for each core.
    pub n_threads: usize,
    /// What a row of its layers and a target of its head add to
    /// [`Interrupt::work`].
    pub row_work: u64,
    /// Work of a scored target, in the same unit.
    pub target_work: u64,
}

impl<'a> Measurable<'a> {
    /// A model that takes a window at a time.
    pub fn new(model: &'a mut impl PerplexityModel) -> Self {
        Self {
            n_ctx_max: model.n_ctx_max(),
            scorer: model.into(),
            batch_for: Box::new(|_| 1),
            n_threads: 0,
            row_work: 0,
            target_work: 0,
        }
    }

    fn check_context(&self, geometry: Geometry) -> Result<(), MeasureError> {
        let n_ctx = geometry.n_ctx;
        match self.n_ctx_max {
            Some(n_ctx_train) if n_ctx > n_ctx_train => {
                Err(MeasureError::Context { n_ctx, n_ctx_train })
            }
            _ => Ok(()),
        }
    }

    /// What it adds to the interrupt's count of work, its head running `heads` times.
    fn work(&self, plan: &WindowPlan, heads: u64) -> u64 {
        // The last token of a window predicts nothing.
        let rows: u64 = plan.windows().iter().map(|w| w.len as u64 - 1).sum();
        self.row_work * rows + heads * self.target_work * plan.scored() as u64
    }
}

/// The bytes of text that token ids stand for.
pub trait Pieces {
    /// Empty where they are not known.
    fn piece(&self, id: u32) -> Vec<u8>;
}

impl Pieces for Tokenizer {
    fn piece(&self, id: u32) -> Vec<u8> {
        Tokenizer::piece(self, id)
    }
}

/// Without them there are no bits per byte, and records have no text.
pub struct NoPieces;

impl Pieces for NoPieces {
    fn piece(&self, _id: u32) -> Vec<u8> {
        Vec::new()
    }
}

/// What a model is measured on.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    /// The whole corpus.
    pub ids: &'a [u32],
    /// The bytes that ids stand for.
    pub pieces: &'a dyn Pieces,
}

impl Text<'_> {
    fn bytes(&self, ids: &[u32]) -> u64 {
        ids.iter()
            .map(|&id| self.pieces.piece(id).len() as u64)
            .sum()
    }
}

/// What to measure, and how.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Context length and mode.
    pub geometry: Geometry,
    /// How much of the text is scored.
    pub limits: Limits,
    /// Replaces the first token of each window.
    pub bos: Option<u32>,
    /// Windows evaluated together; chosen for speed where it is `None`. It never
    /// changes a number.
    pub batch: Option<usize>,
}

/// What a measurement may use and what ends it; none of it changes a number.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Ends a measurement when it is raised.
    pub interrupt: Interrupt,
    /// Where hidden states are kept between passes.
    pub checkpoints: CheckpointOptions,
    /// Where compiled kernels are kept; nowhere by default.
    pub kernels: Option<PathBuf>,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum MeasureError {
    #[error("context {n_ctx} is beyond the {n_ctx_train} that the model was trained for")]
    Context { n_ctx: usize, n_ctx_train: usize },
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("numerics '{numerics}' is not for layers on {device}")]
    Numerics { numerics: Numerics, device: Device },
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error(transparent)]
    NoFigures(#[from] NoFigures),
    #[error("{} was written to while it was measured; run again when it is left alone", path.display())]
    Changed { path: PathBuf },
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The pass over the corpus, from 0, of so many.
    pub pass: usize,
    /// How many passes there are.
    pub passes: usize,
    /// Windows that the pass has evaluated.
    pub windows_done: usize,
    /// How many windows there are.
    pub windows: usize,
    /// What the interrupt will have counted in all: see [`Interrupt::work`].
    pub work: u64,
    /// Tokens that a pass evaluates.
    pub evaluated: usize,
    /// Of all tokens scored so far.
    pub moments: Moments,
    /// The windows that were just finished.
    pub new: &'a [WindowScore],
}

/// A finished measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The score of every target.
    pub scores: Vec<WindowScore>,
    /// Its windows, summed up.
    pub windows: Vec<WindowRow>,
    /// Perplexity and its errors.
    pub figures: Figures,
    /// Targets that were scored.
    pub scored: usize,
    /// Tokens that were evaluated, unscored prefixes included.
    pub evaluated: usize,
    /// Time that evaluation took.
    pub seconds: f64,
}

/// Scores the windows of a text, calling `observe` before the first and after each
/// batch of windows of each pass.
///
/// # Errors
/// A geometry that does not fit the tokens or the model, values that are not
/// finite, scores that are none, interruption.
pub fn measure(
    mut subject: Measurable,
    text: Text,
    settings: &Settings,
    control: &Control,
    observe: &mut dyn FnMut(Observation),
) -> Result<Measurement, MeasureError> {
    let plan = plan(&subject, text, settings)?;
    let measuring = Measuring {
        work: subject.work(&plan, 1),
        feed: settings.feed(&subject),
        plan: &plan,
        text,
        control,
    };
    measuring.run(observe, |job, each| {
        score(subject.scorer.by_ref(), job, each)
    })
}

/// What a model is compared with.
pub enum BaseInput<'a> {
    /// A model that is evaluated beside the other.
    Model(Measurable<'a>),
    /// Distributions of a file.
    Stored(&'a mut dyn StoredBase),
}

/// As [`measure`], which yields the same bits; compares every scored token's
/// distribution with the base's besides. Its tokens, BOS and geometry must be
/// the same.
///
/// # Errors
/// Those of [`measure`] for either model, a stored base that cannot be read, a model
/// that gives no logits.
pub fn measure_against(
    mut subject: Measurable,
    mut base: BaseInput,
    text: Text,
    settings: &Settings,
    control: &Control,
    observe: &mut dyn FnMut(Observation),
) -> Result<(Measurement, Vec<TokenKld>), MeasureError> {
    let plan = plan(&subject, text, settings)?;
    let mut feed = settings.feed(&subject);
    // The head runs for the scores, and once more for the distributions.
    let mut work = subject.work(&plan, 2);
    let base = match &mut base {
        BaseInput::Stored(stored) => {
            feed.batch = feed.batch.min(stored.windows_at_once());
            Base::Stored(&mut **stored)
        }
        BaseInput::Model(base) => {
            base.check_context(settings.geometry)?;
            work += base.work(&plan, 1);
            Base::Model(base.scorer.by_ref())
        }
    };
    let measuring = Measuring {
        work,
        feed,
        plan: &plan,
        text,
        control,
    };
    let mut klds = Vec::new();
    let measurement = measuring.run(observe, |job, each| {
        let (scores, all) =
            score_against(subject.scorer.by_ref(), base, subject.n_threads, job, each)?;
        klds = all;
        Ok(scores)
    })?;
    Ok((measurement, klds))
}

/// As [`measure`]; stores every scored token's distribution besides.
///
/// # Errors
/// Those of [`measure`], and of storing; a model that gives no logits.
pub fn measure_saving(
    mut subject: Measurable,
    sink: &mut dyn BaseSink,
    text: Text,
    settings: &Settings,
    control: &Control,
    observe: &mut dyn FnMut(Observation),
) -> Result<Measurement, MeasureError> {
    let plan = plan(&subject, text, settings)?;
    let measuring = Measuring {
        work: subject.work(&plan, 2),
        feed: settings.feed(&subject),
        plan: &plan,
        text,
        control,
    };
    measuring.run(observe, |job, each| {
        save_base(subject.scorer.by_ref(), sink, subject.n_threads, job, each)
    })
}

impl Settings {
    fn feed(&self, subject: &Measurable) -> Feed {
        Feed {
            bos: self.bos,
            batch: self
                .batch
                .unwrap_or_else(|| (subject.batch_for)(self.geometry.n_ctx)),
        }
    }
}

fn plan(subject: &Measurable, text: Text, settings: &Settings) -> Result<WindowPlan, MeasureError> {
    subject.check_context(settings.geometry)?;
    Ok(WindowPlan::new(
        text.ids.len(),
        settings.geometry,
        settings.limits,
    )?)
}

/// What all measurements share: they observe, and sum up.
struct Measuring<'a> {
    plan: &'a WindowPlan,
    feed: Feed,
    text: Text<'a>,
    control: &'a Control,
    /// What the interrupt will have counted.
    work: u64,
}

impl<'a> Measuring<'a> {
    fn run(
        &'a self,
        observe: &mut dyn FnMut(Observation),
        score: impl FnOnce(Job<'a>, &mut dyn FnMut(Progress)) -> Result<Vec<WindowScore>, EvalError>,
    ) -> Result<Measurement, MeasureError> {
        let plan = self.plan;
        let job = Job {
            tokens: self.text.ids,
            plan,
            feed: self.feed,
            interrupt: &self.control.interrupt,
            checkpoints: &self.control.checkpoints,
        };
        let mut moments = Moments::default();
        let start = Instant::now();
        let scores = score(job, &mut |p| {
            for nll in p.new.iter().flat_map(WindowScore::nll) {
                moments.push(nll);
            }
            observe(Observation {
                pass: p.pass,
                passes: p.passes,
                windows_done: p.done,
                windows: plan.windows().len(),
                work: self.work,
                evaluated: plan.evaluated(),
                moments,
                new: p.new,
            });
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let rows = scores.iter().map(|s| WindowRow {
            window: s.window.index,
            scored: s.tokens.len(),
            nll_sum: s.nll_sum(),
            target_bytes: self.text.bytes(&self.text.ids[s.window.targets()]),
        });
        let windows: Vec<WindowRow> = rows.collect();
        Ok(Measurement {
            figures: Figures::new(&moments, &windows)?,
            scored: plan.scored(),
            evaluated: plan.evaluated(),
            seconds,
            windows,
            scores,
        })
    }
}
