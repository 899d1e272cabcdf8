//! The CUDA backend on the stand-in of `tests/cuda-standin`: what it computes,
//! what it keeps on the device, and how it fails. Speed, tensor cores and races
//! are for real hardware: `tests/gpu.rs`.

#[allow(dead_code)] // llama.cpp's figures are compared elsewhere.
#[path = "../support/cases/mod.rs"]
mod cases;
mod commands;
#[path = "../cuda-standin/mod.rs"]
mod cuda_standin;
mod dequant;
mod failures;
mod harness;
mod parity;
mod placements;
mod precision;
#[path = "../cuda_standin/mod.rs"]
mod stand_in_itself;
#[path = "../support/mod.rs"]
mod support;

use support::skip;
