//! A model and its device while a run lasts: what is on it, and who may use it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::CudaError;
use super::gpu::Gpu;
use super::head::{LoadedHead, ResidentHead};
use super::memory::Allocation;
use super::ops::Queue;
use super::precision::Precision;
use super::prefetch::Next;
use super::upload::upload;
use super::weights::Packer;
use super::workspace::Workspace;
use crate::model::Model;

/// A model on an open device.
pub(super) struct Session {
    pub model: Arc<Model>,
    pub gpu: Arc<Gpu>,
    pub precision: Precision,
    /// Locked by whoever has work on the device.
    state: Mutex<State>,
    next: Mutex<Option<Next>>,
}

/// What stays on the device from one batch to the next.
#[derive(Default)]
pub(super) struct State {
    activations: Option<Allocation>,
    pub head: Option<ResidentHead>,
}

impl State {
    /// A workspace of `bytes`.
    pub fn workspace(&mut self, gpu: &Gpu, bytes: u64) -> Result<Workspace, CudaError> {
        if let Some(a) = self.activations.as_ref().filter(|a| a.bytes() >= bytes) {
            return Ok(Workspace::new(a.address(), a.bytes()));
        }
        // The old one goes first.
        self.activations = None;
        let new = gpu.memory.allocate("the activations of a batch", bytes)?;
        let workspace = Workspace::new(new.address(), bytes);
        self.activations = Some(new);
        Ok(workspace)
    }
}

impl Session {
    /// Opens the first device. Compiled kernels are kept under `cache`.
    pub fn open(
        model: Arc<Model>,
        precision: Precision,
        cache: Option<&Path>,
    ) -> Result<Self, CudaError> {
        Ok(Self {
            model,
            gpu: Arc::new(Gpu::open(cache)?),
            precision,
            state: Mutex::default(),
            next: Mutex::default(),
        })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn next(&self) -> MutexGuard<'_, Option<Next>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn queue(&self) -> Queue<'_> {
        Queue {
            gpu: Some(&self.gpu),
            precision: self.precision,
        }
    }

    /// Makes sure that the head is on the device.
    pub fn load_head(&self, state: &mut State) -> Result<(), CudaError> {
        if state.head.is_none() {
            let mut packer = Packer::default();
            let layout = LoadedHead::pack(&mut packer, &self.model.head);
            let weights = upload(&self.gpu, &self.model.gguf, &packer, "the output head")?;
            state.head = Some(ResidentHead { layout, weights });
        }
        Ok(())
    }
}
