//! The CUDA stand-in itself, through cudarc as the backend uses it.

#[path = "cuda-standin/mod.rs"]
mod cuda_standin;

use std::sync::Arc;

use cudarc::cublas::sys::{self as cublas, cublasOperation_t};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, StridedBatchedConfig};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, DevicePtr, DevicePtrMut, DriverError,
    LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx, compile_ptx_with_opts};
use sys::CUresult::*;

use cuda_standin::standin;

const KERNELS: &str = include_str!("cuda-standin/kernels.cu");

/// A device with the test's kernels.
struct Gpu {
    ctx: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

fn gpu() -> Gpu {
    let ctx = CudaContext::new(0).expect("a device");
    let stream = ctx.new_stream().expect("a stream");
    let ptx = compile_ptx(KERNELS).unwrap_or_else(|e| panic!("{e}"));
    let module = ctx.load_module(ptx).expect("a module");
    Gpu {
        ctx,
        stream,
        module,
    }
}

impl Gpu {
    fn kernel(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).expect("a kernel")
    }
}

fn config(grid: (u32, u32, u32), block: (u32, u32, u32), shared: u32) -> LaunchConfig {
    LaunchConfig {
        grid_dim: grid,
        block_dim: block,
        shared_mem_bytes: shared,
    }
}

fn line(blocks: u32, threads: u32) -> LaunchConfig {
    config((blocks, 1, 1), (threads, 1, 1), 0)
}

/// Checks a failure's code and what it says.
fn fails<T: std::fmt::Debug>(result: Result<T, DriverError>, code: sys::CUresult, says: &[&str]) {
    let error = result.expect_err("a failure");
    assert_eq!(error.0, code, "{error:?}");
    for part in says {
        assert!(
            format!("{error:?}").contains(part),
            "{part:?} is not said in {error:?}"
        );
    }
}

/// Small integers, whose sums are exact in any order.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as f32 - 128.0
        })
        .collect()
}

#[test]
fn vectors_add() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let add = gpu.kernel("add");
    let n = 1000u32;
    let a = gpu.stream.clone_htod(&numbers(1000, 1)).expect("a copy");
    let mut sum = gpu.stream.alloc_zeros::<f32>(1000).expect("memory");
    let mut launch = gpu.stream.launch_builder(&add);
    launch.arg(&mut sum).arg(&a).arg(&a).arg(&n);
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }.expect("a launch");
    let sum = gpu.stream.clone_dtoh(&sum).expect("a copy");
    for (s, x) in sum.iter().zip(numbers(1000, 1)) {
        assert_eq!(*s, 2.0 * x);
    }
}

#[test]
fn blocks_and_threads_have_three_dimensions() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("indices");
    let mut out = gpu.stream.alloc_zeros::<u32>(24 * 30 * 4).expect("memory");
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out);
    unsafe { launch.launch(config((2, 3, 4), (5, 3, 2), 0)) }.expect("a launch");
    let out = gpu.stream.clone_dtoh(&out).expect("a copy");
    for (i, at) in out.chunks_exact(4).enumerate() {
        let (block, thread) = ((i / 30) as u32, (i % 30) as u32);
        assert_eq!(at, [block, thread % 5, thread / 5 % 3, thread / 15]);
    }
}

/// Sums of blocks of 256, by shared memory and by shuffles.
#[test]
fn blocks_reduce() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let n = 1000u32;
    let x = numbers(1000, 2);
    let want: Vec<f32> = x.chunks(256).map(|c| c.iter().sum()).collect();
    let x = gpu.stream.clone_htod(&x).expect("a copy");
    for (name, shared) in [("sum_shared", 0), ("sum_warps", 8 * 4)] {
        let kernel = gpu.kernel(name);
        let mut sums = gpu.stream.alloc_zeros::<f32>(4).expect("memory");
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut sums).arg(&x).arg(&n);
        unsafe { launch.launch(config((4, 1, 1), (256, 1, 1), shared)) }.expect("a launch");
        assert_eq!(
            gpu.stream.clone_dtoh(&sums).expect("a copy"),
            want,
            "{name}"
        );
    }
}

