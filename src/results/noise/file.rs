//! `NAME.noise.csv`: strict reading, the same bytes for the same figures.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Calibration, Component, NoiseRow, RunNoise, Shift, Subject};
use crate::results::ResultsError;
use crate::results::consistency::check_sha256;
use crate::results::csv_file::{self, CsvError};
use crate::results::schema::NoiseRecord;

impl Calibration {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A missing or malformed file, with file and line: fields that do not parse or
    /// contradict each other, a component that occurs twice.
    pub fn load(path: &Path) -> Result<Self, CsvError> {
        Self::of_lines(path, csv_file::read(path)?)
    }

    /// [`load`](Self::load), or `None` where there is no such file.
    pub fn load_if_exists(path: &Path) -> Result<Option<Self>, CsvError> {
        let lines = csv_file::read_if_exists(path)?;
        lines.map(|lines| Self::of_lines(path, lines)).transpose()
    }

    /// [`load_if_exists`](Self::load_if_exists), to be written again.
    ///
    /// # Errors
    /// Columns that only a newer pplx knows, too: what is in them would be lost.
    pub fn load_to_extend(path: &Path) -> Result<Option<Self>, ResultsError> {
        let found = Self::load_if_exists(path)?;
        match found.as_ref().and_then(|c| c.note.clone()) {
            None => Ok(found),
            Some(note) => Err(ResultsError::Newer { note }),
        }
    }

    fn of_lines(path: &Path, contents: csv_file::Contents<NoiseRecord>) -> Result<Self, CsvError> {
        let mut calibration = Self::new(path);
        calibration.note = contents.note;
        // The last line of each run, with the number of rows that it claims.
        let mut claims = BTreeMap::new();
        for csv_file::Line { line, record } in contents.lines {
            claims.insert(record.key.clone(), (line, record.rows));
            calibration
                .add(record)
                .map_err(|problem| CsvError::malformed(path, line, problem))?;
        }
        for (key, (line, claimed)) in claims {
            let rows = calibration.runs.get(&key).map_or(0, |run| run.rows.len());
            // Tables of schema v1.0 claim nothing.
            if let Some(claimed) = claimed.filter(|n| *n != rows) {
                let problem = format!(
                    "run '{key}' has {claimed} rows, {rows} are here; without the others its noise \
                     floor is another"
                );
                return Err(CsvError::malformed(path, line, problem));
            }
        }
        Ok(calibration)
    }

    fn add(&mut self, record: NoiseRecord) -> Result<(), String> {
        let (key, subject, row) = record.into_row()?;
        let run = self.runs.entry(key.clone()).or_insert_with(|| RunNoise {
            subject: subject.clone(),
            rows: Vec::new(),
        });
        if run.subject != subject {
            return Err(format!(
                "the rows of run '{key}' were not measured on the same"
            ));
        }
        let id = |r: &NoiseRow| (r.component, r.seed);
        if run.rows.iter().any(|other| id(other) == id(&row)) {
            return Err(format!("'{}' of run '{key}' occurs twice", row.component));
        }
        run.rows.push(row);
        run.rows.sort_by_key(id);
        Ok(())
    }

    /// Writes the file, replaced at once.
    ///
    /// # Errors
    /// Those of the system.
    pub fn save(&self) -> Result<(), CsvError> {
        let records = self.runs().flat_map(|(key, run)| {
            let rows = run.rows.iter();
            rows.map(move |row| NoiseRecord::new(key, run, row))
        });
        let bytes = csv_file::to_bytes(records).map_err(|source| CsvError::Write {
            path: self.path.clone(),
            source,
        })?;
        csv_file::write_atomic(&self.path, &bytes)
    }
}

impl NoiseRecord {
    fn new(key: &str, run: &RunNoise, row: &NoiseRow) -> Self {
        let subject = &run.subject;
        NoiseRecord {
            key: key.to_owned(),
            component: row.component.name().to_owned(),
            seed: row.seed,
            in_floor: row.in_floor,
            delta_ln_ppl: row.shift.mean,
            se: row.shift.se,
            rms_delta_nll: row.shift.rms,
            max_delta_nll: row.shift.max,
            windows: subject.windows,
            scored_tokens: subject.scored_tokens,
            bos: subject.bos,
            engine: subject.engine.clone(),
            model_sha256: subject.model_sha256.clone(),
            tokens_sha256: subject.tokens_sha256.clone(),
            rows: Some(run.rows.len()),
        }
    }

    fn into_row(self) -> Result<(String, Subject, NoiseRow), String> {
        if self.key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        let component = Component::named(&self.component).ok_or_else(|| {
            let known = Component::ALL.map(Component::name).join(", ");
            format!(
                "the component '{}' is unknown; there are {known}",
                self.component
            )
        })?;
        if self.seed.is_some() != (component == Component::Jitter) {
            return Err(format!(
                "jitter has a seed and nothing else has, but '{component}' is otherwise here"
            ));
        }
        let shift = Shift {
            mean: self.delta_ln_ppl,
            se: self.se,
            rms: self.rms_delta_nll,
            max: self.max_delta_nll,
        };
        check(&shift)?;
        for (column, sha) in [
            ("model_sha256", &self.model_sha256),
            ("tokens_sha256", &self.tokens_sha256),
        ] {
            check_sha256(column, sha)?;
        }
        if self.windows == 0 || self.scored_tokens < self.windows {
            return Err(format!(
                "{} windows have {} scored tokens",
                self.windows, self.scored_tokens
            ));
        }
        if self.se.is_some() != (self.windows > 1) {
            return Err(format!(
                "'se' is empty with one window and with no more, but here with {}",
                self.windows
            ));
        }
        let subject = Subject {
            model_sha256: self.model_sha256,
            tokens_sha256: self.tokens_sha256,
            bos: self.bos,
            windows: self.windows,
            scored_tokens: self.scored_tokens,
            engine: self.engine,
        };
        let row = NoiseRow {
            component,
            seed: self.seed,
            in_floor: self.in_floor,
            shift,
        };
        Ok((self.key, subject, row))
    }
}

/// A mean is no larger than the root mean square, and that no larger than the
/// largest.
fn check(shift: &Shift) -> Result<(), String> {
    let Shift { mean, se, rms, max } = *shift;
    for (column, x) in [
        ("delta_ln_ppl", mean),
        ("se", se.unwrap_or(0.0)),
        ("rms_delta_nll", rms),
        ("max_delta_nll", max),
    ] {
        if !x.is_finite() || (column != "delta_ln_ppl" && x < 0.0) {
            return Err(format!("column '{column}' holds {x}"));
        }
    }
    // Room for rounding.
    let at_most = |x: f64, y: f64| x <= y * (1.0 + 1e-9);
    match at_most(mean.abs(), rms) && at_most(rms, max) {
        true => Ok(()),
        false => Err(
            "|delta_ln_ppl| ≤ rms_delta_nll ≤ max_delta_nll does not hold; the file was changed by hand"
                .to_owned(),
        ),
    }
}
