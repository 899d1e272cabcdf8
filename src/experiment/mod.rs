//! Experiment files: the TOML schema, its layering and its validation.
//!
//! An [`Experiment`] is what was *asked for*; it has touched no model and no
//! corpus. `plan` turns it into runs. `docs/experiments.md` documents every key.

mod decode;
mod diagnostics;
mod layers;
mod placement;
mod schema;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use glob::Pattern;

pub use crate::backend::Numerics;
use crate::compare::Gate;
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
    pub description: String,
    pub models: Vec<Located<ModelEntry>>,
    /// The corpora that the file describes (`[[corpora]]`), swept or not.
    pub corpora: Vec<Located<CorpusEntry>>,
    pub sweep: Sweep,
    /// Bounds every run.
    pub limits: Limits,
    pub excludes: Vec<Located<Exclude>>,
    pub reference_files: Vec<Located<String>>,
    pub gate: Gate,
    pub noise: Noise,
    /// What `[kld]` compares runs with: a model's name, or a run's key.
    pub kld_base: Option<Located<String>>,
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
    pub contexts: Vec<Located<Context>>,
    pub modes: Vec<Located<ModeSpec>>,
    pub placements: Vec<Located<PlacementRequest>>,
    pub numerics: Vec<Located<Numerics>>,
}

/// A context length, with bounds of its own where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub n_ctx: usize,
    pub limits: Limits,
}

/// One `[[models]]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelEntry {
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
    File {
        /// The file stem of `path` if not given.
        name: Option<String>,
        path: String,
        /// Parts to be concatenated; empty if the file cannot be fetched.
        source: Vec<String>,
        sha256: Option<String>,
    },
}

/// One `[[corpora]]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusEntry {
    pub name: String,
    pub path: String,
    pub source: Vec<String>,
    pub sha256: Option<String>,
}

/// A way to walk a corpus, before a context length makes it a [`Geometry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeSpec {
    SlidingWindow {
        stride: Option<usize>,
        unscored_prefix: Option<usize>,
    },
    TeacherForced,
    LlamaCppStrided {
        stride: usize,
    },
}

impl ModeSpec {
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
    pub model: Option<Pattern>,
    pub corpus: Option<Pattern>,
    pub context: Option<Pattern>,
    pub mode: Option<Pattern>,
    pub placement: Option<Pattern>,
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
