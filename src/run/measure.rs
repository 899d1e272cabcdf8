//! From tokens to figures.

use std::path::PathBuf;
use std::time::Instant;

use super::input::LoadedModel;
use crate::backend::{
    BackendError, CPU, Device, Interrupt, LayerWindowModel, Numerics, OpenOptions, work,
};
use crate::eval::{
    Base, BaseSink, CheckpointOptions, DeviceError, EvalError, Feed, Geometry, GeometryError,
    Layered, Limits, Moments, Pair, Progress, StoredBase, TokenKld, WindowPlan, WindowScore,
    save_base, score_against, score_layered,
};
use crate::model::Model;
use crate::plan::Placement;
use crate::results::{Figures, NoFigures, WindowRow};

/// What to measure, and how.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub geometry: Geometry,
    pub limits: Limits,
    /// Replaces the first token of each window.
    pub bos: Option<u32>,
    pub placement: Placement,
    /// Windows evaluated together; chosen for speed where it is `None`. It never
    /// changes a number.
    pub batch: Option<usize>,
}

/// What a measurement may use and what ends it; none of it changes a number.
#[derive(Clone, Debug, Default)]
pub struct Control {
    pub interrupt: Interrupt,
    pub checkpoints: CheckpointOptions,
    /// Where compiled kernels are kept; nowhere by default.
    pub kernels: Option<PathBuf>,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
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
    pub passes: usize,
    /// Windows that the pass has evaluated.
    pub windows_done: usize,
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
    pub scores: Vec<WindowScore>,
    pub windows: Vec<WindowRow>,
    pub figures: Figures,
    pub scored: usize,
    /// Tokens that were evaluated, unscored prefixes included.
    pub evaluated: usize,
    /// Time that evaluation took.
    pub seconds: f64,
}

/// Scores `tokens`, calling `observe` before the first and after each batch of
/// windows of each pass.
///
/// # Errors
/// A geometry that does not fit the tokens or the model, values that are not
/// finite, interruption.
pub fn measure(
    loaded: &LoadedModel,
    tokens: &[u32],
    settings: Settings,
    control: &Control,
    observe: &mut dyn FnMut(Observation),
) -> Result<Measurement, MeasureError> {
    let means = (&control.interrupt, &control.checkpoints);
    measure_by(
        loaded,
        tokens,
        settings,
        (control, &[(&loaded.model, 1)]),
        observe,
        |model, plan, feed, each| score_layered(model, tokens, plan, feed, means, each),
    )
}

/// What a model is compared with.
pub enum BaseInput<'a> {
    Model {
        loaded: &'a LoadedModel,
        placement: Placement,
    },
    Stored(&'a mut dyn StoredBase),
}

/// As [`measure`], which yields the same bits; compares every scored token's
/// distribution with the base's besides. Its tokens, BOS and geometry must be
/// the same.
///
/// # Errors
/// Those of [`measure`] for either model, a stored base that cannot be read.
pub fn measure_against(
    loaded: &LoadedModel,
    base: BaseInput,
    tokens: &[u32],
    settings: Settings,
    control: &Control,
    observe: &mut dyn FnMut(Observation),
) -> Result<(Measurement, Vec<TokenKld>), MeasureError> {
    let means = (&control.interrupt, &control.checkpoints);
    let n_threads = loaded.cpu.n_threads();
    let mut klds = Vec::new();
    let mut against = |base: Base, mut settings: Settings, heads: &[(&Model, u64)]| {
        if let Base::Stored(stored) = &base {
            let at_once = stored.windows_at_once();
            settings.batch = Some(settings.batch_for(loaded).min(at_once));
        }
        measure_by(
            loaded,
            tokens,
            settings,
            (control, heads),
            observe,
            |model, plan, feed, each| {
                let pair = Pair {
                    model,
                    base,
                    n_threads,
                };
                let (scores, all) = score_against(pair, tokens, plan, feed, means, each)?;
                klds = all;
                Ok(scores)
            },
        )
    };
    let measurement = match base {
        BaseInput::Stored(stored) => {
            against(Base::Stored(stored), settings, &[(&loaded.model, 2)])?
        }
        BaseInput::Model {
            loaded: base,
            placement,
        } => {
            check_context(base, settings.geometry)?;
            let heads = [(&*loaded.model, 2), (&*base.model, 1)];
            with_layers(base, placement, control, |base| {
                against(Base::Model(base), settings, &heads)
            })?
        }
    };
    Ok((measurement, klds))
}

/// As [`measure`]; stores every scored token's distribution besides.
///
/// # Errors
/// Those of [`measure`], and of storing.
pub fn measure_saving(
    loaded: &LoadedModel,
    sink: &mut dyn BaseSink,
    tokens: &[u32],
    settings: Settings,
    control: &Control,
    observe: &mut dyn FnMut(Observation),
) -> Result<Measurement, MeasureError> {
    let means = (&control.interrupt, &control.checkpoints);
    let sink = (sink, loaded.cpu.n_threads());
    measure_by(
        loaded,
        tokens,
        settings,
        (control, &[(&loaded.model, 2)]),
        observe,
        |model, plan, feed, each| save_base(model, sink, tokens, (plan, feed), means, each),
    )
}

