//! `pplx run`: fetch what is missing, execute every run, write the tables.

use std::path::PathBuf;

use super::Failure;
use super::control::ControlArgs;
use super::inputs::planned;
use super::progress::{SweepProgress, interrupted};
use super::tables::{TableArgs, failure};
use super::values;
use crate::plan::{Estimate, Pace, RunSpec};
use crate::render;
use crate::run::Sweep;
use crate::say;

#[derive(clap::Args)]
#[command(
    after_help = "Writes RESULTS/NAME.csv and NAME.windows.csv (the same bytes for the same \
inputs; commit them), with [kld] NAME.kld.csv (commit it too), NAME.timing.csv and the records of \
every token in .records/NAME (do not). NAME is the experiment's. A row is replaced when its run \
ends; until then the table has the row of the last time. Rows that the experiment does not have are \
never dropped unasked.\n\
Ctrl-C, SIGTERM and SIGHUP end the run that is on its way and keep the finished ones: --resume goes \
on from there. A second one kills at once.\n\
Exit codes: 0 all runs have figures; 1 a run failed; 2 usage or configuration error; 130 \
interrupted (143 by SIGTERM, 129 by SIGHUP)."
)]
pub struct Args {
    /// The experiment file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Override a setting, for example --set limits.windows=4.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    #[command(flatten)]
    tables: TableArgs,

    /// Worker threads; 0 takes every core. Never changes a number.
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = values::threads)]
    threads: usize,

    /// Windows evaluated together; chosen for speed by default. Never changes a
    /// number.
    #[arg(long, value_name = "N", value_parser = values::count)]
    batch: Option<usize>,

    #[command(flatten)]
    control: ControlArgs,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let (_, plan, fetch) = planned(&args.file, &args.sets)?;
    let control = args.control.control()?;
    let sweep = Sweep {
        plan: &plan,
        results: &args.tables.results,
        fetch: &fetch,
        n_threads: args.threads,
        batch: args.batch,
        resume: args.tables.resume,
        selection: &args.tables.selection(),
        prune: args.tables.prune,
        wait: args.tables.wait(),
        control: &control,
    };
    let runs = sweep.selection.of(&plan).map_err(failure)?;
    let expected = expected(&runs, args.threads);
    let mut progress = SweepProgress::new(expected, &control.interrupt);
    let (tables, summary) = sweep.run(&mut progress).map_err(failure)?;
    drop(progress);
    let (table, path) = (render::table(tables.rows()), &tables.paths().table);
    let mut out = format!("{}\n\n{}\n", table.trim_end(), path.display());
    if tables.klds().len() > 0 {
        let (table, path) = (render::kld::table(tables.klds()), &tables.paths().kld);
        out += &format!("\n{}\n\n{}\n", table.trim_end(), path.display());
    }
    if let Some(diff) = &summary.comparison {
        let path = &tables.paths().compare;
        out += &format!("\n{}\n\n{}\n", diff.summary(), path.display());
    }
    // First what became of the sweep, then whether it could be printed.
    let printed = say::text(&out);
    if summary.interrupted {
        let finished = summary.measured + summary.kept;
        let words = interrupted(finished, runs.len());
        return Err(Failure::Interrupted(words));
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
        0 => Ok(printed?),
        1 => Err(Failure::failed("1 run failed: its row says why")),
        n => Err(Failure::failed(format!(
            "{n} runs failed: their rows say why"
        ))),
    }
}

/// Seconds that each run should take, where that can be told.
fn expected(runs: &[&RunSpec], threads: usize) -> Vec<Option<f64>> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { cores() } else { threads };
    let pace = Pace::measured(threads);
    let seconds = |run: &&RunSpec| Estimate::new(run, None, pace).seconds;
    runs.iter().map(seconds).collect()
}
