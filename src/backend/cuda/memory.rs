//! Device memory: what is allocated is counted, and freed when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{CudaContext, CudaStream, result, sys};

use super::error::CudaError;

/// The memory of one device, as far as pplx uses it.
pub(super) struct Memory {
    context: Arc<CudaContext>,
    /// All work that may touch an allocation is on these.
    streams: [Arc<CudaStream>; 2],
    in_use: AtomicU64,
    peak: AtomicU64,
}

/// Memory of a device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// What pplx has allocated, and the most it has had at once.
    pub in_use: u64,
    /// The most bytes that were held at a time.
    pub peak: u64,
    /// What the device has left for everybody, and all it has.
    pub free: u64,
    /// Bytes that there are to take.
    pub total: u64,
}

impl Memory {
    pub fn new(context: Arc<CudaContext>, streams: [Arc<CudaStream>; 2]) -> Arc<Self> {
        Arc::new(Self {
            context,
            streams,
            in_use: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        })
    }

    pub fn figures(&self) -> Result<MemoryUse, CudaError> {
        let (free, total) = self
            .context
            .mem_get_info()
            .map_err(|e| CudaError::driver("cannot ask for the device's memory", e))?;
        Ok(MemoryUse {
            in_use: self.in_use.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
            free: free as u64,
            total: total as u64,
        })
    }

    /// `bytes` of memory with unknown contents, for `what`.
    pub fn allocate(
        self: &Arc<Self>,
        what: &'static str,
        bytes: u64,
    ) -> Result<Allocation, CudaError> {
        const DOING: &str = "cannot allocate device memory";
        self.context
            .bind_to_thread()
            .map_err(|e| CudaError::driver(DOING, e))?;
        // A size of zero is an error to the driver.
        let size = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        // SAFETY: the pointer is used only through the allocation, which frees it.
        let address = match unsafe { result::malloc_sync(size) } {
            Ok(address) => address,
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let figures = self.figures()?;
                return Err(CudaError::OutOfMemory {
                    what,
                    asked: bytes,
                    in_use: figures.in_use,
                    free: figures.free,
                    total: figures.total,
                    advice: String::new(),
                });
            }
            Err(e) => return Err(CudaError::driver(DOING, e)),
        };
        let in_use = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(in_use, Ordering::Relaxed);
        Ok(Allocation {
            memory: self.clone(),
            address,
            bytes,
        })
    }
}

/// A piece of device memory.
pub(super) struct Allocation {
    memory: Arc<Memory>,
    address: u64,
    bytes: u64,
}

impl Allocation {
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let m = &self.memory;
        // Errors of work that was under way are met by those who wait for it; on
        // a lost device nothing is left to free.
        let _ = m.context.bind_to_thread();
        for stream in &m.streams {
            let _ = stream.synchronize();
        }
        // SAFETY: allocated by `malloc_sync`, freed once, no work left on it.
        let _ = unsafe { result::free_sync(self.address) };
        m.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
