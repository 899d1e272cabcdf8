//! Result tables: their schema, reading and writing, comparison and gates.
//!
//! `docs/results.md` explains every column.

pub(crate) mod csv_file;
pub mod diff;
mod diff_format;
mod gate;
mod kld;
pub mod kld_format;
mod kld_row;
mod paired;
pub mod render;
mod row;
pub(crate) mod schema;
mod tables;

pub use csv_file::CsvError;
pub use gate::Gate;
pub use kld::{Distribution, Estimate, KldFigures, Sampling};
pub use kld_row::{KldOutcome, KldRow, KldSummary};
pub use paired::{Paired, paired};
pub use row::{Comparison, Figures, Outcome, Provenance, ResultRow, TimingRow, WindowRow};
pub use tables::{ResultsError, TablePaths, Tables};
