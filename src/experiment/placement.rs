//! Placements as they are written, in experiment files and on the command line.

use std::fmt;

use crate::backend::{ACCELERATORS, CPU, Device, Placement};

/// Where the layers of a model are asked to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementRequest {
    /// The planner chooses.
    Auto,
    /// This one, or an error where it cannot be run.
    Fixed(Placement),
}

/// As in labels and excludes.
impl fmt::Display for PlacementRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementRequest::Auto => f.write_str("auto"),
            PlacementRequest::Fixed(placement) => placement.fmt(f),
        }
    }
}

/// The settings that make a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementParts {
    /// The device that is named.
    pub device: Option<Device>,
    /// Layers on the accelerator.
    pub gpu_layers: Option<usize>,
    /// The first of them.
    pub first_layer: Option<usize>,
    /// Layers of a window of a cycle.
    pub layers_per_window: Option<usize>,
    /// Whether windows of layers take turns on the device.
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
    pub fn placement(self) -> Result<PlacementRequest, PlacementError> {
        let refuse = |key, why| Err(PlacementError { key, why });
        let fixed = |placement| Ok(PlacementRequest::Fixed(placement));
        let on_cpu = self.device == Some(CPU);
        let accelerator = self.device.or(ACCELERATORS.first().copied());
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
            (Some(count), None) => match accelerator {
                None => refuse(
                    "gpu_layers",
                    "has no meaning: this build is for the CPU alone",
                ),
                Some(device) if self.cycle => fixed(Placement::Cycle {
                    device,
                    layers_per_window: count,
                }),
                Some(device) => fixed(Placement::Offload {
                    device,
                    count,
                    first: self.first_layer.unwrap_or(0),
                }),
            },
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
            (None, Some(layers_per_window)) => fixed(Placement::cpu_cycle(layers_per_window)),
            (None, None) if self.cycle => refuse(
                "cycle",
                "needs the layers of a window: on the CPU layers per window, on a GPU its layers",
            ),
            (None, None) => match self.device {
                None => Ok(PlacementRequest::Auto),
                Some(device) => fixed(Placement::Whole(device)),
            },
        }
    }
}
