//! Evaluation: window geometry, scoring, statistics.

mod geometry;
mod stats;

pub use geometry::{Geometry, GeometryError, Limits, Mode, Window, WindowPlan};
pub use stats::{Cluster, ClusteredMean, Moments, clustered_mean};
