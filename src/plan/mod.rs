//! From an experiment to its runs: expansion, exclusion, resolution, stable
//! run keys, estimates. Reads headers and file sizes; fetches nothing.

mod base;
mod estimate;
mod facts;
mod inputs;
mod machine;
mod placement;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use glob::Pattern;

use crate::backend::Footprint;
use crate::backend::cpu::no_product;
use crate::compare::{Gate, Pairing};
use crate::eval::{Geometry, Limits, WindowPlan};
use crate::experiment::{
    Collector, Context, Diagnostics, Exclude, Experiment, Located, Location, PlacementRequest,
};
use crate::model::Model;
use crate::tokenizer;

pub use crate::backend::{Numerics, Placement};
pub use estimate::{Cost, Estimate, Pace, Tokens, Work};
pub use facts::ModelFacts;
pub use machine::Machine;
pub use placement::{Resolution, Subject, Unavailable};

/// A model of the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Its name, a part of keys.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Parts to be concatenated; empty if the file cannot be fetched.
    pub source: Vec<String>,
    /// The hash that the experiment states.
    pub sha256: Option<String>,
    /// The pre-tokenizer, for a file that names none.
    pub pre: Option<String>,
    /// Overrides whether BOS is added.
    pub bos: Option<bool>,
    /// Whether special tokens in the corpus are parsed.
    pub parse_special: bool,
    /// What its header says; `None` if the file is not there (yet).
    pub facts: Option<ModelFacts>,
}

impl ModelSpec {
    /// What the experiment says of the model's tokenizer.
    pub fn tokenizer_options(&self) -> tokenizer::Options {
        tokenizer::Options {
            parse_special: self.parse_special,
            pre: self.pre.clone(),
            add_bos: self.bos,
        }
    }

    /// Why windows of `n_ctx` tokens do not fit the model.
    fn context_too_long(&self, n_ctx: usize) -> Option<String> {
        let trained = self.facts.as_ref().map(|f| f.context_length);
        let trained = trained.filter(|&t| n_ctx > t)?;
        Some(format!(
            "windows of {n_ctx} tokens are beyond the {trained} that '{}' was trained on; use a \
             context of at most {trained} or leave the combination out with [[exclude]]",
            self.name
        ))
    }

    /// Why the model's weights have no products in the arithmetic.
    fn lacks_products(&self, numerics: Numerics) -> Option<String> {
        let types = self.facts.iter().flat_map(|f| f.types.iter().copied());
        let ty = no_product(numerics, types)?;
        Some(format!(
            "numerics '{numerics}' has no product for the weights of type {ty} in '{}'; use \
             \"exact\", or leave the combination out with [[exclude]]",
            self.name
        ))
    }
}

/// A corpus of the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorpusSpec {
    /// Its name, a part of keys.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Parts to be concatenated; empty if the file cannot be fetched.
    pub source: Vec<String>,
    /// The hash that the experiment states.
    pub sha256: Option<String>,
    /// Its length; `None` if the file is not there (yet).
    pub bytes: Option<u64>,
}

/// One run: one row of the result table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// Identifies the run in tables, across machines and over time:
    /// `MODEL/CORPUS/CONTEXT/MODE/PLACEMENT/NUMERICS[/wWINDOWS][/tTOKENS]`.
    pub key: String,
    /// The model.
    pub model: Arc<ModelSpec>,
    /// The corpus.
    pub corpus: Arc<CorpusSpec>,
    /// The context as the experiment has it; `geometry.n_ctx` is the window's
    /// length, which llama.cpp's strided mode makes longer.
    pub context: usize,
    /// Context length and mode.
    pub geometry: Geometry,
    /// As in experiment files and result tables.
    pub mode_name: &'static str,
    /// Which device computes which layers.
    pub placement: Placement,
    /// What it takes of the GPU's memory; `None` without one, or where the model is
    /// not on disk yet.
    pub footprint: Option<Footprint>,
    /// The GPU's name, where the placement takes it.
    pub gpu: Option<String>,
    /// The arithmetic.
    pub numerics: Numerics,
    /// How much of the corpus is scored.
    pub limits: Limits,
    /// What its distributions are compared with.
    pub base: Option<BaseSpec>,
}

impl RunSpec {
    /// Its key but for the limits.
    fn key_without_limits(&self) -> String {
        format!(
            "{}/{}/{}/{}/{}/{}",
            self.model.name,
            self.corpus.name,
            self.context,
            self.geometry.mode.label(),
            self.placement,
            self.numerics
        )
    }

