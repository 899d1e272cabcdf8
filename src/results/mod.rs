//! The store of results: the tables, their schema, and the records beside them.
//!
//! `docs/results.md` explains every column.

pub(crate) mod consistency;
pub(crate) mod csv_file;
mod formula;
mod identity;
mod kld;
pub(crate) mod kld_row;
mod lock;
pub mod noise;
pub mod record;
mod row;
pub(crate) mod schema;
mod tables;

pub use csv_file::{CsvError, write_atomic};
pub use formula::formula_character;
pub use identity::{Identity, arithmetic_of};
pub use kld::{KldFigures, NoKldFigures, Sampling};
pub use kld_row::{KldOutcome, KldRow, KldSummary};
pub use lock::{LockError, TableLock, Wait};
pub use record::{Record, RecordError, RecordFolder};
pub(crate) use row::unpaired_sigma;
pub use row::{
    Comparison, Figures, ModelSize, NoFigures, Outcome, Provenance, ResultRow, TimingRow, WindowRow,
};
pub use tables::{COMPANIONS, ResultsError, TablePaths, Tables};