impl Settings {
    fn batch_for(&self, loaded: &LoadedModel) -> usize {
        let n_ctx = self.geometry.n_ctx;
        let chosen = || {
            let by_device = self.placement.device().batch_windows(n_ctx);
            by_device.unwrap_or_else(|| Feed::batch_for(n_ctx, loaded.cpu.n_threads()))
        };
        self.batch.unwrap_or_else(chosen)
    }
}

/// What a model's layers, and its head so many times, count for a plan's windows.
fn work_of(model: &Model, plan: &WindowPlan, heads: u64) -> u64 {
    // The last token of a window predicts nothing.
    let rows = plan.windows().iter().map(|w| w.len - 1).sum();
    let layers = (0..model.n_layer()).map(|i| work(model.layer_elements(i), rows));
    let head = &model.head.weight;
    layers.sum::<u64>() + heads * work(head.n_in * head.n_out, plan.scored())
}

fn check_context(loaded: &LoadedModel, geometry: Geometry) -> Result<(), MeasureError> {
    let (n_ctx, n_ctx_train) = (geometry.n_ctx, loaded.model.n_ctx_train);
    match n_ctx > n_ctx_train {
        true => Err(MeasureError::Context { n_ctx, n_ctx_train }),
        false => Ok(()),
    }
}

/// Puts a model's layer windows where a placement wants them.
fn with_layers<T>(
    loaded: &LoadedModel,
    placement: Placement,
    control: &Control,
    f: impl FnOnce(&Layered) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let partition = placement.partition(loaded.model.n_layer());
    let numerics = loaded.numerics;
    let mut used = partition.devices();
    if let Some(&device) = used.iter().find(|device| !device.can_do(numerics)) {
        return Err(MeasureError::Numerics { numerics, device });
    }
    let streamed;
    let cpu: &dyn LayerWindowModel = match partition.cycles() {
        true => {
            streamed = loaded.cpu.streamed();
            &streamed
        }
        false => &loaded.cpu,
    };
    let options = OpenOptions {
        numerics,
        n_threads: loaded.cpu.n_threads(),
        cache: control.kernels.as_deref(),
    };
    used.retain(|&device| device != CPU);
    let opened: Vec<Box<dyn LayerWindowModel>> = used
        .iter()
        .map(|device| device.open(loaded.model.clone(), &options))
        .collect::<Result<_, _>>()?;
    let opened = opened.iter().map(|model| &**model);
    let mut devices = vec![(CPU, cpu)];
    devices.extend(used.into_iter().zip(opened));
    let result = f(&Layered::new(devices, partition)?)?;
    match loaded.written_to() {
        None => Ok(result),
        Some(path) => Err(MeasureError::Changed {
            path: path.to_owned(),
        }),
    }
}

/// Plans, lets `score` do the scoring, and sums up. The models that take part come
/// with how often their heads are run.
fn measure_by(
    loaded: &LoadedModel,
    tokens: &[u32],
    settings: Settings,
    (control, heads): (&Control, &[(&Model, u64)]),
    observe: &mut dyn FnMut(Observation),
    score: impl FnOnce(
        &Layered,
        &WindowPlan,
        Feed,
        &mut dyn FnMut(Progress),
    ) -> Result<Vec<WindowScore>, EvalError>,
) -> Result<Measurement, MeasureError> {
    let Settings {
        geometry, limits, ..
    } = settings;
    check_context(loaded, geometry)?;
    let plan = WindowPlan::new(tokens.len(), geometry, limits)?;
    let feed = Feed {
        bos: settings.bos,
        batch: settings.batch_for(loaded),
    };
    let windows = plan.windows().len();
    let work = heads
        .iter()
        .map(|&(m, heads)| work_of(m, &plan, heads))
        .sum();
    let mut moments = Moments::default();
    let start = Instant::now();
    let scores = with_layers(loaded, settings.placement, control, |model| {
        let scores = score(model, &plan, feed, &mut |p| {
            for nll in p.new.iter().flat_map(WindowScore::nll) {
                moments.push(nll);
            }
            observe(Observation {
                pass: p.pass,
                passes: p.passes,
                windows_done: p.done,
                windows,
                work,
                evaluated: plan.evaluated(),
                moments,
                new: p.new,
            });
        });
        Ok(scores?)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let rows: Vec<WindowRow> = scores
        .iter()
        .map(|s| WindowRow {
            window: s.window.index,
            scored: s.tokens.len(),
            nll_sum: s.nll_sum(),
            target_bytes: loaded.text_bytes(&tokens[s.window.targets()]),
        })
        .collect();
    Ok(Measurement {
        figures: Figures::new(&moments, &rows)?,
        scored: plan.scored(),
        evaluated: plan.evaluated(),
        seconds,
        windows: rows,
        scores,
    })
}
