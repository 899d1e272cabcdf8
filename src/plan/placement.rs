//! From the placement that was asked for to one that this machine can run.

use std::fmt;

use super::Machine;
use crate::backend::cuda::{Budget, CudaError, DeviceInfo, Footprint, Precision};
use crate::backend::{Device, Partition};
use crate::experiment;
use crate::model::Model;

/// A placement that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// All layers on the CPU, in one window.
    Cpu,
    /// All layers on the CPU, so many at a time; each window sees the whole
    /// corpus before the next one.
    CpuCycle { layers_per_window: usize },
    /// All layers on the GPU, in one window.
    Cuda,
    /// `count` layers from `first` on the GPU, the others on the CPU.
    GpuLayers { count: usize, first: usize },
    /// All layers on the GPU, so many at a time.
    CudaCycle { layers_per_window: usize },
}

impl Placement {
    /// Whether layer windows take turns on the device.
    pub fn cycles(self) -> bool {
        match self {
            Placement::Cpu | Placement::Cuda | Placement::GpuLayers { .. } => false,
            Placement::CpuCycle { .. } | Placement::CudaCycle { .. } => true,
        }
    }

    /// Whether layers run on the GPU.
    pub fn uses_gpu(self) -> bool {
        match self {
            Placement::Cpu | Placement::CpuCycle { .. } => false,
            Placement::Cuda | Placement::GpuLayers { .. } | Placement::CudaCycle { .. } => true,
        }
    }

    /// The layer windows of a model with `n_layers` layers. Layers beyond the
    /// model's are left out.
    pub fn partition(self, n_layers: usize) -> Partition {
        match self {
            Placement::Cpu => Partition::whole(Device::Cpu, n_layers),
            Placement::CpuCycle { layers_per_window } => {
                Partition::cycle(Device::Cpu, n_layers, layers_per_window)
            }
            Placement::Cuda => Partition::whole(Device::Cuda, n_layers),
            Placement::GpuLayers { count, first } => {
                let layers = first..first.saturating_add(count);
                Partition::offload(n_layers, layers)
            }
            Placement::CudaCycle { layers_per_window } => {
                Partition::cycle(Device::Cuda, n_layers, layers_per_window)
            }
        }
    }
}

impl From<Placement> for experiment::Placement {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Cpu => experiment::Placement::Cpu,
            Placement::CpuCycle { layers_per_window } => {
                experiment::Placement::CpuCycle { layers_per_window }
            }
            Placement::Cuda => experiment::Placement::Cuda,
            Placement::GpuLayers { count, first } => experiment::Placement::GpuLayers {
                count,
                first,
                cycle: false,
            },
            Placement::CudaCycle { layers_per_window } => experiment::Placement::GpuLayers {
                count: layers_per_window,
                first: 0,
                cycle: true,
            },
        }
    }
}

/// As in run keys.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        experiment::Placement::from(*self).fmt(f)
    }
}

/// A resolved placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    pub placement: Placement,
    /// Where the planner chose, why it chose so.
    pub reason: Option<String>,
    /// What it takes of the GPU's memory; `None` without one, or where the model is
    /// not on disk yet.
    pub footprint: Option<Footprint>,
    /// The GPU's name, where it takes part.
    pub gpu: Option<String>,
}

/// What is to be placed.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// `None` for a model that is not on disk yet: its size is not looked at then.
    pub model: Option<&'a Model>,
    /// Tokens of a window.
    pub n_ctx: usize,
    pub precision: Precision,
}

/// A placement that cannot be run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("placement '{asked}' cannot be run: {why}")]
    Cuda {
        asked: experiment::Placement,
        why: CudaError,
    },
    #[error("placement '{asked}' begins beyond the model's {n_layers} layers")]
    Layers {
        asked: experiment::Placement,
        n_layers: usize,
    },
    #[error("placement '{asked}' cannot be run: it {budget}{advice}")]
    Memory {
        asked: experiment::Placement,
        budget: Budget,
        advice: String,
    },
}

