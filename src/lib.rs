//! pplx: declarative perplexity experiments.
//!
//! Data flows one way: `experiment` → `plan` → `run` → `eval` →
//! `results`; imports point down. `docs/architecture.md` says why.

// `say` prints; whatever else does may panic.
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, clippy::dbg_macro)
)]

pub mod backend;
pub mod base;
pub mod cli;
pub mod compare;
pub mod corpus;
pub mod eval;
pub mod experiment;
pub mod fault;
pub mod fetch;
pub mod files;
pub mod gguf;
mod isa;
pub mod model;
pub mod plan;
pub mod quant;
pub mod reference;
pub mod render;
pub mod report;
pub mod results;
pub mod run;
pub mod say;
pub mod stats;
pub mod tokenizer;
