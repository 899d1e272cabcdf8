//! What a residual is made of.

use std::path::PathBuf;

use crate::results::noise::Shift;
use crate::stats::Estimate;

/// One change, by itself or with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// What was changed, as a table calls it.
    pub name: String,
    /// Δ ln PPL against the run as it is, its error clustered by window.
    pub delta: Estimate,
    /// RMS of the NLL differences; `None` where other targets are scored.
    pub rms: Option<f64>,
    /// `None` without a reference, and where other targets are scored.
    pub residual: Option<Residual>,
}

/// A reference beside a changed run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// The reference against the run with the change.
    pub left: Shift,
    /// Of the change's NLL differences with those of the reference, both against the
    /// run as it is; `None` where one of them does not vary.
    pub correlation: Option<f64>,
}

/// The effects on one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribution {
    /// The run's key.
    pub key: String,
    /// Windows that were scored.
    pub windows: usize,
    /// Tokens that were scored in them.
    pub scored_tokens: usize,
    /// Another engine's NLLs, and how far they are from the run as it is.
    pub reference: Option<(PathBuf, Shift)>,
    /// One change at a time, then all together.
    pub effects: Vec<Effect>,
    /// How far the run with all changes of the arithmetic moves when its inputs
    /// jitter; `None` if none was changed.
    pub chance: Option<Shift>,
}
