//! `pplx diff`

use std::path::PathBuf;

use clap::ValueEnum;

use super::Failure;
use super::gate::{GateArgs, notes};
use crate::compare::diff::Diff;
use crate::render::markdown::too_long_note;
use crate::results::Tables;
use crate::say;

#[derive(clap::Args)]
#[command(after_help = "\
Rows are joined by key. The records of both tables (.records/NAME beside NAME.csv) are used where \
they are there, else the *.windows.csv files; without either there is no paired test. --max-sigma \
and --significance judge the paired test only: without it, a row is not measured.

Exit codes: 0 at least one row was compared, all could be, and none fails; 1 a row fails or was \
not measured; 2 wrong usage, or a file is missing or malformed.")]
pub struct Args {
    /// The results to compare with: NAME.csv
    #[arg(value_name = "A.csv")]
    a: PathBuf,
    /// The results that changed
    #[arg(value_name = "B.csv")]
    b: PathBuf,
    #[command(flatten)]
    gate: GateArgs,
    /// Print percentiles, and the windows and tokens that moved most (text only)
    #[arg(long)]
    details: bool,
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
    let noise = args.gate.noise(&args.a)?;
    let a = Tables::load_file(&args.a).map_err(Failure::usage)?;
    let b = Tables::load_file(&args.b).map_err(Failure::usage)?;
    let of_tables = [&a, &b].into_iter().flat_map(|side| side.notes());
    notes(of_tables.map(String::as_str).chain(noise.note()));
    let diff = Diff::new(&a, &b, gate, &noise);
    let bytes = match args.format {
        Format::Text => diff.to_text(args.details).into_bytes(),
        Format::Markdown => {
            let markdown = diff.to_markdown();
            notes(too_long_note(&markdown).as_deref().into_iter());
            markdown.into_bytes()
        }
        Format::Json => diff.to_json().map_err(Failure::failed)?.into_bytes(),
        Format::Csv => diff.to_csv().map_err(Failure::failed)?,
    };
    // A reader that has seen enough does not change the verdict.
    match args.format {
        Format::Text | Format::Markdown => say::text(&String::from_utf8_lossy(&bytes))?,
        Format::Json | Format::Csv => say::data(&bytes)?,
    }
    if diff.passes() {
        Ok(())
    } else {
        Err(Failure::failed(diff.summary()))
    }
}
