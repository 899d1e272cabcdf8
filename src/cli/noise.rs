//! `pplx noise`: how far figures move under changes that should not matter.

use std::path::PathBuf;

use super::control::ControlArgs;
use super::inputs::planned;
use super::progress::RerunProgress;
use super::tables::{TableArgs, failure};
use super::{Failure, signals, values};
use crate::run::Calibrate;
use crate::say;

#[derive(clap::Args)]
#[command(
    after_help = "Measures every run as it is and once for each component: products summed in \
the other order, inputs of layers moved by one unit in the last place (for several seeds), keys and \
values in f16, attention in f16, activations in 8 bits, another batch. Writes RESULTS/NAME.noise.csv, \
from which 'pplx diff' takes the noise floors of the runs of RESULTS/NAME.csv.\n\
Exit codes: 0 all runs are calibrated; 1 a run failed; 2 usage or configuration error; 130 \
interrupted."
)]
pub struct Args {
    /// The experiment file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Override a setting, for example --set limits.windows=8.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// How often jitter is drawn [default: the experiment's noise.seeds, else 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seeds: Option<u32>,

    #[command(flatten)]
    tables: TableArgs,

    /// Worker threads; 0 takes every core. Never changes a number.
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = values::threads)]
    threads: usize,

    #[command(flatten)]
    control: ControlArgs,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let (experiment, plan, fetch) = planned(&args.file, &args.sets)?;
    let mut noise = experiment.noise;
    noise.seeds = args.seeds.map_or(noise.seeds, |n| n as usize);
    let control = args.control.control()?;
    signals::set_last_words(
        "interrupted; runs that are calibrated are kept; --resume measures what is missing",
    );
    let calibrate = Calibrate {
        plan: &plan,
        results: &args.tables.results,
        resume: args.tables.resume,
        selection: &args.tables.selection(),
        prune: args.tables.prune,
        wait: args.tables.wait(),
        noise: &noise,
        fetch: &fetch,
        n_threads: args.threads,
        control: &control,
    };
    let mut progress = RerunProgress::new(&control.interrupt);
    let (calibration, summary) = calibrate.run(&mut progress).map_err(failure)?;
    drop(progress);
    let path = calibration.path().display();
    let printed = say::text(&format!("{}\n{path}\n", calibration.to_text()));
    if summary.interrupted {
        return Err(Failure::Interrupted(format!(
            "interrupted with {} of {} runs calibrated; the other rows are as they were; --resume \
             measures what is missing",
            summary.measured + summary.kept,
            plan.runs.len()
        )));
    }
    match summary.failed {
        0 => Ok(printed?),
        n => Err(Failure::failed(format!(
            "{n} of {} runs could not be calibrated",
            plan.runs.len()
        ))),
    }
}
