//! The files of an experiment's results.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::csv_file::{self, Columns, CsvError, Line};
use super::kld_row::{KldOutcome, KldRow};
use super::record::{RecordError, RecordFolder};
use super::row::{ResultRow, TimingRow, WindowRow};
use super::schema::{KldRecord, ResultRecord, TimingRecord, WindowRecord};
use crate::files;

/// The windows of each run.
type Windows = BTreeMap<String, Vec<WindowRow>>;

/// Why result tables could not be read, extended or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ResultsError {
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(
        "{note}; writing the table would lose them: use the newer pplx, or another results directory"
    )]
    Newer { note: String },
    #[error("the result of run '{key}' cannot be recorded: {problem}")]
    Row { key: String, problem: String },
    #[error(
        "{}:{line}: run '{key}' does not agree with {}: {problem}; restore both files from the same commit, \
         or delete the run's rows from all of the experiment's tables and run it again",
        windows.display(),
        table.display()
    )]
    Windows {
        windows: PathBuf,
        /// The run's first.
        line: u64,
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
    /// `NAME.compare.csv`
    pub compare: PathBuf,
    /// `.records/NAME`
    pub records: RecordFolder,
    /// Held by who writes the tables: `.records/NAME.lock`
    pub lock: PathBuf,
}

impl TablePaths {
    /// The files of a table in a directory.
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
            compare: path.with_extension("compare.csv"),
            records: RecordFolder::beside(path),
            lock: lock(path, "lock"),
        }
    }

    /// Removes what dead writers of these files left of them.
    pub fn clean(&self) {
        let record = self.records.path("");
        for file in [&self.table, &self.lock, &record] {
            files::clean(files::folder_of(file));
        }
    }

    /// Held by who writes `NAME.noise.csv`.
    pub fn noise_lock(&self) -> PathBuf {
        lock(&self.table, "noise.lock")
    }
}

