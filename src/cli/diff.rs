//! `pplx diff`

use std::path::PathBuf;

use clap::ValueEnum;

use super::Failure;
use super::gate::{GateArgs, PairArgs, notes};
use crate::compare::diff::{Diff, Evidence};
use crate::render::markdown::too_long_note;
use crate::results::Tables;
use crate::say;

#[derive(clap::Args)]
#[command(after_help = "\
Two tables are joined by key; where only limits differ, on the windows that both have. --between and \
--pair compare other runs, in one table or two. The records of both sides (.records/NAME beside \
NAME.csv) are used where they are there, else the *.windows.csv files; without either there is no \
paired test.

Bounds on the size of a difference (--max-delta, --max-delta-pct, --max-increase, \
--max-increase-pct) are held against its 95 % interval: pass where that lies within, FAIL where it \
lies beyond, INCONCLUSIVE where it reaches across. --judge point holds them against the difference \
itself. --max-sigma and --significance judge the paired test only. What does not differ in any bit \
passes. Colours follow the terminal, NO_COLOR and CLICOLOR_FORCE.

Exit codes: 0 at least one row was compared, all could be, and none fails; 1 a row fails, is \
inconclusive (unless --allow-inconclusive) or was not measured; 2 wrong usage, no gate where \
--require-gate asks for one, or a file is missing or malformed.")]
pub struct Args {
    /// The results to compare with: NAME.csv
    #[arg(value_name = "A.csv")]
    a: PathBuf,
    /// The results that changed. Left out, runs of A are compared with each other:
    /// --between, --pair, or an --experiment with [compare]
    #[arg(value_name = "B.csv")]
    b: Option<PathBuf>,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    gate: GateArgs,
    /// Refuse to compare without a bound
    #[arg(long)]
    require_gate: bool,
    /// Print percentiles, the windows and tokens that moved most, and every row that
    /// has not changed (text only)
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
    let experiment = args.gate.experiment()?;
    let gate = args.gate.gate(experiment.as_ref())?;
    if args.require_gate && gate.is_empty() {
        return Err(Failure::usage(
            "--require-gate: no bound is set; --max-delta-pct 0.1 is one, and an --experiment with \
             [gate] has some",
        ));
    }
    let mut pairing = args.pairs.pairing();
    if args.b.is_none() && pairing.is_by_key() {
        pairing = experiment.and_then(|x| x.compare).ok_or_else(|| {
            Failure::usage(
                "there is one table, and nothing says which of its runs to compare: name a second \
                 one, --between (such as numerics=exact,q8), --pair, or an --experiment with \
                 [compare]",
            )
        })?;
    }
    let noise = args.gate.noise(&args.a)?;
    let a = Tables::load_file(&args.a).map_err(Failure::usage)?;
    let other = args
        .b
        .as_ref()
        .map(|path| Tables::load_file(path))
        .transpose();
    let other = other.map_err(Failure::usage)?;
    let b = other.as_ref().unwrap_or(&a);
    let of_tables = [Some(&a), other.as_ref()].into_iter().flatten();
    let of_tables = of_tables.flat_map(Tables::notes);
    notes(of_tables.map(String::as_str).chain(noise.note()));
    let diff =
        Diff::new(&a, b, &pairing, Evidence::Records, gate, &noise).map_err(Failure::usage)?;
    // A reader that has seen enough does not change the verdict.
    match args.format {
        Format::Text => say::toned(&diff.to_text(args.details))?,
        Format::Markdown => {
            let markdown = diff.to_markdown();
            notes(too_long_note(&markdown).as_deref().into_iter());
            say::text(&markdown)?;
        }
        Format::Json => say::data(diff.to_json().map_err(Failure::failed)?.as_bytes())?,
        Format::Csv => say::data(&diff.to_csv().map_err(Failure::failed)?)?,
    }
    match (diff.passes(), args.format) {
        (true, _) => Ok(()),
        // Text and Markdown have said why.
        (false, Format::Text | Format::Markdown) => Err(Failure::Failed(String::new())),
        (false, Format::Json | Format::Csv) => Err(Failure::failed(diff.summary())),
    }
}
