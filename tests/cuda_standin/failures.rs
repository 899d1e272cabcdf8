//! Faults of kernels, memory that is counted and guarded, failures on demand.

use super::*;

#[test]
fn fresh_memory_is_not_zero() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let fresh = unsafe { gpu.stream.alloc::<f32>(100) }.expect("memory");
    let fresh = gpu.stream.clone_dtoh(&fresh).expect("a copy");
    assert!(fresh.iter().all(|v| v.is_nan()));
    let kernel = gpu.kernel("stale_shared");
    let mut out = gpu.stream.alloc_zeros::<f32>(6).expect("memory");
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out);
    unsafe { launch.launch(config((3, 1, 1), (1, 1, 1), 4)) }.expect("a launch");
    let out = gpu.stream.clone_dtoh(&out).expect("a copy");
    assert!(out.iter().all(|v| v.is_nan()), "{out:?}");
}

#[test]
fn barriers_that_some_threads_miss_are_reported() {
    let Some(standin) = standin() else { return };
    for (name, code, says) in [
        (
            "half_at_barrier",
            CUDA_ERROR_LAUNCH_FAILED,
            ["half_at_barrier", "16 in __syncthreads", "16 have returned"],
        ),
        (
            "two_barriers",
            CUDA_ERROR_LAUNCH_FAILED,
            ["two_barriers", "different __syncthreads", "at line"],
        ),
        (
            "lost_lane",
            CUDA_ERROR_LAUNCH_FAILED,
            ["lost_lane", "1 in __syncthreads", "31 in a warp operation"],
        ),
    ] {
        let gpu = gpu();
        let kernel = gpu.kernel(name);
        let mut x = gpu.stream.alloc_zeros::<f32>(32).expect("memory");
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut x);
        // A launch may fail at whatever call comes after it.
        let result = unsafe { launch.launch(line(1, 32)) }.and_then(|_| gpu.stream.synchronize());
        fails(result, code, &says);
        // As a context's, the failure stays.
        fails(gpu.stream.alloc_zeros::<f32>(1), code, &[]);
        standin.recover();
        assert!(gpu.stream.alloc_zeros::<f32>(1).is_ok());
    }
}

/// The other order of threads shows a race that one order alone hides, and
/// leaves a right kernel's sums as they are.
#[test]
fn the_order_of_threads_can_be_turned() {
    let Some(standin) = standin() else { return };
    let gpu = gpu();
    let x = gpu.stream.clone_htod(&numbers(64, 10)).expect("a copy");
    let mut run = |name: &str| {
        let kernel = gpu.kernel(name);
        let mut out = gpu.stream.alloc_zeros::<f32>(64).expect("memory");
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut out).arg(&x).arg(&64u32);
        unsafe { launch.launch(config((1, 1, 1), (64, 1, 1), 8)) }.expect("a launch");
        gpu.stream.clone_dtoh(&out).expect("a copy")
    };
    let forward = ["sum_shared", "sum_warps", "races"].map(&mut run);
    standin.set_reverse(true);
    let backward = ["sum_shared", "sum_warps", "races"].map(&mut run);
    assert_eq!(forward[..2], backward[..2]);
    assert_ne!(forward[2], backward[2]);
}

#[test]
fn accesses_out_of_bounds_are_reported() {
    let Some(standin) = standin() else { return };
    for (at, says) in [
        // Far behind, just behind, in the padding, before, far before.
        (100_000i64, "399604 bytes past the end of allocation"),
        (128, "116 bytes past the end of allocation"),
        (127, "wrote past the bounds of allocation"),
        (99, "wrote past the bounds of allocation"),
        (-1, "wrote past the bounds of allocation"),
        (-100_000, "400000 bytes before allocation"),
        (1 << 40, "an illegal access"),
    ] {
        let gpu = gpu();
        let kernel = gpu.kernel("write_at");
        let mut x = gpu.stream.alloc_zeros::<f32>(99).expect("memory");
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut x).arg(&at);
        let result = unsafe { launch.launch(line(1, 1)) }.and_then(|_| gpu.stream.synchronize());
        fails(result, CUDA_ERROR_ILLEGAL_ADDRESS, &["write_at", says]);
        standin.recover();
    }
}

#[test]
fn freed_memory_cannot_be_read() {
    let Some(standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("read_at");
    let mut out = gpu.stream.alloc_zeros::<f32>(1).expect("memory");
    let x = gpu.stream.alloc_zeros::<f32>(64).expect("memory");
    let address = x.device_ptr(&gpu.stream).0;
    drop(x);
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out).arg(&address).arg(&0i64);
    let result = unsafe { launch.launch(line(1, 1)) }.and_then(|_| gpu.stream.synchronize());
    fails(
        result,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        &["read_at", "the freed allocation"],
    );
    standin.recover();
}

