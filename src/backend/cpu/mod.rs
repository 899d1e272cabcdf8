//! The CPU backend: exact f32 arithmetic on dequantized weights, or products with
//! activations in 8 bits.
//!
//! Layers are decoded one at a time and meet a whole batch of sequences before
//! they are dropped, large ones panel by panel, so that neither a whole model nor a
//! whole corpus is in memory. Results are the same bits for any number of threads, any batch and
//! any instruction set: see [`gemm`], [`q8`] and `isa.rs`.

mod attention;
mod backend;
mod conv;
mod delta_net;
mod embed;
mod exec;
mod ffn;
pub mod footprint;
pub mod gemm;
mod head;
mod heads;
mod jitter;
mod layer;
mod mamba;
mod math;
mod mla;
mod model;
mod moe;
mod norm;
mod numerics;
pub mod pace;
pub mod q8;
mod rope;
mod rwkv;
mod scan;
mod scratch;
mod shelf;
mod short_conv;
mod streamed;
mod times;
mod weights;

pub use crate::isa::Isa;
pub use backend::CPU;
pub(super) use embed::embed;
pub(super) use head::normed_rows;
pub use model::CpuModel;
pub use numerics::no_product;
pub use streamed::StreamedCpu;
pub use times::{Part, Times};
