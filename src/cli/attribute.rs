//! `pplx attribute`: what a residual against another engine is made of.

use std::path::PathBuf;

use super::Failure;
use super::control::ControlArgs;
use super::inputs::planned;
use super::progress::RerunProgress;
use super::values;
use crate::experiment::suggest;
use crate::reference::TokenReference;
use crate::run::{Attribute, AttributeError, Cause};
use crate::say;

#[derive(clap::Args)]
#[command(
    after_help = "Measures a run as it is, and once more for each cause: activations in 8 bits \
(q8), keys and values in f16 (kv-f16), queries and probabilities in f16 (attention-f16), BOS where \
there is none or none where there is (bos), the whole window scored (all-targets); then all causes \
in the arithmetic together. With --reference, what is left of the residual each time.\n\
Exit codes: 0 good; 1 a run failed; 2 usage or configuration error, a reference of other tokens; \
130 interrupted."
)]
pub struct Args {
    /// The experiment file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Override a setting, for example --set limits.windows=8.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// The run, by its key [default: all of the experiment].
    #[arg(long, value_name = "KEY")]
    run: Option<String>,

    /// Another engine's NLL of every scored token of the run: CSV with the columns
    /// chunk,pos,target,nll.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,

    /// What to change, one at a time: q8, kv-f16, attention-f16, summation-order,
    /// jitter, bos, all-targets.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = cause,
        default_value = "q8,kv-f16,attention-f16,bos,all-targets"
    )]
    causes: Vec<Cause>,

    /// Worker threads; 0 takes every core. Never changes a number.
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = values::threads)]
    threads: usize,

    #[command(flatten)]
    control: ControlArgs,
}

fn cause(name: &str) -> Result<Cause, String> {
    Cause::named(name).ok_or_else(|| {
        let hint = suggest(name, Cause::ALL.map(Cause::name));
        format!("unknown cause '{name}'{hint}")
    })
}

pub fn run(args: Args) -> Result<(), Failure> {
    let reference = args.reference.as_deref().map(TokenReference::load);
    let reference = reference.transpose().map_err(Failure::usage)?;
    let (_, plan, fetch) = planned(&args.file, &args.sets)?;
    let chosen = |key: &str| args.run.as_deref().is_none_or(|run| run == key);
    let runs: Vec<_> = plan.runs.iter().filter(|r| chosen(&r.key)).collect();
    let keys = || {
        let keys: Vec<&str> = plan.runs.iter().map(|r| r.key.as_str()).collect();
        keys.join("\n  ")
    };
    if let (Some(run), true) = (&args.run, runs.is_empty()) {
        let keys = keys();
        return Err(Failure::usage(format!(
            "no run '{run}'; there are\n  {keys}"
        )));
    }
    if reference.is_some() && runs.len() != 1 {
        let keys = keys();
        return Err(Failure::usage(format!(
            "a reference belongs to one run; choose it with --run:\n  {keys}"
        )));
    }
    let control = args.control.control()?;
    let attribute = Attribute {
        causes: &args.causes,
        reference: reference.as_ref(),
        fetch: &fetch,
        n_threads: args.threads,
        control: &control,
    };
    let mut progress = RerunProgress::new(&control.interrupt);
    let mut failed = Vec::new();
    for (i, spec) in runs.iter().enumerate() {
        match attribute.run(i + 1, runs.len(), spec, &mut progress) {
            Ok(attribution) => {
                progress.clear();
                say::text(&format!("{}\n", attribution.to_text()))?;
                if let Some(r) = reference
                    .as_ref()
                    .filter(|r| r.len() > attribution.scored_tokens)
                {
                    let more = r.len() - attribution.scored_tokens;
                    say::message(format!(
                        "note: the reference has {more} targets that the run does not score"
                    ));
                }
            }
            Err(AttributeError::Interrupted) => {
                return Err(Failure::Interrupted("interrupted".to_owned()));
            }
            Err(e @ AttributeError::Reference(_)) => return Err(Failure::usage(e)),
            Err(AttributeError::Failed(reason)) => failed.push(format!("{}: {reason}", spec.key)),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(failed.join("\n"))),
    }
}
