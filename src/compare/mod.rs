//! Two sets of results beside each other: differences, their tests, bounds on them.
//!
//! Works on what was read of tables and records, never on live objects.

mod attribution;
mod axis;
pub mod diff;
mod gate;
mod noise_floor;
mod paired;
mod scatter;
mod tokens;

pub use attribution::{Attribution, Effect, Residual};
pub use axis::{Axis, Between, KeyPair, Pair, Pairing};
pub use gate::{Gate, Judge, Judgement, Measured};
pub use noise_floor::{MaxDelta, NoiseFloor};
pub use paired::{MovedWindow, Paired, moved_windows, paired};
pub use scatter::{Differ, PRIOR_TOKEN_SD, Scatter, between_tables, within_table};
pub use tokens::{MovedScore, MovedToken, TokenComparison};
