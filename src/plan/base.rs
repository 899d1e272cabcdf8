//! The bases of KL divergences: for each run the same run with some of its axes
//! replaced.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::{BaseSpec, Expansion, ModelSpec, Resolution, RunSpec, Unavailable};
use crate::backend::{Budget, Footprint, Numerics};
use crate::experiment::{KldBase, Located, Location, PlacementRequest, Replacement, suggest};
use crate::gguf::Gguf;
use crate::tokenizer::{self, Tokenizer};

/// What is put in the place of a run's own axes, each with where it was written.
#[derive(Default)]
struct Replaced<'a> {
    model: Option<(&'a Arc<ModelSpec>, &'a Location)>,
    placement: Option<(PlacementRequest, &'a Location)>,
    numerics: Option<(Numerics, &'a Location)>,
    /// Only runs of this one's corpus and geometry have a base.
    text_of: Option<RunSpec>,
}

impl Replaced<'_> {
    fn concerns(&self, run: &RunSpec) -> bool {
        self.text_of.as_ref().is_none_or(|base| {
            (&run.corpus.name, run.geometry) == (&base.corpus.name, base.geometry)
        })
    }

    fn model_of<'m>(&'m self, run: &'m RunSpec) -> &'m Arc<ModelSpec> {
        self.model.map_or(&run.model, |(model, _)| model)
    }

    fn numerics_of(&self, run: &RunSpec) -> Numerics {
        self.numerics.map_or(run.numerics, |(numerics, _)| numerics)
    }

    fn placement_of(&self, run: &RunSpec) -> PlacementRequest {
        let own = PlacementRequest::Fixed(run.placement);
        self.placement.map_or(own, |(placement, _)| placement)
    }

    /// The base of a run, which may be the run itself: all axes that are not replaced,
    /// and the limits, are its own.
    fn base_of(&self, run: &RunSpec, placed: Resolution) -> BaseSpec {
        let base = RunSpec {
            model: self.model_of(run).clone(),
            placement: placed.placement,
            footprint: placed.footprint,
            numerics: self.numerics_of(run),
            ..run.clone()
        };
        BaseSpec {
            key: base.key_with_limits(),
            model: base.model,
            placement: base.placement,
            footprint: base.footprint,
            numerics: base.numerics,
        }
    }
}

