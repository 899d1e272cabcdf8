//! `pplx report`

use std::path::{Path, PathBuf};

use super::gate::{GateArgs, PairArgs, notes};
use super::{Failure, outputs};
use crate::render::markdown::too_long_note;
use crate::report::Report;
use crate::results::write_atomic;

#[derive(clap::Args)]
#[command(after_help = "\
The page loads nothing and runs no script; the same tables give the same bytes. The *.windows.csv \
files beside the tables are used for the curves and the paired test, records (.records/NAME) for \
the comparison by token.

A report shows verdicts and does not judge: `pplx diff` is the gate.

Exit codes: 0 the files are written; 1 a file could not be written; 2 wrong usage, or a table is \
missing or malformed.")]
pub struct Args {
    /// Result tables: NAME.csv
    #[arg(value_name = "RESULTS.csv", required = true)]
    results: Vec<PathBuf>,
    /// Compare each of them with this table, run by run
    #[arg(long, value_name = "A.csv")]
    base: Option<PathBuf>,
    /// Write the page, one self-contained HTML file
    #[arg(long, short, value_name = "FILE", required_unless_present = "markdown")]
    output: Option<PathBuf>,
    /// Write the report as Markdown, for a pull request
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    gate: GateArgs,
}

pub fn run(args: Args) -> Result<(), Failure> {
    for path in args.output.iter().chain(&args.markdown) {
        outputs::check(path)?;
    }
    let experiment = args.gate.experiment()?;
    let gate = args.gate.gate(experiment.as_ref())?;
    let mut among = args.pairs.pairing();
    if among.is_by_key() {
        among = experiment.and_then(|x| x.compare).unwrap_or_default();
    }
    let judged = !gate.is_empty() || args.gate.has_noise();
    if args.base.is_none() && among.is_by_key() && judged {
        return Err(Failure::usage(
            "bounds need something to compare with: --base A.csv, or --between, such as numerics=exact,q8",
        ));
    }
    let base = args.base.as_deref();
    // Without a base, floors are those of the tables themselves.
    let noise = args.gate.noise(base.unwrap_or(&args.results[0]))?;
    let report = Report::load(&args.results, base, &among, gate, &noise).map_err(Failure::usage)?;
    notes(report.notes().chain(noise.note()));
    if let Some(path) = &args.output {
        let page = report.to_html().map_err(Failure::failed)?;
        write(path, &page)?;
    }
    if let Some(path) = &args.markdown {
        let markdown = report.to_markdown();
        let note = too_long_note(&markdown);
        let note = note.map(|note| format!("{}: {note}", path.display()));
        notes(note.as_deref().into_iter());
        write(path, &markdown)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_atomic(path, text.as_bytes()).map_err(Failure::failed)
}
