//! The CUDA stand-in itself, through cudarc as the backend uses it.

#[path = "cuda-standin/mod.rs"]
mod cuda_standin;

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::compile_ptx;

use cuda_standin::standin;

const KERNELS: &str = include_str!("cuda-standin/kernels.cu");

fn function(ctx: &Arc<CudaContext>, name: &str) -> CudaFunction {
    let ptx = compile_ptx(KERNELS).unwrap_or_else(|e| panic!("{e}"));
    let module = ctx.load_module(ptx).expect("a module");
    module.load_function(name).expect("a kernel")
}

fn config(blocks: u32, threads: u32, shared: u32) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks, 1, 1),
        block_dim: (threads, 1, 1),
        shared_mem_bytes: shared,
    }
}

#[test]
fn vectors_add() {
    let Some(_standin) = standin() else { return };
    let ctx = CudaContext::new(0).expect("a device");
    let stream = ctx.new_stream().expect("a stream");
    let add = function(&ctx, "add");
    let n = 1000u32;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let a = stream.clone_htod(&a).expect("a copy");
    let mut sum = stream.alloc_zeros::<f32>(n as usize).expect("memory");
    let mut launch = stream.launch_builder(&add);
    launch.arg(&mut sum).arg(&a).arg(&a).arg(&n);
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }.expect("a launch");
    let sum = stream.clone_dtoh(&sum).expect("a copy");
    for (i, s) in sum.iter().enumerate() {
        assert_eq!(*s, 2.0 * i as f32);
    }
}