impl Expansion<'_> {
    /// Gives its base to every run that has one.
    pub(super) fn set_bases(&mut self, base: &Located<KldBase>, models: &[Arc<ModelSpec>]) {
        let replaced = match self.replaced(base, models) {
            Ok(replaced) => replaced,
            Err((at, message)) => return self.errors.push(&at, message),
        };
        let mut tokenizers = Tokenizers::default();
        let mut runs = std::mem::take(&mut self.runs);
        let (mut compared, mut refused) = (0, false);
        for run in runs.iter_mut().filter(|run| replaced.concerns(run)) {
            match self.base_of(run, &replaced, &base.at, &mut tokenizers) {
                Ok(base) if base.key == run.key => {}
                Ok(base) => {
                    run.base = Some(base);
                    compared += 1;
                }
                Err((at, message)) => {
                    refused = true;
                    if self.refused.insert(format!("{at} {message}")) {
                        let message = format!("the base of run {}: {message}", run.key);
                        self.errors.push(&at, message);
                    }
                }
            }
        }
        self.runs = runs;
        if compared == 0 && !refused {
            let Located { value, at } = base;
            self.note(format!("{at}: no run is compared with the base {value}"));
        }
    }

    /// # Errors
    /// What is not there, where it was written and why.
    fn replaced<'b>(
        &self,
        base: &'b Located<KldBase>,
        models: &'b [Arc<ModelSpec>],
    ) -> Result<Replaced<'b>, (Location, String)> {
        let at = &base.at;
        let named = |name: &str| models.iter().find(|m| m.name == name);
        let names = || models.iter().map(|m| m.name.as_str());
        let name = match &base.value {
            KldBase::Named(name) => name,
            KldBase::Same(Replacement {
                model,
                placement,
                numerics,
            }) => {
                let model = model.as_ref().map(|m| match named(&m.value) {
                    Some(found) => Ok((found, &m.at)),
                    None => {
                        let hint = suggest(&m.value, names());
                        let message = format!("'{}' is no model of this experiment{hint}", m.value);
                        Err((m.at.clone(), message))
                    }
                });
                return Ok(Replaced {
                    model: model.transpose()?,
                    placement: placement.as_ref().map(|p| (p.value, &p.at)),
                    numerics: numerics.as_ref().map(|n| (n.value, &n.at)),
                    text_of: None,
                });
            }
        };
        if let Some(model) = named(name) {
            return Ok(Replaced {
                model: Some((model, at)),
                ..Replaced::default()
            });
        }
        let Some(run) = self.runs.iter().find(|run| is_key_of(name, run)) else {
            let keys = self.runs.iter().map(|r| r.key.as_str());
            let hint = match name.contains('/') {
                true => suggest(name, keys),
                false => suggest(name, names()),
            };
            let message = format!(
                "'{name}' is neither a model of this experiment nor the key of a run{hint}"
            );
            return Err((at.clone(), message));
        };
        Ok(Replaced {
            model: named(&run.model.name).map(|model| (model, at)),
            placement: Some((PlacementRequest::Fixed(run.placement), at)),
            numerics: Some((run.numerics, at)),
            text_of: Some(run.clone()),
        })
    }

    /// # Errors
    /// Why the base cannot be evaluated beside the run, and where to mend it.
    fn base_of(
        &mut self,
        run: &RunSpec,
        replaced: &Replaced<'_>,
        at: &Location,
        tokenizers: &mut Tokenizers,
    ) -> Result<BaseSpec, (Location, String)> {
        let of_model = replaced.model.map_or(at, |(_, at)| at);
        let of_placement = replaced.placement.map_or(at, |(_, at)| at);
        let of_numerics = replaced.numerics.map_or(at, |(_, at)| at);
        let (model, numerics) = (replaced.model_of(run), replaced.numerics_of(run));
        let n_ctx = run.geometry.n_ctx;
        let refuse = |at: &Location, message: String| Err((at.clone(), message));
        if let Some(message) = model.context_too_long(n_ctx) {
            return refuse(of_model, message);
        }
        if let Some(message) = model.lacks_products(numerics) {
            return refuse(of_numerics, message);
        }
        let placed = match self.place(replaced.placement_of(run), model, n_ctx, numerics) {
            Ok(placed) => placed,
            Err(e @ Unavailable::Numerics { .. }) => {
                // Whichever was replaced does not go with what was left.
                let (at, other) = match replaced.numerics {
                    Some((_, at)) => (at, "placement = \"auto\""),
                    None => (of_placement, "numerics = \"exact\""),
                };
                return refuse(at, format!("{e}; say {other} in the base too"));
            }
            Err(e) => {
                let at = match e {
                    Unavailable::NumericsNeedGpu { .. } => of_numerics,
                    _ => of_placement,
                };
                return refuse(at, format!("{e}; use \"cpu\" or \"auto\""));
            }
        };
        let base = replaced.base_of(run, placed);
        if base.key == run.key {
            return Ok(base);
        }
        if let Some(problem) = self.too_large_together(run, &base) {
            return refuse(of_placement, problem);
        }
        if let Some(difference) = tokenizers.difference(model, &run.model) {
            let message = format!(
                "'{}' and '{}' do not read a text as the same tokens: {difference}; take a base \
                 with the run's own tokenizer, or leave the run out with [[exclude]]",
                model.name, run.model.name
            );
            return refuse(of_model, message);
        }
        Ok(base)
    }

    /// Why a run and its base, which are on their devices together, have no room there.
    fn too_large_together(&self, run: &RunSpec, base: &BaseSpec) -> Option<String> {
        let device = run.placement.accelerator();
        let device = device.filter(|&d| base.placement.accelerator() == Some(d))?;
        let budget = Budget {
            footprint: together(run.footprint?, base.footprint?),
            free: self.machine.find(device).ok()?.free_bytes(),
        };
        let too_large = !budget.holds();
        too_large.then(|| {
            format!(
                "on {device} beside its run it {budget}, for both; put one of them on the CPU or \
                 in a cycle"
            )
        })
    }
}

fn together(a: Footprint, b: Footprint) -> Footprint {
    Footprint {
        weights: a.weights + b.weights,
        next: a.next + b.next,
        activations: a.activations + b.activations,
        head: a.head + b.head,
        fixed: a.fixed + b.fixed,
    }
}

/// Whether `written` is the run's key, with any limits or none.
fn is_key_of(written: &str, run: &RunSpec) -> bool {
    let limit = |part: &str| {
        let digits = part.strip_prefix(['w', 't']);
        digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
    };
    match written.strip_prefix(&run.key_without_limits()) {
        Some("") => true,
        Some(limits) => {
            let mut parts = limits.split('/');
            parts.next() == Some("") && parts.all(limit)
        }
        None => false,
    }
}

/// The tokenizers that were compared, each built once.
#[derive(Default)]
struct Tokenizers {
    built: HashMap<(PathBuf, String), Option<Arc<Tokenizer>>>,
    /// By the names of the models.
    differences: HashMap<(String, String), Option<String>>,
}

impl Tokenizers {
    /// What makes two models read a text as other tokens, as far as their headers
    /// tell. Nothing where a file is missing, or has a vocabulary that cannot be used,
    /// which its own runs report.
    fn difference(&mut self, base: &ModelSpec, model: &ModelSpec) -> Option<String> {
        let names = (base.name.clone(), model.name.clone());
        if let Some(known) = self.differences.get(&names) {
            return known.clone();
        }
        let found = match (self.of(base), self.of(model)) {
            (Some(base), Some(model)) => base.difference(&model),
            _ => None,
        };
        self.differences.insert(names, found.clone());
        found
    }

    fn of(&mut self, model: &ModelSpec) -> Option<Arc<Tokenizer>> {
        let options = model.tokenizer_options();
        let build = |options: &tokenizer::Options| {
            let gguf = Gguf::open(&model.path).ok()?;
            let built = Tokenizer::from_gguf(gguf.metadata(), options).ok()?;
            Some(Arc::new(built))
        };
        let key = (model.path.clone(), format!("{options:?}"));
        let built = self.built.entry(key).or_insert_with(|| build(&options));
        built.clone()
    }
}

#[cfg(test)]
mod tests;
