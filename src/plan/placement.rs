//! From the placement that was asked for to one that this build can run.

use std::fmt;
use std::ops::Range;

use crate::experiment;

/// A device that layers can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    Cpu,
}

/// A contiguous range of layers on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSpan {
    pub device: Device,
    pub layers: Range<usize>,
}

impl fmt::Display for LayerSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = match self.device {
            Device::Cpu => "cpu",
        };
        write!(f, "{device}[{},{})", self.layers.start, self.layers.end)
    }
}

/// A placement that this build can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// All layers on the CPU.
    Cpu,
}

impl Placement {
    /// The layer windows of a model with `n_layers` layers, in layer order.
    /// They tile `[0, n_layers)`.
    pub fn layer_windows(self, n_layers: usize) -> Vec<LayerSpan> {
        match self {
            Placement::Cpu => vec![LayerSpan {
                device: Device::Cpu,
                layers: 0..n_layers,
            }],
        }
    }
}

/// As in run keys.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Cpu => f.write_str("cpu"),
        }
    }
}

/// A resolved placement; where the planner chose, why it chose so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    pub placement: Placement,
    pub reason: Option<&'static str>,
}

const NO_CUDA: &str = "no CUDA backend in this build";

/// # Errors
/// Why this build cannot run it.
pub(super) fn resolve(asked: experiment::Placement) -> Result<Resolution, String> {
    match asked {
        experiment::Placement::Cpu => Ok(Resolution {
            placement: Placement::Cpu,
            reason: None,
        }),
        experiment::Placement::Auto => Ok(Resolution {
            placement: Placement::Cpu,
            reason: Some(NO_CUDA),
        }),
        experiment::Placement::Cuda | experiment::Placement::GpuLayers { .. } => Err(format!(
            "placement '{asked}' cannot be run: {NO_CUDA}; use \"cpu\" or \"auto\", or leave the \
             combination out with [[exclude]]"
        )),
    }
}
