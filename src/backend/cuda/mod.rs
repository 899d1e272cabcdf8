//! The CUDA backend: layers on an NVIDIA GPU, through libraries that are loaded
//! when a device is asked for.
//!
//! Weights stay on the device as the file has them and are decoded tile by tile
//! for each product, so that a layer window takes no more memory than its tensors
//! take in the file. Activations are f32; so are products, but for the precision
//! that is asked for. Token embedding stays on the host.
//!
//! Results are the same bits from run to run on one device, driver and batch size.

mod attention;
mod backend;
mod batch;
mod blas;
mod chunk;
mod error;
mod ffn;
mod footprint;
mod gpu;
mod head;
mod kernels;
mod layer;
mod layers;
mod library;
mod linear;
mod loader;
mod memory;
mod mla;
mod model;
mod moe;
mod ops;
mod precision;
mod prefetch;
mod product;
mod recurrent;
mod run;
mod rwkv;
mod session;
mod upload;
mod weights;
mod workspace;

pub use backend::CUDA;
pub use error::{CudaError, Version};
pub use footprint::{batch_windows, footprint};
pub use gpu::{DeviceInfo, Setup, devices, driver_version, try_setup};
pub use kernels::{Arch, compile as compile_kernels, nvrtc_version};
pub use library::{Library, PATH_VARIABLE};
pub use memory::MemoryUse;
pub use model::CudaModel;
pub use precision::Precision;

/// As in experiment files, keys and tables.
const NAME: &str = "cuda";
