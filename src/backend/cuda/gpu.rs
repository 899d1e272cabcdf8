//! A device with its streams, kernels and cuBLAS: what everything else here is
//! built on.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, result, sys};

use super::blas::Blas;
use super::error::CudaError;
use super::error::Version;
use super::kernels::{Arch, Kernels};
use super::library::Library;
use super::memory::{Allocation, Memory};
use crate::quant;

/// A device that is ready for work.
pub(super) struct Gpu {
    pub memory: Arc<Memory>,
    pub kernels: Kernels,
    /// `None` where cuBLAS is missing.
    pub blas: Option<Blas>,
    /// The codebooks of the IQ types.
    grids: Allocation,
    pub compute: Arc<CudaStream>,
    /// Carries weights of the next layer window while the current one computes.
    pub copy: Arc<CudaStream>,
    pub context: Arc<CudaContext>,
    pub n_multiprocessors: u32,
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// As the driver has it.
    pub name: String,
    /// Its compute capability.
    pub arch: Arch,
    /// Memory that nobody holds.
    pub free_bytes: u64,
    /// All of its memory.
    pub total_bytes: u64,
}

/// A value that a kernel takes: at most 8 bytes, in the low bytes of a word.
pub(super) trait Argument {
    fn word(self) -> u64;
}

macro_rules! arguments {
    ($($type:ty: $value:ident => $word:expr),* $(,)?) => {
        $(impl Argument for $type {
            fn word(self) -> u64 {
                let $value = self;
                $word
            }
        })*
    };
}

arguments! {
    i32: x => u64::from(x as u32),
    i64: x => x as u64,
    u64: x => x,
    f32: x => u64::from(x.to_bits()),
}

/// Blocks, threads of a block and bytes of dynamic shared memory.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub blocks: (u32, u32, u32),
    pub threads: u32,
    pub shared_bytes: u32,
}

/// The version of CUDA that the driver is for.
///
/// # Errors
/// A driver that is missing or will not say.
pub fn driver_version() -> Result<Version, CudaError> {
    Library::Driver.load()?;
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(|e| CudaError::driver("cannot ask for the driver's version", e))?;
    let version = version.unsigned_abs();
    Ok(Version {
        major: version / 1000,
        minor: version % 1000 / 10,
    })
}

/// The context of device `ordinal`.
fn context(ordinal: usize) -> Result<Arc<CudaContext>, CudaError> {
    const OLDEST: Version = Version {
        major: 12,
        minor: 0,
    };
    let found = driver_version()?;
    if found < OLDEST {
        return Err(CudaError::OldDriver { found });
    }
    let n = match CudaContext::device_count() {
        Ok(n) => usize::try_from(n).unwrap_or(0),
        Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => 0,
        Err(e) => return Err(CudaError::driver("cannot count the devices", e)),
    };
    if ordinal >= n {
        return Err(CudaError::NoDevice);
    }
    CudaContext::new(ordinal).map_err(|e| CudaError::driver("cannot open the device", e))
}

fn info(context: &CudaContext) -> Result<DeviceInfo, CudaError> {
    let fail = |e| CudaError::driver("cannot ask what the device is", e);
    let (free, total) = context.mem_get_info().map_err(fail)?;
    let (major, minor) = context.compute_capability().map_err(fail)?;
    Ok(DeviceInfo {
        name: context.name().map_err(fail)?,
        arch: Arch { major, minor },
        free_bytes: free as u64,
        total_bytes: total as u64,
    })
}

/// All devices that the driver sees.
///
/// # Errors
/// A driver that is missing, too old, or that reports an error.
pub fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
    let mut devices = Vec::new();
    loop {
        match context(devices.len()) {
            Ok(context) => devices.push(info(&context)?),
            Err(CudaError::NoDevice) => return Ok(devices),
            Err(e) => return Err(e),
        }
    }
}