    fn key_with_limits(&self) -> String {
        let windows = self.limits.windows.map(|n| format!("/w{n}"));
        let tokens = self.limits.max_tokens.map(|n| format!("/t{n}"));
        let limits = windows.into_iter().chain(tokens).collect::<String>();
        self.key_without_limits() + &limits
    }
}

/// The base of a run's KL divergence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseSpec {
    /// The key of the run that it is, whether the plan has that run or not.
    pub key: String,
    /// The model.
    pub model: Arc<ModelSpec>,
    /// Which device computes which layers.
    pub placement: Placement,
    /// As of a run.
    pub footprint: Option<Footprint>,
    /// The arithmetic.
    pub numerics: Numerics,
}

/// An expanded experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name, a part of keys.
    pub name: String,
    /// For readers; may be empty.
    pub description: String,
    /// In the order of the file: models, corpora, contexts, modes, placements,
    /// numerics, the last varying fastest. No two have the same key.
    pub runs: Vec<RunSpec>,
    /// Tables of reference rows.
    pub reference_files: Vec<PathBuf>,
    /// The bounds of `[gate]`.
    pub gate: Gate,
    /// Which runs are compared with each other when all are done.
    pub compare: Option<Pairing>,
    /// The experiment file.
    pub experiment_path: PathBuf,
    /// Combinations that an `[[exclude]]` left out.
    pub excluded: usize,
    /// Combinations that came out as a run that was there already.
    pub merged: usize,
    /// What the user should know: placements that were chosen, excludes that
    /// match nothing, targets that are scored twice.
    pub notes: Vec<String>,
}

impl Plan {
    /// Expands `experiment`.
    ///
    /// Models that are not on disk are planned unseen: plan again when they have
    /// been fetched, so that their headers are checked too.
    ///
    /// # Errors
    /// Everything that would keep a run from being what was asked for: missing
    /// files, malformed models, geometries that score nothing, contexts beyond a
    /// model's, placements and numerics that this build does not have.
    pub fn new(experiment: &Experiment) -> Result<Self, Diagnostics> {
        Self::on(experiment, &Machine::default())
    }

    /// Expands `experiment` for a machine.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn on(experiment: &Experiment, machine: &Machine) -> Result<Self, Diagnostics> {
        let mut errors = Collector::default();
        let paths = inputs::Paths::new(&experiment.path);
        let models = inputs::models(experiment, &paths, &mut errors);
        let corpora = inputs::corpora(experiment, &paths, &mut errors);
        let reference_files = experiment.reference_files.iter().map(|file| {
            let path = paths.resolve(&file.value);
            if !path.is_file() {
                errors.push(&file.at, format!("'{}' is no file", path.display()));
            }
            path
        });
        let reference_files = reference_files.collect();
        let inputs_found = !models.is_empty() && !corpora.is_empty();

        let mut expansion = Expansion::new(experiment, machine, &mut errors);
        for model in &models {
            for corpus in &corpora {
                expansion.add(model, corpus);
            }
        }
        if let Some(base) = &experiment.kld_base {
            expansion.set_bases(base, &models);
        }
        let Expansion {
            runs,
            excluded,
            merged,
            notes,
            ..
        } = expansion.finish();
        if runs.is_empty() && inputs_found && excluded > 0 {
            errors.push(
                &experiment.whole_file(),
                format!("nothing is left to run: [[exclude]] removes all {excluded} combinations"),
            );
        }
        errors.finish(Self {
            name: experiment.name.clone(),
            description: experiment.description.clone(),
            runs,
            reference_files,
            gate: experiment.gate,
            compare: experiment.compare.clone(),
            experiment_path: experiment.path.clone(),
            excluded,
            merged,
            notes,
        })
    }

    /// The models of the runs and of their bases, each once.
    pub fn models(&self) -> Vec<&Arc<ModelSpec>> {
        let bases = self.runs.iter().filter_map(|r| r.base.as_ref());
        distinct((self.runs.iter().map(|r| &r.model)).chain(bases.map(|base| &base.model)))
    }

    /// The corpora of the runs, each once.
    pub fn corpora(&self) -> Vec<&Arc<CorpusSpec>> {
        distinct(self.runs.iter().map(|r| &r.corpus))
    }
}

fn distinct<'a, T>(items: impl Iterator<Item = &'a Arc<T>>) -> Vec<&'a Arc<T>> {
    let mut out: Vec<&Arc<T>> = Vec::new();
    for item in items {
        if !out.iter().any(|o| Arc::ptr_eq(o, item)) {
            out.push(item);
        }
    }
    out
}

