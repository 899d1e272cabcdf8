//! The command line: one file a verb. Verbs wire the other modules together and
//! print; they do no arithmetic.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::eval::EvalError;
use crate::results::{CsvError, RecordError, ResultsError};
use crate::run::{MeasureError, SweepError};

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
mod progress;
mod report;
mod run;
mod score;
mod tokenize;
mod values;

/// Declarative perplexity experiments for people who write LLM inference
/// kernels and quantization schemes.
#[derive(Parser)]
#[command(name = "pplx", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 good; 1 a run failed or a gate is broken; 2 usage or \
configuration error; 130 interrupted."
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
    /// Ctrl-C: exit code 130, as shells have it.
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

    /// Why a measurement that was asked for has no figure: what does not fit
    /// together is the user's to mend, the rest is the run's failure.
    pub fn of_measuring(e: MeasureError) -> Self {
        match &e {
            MeasureError::Eval(EvalError::Interrupted { .. }) => {
                Failure::Interrupted(e.to_string())
            }
            MeasureError::Context { .. } | MeasureError::Geometry(_) => Failure::usage(e),
            MeasureError::Eval(eval) if is_of_inputs(eval) => Failure::usage(e),
            _ => Failure::failed(e),
        }
    }

    /// Why a sweep could not go on: files that it reads are the user's to mend.
    pub fn of_sweep(e: SweepError) -> Self {
        match e {
            SweepError::Results(ResultsError::Csv(e)) | SweepError::Reference(e) => match e {
                CsvError::Write { .. } => Failure::failed(e),
                e => Failure::usage(e),
            },
            SweepError::Results(e @ ResultsError::Windows { .. }) => Failure::usage(e),
            SweepError::Record(e @ RecordError::Malformed { .. }) => Failure::usage(e),
            SweepError::Fetch(e) => inputs::failure(e),
            e => Failure::failed(e),
        }
    }
}

/// Whether tokens, models and bases do not go together.
fn is_of_inputs(e: &EvalError) -> bool {
    match e {
        EvalError::Base(e) => is_of_inputs(e),
        EvalError::TokenId { .. } | EvalError::Vocabulary { .. } | EvalError::Stored(_) => true,
        _ => false,
    }
}

/// Parses the command line, runs the verb, prints its failure.
pub fn main() -> ExitCode {
    let result = match habits::refusal(std::env::args_os()) {
        Some(message) => Err(Failure::Usage(message)),
        // clap itself exits with 2 on usage errors.
        None => run_verb(Cli::parse().verb),
    };
    let (code, message) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(m)) => (1, m),
        Err(Failure::Usage(m)) => (2, m),
        Err(Failure::Interrupted(m)) => (130, m),
    };
    if !message.is_empty() {
        eprintln!("pplx: {message}");
    }
    ExitCode::from(code)
}

fn run_verb(verb: Verb) -> Result<(), Failure> {
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