impl Gpu {
    /// Opens the first device. Compiled kernels are kept under `cache`.
    pub fn open(cache: Option<&Path>) -> Result<Self, CudaError> {
        let fail = |e| CudaError::driver("cannot set up the device", e);
        let context = context(0)?;
        Library::Nvrtc.load()?;
        // Streams are put in order by hand; no allocation is known to cudarc.
        // SAFETY: as said, no `CudaSlice` is ever made.
        unsafe { context.disable_event_tracking() };
        let arch = info(&context)?.arch;
        let kernels = Kernels::new(&context, arch, cache)?;
        let compute = context.new_stream().map_err(fail)?;
        let copy = context.new_stream().map_err(fail)?;
        let memory = Memory::new(context.clone(), [compute.clone(), copy.clone()]);
        let blas = match Library::Cublas.load() {
            Ok(()) => Some(Blas::new(compute.clone(), &memory, arch)?),
            Err(CudaError::Missing { .. }) => None,
            Err(e) => return Err(e),
        };
        let table = quant::codebooks();
        let grids = memory.allocate("the codebooks", table.len() as u64)?;
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let n_multiprocessors = context.attribute(count).map_err(fail)?;
        let gpu = Self {
            memory,
            kernels,
            blas,
            grids,
            compute,
            copy,
            context,
            n_multiprocessors: n_multiprocessors.unsigned_abs().max(1),
        };
        gpu.upload(gpu.grids.address(), &table)?;
        Ok(gpu)
    }

    pub fn info(&self) -> Result<DeviceInfo, CudaError> {
        info(&self.context)
    }

    pub fn grids(&self) -> u64 {
        self.grids.address()
    }

    /// Queues a kernel on the compute stream. The arguments must be what the
    /// kernel takes; addresses among them must stay allocated until the stream has
    /// come so far.
    pub fn launch(
        &self,
        kernel: &CudaFunction,
        grid: Grid,
        arguments: &[u64],
    ) -> Result<(), CudaError> {
        const DOING: &str = "cannot launch a kernel";
        // The driver copies as many bytes of each word as the kernel declares.
        const { assert!(cfg!(target_endian = "little")) };
        let mut pointers: Vec<*mut c_void> = arguments
            .iter()
            .map(|word| std::ptr::from_ref(word).cast_mut().cast())
            .collect();
        self.bind(DOING)?;
        // SAFETY: the words outlive the call; the caller vouches for the rest.
        unsafe {
            result::launch_kernel(
                kernel.cu_function(),
                grid.blocks,
                (grid.threads, 1, 1),
                grid.shared_bytes,
                self.compute.cu_stream(),
                &mut pointers,
            )
        }
        .map_err(|e| CudaError::driver(DOING, e))
    }

    /// Queues a copy of host values to device memory that has room for them.
    pub fn upload<T: bytemuck::Pod>(&self, to: u64, values: &[T]) -> Result<(), CudaError> {
        const DOING: &str = "cannot copy to the device";
        self.bind(DOING)?;
        // SAFETY: the caller vouches for the room; the driver has read pageable
        // memory when it returns.
        unsafe { result::memcpy_htod_async(to, values, self.compute.cu_stream()) }
            .map_err(|e| CudaError::driver(DOING, e))
    }

    /// Copies device memory to the host, when all queued work is done.
    pub fn download<T: bytemuck::Pod>(&self, from: u64, values: &mut [T]) -> Result<(), CudaError> {
        const DOING: &str = "cannot copy from the device";
        let fail = |e| CudaError::driver(DOING, e);
        self.bind(DOING)?;
        // SAFETY: the caller vouches for the source; the values stay borrowed
        // until the stream has come so far.
        unsafe { result::memcpy_dtoh_async(values, from, self.compute.cu_stream()) }
            .map_err(fail)?;
        self.compute.synchronize().map_err(fail)
    }

    /// Queues the filling of `bytes` of device memory with zeros.
    pub fn clear(&self, at: u64, bytes: usize) -> Result<(), CudaError> {
        const DOING: &str = "cannot clear device memory";
        self.bind(DOING)?;
        // SAFETY: the caller vouches for the memory.
        unsafe { result::memset_d8_async(at, 0, bytes, self.compute.cu_stream()) }
            .map_err(|e| CudaError::driver(DOING, e))
    }

    fn bind(&self, doing: &'static str) -> Result<(), CudaError> {
        self.context
            .bind_to_thread()
            .map_err(|e| CudaError::driver(doing, e))
    }
}

/// What the first device is set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The device.
    pub device: DeviceInfo,
    /// cuBLAS's version; `None` where it is missing and a kernel of ours multiplies.
    pub blas: Option<Version>,
}

/// Sets up the first device as a run does, and leaves it again.
///
/// # Errors
/// A missing library or device, kernels that do not compile.
pub fn try_setup(cache: Option<&Path>) -> Result<Setup, CudaError> {
    let gpu = Gpu::open(cache)?;
    Ok(Setup {
        device: gpu.info()?,
        blas: gpu.blas.as_ref().map(Blas::version).transpose()?,
    })
}
