//! Weights from the file to the device, through pinned memory and on a stream of
//! their own.

use cudarc::driver::{CudaEvent, PinnedHostSlice, result};

use super::error::CudaError;
use super::gpu::Gpu;
use super::memory::Allocation;
use super::weights::Packer;
use crate::gguf::Gguf;

/// Bytes of each of the two pinned buffers: one is filled while the other is on
/// its way.
const STAGE_BYTES: usize = 8 << 20;
const DOING: &str = "cannot upload weights";

/// Puts what a packer has laid out into an allocation, and waits until it is
/// there.
pub(super) fn upload(
    gpu: &Gpu,
    gguf: &Gguf,
    packer: &Packer,
    what: &'static str,
) -> Result<Allocation, CudaError> {
    let allocation = gpu.memory.allocate(what, packer.bytes())?;
    let size = STAGE_BYTES
        .min(usize::try_from(packer.bytes()).unwrap_or(STAGE_BYTES))
        .max(1);
    let mut stages = Stages {
        gpu,
        base: allocation.address(),
        stages: [Stage::new(gpu, size)?, Stage::new(gpu, size)?],
        current: 0,
    };
    packer.each_run(gguf, |at, bytes| stages.put(at, bytes))?;
    stages.flush()?;
    gpu.copy
        .synchronize()
        .map_err(|e| CudaError::driver(DOING, e))?;
    Ok(allocation)
}

struct Stages<'g> {
    gpu: &'g Gpu,
    base: u64,
    stages: [Stage; 2],
    current: usize,
}

struct Stage {
    memory: PinnedHostSlice<u8>,
    /// Recorded when the last copy from here is over.
    copied: CudaEvent,
    /// Where on the device the bytes go.
    at: u64,
    len: usize,
}

impl Stage {
    fn new(gpu: &Gpu, size: usize) -> Result<Self, CudaError> {
        let fail = |e| CudaError::driver("cannot get pinned memory", e);
        // SAFETY: bytes are written before they are read.
        let memory = unsafe { gpu.context.alloc_pinned(size) }.map_err(fail)?;
        Ok(Self {
            memory,
            copied: gpu.context.new_event(None).map_err(fail)?,
            at: 0,
            len: 0,
        })
    }
}

impl Stages<'_> {
    /// Adds bytes for the place `at`.
    fn put(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<(), CudaError> {
        let fail = |e| CudaError::driver(DOING, e);
        while !bytes.is_empty() {
            let stage = &self.stages[self.current];
            let size = stage.memory.len();
            // Small gaps are sent along.
            let gap = at.checked_sub(stage.at + stage.len as u64);
            let gap = gap.and_then(|g| usize::try_from(g).ok());
            match gap.filter(|g| stage.len > 0 && stage.len + g < size) {
                Some(gap) => self.stages[self.current].len += gap,
                None => {
                    self.flush()?;
                    let stage = &mut self.stages[self.current];
                    stage.copied.synchronize().map_err(fail)?;
                    (stage.at, stage.len) = (at, 0);
                }
            }
            let stage = &mut self.stages[self.current];
            let n = bytes.len().min(size - stage.len);
            let memory = stage.memory.as_mut_slice().map_err(fail)?;
            memory[stage.len..][..n].copy_from_slice(&bytes[..n]);
            stage.len += n;
            at += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Sends what the current buffer holds, and turns to the other one.
    fn flush(&mut self) -> Result<(), CudaError> {
        let fail = |e| CudaError::driver(DOING, e);
        let stage = &mut self.stages[self.current];
        if stage.len == 0 {
            return Ok(());
        }
        let bytes = &stage.memory.as_slice().map_err(fail)?[..stage.len];
        let stream = &self.gpu.copy;
        self.gpu.context.bind_to_thread().map_err(fail)?;
        // SAFETY: the allocation has room for all parts; the pinned bytes are not
        // touched before `copied` has happened.
        unsafe { result::memcpy_htod_async(self.base + stage.at, bytes, stream.cu_stream()) }
            .map_err(fail)?;
        stage.copied.record(stream).map_err(fail)?;
        stage.len = 0;
        self.current = 1 - self.current;
        Ok(())
    }
}

impl Drop for Stages<'_> {
    fn drop(&mut self) {
        // The pinned memory goes; no copy may read it then. What went wrong was
        // reported where it did.
        let _ = self.gpu.copy.synchronize();
    }
}
