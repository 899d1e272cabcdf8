//! However layers are cut and wherever they run, the numbers are those of the
//! whole device, and the device holds no more than was planned.

use pplx::backend::cuda::{Arch, CUDA, CudaError, Precision, batch_windows, footprint};
use pplx::backend::{BackendError, CPU, Interrupt, LayerWindowModel, Partition};
use pplx::eval::{EvalError, Geometry};

use crate::cases;
use crate::cuda_standin::standin;
use crate::harness::{Both, Text, difference};
use crate::support::tiny;

/// What the stand-in is.
const ARCH: Arch = Arch { major: 8, minor: 0 };

/// Every cut of a model, its own `Device` of each part.
fn partitions(n: usize) -> Vec<Partition> {
    let mut all = vec![Partition::whole(CUDA, n)];
    all.extend((1..n).map(|count| Partition::offload(n, 0..count, CUDA, CPU)));
    all.extend((1..n).map(|first| Partition::offload(n, first..first + 1, CUDA, CPU)));
    all.extend((1..n).map(|size| Partition::cycle(CUDA, n, size)));
    all
}

#[test]
fn every_partition_yields_the_same() {
    let Some(_standin) = standin() else { return };
    // Dense, mixed windows, experts, latent, hybrid and recurrent ones.
    for name in [
        "gemma3",
        "gpt_oss",
        "deepseek2",
        "qwen3next",
        "jamba",
        "rwkv7",
        "mamba2",
    ] {
        let tiny = (cases::by_name(name).build)();
        let tokens = cases::tokens();
        let text = Text {
            tokens: &tokens,
            geometry: cases::GEOMETRY,
            bos: cases::bos(&tiny),
            batch: 1,
        };
        let both = Both::tiny(&tiny);
        let n = both.model.n_layer();
        assert!(n > 1, "{name}");
        let mut largest: f64 = 0.0;
        let want = text.score(&both, Partition::whole(CUDA, n)).unwrap();
        for partition in partitions(n) {
            let cut = partition.to_string();
            let got = text.score(&both, partition).unwrap();
            let max = difference(&want, &got);
            assert!(max < 1e-5, "{name} {cut}: {max:e}");
            largest = largest.max(max);
        }
        println!("{name:12} max {largest:.1e}");
    }
}

/// Batches of the size that footprints are computed for.
fn full_batches(tokens: &[u32]) -> Text<'_> {
    Text {
        tokens,
        geometry: Geometry::llama_cpp(64),
        bos: None,
        batch: batch_windows(64),
    }
}

#[test]
fn memory_is_what_was_planned() {
    let Some(standin) = standin() else { return };
    let tokens = tiny::ids(64 * batch_windows(64));
    let text = full_batches(&tokens);
    for name in ["llama", "gpt_oss", "rwkv7"] {
        let tiny = (cases::by_name(name).build)();
        let model = tiny.model().unwrap();
        let n = model.n_layer();
        // Whole batches take their time here.
        let [cycle, prefix] = [
            Partition::cycle(CUDA, n, 1),
            Partition::offload(n, 0..1, CUDA, CPU),
        ];
        for partition in [Partition::whole(CUDA, n), prefix, cycle] {
            let planned =
                footprint(&model, &partition.share(CUDA), Precision::F32, 64, ARCH).unwrap();
            let both = Both::tiny(&tiny);
            standin.reset_peak();
            let cut = partition.to_string();
            let cycles = partition.cycles();
            text.score(&both, partition).unwrap();
            let peak = standin.peak_memory();
            assert!(
                peak <= planned.most(),
                "{name} {cut}: {peak}, planned {planned:?}"
            );
            // Nothing is planned that is not used.
            assert!(
                peak >= planned.least(),
                "{name} {cut}: {peak}, planned {planned:?}"
            );
            if !cycles {
                assert_eq!((planned.next, peak), (0, planned.least()), "{name} {cut}");
            }
            drop(both);
            assert_eq!(standin.live_allocations(), 0, "{name} {cut}");
        }
    }
}

#[test]
fn a_window_that_goes_is_freed() {
    let Some(standin) = standin() else { return };
    let both = Both::tiny(&(cases::by_name("llama").build)());
    let idle = standin.used_memory();
    let window = both.cuda.layers(0..1).unwrap();
    let one = standin.used_memory();
    assert!(one > idle);
    drop(window);
    assert_eq!(standin.used_memory(), idle);
    // One that was fetched ahead and never asked for goes with the model.
    let mut window = both.cuda.layers(0..1).unwrap();
    both.cuda.prefetch(1..2);
    assert_eq!(standin.used_memory(), one);
    let mut hidden = both.cuda.embed(&[&tiny::ids(8)], 8).unwrap();
    window.forward(&mut hidden, &Interrupt::default()).unwrap();
    drop(window);
    drop(both);
    assert_eq!(standin.live_allocations(), 0);
}

/// Where there is no room for it, a cycle's next layer window waits; and what was
/// fetched ahead never takes the room of something that is needed.
#[test]
fn a_cycle_runs_in_the_least_that_was_planned() {
    let Some(standin) = standin() else { return };
    let tokens = tiny::ids(2 * 64 * batch_windows(64));
    let text = full_batches(&tokens);
    let tiny = (cases::by_name("llama").build)();
    let model = tiny.model().unwrap();
    let partition = Partition::cycle(CUDA, model.n_layer(), 1);
    let planned = footprint(&model, &partition.share(CUDA), Precision::F32, 64, ARCH).unwrap();
    assert!(planned.next > 0);
    let want = text.score(&Both::tiny(&tiny), partition.clone()).unwrap();
    for room in [planned.least(), planned.most() - 1, planned.most()] {
        standin.set_memory(room);
        let got = text.score(&Both::tiny(&tiny), partition.clone()).unwrap();
        assert_eq!(difference(&want, &got), 0.0);
    }
}

#[test]
fn what_does_not_fit_is_an_error_with_advice() {
    let Some(standin) = standin() else { return };
    let tiny = (cases::by_name("llama").build)();
    let both = Both::tiny(&tiny);
    let n = both.model.n_layer();
    let idle = standin.used_memory();
    let window = |layers| {
        both.cuda
            .layers(layers)
            .map(|_| standin.used_memory() - idle)
    };
    let (one, all) = (window(0..1).unwrap(), window(0..n).unwrap());
    for (room, advice) in [
        (one, "1 would fit: use gpu_layers = 1"),
        (one / 2, "use the CPU"),
    ] {
        assert!(room < all);
        standin.set_memory(idle + room);
        let tokens = tiny::ids(128);
        let error = full_batches(&tokens).score(&both, Partition::whole(CUDA, n));
        let Err(EvalError::Backend(BackendError::Device(error))) = error else {
            panic!("{error:?}");
        };
        let cause = error.of_type();
        assert!(
            matches!(cause, Some(CudaError::OutOfMemory { .. })),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains(advice), "{text}");
        assert_eq!(standin.used_memory(), idle, "nothing is leaked");
    }
}
