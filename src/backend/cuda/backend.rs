//! CUDA as the registry knows it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use indicatif::HumanBytes;

use super::error::CudaError;
use super::gpu::{DeviceInfo, devices, driver_version, try_setup};
use super::kernels::nvrtc_version;
use super::library::Library;
use super::model::CudaModel;
use super::precision::Precision;
use super::{NAME, footprint};
use crate::backend::{
    Backend, BackendError, Device, Footprint, FoundDevice, LayerWindowModel, Numerics, OpenOptions,
    Share,
};
use crate::model::Model;

/// The first NVIDIA GPU.
pub const CUDA: Device = Device::new(&Cuda);

struct Cuda;

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "CUDA"
    }

    fn layers_key(&self) -> &'static str {
        "gpu_layers"
    }

    fn numerics(&self) -> &'static [Numerics] {
        &[Numerics::Exact, Numerics::F16, Numerics::Bf16]
    }

    fn probe(&self) -> Result<Arc<dyn FoundDevice>, BackendError> {
        let device = devices()?.into_iter().next().ok_or(CudaError::NoDevice)?;
        Library::Nvrtc.load()?;
        Ok(Arc::new(device))
    }

    fn batch_windows(&self, n_ctx: usize) -> Option<usize> {
        Some(footprint::batch_windows(n_ctx))
    }

    fn open(
        &self,
        model: Arc<Model>,
        options: &OpenOptions,
    ) -> Result<Box<dyn LayerWindowModel>, BackendError> {
        let precision = Precision::of(options.numerics)?;
        Ok(Box::new(CudaModel::new(model, precision, options.cache)?))
    }

    fn examine(&self, out: &mut String, cache: Option<&Path>) -> Result<(), BackendError> {
        *out += &format!("driver   CUDA {}\n", driver_version()?);
        let devices = devices()?;
        if devices.is_empty() {
            return Err(CudaError::NoDevice.into());
        }
        for (i, d) in devices.iter().enumerate() {
            *out += &format!(
                "device   {i}: {}, compute capability {}.{}, {} free of {}{}\n",
                d.name,
                d.arch.major,
                d.arch.minor,
                HumanBytes(d.free_bytes),
                HumanBytes(d.total_bytes),
                if i == 0 { " (in use)" } else { "" }
            );
        }
        Library::Nvrtc.load()?;
        *out += &format!("NVRTC    {}\n", nvrtc_version()?);
        let start = Instant::now();
        let setup = try_setup(cache)?;
        *out += &match (setup.blas, Library::Cublas.load()) {
            (Some(version), _) => format!("cuBLAS   {version}\n"),
            (None, Ok(())) => "cuBLAS   none\n".to_owned(),
            (None, Err(e)) => {
                format!("cuBLAS   none: products run slower, in a kernel of ours\n         {e}\n")
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        *out += &format!("kernels  ready after {seconds:.1} s\n");
        Ok(())
    }
}

impl FoundDevice for DeviceInfo {
    fn name(&self) -> &str {
        &self.name
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn footprint(
        &self,
        model: &Model,
        share: &Share,
        numerics: Numerics,
        n_ctx: usize,
    ) -> Result<Footprint, BackendError> {
        footprint::footprint(model, share, Precision::of(numerics)?, n_ctx, self.arch)
    }
}
