//! Running: models are loaded, corpora tokenized, windows scored, and figures
//! made of it. `pplx run` does this for each run of a plan, `pplx score` for one.

mod against;
mod attribute;
mod cache;
mod host;
mod input;
mod measure;
mod noise;
mod rerun;
mod sweep;

pub use against::{AgainstError, check_same_text, check_stored};
pub use attribute::{Attribute, AttributeError, Cause};
pub use host::{Clock, memory, peak_rss_mib};
pub use input::{InputError, LoadedModel, model_type};
pub use measure::{
    BaseInput, Control, MeasureError, Measurement, Observation, Settings, measure, measure_against,
    measure_saving,
};
pub use noise::Calibrate;
pub use rerun::RerunReporter;
pub use sweep::{Reporter, Summary, Sweep, SweepError};

/// Name and version, as in result tables, and the GPU where one computes: it rounds
/// in its own way.
pub fn engine(gpu: Option<&str>) -> String {
    let pplx = concat!("pplx ", env!("CARGO_PKG_VERSION"));
    match gpu {
        None => pplx.to_owned(),
        Some(gpu) => format!("{pplx}, {gpu}"),
    }
}
