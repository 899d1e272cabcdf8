//! `pplx run`: fetch what is missing, execute every run, write the tables.

use std::path::PathBuf;

use super::control::ControlArgs;
use super::inputs::planned;
use super::progress::SweepProgress;
use super::{Failure, outputs, values};
use crate::results::{kld_format, render};
use crate::run::Sweep;

#[derive(clap::Args)]
#[command(
    after_help = "Writes RESULTS/NAME.csv and NAME.windows.csv (the same bytes for the same \
inputs; commit them), with [kld] NAME.kld.csv (commit it too), NAME.timing.csv and the records of \
every token in .records/NAME (do not). NAME is the experiment's.\n\
Ctrl-C ends the run that is on its way and keeps the finished ones: --resume goes on from there. \
A second Ctrl-C kills at once.\n\
Exit codes: 0 all runs have figures; 1 a run failed; 2 usage or configuration error; 130 \
interrupted."
)]
pub struct Args {
    /// The experiment file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Override a setting, for example --set limits.windows=4.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Keep the finished rows of an earlier run and measure only the others.
    #[arg(long)]
    resume: bool,

    /// Folder of the tables.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,

    /// Worker threads; 0 takes every core. Never changes a number.
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = values::threads)]
    threads: usize,

    /// Windows evaluated together; chosen for speed by default. Never changes a
    /// number.
    #[arg(long, value_name = "N", value_parser = values::count::<1>)]
    batch: Option<usize>,

    #[command(flatten)]
    control: ControlArgs,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let (_, plan, fetch) = planned(&args.file, &args.sets)?;
    outputs::tables("--results", &args.results, &plan.name)?;
    let control = args.control.control()?;
    let sweep = Sweep {
        plan: &plan,
        results: &args.results,
        fetch: &fetch,
        n_threads: args.threads,
        batch: args.batch,
        resume: args.resume,
        control: &control,
    };
    let mut progress = SweepProgress::new(plan.runs.len());
    let (tables, summary) = sweep.run(&mut progress).map_err(Failure::of_sweep)?;
    drop(progress);
    println!("{}", render::table(tables.rows()).trim_end());
    println!("\n{}", tables.paths().table.display());
    if tables.klds().len() > 0 {
        println!("\n{}", kld_format::table(tables.klds()).trim_end());
        println!("\n{}", tables.paths().kld.display());
    }
    if summary.interrupted {
        return Err(Failure::Interrupted(format!(
            "interrupted with {} of {} runs finished; --resume measures the others",
            summary.measured + summary.kept,
            plan.runs.len()
        )));
    }
    match summary.failed {
        0 if summary.uncompared > 0 => Err(Failure::failed(format!(
            "{} could not be compared with the base: {} says why",
            match summary.uncompared {
                1 => "1 run".to_owned(),
                n => format!("{n} runs"),
            },
            tables.paths().kld.display()
        ))),
        0 => Ok(()),
        1 => Err(Failure::failed("1 run failed: its row says why")),
        n => Err(Failure::failed(format!(
            "{n} runs failed: their rows say why"
        ))),
    }
}
