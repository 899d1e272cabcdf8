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
        };
        gate.check().map_err(Failure::usage)?;
        Ok(gate)
    }
}
