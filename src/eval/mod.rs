//! Evaluation: window geometry, scoring, statistics.

mod geometry;
mod model;
mod score;

pub use geometry::{Geometry, GeometryError, Limits, Mode, Window, WindowPlan};
pub use model::{FromLogits, Layered, LogitsModel, PerplexityModel, Sequence};
pub use score::{EvalError, Feed, WindowScore, score_windows};
