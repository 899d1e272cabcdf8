//! `pplx diff`

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;

use super::Failure;
use super::gate::GateArgs;
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
    #[command(flatten)]
    gate: GateArgs,
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
    let gate = args.gate.gate()?;
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
