//! Statistics: pure functions of slices of numbers, which know nothing of runs.
//! Whoever compares figures (`compare`) decides what goes in.

pub mod format;
mod mean;
mod multiple;
pub mod power;
mod sign_flip;
mod spread;
mod student;

pub use mean::{Cluster, ClusteredMean, Moments, clustered_mean};
pub use multiple::benjamini_hochberg;
#[cfg(test)]
pub(crate) use sign_flip::Normal;
pub(crate) use sign_flip::SplitMix64;
pub use sign_flip::sign_flip_p;
pub use spread::{
    Estimate, PERCENTILES, Summary, correlation, mean, percentile, root_mean_square, share,
};
pub use student::Student;