#[test]
fn lanes_exchange() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("warp_operations");
    let mut out = gpu.stream.alloc_zeros::<i32>(32 * 12).expect("memory");
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out);
    unsafe { launch.launch(line(1, 32)) }.expect("a launch");
    let out = gpu.stream.clone_dtoh(&out).expect("a copy");
    let thirds = (0..32).step_by(3).fold(0u32, |m, i| m | 1 << i) as i32;
    for (lane, row) in out.chunks_exact(12).enumerate() {
        let l = lane as i32;
        let want = [
            50,
            if l < 3 { l } else { l - 3 },
            if l > 28 { l } else { l + 3 },
            l ^ 1,
            l / 8 * 8 + 2,
            if l % 8 == 7 { l } else { l + 1 },
            thirds,
            1,
            0,
            31 * 32 / 2,
            -31,
            if l < 8 { 7 } else { -1 },
        ];
        assert_eq!(row, want, "lane {lane}");
    }
}

#[test]
fn atomics_and_module_variables() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("atomics");
    let mut scale = gpu
        .module
        .get_global("scale", &gpu.stream)
        .expect("a variable");
    gpu.stream
        .memcpy_htod(&bytes(&[1.0f32, 2.0, 3.0, 4.0]), &mut scale)
        .expect("a copy");
    let mut counter = gpu
        .module
        .get_global("counter", &gpu.stream)
        .expect("a variable");
    gpu.stream.memset_zeros(&mut counter).expect("a fill");
    let n = 1000u32;
    let x: Vec<i32> = numbers(1000, 3).iter().map(|&v| v as i32).collect();
    let mut out = gpu
        .stream
        .clone_htod(&[0, -1000, 1000, -1000])
        .expect("a copy");
    let mut sum = gpu.stream.alloc_zeros::<f32>(1).expect("memory");
    let on_device = gpu.stream.clone_htod(&x).expect("a copy");
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out).arg(&mut sum).arg(&on_device).arg(&n);
    unsafe { launch.launch(line(8, 128)) }.expect("a launch");
    let (most, least) = (*x.iter().max().expect("one"), *x.iter().min().expect("one"));
    let out = gpu.stream.clone_dtoh(&out).expect("a copy");
    assert_eq!(out, [x.iter().sum::<i32>(), most, least, most]);
    assert_eq!(gpu.stream.clone_dtoh(&sum).expect("a copy"), [2500.0]);
    let counter = gpu.stream.clone_dtoh(&counter).expect("a copy");
    assert_eq!(counter, 1000u32.to_le_bytes());
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(floats).to_vec()
}

fn host_matmul(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            c[i * n + j] = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
        }
    }
    c
}

#[test]
fn a_tiled_product_agrees_with_a_loop() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("matmul");
    let (m, n, k) = (37usize, 50usize, 45usize);
    let (a, b) = (numbers(m * k, 4), numbers(k * n, 5));
    let (on_a, on_b) = (
        gpu.stream.clone_htod(&a).expect("a copy"),
        gpu.stream.clone_htod(&b).expect("a copy"),
    );
    let mut c = gpu.stream.alloc_zeros::<f32>(m * n).expect("memory");
    let (im, jn, pk) = (m as i32, n as i32, k as i32);
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch
        .arg(&mut c)
        .arg(&on_a)
        .arg(&on_b)
        .arg(&im)
        .arg(&jn)
        .arg(&pk);
    unsafe { launch.launch(config((4, 3, 1), (16, 16, 1), 0)) }.expect("a launch");
    let c = gpu.stream.clone_dtoh(&c).expect("a copy");
    assert_eq!(c, host_matmul(&a, &b, m, n, k));
}

/// All four layouts, by cuBLAS's column-major rule: a row-major C = A B is the
/// column-major Cᵀ = Bᵀ Aᵀ.
#[test]
fn cublas_products_agree_with_a_loop() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let blas = CudaBlas::new(gpu.stream.clone()).expect("a handle");
    for (m, n, k) in [(1, 1, 1), (7, 5, 3), (100, 33, 300), (17, 130, 64)] {
        let (a, b) = (numbers(m * k, 6), numbers(k * n, 7));
        let want = host_matmul(&a, &b, m, n, k);
        let transpose = |x: &[f32], rows: usize, columns: usize| -> Vec<f32> {
            (0..rows * columns)
                .map(|i| x[i % rows * columns + i / rows])
                .collect()
        };
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = if ta { transpose(&a, m, k) } else { a.clone() };
            let b = if tb { transpose(&b, k, n) } else { b.clone() };
            let a = gpu.stream.clone_htod(&a).expect("a copy");
            let b = gpu.stream.clone_htod(&b).expect("a copy");
            let mut c = gpu.stream.clone_htod(&vec![1.0f32; m * n]).expect("a copy");
            let op = |t| {
                if t {
                    cublasOperation_t::CUBLAS_OP_T
                } else {
                    cublasOperation_t::CUBLAS_OP_N
                }
            };
            let config = GemmConfig {
                transa: op(tb),
                transb: op(ta),
                m: n as i32,
                n: m as i32,
                k: k as i32,
                alpha: 2.0f32,
                lda: if tb { k } else { n } as i32,
                ldb: if ta { m } else { k } as i32,
                beta: 3.0,
                ldc: n as i32,
            };
            unsafe { blas.gemm(config, &b, &a, &mut c) }.expect("a product");
            let c = gpu.stream.clone_dtoh(&c).expect("a copy");
            for (c, w) in c.iter().zip(&want) {
                assert_eq!(*c, 2.0 * w + 3.0);
            }
        }
    }
}

