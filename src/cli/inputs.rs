//! Fetching what an experiment names: shared by the verbs that measure, and `fetch`.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Failure, signals};
use crate::experiment::Experiment;
use crate::fetch::{
    Artifact, FetchError, FetchOptions, Outcome, TerminalProgress, TransferProgress, ensure,
};
use crate::files;
use crate::plan::Plan;
use crate::say;

/// The plan of an experiment, all of whose files are there; prints its notes.
pub fn planned(file: &Path, sets: &[String]) -> Result<(Experiment, Plan, FetchOptions), Failure> {
    let experiment = Experiment::load(file, sets).map_err(Failure::usage)?;
    let fetch = fetch_options();
    let planned = Plan::new(&experiment).map_err(Failure::usage)?;
    ensure_all(&planned, &fetch, &TerminalProgress::new())?;
    // Once more, now that every file can be looked at.
    let plan = Plan::new(&experiment).map_err(Failure::usage)?;
    for note in &plan.notes {
        say::message(format!("note: {note}"));
    }
    Ok((experiment, plan, fetch))
}

/// The environment's options; a signal ends what is done with them.
pub fn fetch_options() -> FetchOptions {
    let mut options = FetchOptions::from_env();
    for directory in options.cache_dir.iter() {
        for part in ["", "tokens", "kernels"] {
            files::clean(&directory.join(part));
        }
    }
    options.interrupt = signals::interrupt().flag().clone();
    options
}

/// A file that was made sure of.
pub struct Ensured<'a> {
    pub artifact: Artifact<'a>,
    pub outcome: Outcome,
}

/// The models and corpora of a plan, each once.
pub fn artifacts(plan: &Plan) -> Vec<Artifact<'_>> {
    let mut seen: BTreeSet<&Path> = BTreeSet::new();
    let mut all = Vec::new();
    for run in &plan.runs {
        let models = [&run.model].into_iter();
        let models = models.chain(run.base.as_ref().map(|base| &base.model));
        let models = models.map(|m| (&m.name, &m.path, &m.source, &m.sha256));
        let c = &run.corpus;
        let files = models.chain([(&c.name, &c.path, &c.source, &c.sha256)]);
        for (name, path, sources, sha256) in files {
            if seen.insert(path) {
                all.push(Artifact {
                    name,
                    path,
                    sources,
                    sha256: sha256.as_deref(),
                });
            }
        }
    }
    all
}

/// Makes sure of all files of a plan.
pub fn ensure_all<'a>(
    plan: &'a Plan,
    options: &FetchOptions,
    progress: &dyn TransferProgress,
) -> Result<Vec<Ensured<'a>>, Failure> {
    artifacts(plan)
        .into_iter()
        .map(|artifact| {
            let outcome = ensure(&artifact, options, progress).map_err(failure)?;
            Ok(Ensured { artifact, outcome })
        })
        .collect()
}

/// Malformed requests are the user's to mend, the rest is the world's.
pub fn failure(e: FetchError) -> Failure {
    match e {
        FetchError::MalformedSource { .. } | FetchError::MalformedSha256(_) => Failure::usage(e),
        FetchError::Interrupted => Failure::Interrupted(e.to_string()),
        e => Failure::failed(e),
    }
}
