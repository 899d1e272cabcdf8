//! The bounds that comparing verbs share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::compare::{Between, Gate, Judge, KeyPair, MaxDelta, NoiseFloor, Pairing};
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
    /// Largest increase of ln PPL: nats, or noise*K. A better figure does not fail
    #[arg(long, value_name = "BOUND", allow_negative_numbers = true)]
    max_increase: Option<MaxDelta>,
    /// Largest increase of the perplexity in percent. A better figure does not fail
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    max_increase_pct: Option<f64>,
    /// Largest difference in standard errors of the paired test, in either direction
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    max_sigma: Option<f64>,
    /// Fail changes whose p, adjusted for the number of rows, is below this
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true)]
    significance: Option<f64>,
    /// What bounds on the size are held against: the 95 % interval of the paired test,
    /// or the difference itself [default: interval]
    #[arg(long, value_name = "WHAT", value_parser = judge)]
    judge: Option<Judge>,
    /// Let rows pass whose interval reaches across a bound
    #[arg(long)]
    allow_inconclusive: bool,
    /// Noise floors of the runs, as 'pplx noise' writes them [default: A.noise.csv
    /// beside A.csv, if it is there]
    #[arg(long, value_name = "FILE")]
    noise: Option<PathBuf>,
    /// The noise floor of all runs: changes of ln PPL up to this size mean nothing
    #[arg(long, value_name = "NATS", conflicts_with = "noise", value_parser = nats)]
    noise_floor: Option<f64>,
    /// Take the bounds of this experiment's [gate] where no option sets one, and the
    /// pairs of its [compare] where none are asked for and one table is given
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
}

impl GateArgs {
    /// The bounds that hold.
    pub fn gate(&self, declared: Option<&Experiment>) -> Result<Gate, Failure> {
        let declared = declared.map_or_else(Gate::default, |x| x.gate);
        let gate = Gate {
            max_delta: self.max_delta.or(declared.max_delta),
            max_delta_pct: self.max_delta_pct.or(declared.max_delta_pct),
            max_increase: self.max_increase.or(declared.max_increase),
            max_increase_pct: self.max_increase_pct.or(declared.max_increase_pct),
            max_sigma: self.max_sigma.or(declared.max_sigma),
            significance: self.significance.or(declared.significance),
            judge: self.judge.unwrap_or(declared.judge),
            allow_inconclusive: self.allow_inconclusive,
        };
        gate.check().map_err(Failure::usage)?;
        Ok(gate)
    }

    /// The experiment that bounds and pairs are taken from, where one is named.
    pub fn experiment(&self) -> Result<Option<Experiment>, Failure> {
        let load = |file| Experiment::load(file, &[]).map_err(Failure::usage);
        self.experiment.as_ref().map(load).transpose()
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

/// Which runs are compared.
#[derive(clap::Args)]
pub struct PairArgs {
    /// Compare runs that differ along an axis and agree in all others, such as
    /// numerics=exact,q8 or 'model=*-f16,*-q4_k_m': the first value is A, each other one
    /// a B; a value alone is compared with all others. The axes are model, corpus,
    /// context, mode, placement, numerics and engine. Given several times, the axes
    /// differ together
    #[arg(long, value_name = "AXIS=A,B")]
    between: Vec<Between>,
    /// Compare runs by key, such as '*/exact=*/q8': a wildcard stands for the same text
    /// on both sides. May be given several times
    #[arg(long, value_name = "KEYGLOB=KEYGLOB")]
    pair: Vec<KeyPair>,
}

impl PairArgs {
    /// What is asked for; by key if nothing is.
    pub fn pairing(&self) -> Pairing {
        let together = Some(self.between.clone()).filter(|b| !b.is_empty());
        Pairing {
            between: together.into_iter().collect(),
            pairs: self.pair.clone(),
        }
    }
}

fn judge(text: &str) -> Result<Judge, String> {
    Judge::by_name(text).ok_or_else(|| {
        let names = Judge::ALL.map(Judge::name);
        format!("it is {}", names.join(" or "))
    })
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
