//! `pplx diff`

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;

use super::Failure;
use crate::experiment::Experiment;
use crate::results::Gate;
use crate::results::diff::{Diff, Side};
use crate::results::noise::{Calibration, MaxDelta, NoiseFloor};

#[derive(clap::Args)]
#[command(after_help = "\
Rows are joined by key. The records of both tables (.records/NAME beside NAME.csv) are used where \
they are there, else the *.windows.csv files; without either there is no paired test. --max-sigma \
judges the paired t, or the unpaired σ where there is none.

Exit codes: 0 at least one row was compared, all could be, and none fails; 1 a row fails or was \
not measured; 2 wrong usage, or a file is missing or malformed.")]
pub struct Args {
    /// The results to compare with: NAME.csv
    #[arg(value_name = "A.csv")]
    a: PathBuf,
    /// The results that changed
    #[arg(value_name = "B.csv")]
    b: PathBuf,
    /// Largest change of ln PPL, in either direction: nats, or noise*K, which is K
    /// noise floors of the run
    #[arg(long, value_name = "BOUND", allow_negative_numbers = true)]
    max_delta: Option<MaxDelta>,
    /// Largest change of the perplexity in percent, in either direction
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    max_delta_pct: Option<f64>,
    /// Largest difference in standard errors, in either direction
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    max_sigma: Option<f64>,
    /// Fail changes whose p, adjusted for the number of rows, is below this
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true)]
    significance: Option<f64>,
    /// Noise floors of the runs, as 'pplx noise' writes them [default: A.noise.csv
    /// beside A.csv, if it is there]
    #[arg(long, value_name = "FILE")]
    noise: Option<PathBuf>,
    /// The noise floor of all runs: changes of ln PPL up to this size mean nothing
    #[arg(long, value_name = "NATS", conflicts_with = "noise", value_parser = nats)]
    noise_floor: Option<f64>,
    /// Take the bounds of this experiment's [gate] where no option sets one
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
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

/// A noise floor.
fn nats(text: &str) -> Result<f64, String> {
    let floor = text.parse().ok();
    let floor = floor.filter(|x: &f64| x.is_finite() && *x >= 0.0);
    floor.ok_or_else(|| "a noise floor is a number from 0, in nats".to_owned())
}

pub fn run(args: Args) -> Result<(), Failure> {
    let declared = match &args.experiment {
        Some(file) => Experiment::load(file, &[]).map_err(Failure::usage)?.gate,
        None => Gate::default(),
    };
    let gate = Gate {
        max_delta: args.max_delta.or(declared.max_delta),
        max_delta_pct: args.max_delta_pct.or(declared.max_delta_pct),
        max_sigma: args.max_sigma.or(declared.max_sigma),
        significance: args.significance.or(declared.significance),
    };
    gate.check().map_err(Failure::usage)?;
    let a = Side::load(&args.a).map_err(Failure::usage)?;
    let b = Side::load(&args.b).map_err(Failure::usage)?;
    let noise = match (args.noise_floor, &args.noise) {
        (Some(nats), _) => Ok(NoiseFloor::Fixed(nats)),
        (None, Some(path)) => Calibration::load(path).map(NoiseFloor::Calibrated),
        (None, None) => NoiseFloor::beside(&args.a),
    };
    let noise = noise.map_err(Failure::usage)?;
    let diff = Diff::new(&a, &b, gate, &noise);
    let bytes = match args.format {
        Format::Text => diff.to_text(args.details).into_bytes(),
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
