//! pplx: declarative perplexity experiments.
//!
//! Data flows one way: `experiment` → `plan` → `run` → `eval` →
//! `results`; imports point down. `docs/architecture.md` says why.

pub mod backend;
pub mod base;
pub mod cli;
pub mod corpus;
pub mod eval;
pub mod experiment;
pub mod fetch;
pub mod gguf;
mod isa;
pub mod model;
pub mod plan;
pub mod quant;
pub mod reference;
pub mod report;
pub mod results;
pub mod run;
pub mod stats;
pub mod tokenizer;
