//! The bounds that comparing verbs share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::compare::{Gate, MaxDelta, NoiseFloor};
use crate::experiment::Experiment;
use crate::results::noise::Calibration;
use crate::say;

#[derive(clap::Args)]
pub struct GateArgs {
    /// Largest change of ln PPL, in either direction: nats, or noise*K, which is K
    /// noise floors of the run
    #[arg(long, value_name = "BOUND", allow_negative_numbers = true)]
    max_delta: Option<MaxDelta>,
    /// Largest change of the perplexity in percent, in either direction
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    max_delta_pct: Option<f64>,
    /// Largest difference in standard errors of the paired test, in either direction
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
}

impl GateArgs {
    pub fn gate(&self) -> Result<Gate, Failure> {
        let declared = match &self.experiment {
            Some(file) => Experiment::load(file, &[]).map_err(Failure::usage)?.gate,
            None => Gate::default(),
        };
        let gate = Gate {
            max_delta: self.max_delta.or(declared.max_delta),
            max_delta_pct: self.max_delta_pct.or(declared.max_delta_pct),
            max_sigma: self.max_sigma.or(declared.max_sigma),
            significance: self.significance.or(declared.significance),
        };
        gate.check().map_err(Failure::usage)?;
        Ok(gate)
    }

    /// The noise floors of the runs in the table `a`.
    pub fn noise(&self, a: &Path) -> Result<NoiseFloor, Failure> {
        let noise = match (self.noise_floor, &self.noise) {
            (Some(nats), _) => Ok(NoiseFloor::Fixed(nats)),
            (None, Some(path)) => Calibration::load(path).map(NoiseFloor::Calibrated),
            (None, None) => NoiseFloor::beside(a),
        };
        noise.map_err(Failure::usage)
    }

    /// Whether noise floors are given.
    pub fn has_noise(&self) -> bool {
        self.noise_floor.is_some() || self.noise.is_some()
    }
}

/// Says what is to be known of the tables that were read, each thing once.
pub fn notes<'a>(notes: impl Iterator<Item = &'a str>) {
    for note in notes.collect::<BTreeSet<_>>() {
        say::message(format_args!("pplx: note: {note}"));
    }
}

/// A noise floor.
fn nats(text: &str) -> Result<f64, String> {
    let floor = text.parse().ok();
    let floor = floor.filter(|x: &f64| x.is_finite() && *x >= 0.0);
    floor.ok_or_else(|| "a noise floor is a number from 0, in nats".to_owned())
}
