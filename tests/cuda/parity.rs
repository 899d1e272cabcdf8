//! The CPU is the judge: per-token NLLs of every architecture.

use std::sync::Arc;

use pplx::backend::cpu::CpuModel;
use pplx::backend::cuda::{CudaModel, Precision};
use pplx::backend::{Device, Interrupt, LayerWindowModel};
use pplx::eval::{
    CheckpointOptions, Feed, Layered, Limits, WindowPlan, WindowScore, score_layered,
};
use pplx::model::Model;

use crate::cases::{CASES, GEOMETRY, bos, tokens};
use crate::cuda_standin::standin;

/// Nats a token.
const BOUND: f64 = 2e-4;

/// Scores `tokens` on one device.
fn score(
    device: Device,
    model: &dyn LayerWindowModel,
    tokens: &[u32],
    bos: Option<u32>,
) -> Vec<WindowScore> {
    let plan = WindowPlan::new(tokens.len(), GEOMETRY, Limits::default()).expect("a plan");
    let feed = Feed { bos, batch: 2 };
    let means = (&Interrupt::default(), &CheckpointOptions::default());
    let model = Layered::whole(device, model);
    score_layered(&model, tokens, &plan, feed, means, &mut |_| ()).unwrap_or_else(|e| panic!("{e}"))
}

/// The largest difference of two scores.
fn difference(a: &[WindowScore], b: &[WindowScore]) -> f64 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.nll.iter().zip(&b.nll));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn every_architecture() {
    let Some(_standin) = standin() else { return };
    let tokens = tokens();
    let mut failed = Vec::new();
    for case in CASES {
        let tiny = (case.build)();
        let model = Arc::new(tiny.model().unwrap_or_else(|e| panic!("{e}")));
        let cpu = CpuModel::new(model.clone(), 1).expect("threads");
        let cuda = CudaModel::new(model, Precision::F32, None).unwrap_or_else(|e| panic!("{e}"));
        let want = score(Device::Cpu, &cpu, &tokens, bos(&tiny));
        let got = score(Device::Cuda, &cuda, &tokens, bos(&tiny));
        let max = difference(&want, &got);
        println!("{:24} max {max:.2e}", case.name);
        if !(max < BOUND) {
            failed.push((case.name, max));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
