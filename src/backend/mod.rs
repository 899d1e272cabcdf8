//! Where layers run. A backend evaluates contiguous ranges of layers on batches
//! of corpus windows: hidden states in, hidden states out. It knows nothing of
//! corpora or statistics.
//!
//! All others know devices by [`Device`] alone, and find them in the registry.

mod contract;
pub mod cpu;
pub mod cuda;
mod device;
mod error;
mod interrupt;
mod memory;
mod numerics;
mod partition;
mod placement;
mod registry;
mod variation;

pub use contract::{Hidden, LayerWindow, LayerWindowModel, Target, TokenScore};
pub use cpu::CPU;
pub use device::{Backend, Device, FoundDevice, OpenOptions};
pub use error::{BackendError, DeviceFailure, Stage};
pub use interrupt::{Interrupt, work};
pub use memory::{Budget, Footprint, Share};
pub use numerics::Numerics;
pub use partition::{LayerSpan, Partition, PartitionError};
pub use placement::Placement;
pub use registry::{ACCELERATORS, by_name, devices};
pub use variation::{Storage, SumOrder, Variation};

/// The version of the arithmetic, part of the engine's name in rows. It is raised
/// whenever a bit of any score changes, for whatever reason and on any device: rows
/// of another version are measured again. `tests/architectures/golden.rs` holds the
/// bits of this one.
pub const ARITHMETIC: u32 = 1;
