//! The backends of this build. This is the one place that lists them.

use super::cpu::CPU;
use super::cuda::CUDA;
use super::device::Device;

/// The devices that layers can be moved to from the CPU. The planner tries them in
/// this order; `gpu_layers` without a device means the first.
pub const ACCELERATORS: &[Device] = &[CUDA];

/// All devices, the CPU first.
pub fn devices() -> impl Iterator<Item = Device> + Clone {
    std::iter::once(CPU).chain(ACCELERATORS.iter().copied())
}

/// The device of this name.
pub fn by_name(name: &str) -> Option<Device> {
    devices().find(|d| d.name() == name)
}
