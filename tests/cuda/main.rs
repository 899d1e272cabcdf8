//! The CUDA backend on the stand-in of `tests/cuda-standin`: what it computes,
//! what it keeps on the device, and how it fails. Speed, tensor cores and races
//! are for real hardware.

#[path = "../support/cases/mod.rs"]
mod cases;
#[path = "../cuda-standin/mod.rs"]
mod cuda_standin;
mod harness;
mod parity;
mod placements;
#[path = "../support/mod.rs"]
mod support;