/// An expansion on its way.
struct Expansion<'a> {
    experiment: &'a Experiment,
    machine: &'a Machine,
    /// Models whose size in device memory was asked for; `None` where a file is
    /// missing or is no model, which its own runs report.
    opened: HashMap<PathBuf, Option<Arc<Model>>>,
    errors: &'a mut Collector,
    /// Settings that are refused already: one message each is enough.
    refused: HashSet<String>,
    keys: HashSet<String>,
    exclude_hits: Vec<usize>,
    runs: Vec<RunSpec>,
    excluded: usize,
    merged: usize,
    notes: Vec<String>,
}

/// A combination of the axes, before it is a run.
struct Candidate<'a> {
    model: &'a Arc<ModelSpec>,
    corpus: &'a Arc<CorpusSpec>,
    context: &'a Located<Context>,
    mode: &'a Location,
    geometry: Geometry,
    placement: &'a Located<PlacementRequest>,
    numerics: &'a Located<Numerics>,
}

impl Candidate<'_> {
    /// Its name in messages.
    fn label(&self) -> String {
        format!(
            "{}/{}/{}/{}/{}/{}",
            self.model.name,
            self.corpus.name,
            self.context.value.n_ctx,
            self.geometry.mode.label(),
            self.placement.value,
            self.numerics.value
        )
    }
}

impl<'a> Expansion<'a> {
    fn new(experiment: &'a Experiment, machine: &'a Machine, errors: &'a mut Collector) -> Self {
        Self {
            experiment,
            machine,
            opened: HashMap::new(),
            errors,
            refused: HashSet::new(),
            keys: HashSet::new(),
            exclude_hits: vec![0; experiment.excludes.len()],
            runs: Vec::new(),
            excluded: 0,
            merged: 0,
            notes: Vec::new(),
        }
    }

    /// Adds the runs of one model on one corpus.
    fn add(&mut self, model: &Arc<ModelSpec>, corpus: &Arc<CorpusSpec>) {
        let sweep = &self.experiment.sweep;
        for context in &sweep.contexts {
            for mode in &sweep.modes {
                for placement in &sweep.placements {
                    for numerics in &sweep.numerics {
                        self.add_one(&Candidate {
                            model,
                            corpus,
                            context,
                            mode: &mode.at,
                            geometry: mode.value.geometry(context.value.n_ctx),
                            placement,
                            numerics,
                        });
                    }
                }
            }
        }
    }

    fn add_one(&mut self, c: &Candidate<'_>) {
        let resolved = self.resolve(c);
        let chosen = resolved.as_ref().ok().map(|r| r.placement);
        let mut excluded = false;
        for (exclude, hits) in self.experiment.excludes.iter().zip(&mut self.exclude_hits) {
            if matches(&exclude.value, c, chosen) {
                *hits += 1;
                excluded = true;
            }
        }
        if excluded {
            self.excluded += 1;
            return;
        }
        let limits = tightest(self.experiment.limits, c.context.value.limits);
        let fits = self.check(c, limits);
        let fits = self.has_products(c) && fits;
        let resolution = match resolved {
            Ok(resolution) => resolution,
            Err(e) => {
                let (at, instead) = match e {
                    Unavailable::Numerics { .. } | Unavailable::NumericsNeedGpu { .. } => {
                        (&c.numerics.at, "\"exact\"")
                    }
                    _ => (&c.placement.at, "\"cpu\" or \"auto\""),
                };
                let message =
                    format!("{e}; use {instead}, or leave the combination out with [[exclude]]");
                return self.refuse(c, at, message);
            }
        };
        if !fits {
            return;
        }
        if let Some(reason) = &resolution.reason {
            self.note(format!(
                "placement '{}' is {} here: {reason}",
                c.placement.value, resolution.placement
            ));
        }
        if c.geometry.rescores_targets() {
            self.note(format!(
                "{} at context {} scores some targets more than once: its stride is below the \
                 targets of a window",
                c.geometry.mode.label(),
                c.context.value.n_ctx
            ));
        }
        let mut run = RunSpec {
            key: String::new(),
            model: c.model.clone(),
            corpus: c.corpus.clone(),
            context: c.context.value.n_ctx,
            geometry: c.geometry,
            mode_name: c.geometry.mode.name(),
            placement: resolution.placement,
            footprint: resolution.footprint,
            gpu: resolution.gpu,
            numerics: c.numerics.value,
            limits,
            base: None,
        };
        run.key = run.key_with_limits();
        if self.keys.insert(run.key.clone()) {
            self.runs.push(run);
        } else {
            self.merged += 1;
        }
    }

