//! Experiment files: the TOML schema, its layering and its validation.
//!
//! An [`Experiment`] is what was *asked for*; it has touched no model and no
//! corpus. `plan` turns it into runs. `docs/experiments.md` documents every key.

mod axes;
mod decode;
mod diagnostics;
mod layers;
mod placement;
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use glob::Pattern;

pub use crate::backend::Numerics;
use crate::compare::{Gate, Pairing};
use crate::eval::{Geometry, Limits};
use crate::results::noise::Component;

pub use diagnostics::{Collector, Diagnostic, Diagnostics, Located, Location, suggest};
pub use placement::{PlacementError, PlacementParts, PlacementRequest};
pub(crate) use schema::{check_run_name, file_name};

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file that was read.
    pub path: PathBuf,
    /// Names the result tables: `results/NAME.csv`.
    pub name: String,
    /// For readers; may be empty.
    pub description: String,
    /// The `[[models]]` tables.
    pub models: Vec<Located<ModelEntry>>,
    /// The corpora that the file describes (`[[corpora]]`), swept or not.
    pub corpora: Vec<Located<CorpusEntry>>,
    /// The axes.
    pub sweep: Sweep,
    /// Bounds every run.
    pub limits: Limits,
    /// Runs that are left out.
    pub excludes: Vec<Located<Exclude>>,
    /// Tables of reference rows.
    pub reference_files: Vec<Located<String>>,
    /// The bounds of `[gate]`.
    pub gate: Gate,
    /// What `[compare]` asks for.
    pub compare: Option<Pairing>,
    /// What `[noise]` asks for.
    pub noise: Noise,
    /// What `[kld]` compares runs with.
    pub kld_base: Option<Located<KldBase>>,
}

/// What runs are compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum KldBase {
    /// A model, by its name, or a run, by its key.
    Named(String),
    /// The same run with other values of some axes.
    Same(Replacement),
}

/// Values of axes in place of a run's own; at least one. The others stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replacement {
    /// A model's name.
    pub model: Option<Located<String>>,
    /// Where the layers run.
    pub placement: Option<Located<PlacementRequest>>,
    /// The arithmetic.
    pub numerics: Option<Located<Numerics>>,
}

/// As it is written, but for placements that are tables.
impl fmt::Display for KldBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self {
            KldBase::Named(name) => return write!(f, "'{name}'"),
            KldBase::Same(of) => of,
        };
        let axis = |key, value: Option<String>| value.map(|v| format!("{key} = \"{v}\""));
        let axes = [
            axis("model", of.model.as_ref().map(|m| m.value.clone())),
            axis(
                "placement",
                of.placement.as_ref().map(|p| p.value.to_string()),
            ),
            axis(
                "numerics",
                of.numerics.as_ref().map(|n| n.value.to_string()),
            ),
        ];
        let axes: Vec<String> = axes.into_iter().flatten().collect();
        write!(f, "{{ {} }}", axes.join(", "))
    }
}

/// What `pplx noise` makes of the experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Those that count for the noise floor; all are measured.
    pub components: Vec<Component>,
    /// How often jitter is drawn.
    pub seeds: usize,
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            components: Component::HARMLESS.to_vec(),
            seeds: 4,
        }
    }
}

/// The axes of the sweep; runs are their product with the models.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Names of `[[corpora]]`, paths, or globs.
    pub corpora: Vec<Located<String>>,
    /// Context lengths.
    pub contexts: Vec<Located<Context>>,
    /// Ways to walk a corpus.
    pub modes: Vec<Located<ModeSpec>>,
    /// Which device computes which layers.
    pub placements: Vec<Located<PlacementRequest>>,
    /// The arithmetic.
    pub numerics: Vec<Located<Numerics>>,
}

/// A context length, with bounds of its own where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Tokens of a window.
    pub n_ctx: usize,
    /// Bounds for runs of this context.
    pub limits: Limits,
}

/// One `[[models]]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelEntry {
    /// Which files.
    pub files: ModelFiles,
    /// The pre-tokenizer, for a file that names none.
    pub pre: Option<String>,
    /// Overrides whether BOS is added.
    pub bos: Option<bool>,
    /// Whether special tokens written out in the corpus are parsed.
    pub parse_special: bool,
}

/// The file or files of a `[[models]]` table.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelFiles {
    /// Every match is a model, named after its file.
    Glob(String),
    /// One model.
    File {
        /// The file stem of `path` if not given.
        name: Option<String>,
        /// Where it is, or is fetched to.
        path: String,
        /// Parts to be concatenated; empty if the file cannot be fetched.
        source: Vec<String>,
        /// Its hash, if the experiment states one.
        sha256: Option<String>,
    },
}

/// One `[[corpora]]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusEntry {
    /// Part of the run keys.
    pub name: String,
    /// Where it is, or is fetched to.
    pub path: String,
    /// Parts to be concatenated; empty if it cannot be fetched.
    pub source: Vec<String>,
    /// Its hash, if the experiment states one.
    pub sha256: Option<String>,
}

/// A way to walk a corpus, before a context length makes it a [`Geometry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeSpec {
    /// Windows that begin `stride` after each other.
    SlidingWindow {
        /// The context length if not given.
        stride: Option<usize>,
        /// What llama-perplexity leaves out if not given.
        unscored_prefix: Option<usize>,
    },
    /// Every token after the first is scored once.
    TeacherForced,
    /// llama-perplexity's `--ppl-stride`.
    LlamaCppStrided {
        /// Tokens from window to window.
        stride: usize,
    },
}

impl ModeSpec {
    /// The geometry in a context of `n_ctx` tokens.
    pub fn geometry(self, n_ctx: usize) -> Geometry {
        match self {
            ModeSpec::SlidingWindow {
                stride,
                unscored_prefix,
            } => Geometry::sliding_window(n_ctx, stride, unscored_prefix),
            ModeSpec::TeacherForced => Geometry::teacher_forced(n_ctx),
            ModeSpec::LlamaCppStrided { stride } => Geometry::llama_cpp_strided(n_ctx, stride),
        }
    }
}

/// One `[[exclude]]` table: a run that matches every given pattern is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    /// Names of models.
    pub model: Option<Pattern>,
    /// Names of corpora.
    pub corpus: Option<Pattern>,
    /// Context lengths.
    pub context: Option<Pattern>,
    /// Labels of modes, as in run keys.
    pub mode: Option<Pattern>,
    /// Names of placements, as in run keys.
    pub placement: Option<Pattern>,
    /// Names of numerics.
    pub numerics: Option<Pattern>,
}

impl Experiment {
    /// Reads `path`, layers the environment and the `--set` arguments over it,
    /// and checks everything that can be checked without models and corpora.
    ///
    /// # Errors
    /// All that is wrong with it, each with the place where it was written.
    pub fn load(path: impl AsRef<Path>, sets: &[String]) -> Result<Self, Diagnostics> {
        let path = path.as_ref();
        schema::decode(path, &layers::Layers::load(path, sets)?)
    }

    /// The experiment file's place as a whole.
    pub fn whole_file(&self) -> Location {
        Location::WholeFile(std::sync::Arc::new(self.path.clone()))
    }
}
