//! Result tables as a page for reviewers, and as Markdown for a pull request.
//!
//! [`Report`] is what both show: tables, each with its comparison to a base.
//! `series` makes curves of windows, `charts` figures of curves, `plot` SVG of
//! figures; `html` and `markdown` put the words around them. The same tables give
//! the same bytes.

#![warn(missing_docs)]

mod axis;
mod charts;
mod divergence;
mod elements;
mod figures;
mod html;
mod markdown;
mod plot;
mod series;

use std::path::{Path, PathBuf};

use crate::compare::diff::{Diff, DiffRow, Evidence};
use crate::compare::{Gate, NoiseFloor, Pairing};
use crate::results::{Outcome, ResultRow, ResultsError, Tables};

pub use plot::PlotError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A table that cannot be read.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// Runs that cannot be compared as was asked.
    #[error("{0}")]
    Pairs(String),
    /// A figure that cannot be drawn.
    #[error("cannot draw a figure: {0}")]
    Plot(#[from] PlotError),
}

/// Tables of results, and how they compare with a base.
pub struct Report {
    base: Option<Tables>,
    sections: Vec<Section>,
}

/// One table.
struct Section {
    tables: Tables,
    /// Against the base, which is A.
    diff: Option<Diff>,
    /// Its own runs against each other.
    among: Option<Diff>,
    /// Rows are numbered through all tables, from 1; this is the first one's.
    first: usize,
}

/// One row of a table.
struct Entry<'a> {
    /// Its number in the report.
    number: usize,
    row: &'a ResultRow,
    diff: Option<&'a DiffRow>,
}

/// How many runs of a table have figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    ok: usize,
    failed: usize,
    not_run: usize,
}

impl Report {
    /// Reads tables and the files beside them, and compares each with `base`, whose
    /// noise floors are given, too, and its runs with each other as `among` asks.
    ///
    /// # Errors
    /// As [`Tables::load`] for every table.
    pub fn load(
        results: &[PathBuf],
        base: Option<&Path>,
        among: &Pairing,
        gate: Gate,
        noise: &NoiseFloor,
    ) -> Result<Self, ReportError> {
        let base = base.map(Tables::load_file).transpose()?;
        let mut sections = Vec::with_capacity(results.len());
        let mut first = 1;
        for path in results {
            let tables = Tables::load_file(path)?;
            let base = base.as_ref();
            let against = |a: &Tables, pairing: &Pairing, noise: &NoiseFloor| {
                let diff = Diff::new(a, &tables, pairing, Evidence::Records, gate, noise);
                diff.map_err(ReportError::Pairs)
            };
            let diff = base.map(|base| against(base, &Pairing::default(), noise));
            let own = match among.is_by_key() {
                true => None,
                false => {
                    // The floors are those of its own runs, unless one is given for all.
                    let floors = match noise {
                        NoiseFloor::Fixed(_) => noise.clone(),
                        _ => NoiseFloor::beside(path).map_err(ResultsError::from)?,
                    };
                    Some(against(&tables, among, &floors)?)
                }
            };
            let rows = tables.rows().len();
            sections.push(Section {
                diff: diff.transpose()?,
                among: own,
                tables,
                first,
            });
            first += rows;
        }
        Ok(Report { base, sections })
    }

    /// What was ignored of files that a newer pplx has written, one note a file.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        let tables = self.sections.iter().map(|s| &s.tables);
        let notes = self.base.iter().chain(tables).flat_map(Tables::notes);
        notes.map(String::as_str)
    }
}

impl Section {
    /// The rows, sorted by key.
    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (self.first..)
            .zip(self.tables.rows())
            .map(|(number, row)| Entry {
                number,
                row,
                diff: self.diff.as_ref().and_then(|d| d.row(&row.key)),
            })
    }

    /// The number of the run `key`; `None` if only the base has it.
    fn number(&self, key: &str) -> Option<usize> {
        self.entries().find(|e| e.row.key == key).map(|e| e.number)
    }

    fn path(&self) -> String {
        self.tables.paths().table.display().to_string()
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in self.tables.rows() {
            match row.outcome {
                Outcome::Ok(_) => counts.ok += 1,
                Outcome::Failed(_) => counts.failed += 1,
                Outcome::NotRun => counts.not_run += 1,
            }
        }
        counts
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self.ok + self.failed + self.not_run;
        write!(f, "{runs} {}", if runs == 1 { "run" } else { "runs" })?;
        write!(f, ": {} ok", self.ok)?;
        for (n, what) in [(self.failed, "failed"), (self.not_run, "not run")] {
            if n > 0 {
                write!(f, ", {n} {what}")?;
            }
        }
        Ok(())
    }
}
