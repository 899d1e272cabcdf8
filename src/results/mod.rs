//! Result tables: their schema, reading and writing, comparison and gates.
//!
//! `docs/results.md` explains every column.

mod attribution;
pub(crate) mod consistency;
pub(crate) mod csv_file;
pub mod diff;
mod formula;
mod gate;
mod identity;
mod kld;
pub mod kld_format;
mod kld_row;
mod lock;
pub(crate) mod markdown;
pub mod noise;
mod paired;
pub mod record;
pub mod render;
mod row;
pub(crate) mod schema;
mod tables;
mod tokens;

pub use attribution::{Attribution, Effect, Residual};
pub use csv_file::{CsvError, write_atomic};
pub use formula::formula_character;
pub use gate::{Gate, Measured};
pub use identity::{Identity, arithmetic_of};
pub use kld::{KldFigures, NoKldFigures, Sampling};
pub use kld_row::{KldOutcome, KldRow, KldSummary};
pub use lock::{LockError, TableLock, Wait};
pub use paired::{MovedWindow, Paired, moved_windows, paired};
pub use record::{Record, RecordError, RecordFolder};
pub use row::{
    Comparison, Figures, NoFigures, Outcome, Provenance, ResultRow, TimingRow, WindowRow,
};
pub use tables::{COMPANIONS, ResultsError, TablePaths, Tables};
pub use tokens::{MovedScore, MovedToken, TokenComparison};
