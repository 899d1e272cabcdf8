//! The files of an experiment's results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::csv_file::{self, Columns, CsvError};
use super::kld_row::KldRow;
use super::record::RecordFolder;
use super::row::{ResultRow, TimingRow, WindowRow};
use super::schema::{KldRecord, ResultRecord, TimingRecord, WindowRecord};

/// The windows of each run.
pub(super) type Windows = BTreeMap<String, Vec<WindowRow>>;

/// Why result tables could not be read, extended or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error("the result of run '{key}' cannot be recorded: {problem}")]
    Row { key: String, problem: String },
    #[error(
        "{}: run '{key}' does not agree with {}: {problem}; restore both files from the same commit, \
         or delete the run's rows from both and run it again",
        windows.display(),
        table.display()
    )]
    Windows {
        windows: PathBuf,
        table: PathBuf,
        key: String,
        problem: String,
    },
}

/// What comes before `.csv` in the names of the files beside a table: no experiment
/// may have a name that ends so.
pub const COMPANIONS: [&str; 5] = ["windows", "timing", "noise", "kld", "compare"];

/// Where the files of one experiment lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePaths {
    /// `NAME.csv`
    pub table: PathBuf,
    /// `NAME.windows.csv`
    pub windows: PathBuf,
    /// `NAME.timing.csv`
    pub timing: PathBuf,
    /// `NAME.noise.csv`
    pub noise: PathBuf,
    /// `NAME.kld.csv`
    pub kld: PathBuf,
    /// `.records/NAME`
    pub records: RecordFolder,
}

impl TablePaths {
    pub fn new(dir: &Path, name: &str) -> Self {
        Self::beside(&dir.join(format!("{name}.csv")))
    }

    /// The files that belong to the table at `path`.
    pub fn beside(path: &Path) -> Self {
        TablePaths {
            table: path.to_owned(),
            windows: path.with_extension("windows.csv"),
            timing: path.with_extension("timing.csv"),
            noise: path.with_extension("noise.csv"),
            kld: path.with_extension("kld.csv"),
            records: RecordFolder::beside(path),
        }
    }
}

/// The results of one experiment, kept in step with its files. Rows are sorted
/// by key, so the same results are the same bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    paths: TablePaths,
    rows: BTreeMap<String, ResultRow>,
    windows: Windows,
    timing: BTreeMap<String, TimingRow>,
    kld: BTreeMap<String, KldRow>,
}

impl Tables {
    /// Empty tables, which [`save`](Self::save) writes to `dir/name.csv` and its
    /// companions.
    pub fn new(dir: &Path, name: &str) -> Self {
        Self::empty(TablePaths::new(dir, name))
    }

    fn empty(paths: TablePaths) -> Self {
        Tables {
            paths,
            rows: BTreeMap::new(),
            windows: Windows::new(),
            timing: BTreeMap::new(),
            kld: BTreeMap::new(),
        }
    }

    /// Reads `dir/name.csv` and those of its companions that exist.
    ///
    /// # Errors
    /// A missing table, a malformed file (with file and line), a row that could
    /// not have been written, windows that do not sum up to their row.
    pub fn load(dir: &Path, name: &str) -> Result<Self, ResultsError> {
        Self::read(TablePaths::new(dir, name))
    }

    /// [`load`](Self::load), given the path of the table.
    pub fn load_file(table: &Path) -> Result<Self, ResultsError> {
        Self::read(TablePaths::beside(table))
    }

    fn read(paths: TablePaths) -> Result<Self, ResultsError> {
        let mut t = Self::empty(paths);
        let table = &t.paths.table;
        for (line, row) in read_rows(table)? {
            row.check()
                .map_err(|problem| CsvError::malformed(table, line, problem))?;
            if let Some(old) = t.rows.insert(row.key.clone(), row) {
                let problem = format!("the key '{}' occurs twice", old.key);
                return Err(CsvError::malformed(table, line, problem).into());
            }
        }
        t.windows = read_windows(&t.paths.windows)?.unwrap_or_default();
        // An interrupted save may leave windows whose row was not written yet;
        // that run has no number and will be run again.
        t.windows
            .retain(|key, _| t.rows.get(key).is_some_and(|row| row.figures().is_some()));
        for (key, windows) in &t.windows {
            t.rows[key]
                .check_windows(windows)
                .map_err(|problem| ResultsError::Windows {
                    windows: t.paths.windows.clone(),
                    table: table.clone(),
                    key: key.clone(),
                    problem,
                })?;
        }
        for line in csv_file::read_if_exists::<TimingRecord>(&t.paths.timing)?.unwrap_or_default() {
            let (key, row) = line.record.into_row();
            t.timing.insert(key, row);
        }
        for line in csv_file::read_if_exists::<KldRecord>(&t.paths.kld)?.unwrap_or_default() {
            let row = KldRow::from_record(line.record)
                .map_err(|problem| CsvError::malformed(&t.paths.kld, line.line, problem))?;
            if let Some(old) = t.kld.insert(row.key.clone(), row) {
                let problem = format!("the key '{}' occurs twice", old.key);
                return Err(CsvError::malformed(&t.paths.kld, line.line, problem).into());
            }
        }
        Ok(t)
    }