#[test]
fn cublas_batches() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let blas = CudaBlas::new(gpu.stream.clone()).expect("a handle");
    let (m, n, k, batch) = (4usize, 6usize, 5usize, 3usize);
    let (a, b) = (numbers(m * k * batch, 8), numbers(k * n * batch, 9));
    let on_a = gpu.stream.clone_htod(&a).expect("a copy");
    let on_b = gpu.stream.clone_htod(&b).expect("a copy");
    let mut c = unsafe { gpu.stream.alloc::<f32>(m * n * batch) }.expect("memory");
    let config = StridedBatchedConfig {
        gemm: GemmConfig {
            transa: cublasOperation_t::CUBLAS_OP_N,
            transb: cublasOperation_t::CUBLAS_OP_N,
            m: n as i32,
            n: m as i32,
            k: k as i32,
            alpha: 1.0f32,
            lda: n as i32,
            ldb: k as i32,
            // What the memory holds, NaN here, must not be read.
            beta: 0.0,
            ldc: n as i32,
        },
        batch_size: batch as i32,
        stride_a: (k * n) as i64,
        stride_b: (m * k) as i64,
        stride_c: (m * n) as i64,
    };
    unsafe { blas.gemm_strided_batched(config, &on_b, &on_a, &mut c) }.expect("products");
    let c = gpu.stream.clone_dtoh(&c).expect("a copy");
    for i in 0..batch {
        let want = host_matmul(&a[i * m * k..][..m * k], &b[i * k * n..][..k * n], m, n, k);
        assert_eq!(c[i * m * n..][..m * n], want);
    }
}

