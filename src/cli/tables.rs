//! What verbs that write an experiment's tables share.

use std::path::PathBuf;
use std::time::Duration;

use glob::Pattern;

use super::Failure;
use crate::results::Wait;
use crate::run::{Selection, SweepError};

#[derive(clap::Args)]
pub struct TableArgs {
    /// Directory of the tables.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,

    /// Keep the finished rows of an earlier run and measure only the others. A row
    /// is kept if nothing that can move it has changed: files, tokens, geometry,
    /// BOS, placement, numerics, the version of the arithmetic.
    #[arg(long)]
    pub resume: bool,

    /// Measure only the runs whose key matches, such as '*/512/*'; all other rows
    /// stay as they are. May be given several times.
    #[arg(long, value_name = "KEYGLOB", value_parser = pattern)]
    only: Vec<Pattern>,

    /// Drop rows of runs that the experiment does not have. Without it they are
    /// left alone and the run is refused.
    #[arg(long)]
    pub prune: bool,

    /// How long to wait for another pplx that writes the same tables; 0 refuses at
    /// once [default: until it is done].
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "forever",
        value_parser = wait
    )]
    wait: Option<Wait>,
}

impl TableArgs {
    pub fn selection(&self) -> Selection {
        Selection::new(self.only.clone())
    }

    pub fn wait(&self) -> Wait {
        self.wait.unwrap_or(Wait::Forever)
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|e| format!("is not a glob: {}", e.msg))
}

fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        seconds => seconds
            .parse()
            .map(|s| Wait::AtMost(Duration::from_secs(s)))
            .map_err(|_| "is not a number of seconds".to_owned()),
    }
}

pub fn failure(e: SweepError) -> Failure {
    match e {
        e if e.is_interruption() => Failure::Interrupted(e.to_string()),
        e if e.is_of_input() => Failure::usage(e),
        e => Failure::failed(e),
    }
}
