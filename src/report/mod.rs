//! Result tables as a page for reviewers, and as Markdown for a pull request.
//!
//! [`Report`] is what both show: tables, each with the comparisons of its runs.
//! `grid` makes tables of rows, `series` curves of windows, `sizes` sweeps of
//! quantizations, `charts` figures, `plot` SVG of figures; `html` and `markdown` put
//! the words around them. The same tables give the same bytes.

mod axis;
mod charts;
mod comparison;
mod divergence;
mod elements;
mod figures;
mod grid;
mod head;
mod html;
mod labels;
mod markdown;
mod names;
mod pareto;
mod plot;
mod runs;
mod series;
mod sizes;

use std::path::{Path, PathBuf};

use self::names::{Names, natural};
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

/// What runs are compared with, and what is said of the differences.
#[derive(Clone, Copy, Debug)]
pub struct Comparing<'a> {
    /// A table that each of the others is compared with, run by run.
    pub base: Option<&'a Path>,
    /// Runs of each table that are compared with each other; none, if it is by key.
    pub pairing: &'a Pairing,
    /// The bounds of all comparisons.
    pub gate: Gate,
    /// Noise floors of the runs that others are compared with.
    pub noise: &'a NoiseFloor,
}

/// Tables of results, and how they compare.
pub struct Report {
    base: Option<Tables>,
    sections: Vec<Section>,
}

/// One table.
struct Section {
    tables: Tables,
    comparisons: Vec<Comparison>,
    /// Keys of all rows in the order of the report: those without a figure first.
    order: Vec<String>,
    /// What the runs are called.
    names: Names,
    /// Rows are numbered through all tables, from 1; this is the first one's.
    first: usize,
}

/// Runs of a table beside others.
struct Comparison {
    /// Whether A is the base of the report; else runs of the table face each other.
    against_base: bool,
    diff: Diff,
    /// What the pairs are called.
    names: Names,
}

/// One row of a table.
struct Entry<'a> {
    /// Its number in the report.
    number: usize,
    row: &'a ResultRow,
    name: String,
}

/// How many runs of a table have figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    ok: usize,
    failed: usize,
    not_run: usize,
}

impl Report {
    /// Reads tables and the files beside them, and compares their runs.
    ///
    /// # Errors
    /// As [`Tables::load`] for every table; pairs that cannot be made.
    pub fn load(results: &[PathBuf], comparing: Comparing) -> Result<Self, ReportError> {
        let base = comparing.base.map(Tables::load_file).transpose()?;
        let mut sections = Vec::with_capacity(results.len());
        let mut first = 1;
        for path in results {
            let tables = Tables::load_file(path)?;
            let section = Section::new(tables, base.as_ref(), comparing, first)?;
            first += section.order.len();
            sections.push(section);
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
    fn new(
        tables: Tables,
        base: Option<&Tables>,
        comparing: Comparing,
        first: usize,
    ) -> Result<Self, ReportError> {
        let compare = |a: &Tables, pairing: &Pairing| {
            let Comparing { gate, noise, .. } = comparing;
            let diff = Diff::new(a, &tables, pairing, Evidence::Records, gate, noise);
            diff.map_err(ReportError::Pairs)
        };
        let mut comparisons = Vec::new();
        if let Some(base) = base {
            let diff = compare(base, &Pairing::default())?;
            comparisons.push(Comparison::new(diff, true));
        }
        if !comparing.pairing.is_by_key() {
            let diff = compare(&tables, comparing.pairing)?;
            comparisons.push(Comparison::new(diff, false));
        }
        let mut rows: Vec<&ResultRow> = tables.rows().collect();
        let urgency = |row: &ResultRow| match row.outcome {
            Outcome::Failed(_) => 0,
            Outcome::NotRun => 1,
            Outcome::Ok(_) => 2,
        };
        rows.sort_by(|a, b| {
            let by_urgency = urgency(a).cmp(&urgency(b));
            by_urgency.then_with(|| natural(&a.key, &b.key))
        });
        Ok(Section {
            names: Names::new(rows.iter().map(|row| row.key.as_str())),
            order: rows.iter().map(|row| row.key.clone()).collect(),
            comparisons,
            first,
            tables,
        })
    }

    /// The rows, those without a figure first.
    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let rows = self.order.iter().filter_map(|key| self.tables.get(key));
        (self.first..).zip(rows).map(|(number, row)| Entry {
            number,
            row,
            name: self.names.of(&row.key),
        })
    }

    /// The number of the run `key`; `None` if only the base has it.
    fn number(&self, key: &str) -> Option<usize> {
        let place = self.order.iter().position(|k| k == key);
        place.map(|place| self.first + place)
    }

    fn path(&self) -> String {
        self.tables.paths().table.display().to_string()
    }

    /// The experiment's name, which is its table's.
    fn name(&self) -> String {
        let stem = self.tables.paths().table.file_stem();
        stem.map_or_else(|| self.path(), |stem| stem.to_string_lossy().into_owned())
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

impl Comparison {
    fn new(diff: Diff, against_base: bool) -> Self {
        Comparison {
            names: Names::new(diff.rows.iter().map(|row| row.key.as_str())),
            diff,
            against_base,
        }
    }

    /// What it is called.
    fn title(&self) -> &'static str {
        match self.against_base {
            true => "Against the base",
            false => "Runs beside each other",
        }
    }

    /// The pairs, those that need a look first.
    fn rows(&self) -> Vec<&DiffRow> {
        let mut rows = Vec::from_iter(&self.diff.rows);
        rows.sort_by(|a, b| {
            let by_urgency = a.urgency().cmp(&b.urgency());
            by_urgency.then_with(|| natural(&a.key, &b.key))
        });
        rows
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
