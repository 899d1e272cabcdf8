//! Evaluation: window geometry, scoring, statistics.

mod checkpoint;
mod geometry;
mod kld;
mod layered;
mod model;
mod score;

pub use crate::stats::{Cluster, ClusteredMean, Moments, clustered_mean};
pub use checkpoint::{CheckpointError, CheckpointOptions, MIB};
pub use geometry::{Geometry, GeometryError, Limits, Mode, Window, WindowPlan};
pub use kld::{
    Base, BaseSink, GridRow, Pair, StoredBase, StoredError, StoredRow, TokenKld, TopRow, save_base,
    score_against,
};
pub use layered::{DeviceError, Layered, score_layered};
pub use model::{FromLogits, LogitsModel, PerplexityModel, Sequence};
pub use score::{EvalError, Feed, Progress, WindowScore, score_windows};
