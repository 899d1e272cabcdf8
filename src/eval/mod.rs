//! Evaluation: window geometry, scoring, KL divergences.

mod checkpoint;
mod ended;
mod error;
mod geometry;
mod kld;
mod layered;
mod model;
mod passes;
mod scorer;

pub use crate::stats::{Cluster, ClusteredMean, Moments, clustered_mean};
pub use checkpoint::{CheckpointOptions, MIB};
pub use error::{CheckpointError, DeviceError, EvalError, StoredError};
pub use geometry::{Geometry, GeometryError, Limits, Mode, Window, WindowPlan};
pub use kld::{
    Base, BaseSink, GridRow, StoredBase, StoredRow, TokenKld, TopRow, save_base, score_against,
};
pub use layered::Layered;
pub use model::{FromLogits, LogitsModel, PerplexityModel, Sequence};
pub use passes::{Feed, Job, Progress, WindowScore};
pub use scorer::{Scorer, score};
