//! Which runs of a plan are measured, and which rows are not the plan's.

use std::path::Path;

use glob::Pattern;

use super::error::SweepError;
use crate::plan::{Plan, RunSpec};

/// Patterns of run keys; without any, all runs.
#[derive(Clone, Debug, Default)]
pub struct Selection(Vec<Pattern>);

impl Selection {
    /// Runs whose key matches one of the patterns; all where there are none.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Self(patterns)
    }

    /// Whether it leaves no run out.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs that it selects, in the plan's order.
    ///
    /// # Errors
    /// A pattern that no run matches.
    pub fn of<'p>(&self, plan: &'p Plan) -> Result<Vec<&'p RunSpec>, SweepError> {
        let fits = |p: &Pattern, run: &RunSpec| p.matches(&run.key) || p.as_str() == run.key;
        let idle = |p: &&Pattern| !plan.runs.iter().any(|run| fits(p, run));
        if let Some(pattern) = self.0.iter().find(idle) {
            return Err(SweepError::NothingSelected(pattern.as_str().to_owned()));
        }
        let runs = plan.runs.iter();
        let selected = runs.filter(|run| self.is_all() || self.0.iter().any(|p| fits(p, run)));
        Ok(selected.collect())
    }
}

/// Refuses a table with rows of runs that the plan does not have.
pub(super) fn check_foreign<'k>(
    plan: &Plan,
    table: &Path,
    keys: impl Iterator<Item = &'k str>,
) -> Result<(), SweepError> {
    let mut foreign = keys.filter(|key| !plan.runs.iter().any(|run| run.key == *key));
    match foreign.next() {
        None => Ok(()),
        Some(example) => Err(SweepError::Foreign {
            table: table.to_owned(),
            example: example.to_owned(),
            count: 1 + foreign.count(),
        }),
    }
}
