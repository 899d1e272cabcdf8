//! The CUDA backend: layers on an NVIDIA GPU, through libraries that are loaded
//! when a device is asked for.
//!
//! Weights stay on the device as the file has them and are decoded tile by tile
//! for each product, so that a layer window takes no more memory than its tensors
//! take in the file. Activations are f32; so are products, but for the precision
//! that is asked for. Token embedding stays on the host.
//!
//! Results are the same bits from run to run on one device, driver and batch size.

mod attention;
mod backend;
mod batch;
mod blas;
mod error;
mod ffn;
mod footprint;
mod gpu;
mod head;
mod kernels;
mod layer;
mod layers;
mod library;
mod memory;
mod mla;
mod moe;
mod ops;
mod product;
mod recurrent;
mod rwkv;
mod upload;
mod weights;
mod workspace;

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::gpu::Gpu;
use self::head::{LoadedHead, ResidentHead};
use self::layers::{CudaLayers, Next};
use self::memory::Allocation;
use self::ops::Queue;
use self::weights::Packer;
use self::workspace::Workspace;
use super::{
    BackendError, Hidden, Interrupt, LayerWindow, LayerWindowModel, Numerics, Stage, Target,
    TokenScore, work,
};
use crate::isa::Isa;
use crate::model::Model;

pub use backend::CUDA;
pub use error::{CudaError, Version};
pub use footprint::{batch_windows, footprint};
pub use gpu::{DeviceInfo, devices, driver_version};
pub use kernels::{Arch, compile as compile_kernels, nvrtc_version};
pub use library::{Library, PATH_VARIABLE};
pub use memory::MemoryUse;

/// The width of what products multiply. They add up in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32, and no TF32.
    F32,
    F16,
    Bf16,
}

impl Precision {
    /// That of `numerics`.
    ///
    /// # Errors
    /// Numerics that are not for CUDA.
    pub fn of(numerics: Numerics) -> Result<Self, BackendError> {
        match numerics {
            Numerics::Exact => Ok(Precision::F32),
            Numerics::F16 => Ok(Precision::F16),
            Numerics::Bf16 => Ok(Precision::Bf16),
            Numerics::Q8 => Err(BackendError::Numerics {
                numerics,
                device: CUDA.name(),
            }),
        }
    }

    /// Bytes of an input.
    fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::F16 | Precision::Bf16 => 2,
        }
    }

    /// Its number in `head.cu`.
    fn number(self) -> i32 {
        match self {
            Precision::F32 => 0,
            Precision::F16 => 1,
            Precision::Bf16 => 2,
        }
    }

    /// Whether inputs are narrower than activations.
    fn narrow(self) -> bool {
        self.bytes() < 4
    }
}

/// What the first device is set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
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
        blas: gpu.blas.as_ref().map(blas::Blas::version).transpose()?,
    })
}

/// A model on a CUDA device.
pub struct CudaModel {
    model: Arc<Model>,
    gpu: Arc<Gpu>,
    precision: Precision,
    /// Locked by whoever has work on the device.
    state: Mutex<State>,
    next: Mutex<Option<Next>>,
}

/// What stays on the device from one batch to the next.
#[derive(Default)]
struct State {
    activations: Option<Allocation>,
    head: Option<ResidentHead>,
}

impl State {
    /// A workspace of `bytes`.
    fn workspace(&mut self, gpu: &Gpu, bytes: u64) -> Result<Workspace, CudaError> {
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

impl CudaModel {
    /// Runs `model` on the first device. Compiled kernels are kept under `cache`.
    ///
    /// # Errors
    /// A missing library or device, kernels that do not compile.
    pub fn new(
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

    /// The device's memory.
    ///
    /// # Errors
    /// A device that does not answer.
    pub fn memory(&self) -> Result<MemoryUse, CudaError> {
        self.gpu.memory.figures()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<Next>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> Queue<'_> {
        Queue {
            gpu: Some(&self.gpu),
            precision: self.precision,
        }
    }

    fn load_head(&self, state: &mut State) -> Result<(), CudaError> {
        if state.head.is_none() {
            let mut packer = Packer::default();
            let layout = LoadedHead::pack(&mut packer, &self.model.head);
            let weights = upload::upload(&self.gpu, &self.model.gguf, &packer, "the output head")?;
            state.head = Some(ResidentHead { layout, weights });
        }
        Ok(())
    }
}

impl LayerWindowModel for CudaModel {
    fn n_layer(&self) -> usize {
        self.model.n_layer()
    }

    fn n_vocab(&self) -> usize {
        self.model.n_vocab
    }

    fn n_embd(&self) -> usize {
        self.model.n_embd
    }

    fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError> {
        super::cpu::embed(Isa::detect(), &self.model, sequences, n_ctx)
    }

    fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
        Ok(Box::new(CudaLayers::new(self, range)?))
    }

    fn prefetch(&self, range: Range<usize>) {
        if range.start <= range.end && range.end <= self.n_layer() {
            *self.next() = Some(Next::Wanted(range));
        }
    }

    /// On the host: a row of the norm costs less than its way there and back.
    fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32> {
        super::cpu::normed_rows(Isa::detect(), &self.model.head, &hidden.data, rows)
    }

    fn logits(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        let n_vocab = self.n_vocab();
        if vocab.start > vocab.end || vocab.end > n_vocab {
            let found = vocab;
            return Err(BackendError::Vocabulary { found, n_vocab });
        }
        let mut state = self.state();
        self.load_head(&mut state)?;
        let n_in = self.model.head.weight.n_in;
        let mut logits = Vec::with_capacity(head_rows.len() / n_in * vocab.len());
        for rows in head_rows.chunks(head::ROWS * n_in) {
            let n = rows.len() / n_in;
            let Some(layout) = state.head.as_ref().map(|h| &h.layout) else {
                break;
            };
            let bytes = footprint::logits_workspace(layout, self.precision, n, vocab.clone());
            let workspace = state.workspace(&self.gpu, bytes)?;
            let Some(head) = &state.head else { break };
            let place = (&self.queue(), &workspace, head.weights.address());
            logits.extend(
                head.layout
                    .logits(place, (rows, n), vocab.clone(), interrupt)?,
            );
            interrupt.worked(work(n_in * vocab.len(), n));
        }
        Ok(logits)
    }

    fn score_targets(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        hidden.check_targets(targets, self.n_vocab())?;
        let width = hidden.width;
        let mut state = self.state();
        self.load_head(&mut state)?;
        let mut scores = Vec::with_capacity(targets.len());
        for targets in targets.chunks(head::ROWS) {
            let rows: Vec<f32> = targets
                .iter()
                .flat_map(|t| &hidden.data[t.row * width..][..width])
                .copied()
                .collect();
            let ids: Vec<i32> = targets.iter().map(|t| t.id as i32).collect();
            let Some(layout) = state.head.as_ref().map(|h| &h.layout) else {
                break;
            };
            let bytes = footprint::head_workspace(layout, self.precision, targets.len());
            let workspace = state.workspace(&self.gpu, bytes)?;
            let Some(head) = &state.head else { break };
            let place = (&self.queue(), &workspace, head.weights.address());
            scores.extend(head.layout.score_targets(place, &rows, &ids, interrupt)?);
            interrupt.worked(work(width * self.n_vocab(), targets.len()));
        }
        match scores.iter().position(|s| !s.nll.is_finite()) {
            None => Ok(scores),
            Some(i) => {
                let (sequence, position) = hidden.locate(targets[i].row);
                Err(BackendError::NotFinite {
                    sequence,
                    position,
                    stage: Stage::Logits,
                })
            }
        }
    }
}
