//! A run that has been measured, as tables keep it.

use super::measure::{Measurement, Text};
use crate::results::{
    KldRow, Outcome, Provenance, Record, ResultRow, ResultsError, Tables, TimingRow, WindowRow,
};

/// A finished run.
pub struct Finished {
    /// Its row.
    pub row: ResultRow,
    /// Its windows.
    pub windows: Vec<WindowRow>,
    /// The score of every token.
    pub record: Record,
    /// Its comparison with a base.
    pub kld: Option<KldRow>,
    /// What it took, where that was measured.
    pub timing: Option<TimingRow>,
}

impl Finished {
    /// The run `key` of its table: what was measured on which text, and what came of
    /// it.
    pub fn new(key: &str, provenance: Provenance, text: Text, measurement: Measurement) -> Self {
        let row = row(key, provenance, Outcome::Ok(measurement.figures));
        Self {
            record: Record::new(&row, &measurement.scores, text.ids, |id| {
                text.pieces.piece(id)
            }),
            row,
            windows: measurement.windows,
            kld: None,
            timing: None,
        }
    }

    /// Puts it into the tables in place of an older row of its key, and writes them.
    ///
    /// # Errors
    /// Files that cannot be written; a row that contradicts itself.
    pub fn save(self, tables: &mut Tables) -> Result<(), ResultsError> {
        // First, so that a row that is written has its record.
        let records = &tables.paths().records;
        records.save(&self.row.key, &self.record)?;
        tables.put_and_save(self.row, self.windows, self.timing, self.kld)
    }
}

/// The row of a run.
pub(super) fn row(key: &str, provenance: Provenance, outcome: Outcome) -> ResultRow {
    ResultRow {
        key: key.to_owned(),
        provenance,
        outcome,
        ref_note: String::new(),
        note: String::new(),
    }
}
