//! pplx: perplexity experiments whose figures are right, comparable, or refused.
//!
//! The program `pplx` runs experiments that a TOML file declares. This crate is what
//! it is made of, for those who build on it: engines that want their kernels judged,
//! and tools that read the tables.
//!
//! # Measuring a model of your own
//!
//! Whoever has logits implements [`LogitsModel`] and gets [`FromLogits`]; whoever has
//! scores (`−ln p` of each target) implements [`PerplexityModel`]. [`measure`] walks
//! the windows of a text as llama-perplexity does, checks what it is given, and
//! returns the figures:
//!
//! ```text
//! let mut model = FromLogits(MyModel::open(path)?);
//! let text = Text { ids: &ids, pieces: &NoPieces };
//! let settings = Settings { geometry: Geometry::llama_cpp(512), .. };
//! let m = measure(Measurable::new(&mut model), text, &settings, &control, &mut |_| ())?;
//! println!("PPL = {:.4}", m.figures.ppl);
//! ```
//!
//! With an [`Identity`], which says what was measured, [`identify`] makes the row's
//! provenance, and [`Finished::save`] writes the row, its windows and the record of
//! every token to [`Tables`]. `pplx diff` and `pplx report` read them beside pplx's own.
//! [`measure_against`] adds KL divergences. `examples/score_my_model.rs` does all of it.
//!
//! [`LoadedModel`] is pplx's own model: a GGUF file, scored exactly.
//! [`LoadedModel::placed`] makes a [`Measurable`] of it. `examples/candle.rs` measures
//! the same file through candle and says where the two differ.
//!
//! # The modules
//!
//! Data flows one way: `experiment` → `plan` → `run` → `eval` → `results` → `compare` →
//! `render`; imports point down. `docs/architecture.md` has the map, the rules that are
//! tested, and how to add an architecture, a block type or a device.

// `say` prints; whatever else does may panic.
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, clippy::dbg_macro)
)]

pub mod backend;
pub mod base;
#[doc(hidden)]
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

pub use backend::{BackendError, TokenScore};
pub use eval::{FromLogits, Geometry, Limits, LogitsModel, PerplexityModel, Sequence};
pub use results::{Identity, Tables};
pub use run::{
    BaseInput, Control, Finished, LoadedModel, Measurable, NoPieces, Pieces, Settings, Text,
    identify, measure, measure_against,
};
