//! From tokens to figures.

use std::time::Instant;

use super::input::LoadedModel;
use crate::backend::{Device, Interrupt, LayerWindowModel};
use crate::eval::{
    CheckpointOptions, DeviceError, EvalError, Feed, Geometry, GeometryError, Layered, Limits,
    Moments, WindowPlan, WindowScore, score_layered,
};
use crate::plan::Placement;
use crate::results::{Figures, WindowRow};

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
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error("nothing was scored")]
    Empty,
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
    let Settings {
        geometry, limits, ..
    } = settings;
    let n_ctx_train = loaded.model.n_ctx_train;
    if geometry.n_ctx > n_ctx_train {
        return Err(MeasureError::Context {
            n_ctx: geometry.n_ctx,
            n_ctx_train,
        });
    }
    let plan = WindowPlan::new(tokens.len(), geometry, limits)?;
    let chosen = Feed::batch_for(geometry.n_ctx, loaded.cpu.n_threads());
    let feed = Feed {
        bos: settings.bos,
        batch: settings.batch.unwrap_or(chosen),
    };
    let windows = plan.windows().len();
    let partition = settings.placement.partition(loaded.model.n_layer());
    let streamed;
    let cpu: &dyn LayerWindowModel = match partition.cycles() {
        true => {
            streamed = loaded.cpu.streamed();
            &streamed
        }
        false => &loaded.cpu,
    };
    let model = Layered::new(vec![(Device::Cpu, cpu)], partition)?;
    let mut moments = Moments::default();
    let start = Instant::now();
    let means = (&control.interrupt, &control.checkpoints);
    let scores = score_layered(&model, tokens, &plan, feed, means, &mut |p| {
        for nll in p.new.iter().flat_map(WindowScore::nll) {
            moments.push(nll);
        }
        observe(Observation {
            pass: p.pass,
            passes: p.passes,
            windows_done: p.done,
            windows,
            moments,
            new: p.new,
        });
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
        figures: Figures::new(&moments, &rows).ok_or(MeasureError::Empty)?,
        scored: plan.scored(),
        evaluated: plan.evaluated(),
        seconds,
        windows: rows,
        scores,
    })
}