    /// [`load`](Self::load), or empty tables where there is no `dir/name.csv` yet.
    pub fn load_or_new(dir: &Path, name: &str) -> Result<Self, ResultsError> {
        match Self::load(dir, name) {
            Err(ResultsError::Csv(CsvError::Read { source, .. }))
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(Self::new(dir, name))
            }
            other => other,
        }
    }

    /// Sets the row of a run, with its windows (none unless it ended well) and
    /// its timing. What was recorded under the key before is replaced.
    ///
    /// # Errors
    /// Figures that are not finite, an `ok` row with missing provenance, windows
    /// that do not sum up to the row.
    pub fn put(
        &mut self,
        row: ResultRow,
        windows: Vec<WindowRow>,
        timing: Option<TimingRow>,
    ) -> Result<(), ResultsError> {
        row.check()
            .and_then(|()| match (row.figures(), windows.is_empty()) {
                (None, true) => Ok(()),
                _ => row.check_windows(&windows),
            })
            .map_err(|problem| ResultsError::Row {
                key: row.key.clone(),
                problem,
            })?;
        let key = row.key.clone();
        set(
            &mut self.windows,
            &key,
            Some(windows).filter(|w| !w.is_empty()),
        );
        set(&mut self.timing, &key, timing);
        self.rows.insert(key, row);
        Ok(())
    }

    /// Sets how far a run is from its base, or that it has none.
    ///
    /// # Errors
    /// Figures that are not finite.
    pub fn put_kld(&mut self, key: &str, row: Option<KldRow>) -> Result<(), ResultsError> {
        if let Some(row) = &row {
            row.check().map_err(|problem| ResultsError::Row {
                key: key.to_owned(),
                problem,
            })?;
        }
        set(&mut self.kld, key, row);
        Ok(())
    }

    /// How far a run is from its base, where it has one.
    pub fn kld(&self, key: &str) -> Option<&KldRow> {
        self.kld.get(key)
    }

    /// Drops the runs whose key `keep` refuses, such as those an experiment no
    /// longer has.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.rows.retain(|k, _| keep(k));
        self.windows.retain(|k, _| keep(k));
        self.timing.retain(|k, _| keep(k));
        self.kld.retain(|k, _| keep(k));
    }

    /// Lets `f` change what is said of each run, such as its comparison.
    pub fn update(&mut self, f: impl FnMut(&mut ResultRow)) {
        self.rows.values_mut().for_each(f);
    }

    pub fn get(&self, key: &str) -> Option<&ResultRow> {
        self.rows.get(key)
    }

    /// All rows, sorted by key.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &ResultRow> {
        self.rows.values()
    }

    /// The windows of a run; empty if it has none.
    pub fn windows(&self, key: &str) -> &[WindowRow] {
        self.windows.get(key).map_or(&[], Vec::as_slice)
    }

    /// All comparisons with a base, sorted by key.
    pub fn klds(&self) -> impl ExactSizeIterator<Item = &KldRow> {
        self.kld.values()
    }

    pub fn paths(&self) -> &TablePaths {
        &self.paths
    }

    /// Writes the files, each replaced at once; that of divergences where there
    /// are any, or were.
    pub fn save(&self) -> Result<(), ResultsError> {
        // The table comes last: a row in it always has its windows on disk.
        let windows = self
            .windows
            .iter()
            .flat_map(|(key, ws)| ws.iter().map(|w| WindowRecord::new(key, w)));
        write(&self.paths.windows, windows)?;
        let timing = self.timing.iter().map(|(k, t)| TimingRecord::new(k, t));
        write(&self.paths.timing, timing)?;
        if !self.kld.is_empty() || self.paths.kld.exists() {
            write(&self.paths.kld, self.kld.values().map(KldRecord::from))?;
        }
        write(
            &self.paths.table,
            self.rows.values().map(ResultRecord::from),
        )
    }
}

fn set<T>(map: &mut BTreeMap<String, T>, key: &str, value: Option<T>) {
    match value {
        Some(v) => map.insert(key.to_owned(), v),
        None => map.remove(key),
    };
}

fn write<T>(path: &Path, records: impl Iterator<Item = T>) -> Result<(), ResultsError>
where
    T: Columns + Serialize,
{
    let bytes = csv_file::to_bytes(records).map_err(|source| CsvError::Write {
        path: path.to_owned(),
        source,
    })?;
    Ok(csv_file::write_atomic(path, &bytes)?)
}

/// The rows of a table with their lines, in file order. Only their syntax is
/// checked.
pub(super) fn read_rows(path: &Path) -> Result<Vec<(u64, ResultRow)>, CsvError> {
    csv_file::read::<ResultRecord>(path)?
        .into_iter()
        .map(|l| match l.record.into_row() {
            Ok(row) => Ok((l.line, row)),
            Err(problem) => Err(CsvError::malformed(path, l.line, problem)),
        })
        .collect()
}

/// The windows of each run, in file order; `None` where there is no such file.
pub(super) fn read_windows(path: &Path) -> Result<Option<Windows>, CsvError> {
    let Some(lines) = csv_file::read_if_exists::<WindowRecord>(path)? else {
        return Ok(None);
    };
    let mut out = Windows::new();
    for line in lines {
        let (key, row) = line.record.into_row();
        out.entry(key).or_default().push(row);
    }
    Ok(Some(out))
}
