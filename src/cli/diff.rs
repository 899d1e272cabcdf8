//! `pplx diff`

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;

use super::Failure;
use crate::experiment::Experiment;
use crate::results::Gate;
use crate::results::diff::{Diff, Side};

#[derive(clap::Args)]
#[command(after_help = "\
Rows are joined by key. The *.windows.csv files beside the tables are used for the paired test, \
which --max-sigma judges where it can be made; else it judges the unpaired σ.

Exit codes: 0 at least one row was compared, all could be, and all are within the gate; 1 a bound \
is broken or a row was not measured; 2 wrong usage, or a file is missing or malformed.")]
pub struct Args {
    /// The results to compare with: NAME.csv
    #[arg(value_name = "A.csv")]
    a: PathBuf,
    /// The results that changed
    #[arg(value_name = "B.csv")]
    b: PathBuf,
    /// Largest change of the perplexity in percent, in either direction
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    max_delta_pct: Option<f64>,
    /// Largest difference in standard errors, in either direction
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    max_sigma: Option<f64>,
    /// Take the bounds of this experiment's [gate] where no option sets one
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// How to print the comparison
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Markdown,
    Json,
    Csv,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let declared = match &args.experiment {
        Some(file) => Experiment::load(file, &[]).map_err(Failure::usage)?.gate,
        None => Gate::default(),
    };
    let gate = Gate {
        max_delta_pct: args.max_delta_pct.or(declared.max_delta_pct),
        max_sigma: args.max_sigma.or(declared.max_sigma),
    };
    gate.check().map_err(Failure::usage)?;
    let a = Side::load(&args.a).map_err(Failure::usage)?;
    let b = Side::load(&args.b).map_err(Failure::usage)?;
    let diff = Diff::new(&a, &b, gate);
    let bytes = match args.format {
        Format::Text => diff.to_text().into_bytes(),
        Format::Markdown => diff.to_markdown().into_bytes(),
        Format::Json => diff.to_json().map_err(Failure::failed)?.into_bytes(),
        Format::Csv => diff.to_csv().map_err(Failure::failed)?,
    };
    match io::stdout().lock().write_all(&bytes) {
        // A reader that has seen enough does not change the verdict.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(Failure::failed(e)),
        _ => {}
    }
    if diff.passes() {
        Ok(())
    } else {
        Err(Failure::failed(diff.summary()))
    }
}