    fn resolve(&mut self, c: &Candidate<'_>) -> Result<Resolution, Unavailable> {
        let n_ctx = c.geometry.n_ctx;
        self.place(c.placement.value, c.model, n_ctx, c.numerics.value)
    }

    fn place(
        &mut self,
        asked: PlacementRequest,
        model: &ModelSpec,
        n_ctx: usize,
        numerics: Numerics,
    ) -> Result<Resolution, Unavailable> {
        // The model is looked into where its size matters: with a GPU at hand.
        let on_gpu = match asked {
            PlacementRequest::Auto => self.machine.devices().any(|d| self.machine.find(d).is_ok()),
            PlacementRequest::Fixed(placement) => placement
                .accelerator()
                .is_some_and(|d| self.machine.find(d).is_ok()),
        };
        let model = match on_gpu {
            true => self.open(model),
            false => None,
        };
        let subject = Subject {
            model: model.as_deref(),
            n_ctx,
            numerics,
        };
        Resolution::new(asked, self.machine, subject)
    }

    fn open(&mut self, model: &ModelSpec) -> Option<Arc<Model>> {
        let open = || Model::open(&model.path).ok().map(Arc::new);
        let opened = self.opened.entry(model.path.clone());
        opened.or_insert_with(open).clone()
    }

    /// Whether geometry and model go together.
    fn check(&mut self, c: &Candidate<'_>, limits: Limits) -> bool {
        let mut fits = true;
        let geometry = match limits.max_tokens {
            // A cut corpus may be too short whatever the corpus is; two contexts
            // are enough for every mode.
            Some(max) => {
                let tokens = max.min(2 * c.geometry.n_ctx);
                WindowPlan::new(tokens, c.geometry, limits).map(|_| ())
            }
            None => c.geometry.check(),
        };
        if let Err(e) = geometry {
            let at = match c.geometry.check() {
                Ok(()) => &c.context.at,
                Err(_) => c.mode,
            };
            let cut = limits.max_tokens.filter(|_| c.geometry.check().is_ok());
            let cut = cut.map_or(String::new(), |max| format!(" (cut by max_tokens = {max})"));
            self.refuse(c, at, format!("{e}{cut}"));
            fits = false;
        }
        if let Some(message) = c.model.context_too_long(c.geometry.n_ctx) {
            self.refuse(c, &c.context.at, message);
            fits = false;
        }
        fits
    }

    /// Whether the model's weights have products in the arithmetic.
    fn has_products(&mut self, c: &Candidate<'_>) -> bool {
        if let Some(message) = c.model.lacks_products(c.numerics.value) {
            self.refuse(c, &c.numerics.at, message);
            return false;
        }
        true
    }

    fn refuse(&mut self, c: &Candidate<'_>, at: &Location, message: String) {
        if self.refused.insert(format!("{at} {message}")) {
            self.errors
                .push(at, format!("run {}: {message}", c.label()));
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn finish(mut self) -> Self {
        for (exclude, &hits) in self.experiment.excludes.iter().zip(&self.exclude_hits) {
            if hits == 0 {
                self.notes
                    .push(format!("{}: this [[exclude]] matches no run", exclude.at));
            }
        }
        self
    }
}

/// Both bounds hold.
fn tightest(a: Limits, b: Limits) -> Limits {
    let min = |a: Option<usize>, b: Option<usize>| a.into_iter().chain(b).min();
    Limits {
        windows: min(a.windows, b.windows),
        max_tokens: min(a.max_tokens, b.max_tokens),
    }
}

/// Whether every pattern that is given matches. Modes go by their name or their
/// part of the key, placements by what was asked for or what came of it.
fn matches(exclude: &Exclude, c: &Candidate<'_>, chosen: Option<Placement>) -> bool {
    let fits = |pattern: &Option<Pattern>, names: &[String]| match pattern {
        Some(p) => names.iter().any(|n| p.matches(n)),
        None => true,
    };
    let mut modes = vec![c.geometry.mode.name().to_owned(), c.geometry.mode.label()];
    if c.geometry == Geometry::llama_cpp(c.context.value.n_ctx) {
        modes.push("llama.cpp".to_owned());
    }
    let mut placements = vec![c.placement.value.to_string()];
    placements.extend(chosen.map(|p| p.to_string()));
    fits(&exclude.model, std::slice::from_ref(&c.model.name))
        && fits(&exclude.corpus, std::slice::from_ref(&c.corpus.name))
        && fits(&exclude.context, &[c.context.value.n_ctx.to_string()])
        && fits(&exclude.mode, &modes)
        && fits(&exclude.placement, &placements)
        && fits(&exclude.numerics, &[c.numerics.value.to_string()])
}
