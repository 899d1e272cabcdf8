//! Whatever fails, and whenever: a named error, and nothing left on the device.

use pplx::backend::cuda::{CUDA, CudaError, Precision};
use pplx::backend::{BackendError, CPU, Partition, Stage};
use pplx::eval::{EvalError, Geometry, WindowScore};

use crate::cases;
use crate::cuda_standin::standin;
use crate::harness::{Both, Text, difference};
use crate::support::tiny::{self, Tiny};

/// How a model of so many layers is cut.
type Cut = fn(usize) -> Partition;

fn cycle(n: usize) -> Partition {
    Partition::cycle(CUDA, n, 1)
}

/// Everything that a run does, from the library to the last score.
fn run(tiny: &Tiny, partition: Cut) -> Result<Vec<WindowScore>, CudaError> {
    let tokens = tiny::ids(96);
    let text = Text {
        tokens: &tokens,
        geometry: Geometry::llama_cpp(32),
        bos: None,
        batch: 1,
    };
    let model = tiny.model().unwrap_or_else(|e| panic!("{e}"));
    let both = Both::new(model, Precision::F32)?;
    let partition = partition(both.model.n_layer());
    match text.score(&both, partition) {
        Ok(scores) => Ok(scores),
        Err(EvalError::Backend(BackendError::Device(e))) => match e.of_type::<CudaError>() {
            Some(e) => Err(e.clone()),
            None => panic!("{e}"),
        },
        Err(e) => panic!("{e}"),
    }
}

fn whole(n: usize) -> Partition {
    Partition::whole(CUDA, n)
}

/// Two kinds of runs of a model with experts, which waits for the device halfway
/// through a layer.
fn runs() -> [(Tiny, Cut); 2] {
    let tiny = || (cases::by_name("gpt_oss").build)();
    [(tiny(), whole), (tiny(), cycle)]
}

#[test]
fn failed_allocations() {
    let Some(standin) = standin() else { return };
    for (tiny, partition) in runs() {
        let before = standin.allocations();
        let want = run(&tiny, partition).unwrap();
        let n = standin.allocations() - before;
        assert!(n >= 5, "{n}");
        let mut failed = 0;
        for i in 1..=n {
            standin.fail_allocation(i);
            match run(&tiny, partition) {
                Err(CudaError::OutOfMemory { what, .. }) => {
                    assert!(!what.is_empty());
                    failed += 1;
                }
                // What is fetched ahead is fetched again.
                Ok(got) => assert_eq!(difference(&want, &got), 0.0),
                Err(e) => panic!("allocation {i}: {e}"),
            }
            standin.recover();
            assert_eq!(standin.live_allocations(), 0, "allocation {i}");
        }
        assert!(failed > n / 2, "{failed} of {n}");
    }
}

#[test]
fn failed_launches() {
    let Some(standin) = standin() else { return };
    for (tiny, partition) in runs() {
        let before = standin.launches();
        run(&tiny, partition).unwrap();
        let n = standin.launches() - before;
        for i in (1..=n).step_by(17) {
            standin.fail_launch(i);
            let error = run(&tiny, partition).expect_err("a failure");
            assert!(named(&error), "launch {i}: {error}");
            standin.recover();
            assert_eq!(standin.live_allocations(), 0, "launch {i}");
        }
    }
}

#[test]
fn lost_devices() {
    let Some(standin) = standin() else { return };
    for (tiny, partition) in runs() {
        let (mut calls, mut lost) = (1, 0);
        loop {
            standin.lose_device(calls);
            match run(&tiny, partition) {
                Err(e) => assert!(named(&e), "call {calls}: {e}"),
                Ok(_) => break,
            }
            standin.recover();
            lost += 1;
            calls += 1 + calls / 9;
        }
        standin.recover();
        assert!(lost > 20, "{lost}");
    }
}

/// Whether an error says what was being done and what came of it.
fn named(error: &CudaError) -> bool {
    match error {
        CudaError::Driver { doing, name, .. } => {
            !doing.is_empty() && name.starts_with("CUDA_ERROR")
        }
        CudaError::Blas { doing, .. } => !doing.is_empty(),
        CudaError::OutOfMemory { .. } => false,
        _ => false,
    }
}

/// A failure ends one batch, not the device.
#[test]
fn a_model_goes_on_after_an_error_of_its_own() {
    let Some(_standin) = standin() else { return };
    let tiny = (cases::by_name("llama").build)();
    let both = Both::tiny(&tiny);
    let good = tiny::ids(64);
    let mut bad = good.clone();
    bad[40] = u32::MAX;
    let score = |tokens: &[u32]| {
        let text = Text {
            tokens,
            geometry: Geometry::llama_cpp(32),
            bos: None,
            batch: 1,
        };
        text.score(&both, whole(both.model.n_layer()))
    };
    let want = score(&good).unwrap();
    assert!(matches!(score(&bad), Err(EvalError::TokenId { .. })));
    assert_eq!(difference(&want, &score(&good).unwrap()), 0.0);
}

/// A value that is not finite is an error that names the place, the same on both
/// devices.
#[test]
fn what_is_not_finite_is_named_as_on_the_cpu() {
    let Some(_standin) = standin() else { return };
    let tokens = tiny::ids(64);
    let text = Text {
        tokens: &tokens,
        geometry: Geometry::llama_cpp(32),
        bos: None,
        batch: 2,
    };
    let mut stages = Vec::new();
    for part in ["blk.1.ffn_down.weight", "output_norm.weight"] {
        let tiny = (cases::by_name("llama").build)();
        let both = Both::tiny(&tiny.edit(part, |values| values[3] = f32::NAN));
        let n = both.model.n_layer();
        let error = |device| text.score(&both, Partition::whole(device, n)).unwrap_err();
        let want = error(CPU);
        assert_eq!(error(CUDA), want);
        let EvalError::NotFinite { stage, .. } = want else {
            panic!("{want}");
        };
        stages.push(stage);
    }
    assert_eq!(stages, [Stage::Layer(1), Stage::Logits]);
}
