//! The CUDA stand-in itself, through cudarc as the backend uses it.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "launches that are wrong are what is tested"
)]

mod execution;
mod failures;
mod order;
mod products;

use std::sync::Arc;

use cudarc::cublas::sys::{self as cublas, cublasOperation_t};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, StridedBatchedConfig};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, DevicePtr, DevicePtrMut, DriverError,
    LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx, compile_ptx_with_opts};
use sys::CUresult::*;

use crate::cuda_standin::standin;

const KERNELS: &str = include_str!("../cuda-standin/kernels.cu");

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
