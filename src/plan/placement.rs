//! From the placement that was asked for to one that this build can run.

use std::fmt;

use crate::backend::{Device, Partition};
use crate::experiment;

/// A placement that this build can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// All layers on the CPU, in one window.
    Cpu,
    /// All layers on the CPU, so many at a time; each window sees the whole
    /// corpus before the next one.
    CpuCycle { layers_per_window: usize },
}

impl Placement {
    /// Whether layer windows take turns on the device.
    pub fn cycles(self) -> bool {
        match self {
            Placement::Cpu => false,
            Placement::CpuCycle { .. } => true,
        }
    }

    /// The layer windows of a model with `n_layers` layers.
    pub fn partition(self, n_layers: usize) -> Partition {
        match self {
            Placement::Cpu => Partition::whole(Device::Cpu, n_layers),
            Placement::CpuCycle { layers_per_window } => {
                Partition::cycle(Device::Cpu, n_layers, layers_per_window)
            }
        }
    }
}

/// As in run keys.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Placement::Cpu => experiment::Placement::Cpu,
            Placement::CpuCycle { layers_per_window } => {
                experiment::Placement::CpuCycle { layers_per_window }
            }
        }
        .fmt(f)
    }
}

/// A resolved placement; where the planner chose, why it chose so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    pub placement: Placement,
    pub reason: Option<&'static str>,
}

const NO_CUDA: &str = "no CUDA backend in this build";

/// A placement that this build cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("placement '{0}' cannot be run: {NO_CUDA}")]
pub struct Unavailable(String);

impl Resolution {
    /// # Errors
    /// Why this build cannot run it.
    pub fn new(asked: experiment::Placement) -> Result<Self, Unavailable> {
        use experiment::Placement as Asked;
        let (placement, reason) = match asked {
            Asked::Cpu => (Placement::Cpu, None),
            Asked::CpuCycle { layers_per_window } => {
                (Placement::CpuCycle { layers_per_window }, None)
            }
            Asked::Auto => (Placement::Cpu, Some(NO_CUDA)),
            Asked::Cuda | Asked::GpuLayers { .. } => return Err(Unavailable(asked.to_string())),
        };
        Ok(Self { placement, reason })
    }
}