/// Halves of both kinds hold small integers exactly, so their products are f32's.
#[test]
fn cublas_takes_halves() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let blas = CudaBlas::new(gpu.stream.clone()).expect("a handle");
    let (m, n, k) = (20usize, 30usize, 40usize);
    let (a, b) = (numbers(m * k, 11), numbers(n * k, 12));
    // Row-major A and Bᵀ: column-major, both read as they are but B turned.
    let want: Vec<f32> = (0..m * n)
        .map(|i| (0..k).map(|p| a[i / n * k + p] * b[i % n * k + p]).sum())
        .collect();
    let f16 = |x: &f32| half::f16::from_f32(*x).to_bits();
    let bf16 = |x: &f32| half::bf16::from_f32(*x).to_bits();
    let kinds = [
        (cublas::cudaDataType::CUDA_R_16F, f16 as fn(&f32) -> u16),
        (cublas::cudaDataType::CUDA_R_16BF, bf16),
    ];
    for (kind, narrow) in kinds {
        let upload = |x: &[f32]| {
            let narrow: Vec<u16> = x.iter().map(narrow).collect();
            gpu.stream.clone_htod(&narrow).expect("a copy")
        };
        let (on_a, on_b) = (upload(&a), upload(&b));
        let mut c = unsafe { gpu.stream.alloc::<f32>(m * n) }.expect("memory");
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the pointers are of matrices of these sizes.
        unsafe {
            cudarc::cublas::result::gemm_ex(
                *blas.handle(),
                cublasOperation_t::CUBLAS_OP_T,
                cublasOperation_t::CUBLAS_OP_N,
                n as i32,
                m as i32,
                k as i32,
                (&raw const one).cast(),
                on_b.device_ptr(&gpu.stream).0 as *const _,
                kind,
                k as i32,
                on_a.device_ptr(&gpu.stream).0 as *const _,
                kind,
                k as i32,
                (&raw const zero).cast(),
                c.device_ptr_mut(&gpu.stream).0 as *mut _,
                cublas::cudaDataType::CUDA_R_32F,
                n as i32,
                cublas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .expect("a product");
        assert_eq!(gpu.stream.clone_dtoh(&c).expect("a copy"), want, "{kind:?}");
    }
}

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

#[test]
fn compile_errors_are_told() {
    let Some(_standin) = standin() else { return };
    let options = CompileOptions {
        name: Some("broken.cu".into()),
        ..Default::default()
    };
    let source = "extern \"C\" __global__ void f(float *x) {\n    x[0] = nothing;\n}\n";
    match compile_ptx_with_opts(source, options) {
        Err(CompileError::CompileError { log, .. }) => {
            let log = log.to_string_lossy();
            assert!(log.contains("broken.cu:2:"), "{log}");
            assert!(log.contains("nothing"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    // No header of the host's is there, as none of the toolkit's is.
    assert!(compile_ptx("#include <cmath>\n").is_err());
}

/// Copies from page-locked memory happen when the stream comes to them; events
/// order streams and hosts.
#[test]
fn streams_run_by_themselves_and_events_order_them() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    // SAFETY: the order is this test's own matter.
    unsafe { gpu.ctx.disable_event_tracking() };
    let spin = gpu.kernel("spin");
    let other = gpu.ctx.new_stream().expect("a stream");
    let (n, rounds) = (1000u32, 20_000u32);
    let mut x = gpu.stream.alloc_zeros::<f32>(1000).expect("memory");
    gpu.stream.synchronize().expect("zeros");
    let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let start = gpu.stream.record_event(timed).expect("an event");
    let mut launch = gpu.stream.launch_builder(&spin);
    launch.arg(&mut x).arg(&n).arg(&rounds);
    unsafe { launch.launch(line(1, 1)) }.expect("a launch");
    let end = gpu.stream.record_event(timed).expect("an event");
    assert!(!end.is_complete(), "the launch waited");
    // Without an event, the other stream does not wait.
    let early = other.record_event(None).expect("an event");
    early.synchronize().expect("an event");
    assert!(!end.is_complete(), "one stream waited for the other");
    other.wait(&end).expect("a wait");
    let seen = other.clone_dtoh(&x).expect("a copy");
    assert!(end.is_complete());
    assert!(seen.iter().all(|&v| v == 20_000.0));
    assert!(start.elapsed_ms(&end).expect("a time") > 0.0);
}

#[test]
fn page_locked_memory_is_read_when_the_copy_runs() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    // SAFETY: as above, and this test shows what happens without order.
    unsafe { gpu.ctx.disable_event_tracking() };
    let spin = gpu.kernel("spin");
    let mut x = gpu.stream.alloc_zeros::<f32>(1000).expect("memory");
    let (mut from_pinned, mut from_pageable) = (
        gpu.stream.alloc_zeros::<f32>(1).expect("memory"),
        gpu.stream.alloc_zeros::<f32>(1).expect("memory"),
    );
    let mut pinned = unsafe { gpu.ctx.alloc_pinned::<f32>(1) }.expect("memory");
    let mut pageable = [1.0f32];
    pinned.as_mut_slice().expect("memory")[0] = 1.0;
    let mut launch = gpu.stream.launch_builder(&spin);
    launch.arg(&mut x).arg(&1000u32).arg(&20_000u32);
    unsafe { launch.launch(line(1, 1)) }.expect("a launch");
    let address = {
        gpu.stream
            .memcpy_htod(&pageable, &mut from_pageable)
            .expect("a copy");
        pageable[0] = 2.0;
        from_pinned.device_ptr_mut(&gpu.stream).0
    };
    // SAFETY: both are as long as the copy.
    unsafe {
        let p = pinned.as_mut_ptr().expect("memory");
        sys::cuMemcpyHtoDAsync_v2(address, p.cast(), 4, gpu.stream.cu_stream())
            .result()
            .expect("a copy");
        *p = 2.0;
    }
    assert_eq!(pageable, [2.0]);
    assert_eq!(
        gpu.stream.clone_dtoh(&from_pageable).expect("a copy"),
        [1.0]
    );
    assert_eq!(gpu.stream.clone_dtoh(&from_pinned).expect("a copy"), [2.0]);
}
