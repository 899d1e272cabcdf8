//! The command line: one file a verb. Verbs wire the other modules together and
//! print; they do no arithmetic.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::eval::EvalError;
use crate::fetch::masked_urls;
use crate::run::MeasureError;
use crate::{fault, say};

mod attribute;
mod control;
mod diff;
mod doctor;
mod fetch;
mod gate;
mod habits;
mod inputs;
mod inspect;
mod kld;
mod noise;
mod outputs;
mod plan;
mod power;
mod progress;
mod report;
mod run;
mod score;
mod signals;
mod tables;
mod text;
mod tokenize;
mod values;

/// Declarative perplexity experiments for people who write LLM inference
/// kernels and quantization schemes.
#[derive(Parser)]
#[command(name = "pplx", version = crate::run::version(), max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 good; 1 a run failed or a gate is broken; 2 usage or \
configuration error; 130 interrupted (143 by SIGTERM, 129 by SIGHUP). An internal error, which \
is a fault of pplx, is 1 and says so."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run an experiment and write its result tables.
    Run(run::Args),
    /// Print the runs an experiment expands to, without running them.
    Plan(plan::Args),
    /// Compare two result tables and gate on the difference.
    Diff(diff::Args),
    /// Measure how far figures move under changes that should not matter.
    Noise(noise::Args),
    /// Show what a residual against another engine is made of.
    Attribute(attribute::Args),
    /// Write result tables as a page for reviewers, and as Markdown.
    Report(report::Args),
    /// Score one model on one corpus, with llama-perplexity's habits.
    Score(score::Args),
    /// Compare a model's distributions with a base's: KL divergence.
    Kld(kld::Args),
    /// Print the token ids of a file.
    Tokenize(tokenize::Args),
    /// Show a model file's architecture, layers and types.
    Inspect(inspect::Args),
    /// Fetch the models and corpora of an experiment.
    Fetch(fetch::Args),
    /// Show what runs find on this machine: CPU, memory, cache, pip, GPUs.
    Doctor(doctor::Args),
}

/// Why a verb ended without success. The message is for people; it says what
/// was wrong, where, and what to do.
#[derive(Debug)]
pub enum Failure {
    /// Usage or configuration: exit code 2.
    Usage(String),
    /// A run failed or a gate is broken: exit code 1.
    Failed(String),
    /// A signal: exit code 128 and its number, as shells have it.
    Interrupted(String),
}

impl Failure {
    /// An error of usage or configuration.
    pub fn usage(e: impl std::fmt::Display) -> Self {
        Failure::Usage(e.to_string())
    }

    /// An error of a run or a gate.
    pub fn failed(e: impl std::fmt::Display) -> Self {
        Failure::Failed(e.to_string())
    }
}

impl From<MeasureError> for Failure {
    fn from(e: MeasureError) -> Self {
        match &e {
            MeasureError::Eval(EvalError::Interrupted { .. }) => {
                Failure::Interrupted(e.to_string())
            }
            MeasureError::Context { .. }
            | MeasureError::Geometry(_)
            | MeasureError::Device(_)
            | MeasureError::Numerics { .. }
            | MeasureError::Eval(
                EvalError::TokenId { .. } | EvalError::Vocabulary { .. } | EvalError::Stored(_),
            ) => Failure::usage(e),
            _ => Failure::failed(e),
        }
    }
}

impl From<say::OutputError> for Failure {
    fn from(e: say::OutputError) -> Self {
        Failure::failed(e)
    }
}

/// Parses the command line, runs the verb, prints its failure.
pub fn main() -> ExitCode {
    fault::install();
    let result = fault::caught(run).unwrap_or_else(|fault| Err(Failure::Failed(fault)));
    let (code, message) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(m)) => (1, m),
        Err(Failure::Usage(m)) => (2, m),
        Err(Failure::Interrupted(m)) => (signals::exit_code(), m),
    };
    if !message.is_empty() {
        say::message(format!("pplx: {}", masked_urls(&message)));
    }
    ExitCode::from(code)
}

fn run() -> Result<(), Failure> {
    if let Some(message) = habits::refusal(std::env::args_os()) {
        return Err(Failure::Usage(message));
    }
    let verb = match Cli::try_parse() {
        Ok(cli) => cli.verb,
        Err(e) => return no_verb(&e),
    };
    signals::install().map_err(|e| Failure::failed(format!("cannot handle signals: {e}")))?;
    match verb {
        Verb::Run(a) => run::run(a),
        Verb::Plan(a) => plan::run(a),
        Verb::Diff(a) => diff::run(a),
        Verb::Noise(a) => noise::run(a),
        Verb::Attribute(a) => attribute::run(a),
        Verb::Report(a) => report::run(a),
        Verb::Score(a) => score::run(a),
        Verb::Kld(a) => kld::run(a),
        Verb::Tokenize(a) => tokenize::run(a),
        Verb::Inspect(a) => inspect::run(a),
        Verb::Fetch(a) => fetch::run(a),
        Verb::Doctor(a) => doctor::run(a),
    }
}

/// Help and the version, which are output, or what is wrong with a command line.
fn no_verb(e: &clap::Error) -> Result<(), Failure> {
    let printed = e.print();
    match (e.use_stderr(), printed) {
        // It has been said, if anybody could hear it.
        (true, _) => Err(Failure::Usage(String::new())),
        (false, Err(e)) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(say::OutputError::from(e).into())
        }
        (false, _) => Ok(()),
    }
}
