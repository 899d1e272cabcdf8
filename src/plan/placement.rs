//! From the placement that was asked for to one that this machine can run.

use super::Machine;
use crate::backend::{
    ACCELERATORS, BackendError, Budget, CPU, Device, Footprint, FoundDevice, Numerics, Placement,
};
use crate::experiment::PlacementRequest;
use crate::model::Model;

/// A placement that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Which device computes which layers.
    pub placement: Placement,
    /// Where the planner chose, why it chose so.
    pub reason: Option<String>,
    /// What it takes of the device's memory; `None` on the CPU, or where the model is
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
    /// The arithmetic.
    pub numerics: Numerics,
}

/// A placement that cannot be run here.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum Unavailable {
    #[error("placement '{asked}' cannot be run: {why}")]
    Device { asked: Placement, why: BackendError },
    #[error("numerics '{numerics}' is not for layers on {device}")]
    Numerics { numerics: Numerics, device: Device },
    #[error("numerics '{numerics}' needs a GPU: {why}")]
    NumericsNeedGpu { numerics: Numerics, why: String },
    #[error("placement '{asked}' begins beyond the model's {n_layers} layers")]
    Layers { asked: Placement, n_layers: usize },
    #[error("placement '{asked}' cannot be run: it {budget}{advice}")]
    Memory {
        asked: Placement,
        budget: Budget,
        advice: String,
    },
}

impl Resolution {
    /// # Errors
    /// Why this machine cannot run it.
    pub fn new(
        asked: PlacementRequest,
        machine: &Machine,
        subject: Subject,
    ) -> Result<Self, Unavailable> {
        match asked {
            PlacementRequest::Auto => Self::chosen(machine, subject),
            PlacementRequest::Fixed(placement) => Self::checked(placement, machine, subject),
        }
    }

    /// On the CPU.
    fn on_cpu(reason: Option<String>) -> Self {
        Self {
            placement: Placement::CPU,
            reason,
            footprint: None,
            gpu: None,
        }
    }

    /// The placement that was asked for, if it can be run.
    fn checked(
        placement: Placement,
        machine: &Machine,
        subject: Subject,
    ) -> Result<Self, Unavailable> {
        let (asked, numerics) = (placement, subject.numerics);
        if let Some(device) = placement.devices().find(|d| !d.can_do(numerics)) {
            return Err(Unavailable::Numerics { numerics, device });
        }
        let of = |footprint, gpu| Self {
            placement,
            reason: None,
            footprint,
            gpu,
        };
        let Some(device) = placement.accelerator() else {
            return Ok(of(None, None));
        };
        let unavailable = |why| Unavailable::Device { asked, why };
        let found = machine.find(device).map_err(unavailable)?;
        if let (Placement::Offload { first, .. }, Some(model)) = (placement, subject.model)
            && first >= model.n_layer()
        {
            let n_layers = model.n_layer();
            return Err(Unavailable::Layers { asked, n_layers });
        }
        let gpu = Some(found.name().to_owned());
        let Some(footprint) = subject.footprint(placement, found).transpose() else {
            return Ok(of(None, gpu));
        };
        let budget = Budget {
            footprint: footprint.map_err(unavailable)?,
            free: found.free_bytes(),
        };
        if !budget.holds() {
            let smaller = subject.largest_cycle(device, found).ok().flatten();
            let advice = match smaller {
                Some((n, _)) => {
                    // Without a device the first is meant.
                    let named = match ACCELERATORS.first() {
                        Some(&first) if first == device => String::new(),
                        _ => format!("device = \"{device}\", "),
                    };
                    format!("; {named}gpu_layers = {n} with cycle = true fits")
                }
                None => "; no cycle fits either: use \"cpu\"".to_owned(),
            };
            return Err(Unavailable::Memory {
                asked,
                budget,
                advice,
            });
        }
        Ok(of(Some(budget.footprint), gpu))
    }

    /// What suits the machine, or why numerics that are for a GPU have none: the first
    /// device that can be taken, else the CPU.
    fn chosen(machine: &Machine, subject: Subject) -> Result<Self, Unavailable> {
        let numerics = subject.numerics;
        let mut why = Vec::new();
        for device in machine.devices().filter(|d| d.can_do(numerics)) {
            match Self::on(device, machine, subject) {
                Ok(found) => return Ok(found),
                Err(reason) => why.push(reason),
            }
        }
        match why.join("; ") {
            why if !CPU.can_do(numerics) => Err(Unavailable::NumericsNeedGpu { numerics, why }),
            why if why.is_empty() => {
                let reason = format!("numerics '{numerics}' is for the CPU");
                Ok(Self::on_cpu(Some(reason)))
            }
            why => Ok(Self::on_cpu(Some(why))),
        }
    }

    /// The whole device if the model fits, else the largest cycle that fits, else why
    /// neither does.
    fn on(device: Device, machine: &Machine, subject: Subject) -> Result<Self, String> {
        let found = machine.find(device).map_err(|e| e.brief())?;
        let name = found.name();
        let of = |placement, reason: String, footprint| Self {
            placement,
            reason: Some(reason),
            footprint,
            gpu: Some(name.to_owned()),
        };
        let whole = Placement::Whole(device);
        let footprint = subject.footprint(whole, found).map_err(|e| e.to_string())?;
        let Some(footprint) = footprint else {
            let reason = format!("{name}, the model's size not being known yet");
            return Ok(of(whole, reason, None));
        };
        let budget = Budget {
            footprint,
            free: found.free_bytes(),
        };
        if budget.holds() {
            let reason = format!("on {name} it {budget}");
            return Ok(of(whole, reason, Some(footprint)));
        }
        let cycle = subject.largest_cycle(device, found);
        match cycle.map_err(|e| e.to_string())? {
            Some((layers_per_window, footprint)) => Ok(of(
                Placement::Cycle {
                    device,
                    layers_per_window,
                },
                format!("whole, on {name}, it {budget}"),
                Some(footprint),
            )),
            None => Err(format!("on {name} it {budget}, and no cycle fits either")),
        }
    }
}

impl Subject<'_> {
    /// What a placement takes of a device; `None` for a model that is not on disk.
    fn footprint(
        &self,
        placement: Placement,
        found: &dyn FoundDevice,
    ) -> Result<Option<Footprint>, BackendError> {
        let footprint = |model: &Model| {
            let share = placement
                .partition(model.n_layer())
                .share(placement.device());
            found.footprint(model, &share, self.numerics, self.n_ctx)
        };
        self.model.map(footprint).transpose()
    }

    /// The largest cycle that fits: with room for the next layer window beside the
    /// current one, if there is such a cycle.
    fn largest_cycle(
        &self,
        device: Device,
        found: &dyn FoundDevice,
    ) -> Result<Option<(usize, Footprint)>, BackendError> {
        let Some(model) = self.model else {
            return Ok(None);
        };
        let mut single = None;
        for layers_per_window in (1..model.n_layer()).rev() {
            let placement = Placement::Cycle {
                device,
                layers_per_window,
            };
            let Some(footprint) = self.footprint(placement, found)? else {
                continue;
            };
            let budget = Budget {
                footprint,
                free: found.free_bytes(),
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
