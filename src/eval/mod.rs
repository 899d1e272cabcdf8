//! Evaluation: window geometry, scoring, statistics.

mod geometry;

pub use geometry::{Geometry, GeometryError, Limits, Mode, Window, WindowPlan};