fn lock(table: &Path, extension: &str) -> PathBuf {
    let name = table.with_extension(extension);
    let directory = table.with_file_name(".records");
    directory.join(name.file_name().unwrap_or_default())
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
    /// Whether the file of windows was there.
    has_windows: bool,
    notes: Vec<String>,
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
            has_windows: true,
            notes: Vec::new(),
        }
    }

    /// Reads `dir/name.csv` and those of its companions that exist.
    ///
    /// # Errors
    /// A missing table, a malformed file (with file and line), a row that could
    /// not have been written, windows that do not sum up to their row, companions of
    /// another table.
    pub fn load(dir: &Path, name: &str) -> Result<Self, ResultsError> {
        Self::read(TablePaths::new(dir, name))
    }

    /// [`load`](Self::load), given the path of the table.
    pub fn load_file(table: &Path) -> Result<Self, ResultsError> {
        Self::read(TablePaths::beside(table))
    }

    fn read(paths: TablePaths) -> Result<Self, ResultsError> {
        let mut t = Self::empty(paths);
        t.read_rows()?;
        t.read_windows()?;
        t.read_timing()?;
        t.read_kld()?;
        Ok(t)
    }

    fn read_rows(&mut self) -> Result<(), CsvError> {
        let path = &self.paths.table;
        let contents = csv_file::read::<ResultRecord>(path)?;
        self.notes.extend(contents.note);
        for Line { line, record } in contents.lines {
            let malformed = |problem| CsvError::malformed(path, line, problem);
            let row = record.into_row().map_err(malformed)?;
            row.check().map_err(malformed)?;
            insert(&mut self.rows, row.key.clone(), row).map_err(malformed)?;
        }
        Ok(())
    }

    /// Reads a companion line by line; each is of a run of the table.
    fn read_companion<T>(
        path: &Path,
        rows: &BTreeMap<String, ResultRow>,
        notes: &mut Vec<String>,
        mut each: impl FnMut(u64, &ResultRow, T) -> Result<(), String>,
    ) -> Result<bool, CsvError>
    where
        T: Columns + DeserializeOwned + OfRun,
    {
        let Some(contents) = csv_file::read_if_exists::<T>(path)? else {
            return Ok(false);
        };
        notes.extend(contents.note);
        for Line { line, record } in contents.lines {
            let key = record.key();
            let result = match rows.get(key) {
                Some(row) => each(line, row, record),
                None => Err(format!(
                    "the table has no run '{key}'; restore the files from one commit, or delete the \
                     lines of runs that the table does not have"
                )),
            };
            result.map_err(|problem| CsvError::malformed(path, line, problem))?;
        }
        Ok(true)
    }

    fn read_windows(&mut self) -> Result<(), ResultsError> {
        let path = &self.paths.windows;
        // With the first line of each run.
        let mut read = BTreeMap::<String, (u64, Vec<WindowRow>)>::new();
        self.has_windows = Self::read_companion(
            path,
            &self.rows,
            &mut self.notes,
            |line, _, record: WindowRecord| {
                let (key, row) = record.into_row();
                read.entry(key).or_insert((line, Vec::new())).1.push(row);
                Ok(())
            },
        )?;
        for (key, (line, windows)) in read {
            let row = &self.rows[&key];
            // An interrupted save may leave windows whose row was not written yet;
            // that run has no number and will be run again.
            if row.figures().is_none() {
                continue;
            }
            row.check_all_of_windows(&windows)
                .map_err(|problem| ResultsError::Windows {
                    windows: path.clone(),
                    line,
                    table: self.paths.table.clone(),
                    key: key.clone(),
                    problem,
                })?;
            self.windows.insert(key, windows);
        }
        Ok(())
    }

    fn read_timing(&mut self) -> Result<(), CsvError> {
        let Self {
            paths,
            rows,
            timing,
            notes,
            ..
        } = self;
        // The file is not committed, so it may be of another branch: lines of runs that
        // the table does not have say nothing.
        let Some(contents) = csv_file::read_if_exists::<TimingRecord>(&paths.timing)? else {
            return Ok(());
        };
        notes.extend(contents.note);
        for Line { line, record } in contents.lines {
            let (key, row) = record.into_row();
            if rows.contains_key(&key) {
                let added = row.check().and_then(|()| insert(timing, key, row));
                added.map_err(|problem| CsvError::malformed(&paths.timing, line, problem))?;
            }
        }
        Ok(())
    }

    fn read_kld(&mut self) -> Result<(), CsvError> {
        let Self {
            paths,
            rows,
            kld,
            notes,
            ..
        } = self;
        let each = |_, of: &ResultRow, record: KldRecord| {
            let row = KldRow::from_record(record)?;
            row.check()?;
            match of.figures() {
                Some(figures) => row.check_with(of, figures)?,
                // As with windows.
                None if matches!(row.outcome, KldOutcome::Ok(_)) => return Ok(()),
                None => {}
            }
            insert(kld, row.key.clone(), row)
        };
        Self::read_companion(&paths.kld, rows, notes, each).map(|_| ())
    }

    /// [`load`](Self::load), or empty tables where there is no `dir/name.csv` yet. The
    /// tables are to be written again.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and columns that only a newer pplx knows: what is
    /// in them would be lost.
    pub fn load_or_new(dir: &Path, name: &str) -> Result<Self, ResultsError> {
        match Self::load(dir, name) {
            Err(ResultsError::Csv(CsvError::Read { source, .. }))
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(Self::new(dir, name))
            }
            Ok(t) => match t.notes.first() {
                None => Ok(t),
                Some(note) => Err(ResultsError::Newer { note: note.clone() }),
            },
            other => other,
        }
    }

    /// What was ignored of files that a newer pplx has written, one note a file.
    pub fn notes(&self) -> &[String] {
        &self.notes
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
                _ => row.check_all_of_windows(&windows),
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

    /// The row of a run.
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

    /// Why a run has no windows, for people.
    pub(crate) fn no_windows_because(&self, row: &ResultRow) -> String {
        let path = self.paths.windows.display();
        let why = match self.has_windows {
            true => format!("{path} has none of this run"),
            false => format!("there is no {path}"),
        };
        match row.provenance.engine.starts_with("pplx ") {
            true => why,
            // Nothing was lost, and nothing can be brought back.
            false => format!("{why}; those of {} are not known", row.provenance.engine),
        }
    }

    /// When the latest of the runs that have timings began, RFC 3339.
    pub fn last_started(&self) -> Option<&str> {
        let measured = self.timing.iter();
        let measured = measured.filter(|(key, _)| self.rows.contains_key(*key));
        measured.map(|(_, t)| t.started_at.as_str()).max()
    }

    /// All comparisons with a base, sorted by key.
    pub fn klds(&self) -> impl ExactSizeIterator<Item = &KldRow> {
        self.kld.values()
    }

    /// Where it was read, and is written.
    pub fn paths(&self) -> &TablePaths {
        &self.paths
    }

    /// Writes the files, each replaced at once; that of divergences where there
    /// are any, or were. Between two of them a row may be without what belongs to it,
    /// but never beside what belongs to another: see [`Self::put_and_save`].
    pub fn save(&self) -> Result<(), ResultsError> {
        self.save_companions()?;
        self.save_table()
    }

    /// [`Self::put`] and [`Self::put_kld`] in one, written so that a process that dies
    /// meanwhile leaves the old row or the new one: neither ever stands beside the
    /// other's windows.
    ///
    /// # Errors
    /// Those of both, and of writing.
    pub fn put_and_save(
        &mut self,
        row: ResultRow,
        windows: Vec<WindowRow>,
        timing: Option<TimingRow>,
        kld: Option<KldRow>,
    ) -> Result<(), ResultsError> {
        let key = row.key.clone();
        let old = self.rows.get(&key);
        let replaces = old.is_some_and(|old| old.figures().is_some() && *old != row);
        if replaces {
            set(&mut self.windows, &key, None);
            set(&mut self.timing, &key, None);
            set(&mut self.kld, &key, None);
            self.save_companions()?;
        }
        self.put(row, windows, timing)?;
        self.put_kld(&key, kld)?;
        match replaces {
            true => {
                self.save_table()?;
                self.save_companions()
            }
            false => self.save(),
        }
    }

    fn save_table(&self) -> Result<(), ResultsError> {
        let rows = self.rows.values().map(ResultRecord::from);
        write(&self.paths.table, rows)
    }

    fn save_companions(&self) -> Result<(), ResultsError> {
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
        Ok(())
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

/// A line of a companion of the table.
trait OfRun {
    fn key(&self) -> &str;
}

macro_rules! of_run {
    ($($record:ty),*) => { $(impl OfRun for $record {
        fn key(&self) -> &str {
            &self.key
        }
    })* };
}

of_run!(WindowRecord, TimingRecord, KldRecord);

/// Adds what a file says of a run, once.
fn insert<T>(map: &mut BTreeMap<String, T>, key: String, value: T) -> Result<(), String> {
    match map.entry(key) {
        Entry::Vacant(entry) => {
            entry.insert(value);
            Ok(())
        }
        Entry::Occupied(entry) => Err(format!("the key '{}' occurs twice", entry.key())),
    }
}
