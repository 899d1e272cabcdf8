//! Models on the stand-in, scored beside the CPU.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use pplx::backend::cpu::CpuModel;
use pplx::backend::cuda::{CUDA, CudaError, CudaModel, Precision};
use pplx::backend::{CPU, Device, Interrupt, LayerWindowModel, Partition};
use pplx::eval::{
    CheckpointOptions, EvalError, Feed, Geometry, Job, Layered, Limits, WindowPlan, WindowScore,
    score,
};
use pplx::model::Model;

use crate::support::tiny::Tiny;

/// Where this process keeps its kernels: what the stand-in compiles is of use to
/// itself alone.
pub fn kernels() -> &'static Path {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIR.get_or_init(|| tempfile::tempdir().expect("a folder"))
        .path()
}

/// A model on both devices.
pub struct Both {
    pub model: Arc<Model>,
    pub cpu: CpuModel,
    pub cuda: CudaModel,
}

impl Both {
    pub fn new(model: Model, precision: Precision) -> Result<Self, CudaError> {
        let model = Arc::new(model);
        Ok(Self {
            cpu: CpuModel::new(model.clone(), 1).expect("threads"),
            cuda: CudaModel::new(model.clone(), precision, Some(kernels()))?,
            model,
        })
    }

    pub fn tiny(tiny: &Tiny) -> Self {
        let model = tiny.model().unwrap_or_else(|e| panic!("{e}"));
        Self::new(model, Precision::F32).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// What is scored.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub tokens: &'a [u32],
    pub geometry: Geometry,
    pub bos: Option<u32>,
    pub batch: usize,
}

impl Text<'_> {
    pub fn score(&self, both: &Both, partition: Partition) -> Result<Vec<WindowScore>, EvalError> {
        let plan =
            WindowPlan::new(self.tokens.len(), self.geometry, Limits::default()).expect("a plan");
        let feed = Feed {
            bos: self.bos,
            batch: self.batch,
        };
        let devices: Vec<(Device, &dyn LayerWindowModel)> =
            vec![(CPU, &both.cpu), (CUDA, &both.cuda)];
        let model = Layered::new(devices, partition)?;
        score(
            &model,
            Job {
                tokens: self.tokens,
                plan: &plan,
                feed,
                interrupt: &Interrupt::default(),
                checkpoints: &CheckpointOptions::default(),
            },
            &mut |_| (),
        )
    }
}

/// The largest difference of two scores.
pub fn difference(a: &[WindowScore], b: &[WindowScore]) -> f64 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.nll().zip(b.nll()));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
