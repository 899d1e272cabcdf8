//! Where the layers of a model run.

use std::fmt;

use super::cpu::CPU;
use super::device::Device;
use super::partition::Partition;

/// Where the layers of a model run, whatever their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// All layers on one device, in one window.
    Whole(Device),
    /// All layers on one device, so many at a time; each window sees the whole corpus
    /// before the next one.
    Cycle {
        /// Where all layers run.
        device: Device,
        /// Layers of a window; the last may be shorter.
        layers_per_window: usize,
    },
    /// `count` layers from `first` on a device, the others on the CPU.
    Offload {
        /// The device beside the CPU.
        device: Device,
        /// How many layers it has.
        count: usize,
        /// The first of them.
        first: usize,
    },
}

impl Placement {
    /// All layers on the CPU.
    pub const CPU: Self = Placement::Whole(CPU);

    /// So many layers at a time on the CPU.
    pub const fn cpu_cycle(layers_per_window: usize) -> Self {
        let device = CPU;
        Placement::Cycle {
            device,
            layers_per_window,
        }
    }

    /// Whether layer windows take turns on the device.
    pub fn cycles(self) -> bool {
        match self {
            Placement::Whole(_) | Placement::Offload { .. } => false,
            Placement::Cycle { .. } => true,
        }
    }

    /// The device that is named: for an offload, the one that is not the CPU.
    pub fn device(self) -> Device {
        match self {
            Placement::Whole(device)
            | Placement::Cycle { device, .. }
            | Placement::Offload { device, .. } => device,
        }
    }

    /// The device beside the CPU that layers are on.
    pub fn accelerator(self) -> Option<Device> {
        Some(self.device()).filter(|&device| device != CPU)
    }

    /// The devices that layers may be on.
    pub fn devices(self) -> impl Iterator<Item = Device> {
        let also_cpu = match self {
            Placement::Whole(_) | Placement::Cycle { .. } => None,
            Placement::Offload { .. } => Some(CPU),
        };
        also_cpu.into_iter().chain([self.device()])
    }

    /// The layer windows of a model with `n_layers` layers. Layers beyond the
    /// model's are left out.
    pub fn partition(self, n_layers: usize) -> Partition {
        match self {
            Placement::Whole(device) => Partition::whole(device, n_layers),
            Placement::Cycle {
                device,
                layers_per_window,
            } => Partition::cycle(device, n_layers, layers_per_window),
            Placement::Offload {
                device,
                count,
                first,
            } => {
                let layers = first..first.saturating_add(count);
                Partition::offload(n_layers, layers, device, CPU)
            }
        }
    }
}

/// As in run keys.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.device().layers_key();
        match *self {
            Placement::Whole(device) => f.write_str(device.name()),
            Placement::Cycle {
                layers_per_window, ..
            } => write!(f, "{key}={layers_per_window}+cycle"),
            Placement::Offload {
                count, first: 0, ..
            } => write!(f, "{key}={count}"),
            Placement::Offload { count, first, .. } => write!(f, "{key}={count}+{first}"),
        }
    }
}
