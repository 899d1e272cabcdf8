//! What the planner knows of the machine that runs will be on.

use std::sync::{Arc, OnceLock};

use crate::backend::{ACCELERATORS, BackendError, Device, FoundDevice};

/// A device, or why there is none.
type Found = Result<Arc<dyn FoundDevice>, BackendError>;

/// A machine, with the devices beside its CPU.
#[derive(Debug)]
pub struct Machine {
    devices: Vec<(Device, OnceLock<Found>)>,
}

impl Default for Machine {
    /// This machine. A device is looked for when it is first asked for: what runs on
    /// the CPU alone never touches a driver.
    fn default() -> Self {
        let devices = ACCELERATORS.iter();
        Self {
            devices: devices.map(|&d| (d, OnceLock::new())).collect(),
        }
    }
}

impl Machine {
    /// A machine where looking for `device` ends so, and which has no other.
    pub fn with(device: Device, found: Found) -> Self {
        Self {
            devices: vec![(device, found.into())],
        }
    }

    /// The kinds of devices that it may have, in the order of preference.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.devices.iter().map(|(device, _)| *device)
    }

    /// The device of this kind that runs take.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(&self, device: Device) -> Result<&dyn FoundDevice, BackendError> {
        let known = self.devices.iter().find(|(d, _)| *d == device);
        let Some((_, found)) = known else {
            return Err(BackendError::other(format!(
                "there is no device '{device}'"
            )));
        };
        let found = found.get_or_init(|| device.probe()).as_ref();
        found.map(|d| &**d).map_err(Clone::clone)
    }
}
