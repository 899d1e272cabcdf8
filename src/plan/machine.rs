//! What the planner knows of the machine that runs will be on.

use std::sync::OnceLock;

use crate::backend::cuda::{self, CudaError, DeviceInfo, Library};

/// A machine, with the GPU that CUDA placements take.
#[derive(Debug, Default)]
pub struct Machine {
    gpu: OnceLock<Result<DeviceInfo, CudaError>>,
}

impl Machine {
    /// A machine with this GPU, or with none for a reason.
    pub fn with_gpu(gpu: Result<DeviceInfo, CudaError>) -> Self {
        Self { gpu: gpu.into() }
    }

    /// The first GPU. It is looked for when it is first asked for: what runs on
    /// the CPU alone never touches a driver.
    ///
    /// # Errors
    /// Why there is none.
    pub fn gpu(&self) -> Result<&DeviceInfo, &CudaError> {
        let first = || {
            let device = cuda::devices()?.into_iter().next();
            let device = device.ok_or(CudaError::NoDevice)?;
            Library::Nvrtc.load()?;
            Ok(device)
        };
        self.gpu.get_or_init(first).as_ref()
    }
}
