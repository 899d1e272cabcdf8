//! Placements as they are written, in experiment files and on the command line.

use std::fmt;

/// Where the layers of a model are asked to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The planner chooses.
    Auto,
    Cpu,
    Cuda,
    /// `count` layers from `first` on CUDA, the others on the CPU; with `cycle`
    /// all layers on CUDA, `count` at a time.
    GpuLayers {
        count: usize,
        first: usize,
        cycle: bool,
    },
    /// All layers on the CPU, so many at a time.
    CpuCycle {
        layers_per_window: usize,
    },
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Placement::Auto => f.write_str("auto"),
            Placement::Cpu => f.write_str("cpu"),
            Placement::Cuda => f.write_str("cuda"),
            Placement::GpuLayers {
                count,
                first,
                cycle,
            } => {
                write!(f, "gpu_layers={count}")?;
                if first > 0 {
                    write!(f, "+{first}")?;
                }
                if cycle {
                    f.write_str("+cycle")?;
                }
                Ok(())
            }
            Placement::CpuCycle { layers_per_window } => {
                write!(f, "cpu_layers={layers_per_window}+cycle")
            }
        }
    }
}

/// A device by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DeviceName {
    Cpu,
    Cuda,
}

impl DeviceName {
    pub const ALL: [DeviceName; 2] = [DeviceName::Cpu, DeviceName::Cuda];

    pub fn name(self) -> &'static str {
        match self {
            DeviceName::Cpu => "cpu",
            DeviceName::Cuda => "cuda",
        }
    }
}

/// The settings that make a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementParts {
    pub device: Option<DeviceName>,
    pub gpu_layers: Option<usize>,
    pub first_layer: Option<usize>,
    pub layers_per_window: Option<usize>,
    pub cycle: bool,
}

/// A setting that does not go with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementError {
    /// Its key in an experiment file; as an option, `-` stands for `_`.
    pub key: &'static str,
    /// What is wrong with it, to be read after its name.
    pub why: &'static str,
}

impl PlacementParts {
    /// # Errors
    /// The first setting that does not go with the others.
    pub fn placement(self) -> Result<Placement, PlacementError> {
        let refuse = |key, why| Err(PlacementError { key, why });
        let on_cpu = self.device == Some(DeviceName::Cpu);
        match (self.gpu_layers, self.layers_per_window) {
            (Some(_), Some(_)) => refuse(
                "layers_per_window",
                "is for cycles on the CPU; on a GPU the number of GPU layers is the window",
            ),
            (Some(_), None) if on_cpu => refuse("gpu_layers", "has no meaning on the CPU"),
            (Some(_), None) if self.cycle && self.first_layer.is_some() => refuse(
                "first_layer",
                "has no meaning in a cycle: a cycle covers all layers",
            ),
            (Some(count), None) => Ok(Placement::GpuLayers {
                count,
                first: self.first_layer.unwrap_or(0),
                cycle: self.cycle,
            }),
            (None, _) if self.first_layer.is_some() => refuse(
                "first_layer",
                "goes with a number of GPU layers only: it is the first of them",
            ),
            (None, Some(_)) if !on_cpu => refuse(
                "layers_per_window",
                "is for cycles on the CPU: name the device cpu",
            ),
            (None, Some(_)) if !self.cycle => refuse(
                "layers_per_window",
                "is for cycles only: without one there are no windows to leave the device",
            ),
            (None, Some(layers_per_window)) => Ok(Placement::CpuCycle { layers_per_window }),
            (None, None) if self.cycle => refuse(
                "cycle",
                "needs the layers of a window: on the CPU layers per window, on a GPU its layers",
            ),
            (None, None) => Ok(match self.device {
                None => Placement::Auto,
                Some(DeviceName::Cpu) => Placement::Cpu,
                Some(DeviceName::Cuda) => Placement::Cuda,
            }),
        }
    }
}