#[test]
fn faults_of_threads_are_reported() {
    let Some(standin) = standin() else { return };
    let run = |name: &str, argument: i32, shared: u32| {
        standin.recover();
        let gpu = gpu();
        let kernel = gpu.kernel(name);
        let mut out = gpu.stream.alloc_zeros::<f32>(1).expect("memory");
        let mut launch = gpu.stream.launch_builder(&kernel);
        if !matches!(name, "asserts" | "write_dynamic") {
            launch.arg(&mut out);
        }
        launch.arg(&argument);
        unsafe { launch.launch(config((1, 1, 1), (1, 1, 1), shared)) }
            .and_then(|_| gpu.stream.synchronize())
    };
    assert!(run("divide", 2, 0).is_ok());
    fails(
        run("divide", 0, 0),
        CUDA_ERROR_LAUNCH_FAILED,
        &["divide", "division by zero"],
    );
    assert!(run("asserts", 3, 0).is_ok());
    fails(run("asserts", 4, 0), CUDA_ERROR_ASSERT, &["x == 3"]);
    fails(
        run("deep", 100_000, 0),
        CUDA_ERROR_LAUNCH_FAILED,
        &["deep", "overflow its stack"],
    );
    assert!(run("write_dynamic", 7, 32).is_ok());
    fails(
        run("write_dynamic", 8, 32),
        CUDA_ERROR_ILLEGAL_ADDRESS,
        &[
            "write_dynamic",
            "past the 32 bytes of its dynamic shared memory",
        ],
    );
}

#[test]
fn launches_beyond_the_device_are_refused() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("sum_shared");
    let mut x = gpu.stream.alloc_zeros::<f32>(4).expect("memory");
    let mut launch = |config| {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut x).arg(&0u64).arg(&0u32);
        unsafe { launch.launch(config) }
    };
    fails(
        launch(line(0, 32)),
        CUDA_ERROR_INVALID_VALUE,
        &["a grid of 0"],
    );
    fails(launch(line(1, 2048)), CUDA_ERROR_INVALID_VALUE, &["2048"]);
    fails(
        launch(line(1, 512)),
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        &["launch bounds of 256"],
    );
    let much = config((1, 1, 1), (32, 1, 1), 49_153);
    fails(launch(much), CUDA_ERROR_INVALID_VALUE, &["49153", "49152"]);
    kernel
        .set_attribute(
            sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            65_536,
        )
        .expect("an attribute");
    launch(much).expect("a launch");
    gpu.stream.synchronize().expect("a run");
    fails(
        gpu.module.load_function("mangled").map(|_| ()),
        CUDA_ERROR_NOT_FOUND,
        &["mangled"],
    );
}

#[test]
fn memory_is_counted() {
    let Some(standin) = standin() else { return };
    let gpu = gpu();
    let (before, live) = (standin.used_memory(), standin.live_allocations());
    standin.set_memory(before + 4096);
    standin.reset_peak();
    let a = gpu.stream.alloc_zeros::<u8>(1000).expect("memory");
    let b = gpu.stream.alloc_zeros::<u8>(2048).expect("memory");
    assert_eq!(standin.used_memory() - before, 1024 + 2048);
    assert_eq!(gpu.ctx.mem_get_info().expect("figures").0, 1024);
    fails(
        gpu.stream.alloc_zeros::<u8>(1025),
        CUDA_ERROR_OUT_OF_MEMORY,
        &["1025 bytes asked for"],
    );
    drop(b);
    assert_eq!(standin.used_memory() - before, 1024);
    let c = gpu.stream.alloc_zeros::<u8>(1025).expect("memory");
    assert_eq!(standin.peak_memory() - before, 1024 + 2048);
    drop((a, c));
    assert_eq!(standin.used_memory(), before);
    assert_eq!(standin.live_allocations(), live);
}

#[test]
fn failures_come_when_asked_for() {
    let Some(standin) = standin() else { return };
    let gpu = gpu();
    standin.fail_allocation(2);
    let first = gpu.stream.alloc_zeros::<f32>(1);
    fails(
        gpu.stream.alloc_zeros::<f32>(1).map(drop),
        CUDA_ERROR_OUT_OF_MEMORY,
        &[],
    );
    // Out of memory is not sticky.
    assert!(first.is_ok() && gpu.stream.alloc_zeros::<f32>(1).is_ok());

    let spin = gpu.kernel("spin");
    let mut x = gpu.stream.alloc_zeros::<f32>(1).expect("memory");
    let mut launch = || {
        let mut launch = gpu.stream.launch_builder(&spin);
        launch.arg(&mut x).arg(&1u32).arg(&1u32);
        unsafe { launch.launch(line(1, 1)) }.and_then(|_| gpu.stream.synchronize())
    };
    standin.fail_launch(2);
    launch().expect("the first launch");
    fails(
        launch(),
        CUDA_ERROR_LAUNCH_FAILED,
        &["`spin` failed, as the test"],
    );
    fails(launch(), CUDA_ERROR_LAUNCH_FAILED, &[]);
    standin.recover();
    launch().expect("a launch after the recovery");

    standin.lose_device(3);
    let mut calls = 0;
    let lost = loop {
        calls += 1;
        if let Err(e) = gpu.ctx.mem_get_info() {
            break e;
        }
        assert!(calls < 10);
    };
    fails::<()>(Err(lost), CUDA_ERROR_UNKNOWN, &["the device was lost"]);
    fails(gpu.stream.synchronize(), CUDA_ERROR_UNKNOWN, &[]);
    fails(CudaContext::new(0).map(drop), CUDA_ERROR_UNKNOWN, &[]);
}