impl Resolution {
    /// # Errors
    /// Why this machine cannot run it.
    pub fn new(
        asked: experiment::Placement,
        machine: &Machine,
        subject: Subject,
    ) -> Result<Self, Unavailable> {
        use experiment::Placement as Asked;
        let placement = match asked {
            Asked::Cpu => Placement::Cpu,
            Asked::CpuCycle { layers_per_window } => Placement::CpuCycle { layers_per_window },
            Asked::Auto => return Ok(Self::chosen(machine, subject)),
            Asked::Cuda => Placement::Cuda,
            Asked::GpuLayers {
                count,
                first,
                cycle: false,
            } => Placement::GpuLayers { count, first },
            Asked::GpuLayers { count, .. } => Placement::CudaCycle {
                layers_per_window: count,
            },
        };
        let of = |footprint, gpu| Self {
            placement,
            reason: None,
            footprint,
            gpu,
        };
        if !placement.uses_gpu() {
            return Ok(of(None, None));
        }
        let unavailable = |why: &CudaError| Unavailable::Cuda {
            asked,
            why: why.clone(),
        };
        let gpu = machine.gpu().map_err(unavailable)?;
        if let (Placement::GpuLayers { first, .. }, Some(model)) = (placement, subject.model)
            && first >= model.n_layer()
        {
            let n_layers = model.n_layer();
            return Err(Unavailable::Layers { asked, n_layers });
        }
        let Some(footprint) = subject.footprint(placement, gpu).transpose() else {
            return Ok(of(None, Some(gpu.name.clone())));
        };
        let footprint = footprint.map_err(|e| unavailable(&e))?;
        let budget = Budget {
            footprint,
            free: gpu.free_bytes,
        };
        if !budget.holds() {
            let smaller = subject.largest_cycle(gpu).ok().flatten();
            let advice = match smaller {
                Some((n, _)) => format!("; gpu_layers = {n} with cycle = true fits"),
                None => "; no cycle fits either: use \"cpu\"".to_owned(),
            };
            return Err(Unavailable::Memory {
                asked,
                budget,
                advice,
            });
        }
        Ok(of(Some(footprint), Some(gpu.name.clone())))
    }

    /// The whole GPU if the model fits, else the largest cycle that fits, else the
    /// CPU.
    fn chosen(machine: &Machine, subject: Subject) -> Self {
        let on_gpu = |placement: Placement| {
            let gpu = machine.gpu().ok().filter(|_| placement.uses_gpu());
            gpu.map(|g| g.name.clone())
        };
        let of = |placement, reason: String, footprint| Self {
            placement,
            reason: Some(reason),
            footprint,
            gpu: on_gpu(placement),
        };
        let gpu = match machine.gpu() {
            Ok(gpu) => gpu,
            Err(e) => {
                let why = match e {
                    CudaError::Missing { library, .. } => format!("{library} cannot be loaded"),
                    e => e.to_string(),
                };
                return of(Placement::Cpu, why, None);
            }
        };
        let whole = match subject.footprint(Placement::Cuda, gpu) {
            Ok(Some(footprint)) => Budget {
                footprint,
                free: gpu.free_bytes,
            },
            Ok(None) => {
                let reason = format!("{}, the model's size not being known yet", gpu.name);
                return of(Placement::Cuda, reason, None);
            }
            Err(e) => return of(Placement::Cpu, e.to_string(), None),
        };
        if whole.holds() {
            let reason = format!("on {} it {whole}", gpu.name);
            return of(Placement::Cuda, reason, Some(whole.footprint));
        }
        match subject.largest_cycle(gpu) {
            Ok(Some((layers_per_window, footprint))) => of(
                Placement::CudaCycle { layers_per_window },
                format!("whole, on {}, it {whole}", gpu.name),
                Some(footprint),
            ),
            Ok(None) => {
                let reason = format!("on {} it {whole}, and no cycle fits either", gpu.name);
                of(Placement::Cpu, reason, None)
            }
            Err(e) => of(Placement::Cpu, e.to_string(), None),
        }
    }
}

impl Subject<'_> {
    /// What a placement takes; `None` for a model that is not on disk.
    fn footprint(
        &self,
        placement: Placement,
        gpu: &DeviceInfo,
    ) -> Result<Option<Footprint>, CudaError> {
        let footprint = |model: &Model| {
            let partition = placement.partition(model.n_layer());
            Footprint::new(model, &partition, self.precision, self.n_ctx, gpu.arch)
        };
        self.model.map(footprint).transpose()
    }

    /// The largest cycle that fits: with room for the next layer window beside the
    /// current one, if there is such a cycle.
    fn largest_cycle(&self, gpu: &DeviceInfo) -> Result<Option<(usize, Footprint)>, CudaError> {
        let Some(model) = self.model else {
            return Ok(None);
        };
        let mut single = None;
        for layers_per_window in (1..model.n_layer()).rev() {
            let placement = Placement::CudaCycle { layers_per_window };
            let Some(footprint) = self.footprint(placement, gpu)? else {
                continue;
            };
            let budget = Budget {
                footprint,
                free: gpu.free_bytes,
            };
            if budget.holds_next() {
                return Ok(Some((layers_per_window, footprint)));
            }
            if single.is_none() && budget.holds() {
                single = Some((layers_per_window, footprint));
            }
        }
        Ok(single)
    }
}
