//! The bounds that comparing verbs share.

use std::path::PathBuf;

use super::Failure;
use crate::experiment::Experiment;
use crate::results::Gate;

#[derive(clap::Args)]
pub struct GateArgs {
    /// Largest change of the perplexity in percent, in either direction
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    max_delta_pct: Option<f64>,
    /// Largest difference in standard errors, in either direction
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    max_sigma: Option<f64>,
    /// Fail changes whose p, adjusted for the number of rows, is below this
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true)]
    significance: Option<f64>,
    /// Changes of ln PPL up to this size mean nothing
    #[arg(long, value_name = "NATS")]
    pub noise_floor: Option<f64>,
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
            max_delta_pct: self.max_delta_pct.or(declared.max_delta_pct),
            max_sigma: self.max_sigma.or(declared.max_sigma),
            significance: self.significance.or(declared.significance),
        };
        gate.check().map_err(Failure::usage)?;
        Ok(gate)
    }
}
