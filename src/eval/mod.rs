//! Evaluation: window geometry, scoring, statistics.

mod geometry;
mod model;
mod score;
mod stats;

pub use geometry::{Geometry, GeometryError, Limits, Mode, Window, WindowPlan};
pub use model::{FromLogits, Layered, LogitsModel, PerplexityModel, Sequence};
pub use score::{EvalError, Feed, WindowScore, score_windows};
pub use stats::{Cluster, ClusteredMean, Moments, clustered_mean};
