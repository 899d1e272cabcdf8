//! What is computed: architectures, the evaluator and placements on the CPU, against
//! llama.cpp. The GPU's tests stand here too: the process of `cuda` has the stand-in.

mod architectures;
#[path = "support/cases/mod.rs"]
mod cases;
mod evaluator;
mod gpu;
mod nvrtc;
mod parity;
mod placements;
mod q8;
mod recurrent;
mod support;
