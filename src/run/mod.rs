//! Running: models are loaded, corpora tokenized, windows scored, and figures
//! made of it. `pplx run` does this for each run of a plan, `pplx score` for one.

mod against;
mod attribute;
mod cache;
mod engine;
mod error;
mod finished;
mod host;
mod input;
mod inputs;
mod measure;
mod noise;
mod ready;
mod remarks;
mod rerun;
mod selection;
mod sweep;

pub use against::{AgainstError, check_same_text, check_stored};
pub use attribute::{Attribute, AttributeError, Cause};
pub use engine::{engine, version};
pub use error::SweepError;
pub use finished::Finished;
pub use host::{Clock, memory, peak_rss_mib};
pub use input::{InputError, LoadedModel, model_size, model_type};
pub use measure::{
    BaseInput, Control, Measurable, MeasureError, Measurement, NoPieces, Observation, Pieces,
    Settings, Text, measure, measure_against, measure_saving,
};
pub use noise::Calibrate;
pub use ready::identify;
pub use remarks::remarks;
pub use rerun::RerunReporter;
pub use selection::Selection;
pub use sweep::{Reporter, Summary, Sweep};
