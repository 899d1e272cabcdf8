//! The CPU as the registry knows it.

use std::path::Path;
use std::sync::Arc;

use super::model::CpuModel;
use super::numerics::{NAME, NUMERICS};
use crate::backend::{
    Backend, BackendError, Device, Footprint, FoundDevice, LayerWindowModel, Numerics, OpenOptions,
    Share,
};
use crate::model::Model;

/// The processor that the program runs on: the host of all other devices.
pub const CPU: Device = Device::new(&Cpu);

struct Cpu;

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "CPU"
    }

    fn layers_key(&self) -> &'static str {
        "cpu_layers"
    }

    fn numerics(&self) -> &'static [Numerics] {
        NUMERICS
    }

    fn probe(&self) -> Result<Arc<dyn FoundDevice>, BackendError> {
        Ok(Arc::new(Host))
    }

    fn batch_windows(&self, _: usize) -> Option<usize> {
        None
    }

    fn open(
        &self,
        model: Arc<Model>,
        options: &OpenOptions,
    ) -> Result<Box<dyn LayerWindowModel>, BackendError> {
        let cpu = CpuModel::new(model, options.n_threads)?;
        Ok(Box::new(cpu.with_numerics(options.numerics)?))
    }

    /// There is nothing that could be missing.
    fn examine(&self, _: &mut String, _: Option<&Path>) -> Result<(), BackendError> {
        Ok(())
    }
}

/// The host has no memory beside the main memory, which the planner estimates for
/// every run: see [`super::footprint`].
#[derive(Debug)]
struct Host;

impl FoundDevice for Host {
    fn name(&self) -> &str {
        "CPU"
    }

    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    fn footprint(
        &self,
        _: &Model,
        _: &Share,
        _: Numerics,
        _: usize,
    ) -> Result<Footprint, BackendError> {
        Ok(Footprint::default())
    }
}
