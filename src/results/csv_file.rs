//! Strict CSV files with named columns: every error says file, line and column.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::files;

/// Why a CSV file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Malformed {
        path: PathBuf,
        line: u64,
        problem: String,
    },
}

impl CsvError {
    pub(crate) fn malformed(path: &Path, line: u64, problem: impl Into<String>) -> Self {
        CsvError::Malformed {
            path: path.to_owned(),
            line,
            problem: problem.into(),
        }
    }
}

/// A record type whose fields are the columns of a file.
pub(crate) trait Columns {
    /// Columns in the order in which they are written; a file must have them all.
    const REQUIRED: &'static [&'static str];
    /// Columns that a file may have as well.
    const OPTIONAL: &'static [&'static str] = &[];
}

/// A record and the line on which it starts.
pub(crate) struct Line<T> {
    pub line: u64,
    pub record: T,
}

/// Reads a whole file. Columns are found by name, in any order; missing,
/// unknown and repeated ones are errors. A file without a byte has no rows.
pub(crate) fn read<T>(path: &Path) -> Result<Vec<Line<T>>, CsvError>
where
    T: Columns + DeserializeOwned,
{
    let file = File::open(path).map_err(|source| CsvError::Read {
        path: path.to_owned(),
        source,
    })?;
    let mut reader = csv::Reader::from_reader(file);
    let headers = reader.headers().map_err(|e| of_csv(path, e))?.clone();
    if headers.is_empty() {
        return Ok(Vec::new());
    }
    check_headers::<T>(&headers).map_err(|problem| CsvError::malformed(path, 1, problem))?;

    let mut out = Vec::new();
    for record in reader.into_records() {
        let record = record.map_err(|e| of_csv(path, e))?;
        let line = record.position().map_or(0, csv::Position::line);
        let value = record
            .deserialize(Some(&headers))
            .map_err(|e| CsvError::malformed(path, line, field_problem(&e, &headers, &record)))?;
        out.push(Line {
            line,
            record: value,
        });
    }
    Ok(out)
}

/// [`read`], or `None` where there is no such file.
pub(crate) fn read_if_exists<T>(path: &Path) -> Result<Option<Vec<Line<T>>>, CsvError>
where
    T: Columns + DeserializeOwned,
{
    match read(path) {
        Err(CsvError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn check_headers<T: Columns>(headers: &csv::StringRecord) -> Result<(), String> {
    for (i, name) in headers.iter().enumerate() {
        if headers.iter().take(i).any(|h| h == name) {
            return Err(format!("the column '{name}' occurs twice"));
        }
        if !T::REQUIRED.contains(&name) && !T::OPTIONAL.contains(&name) {
            return Err(format!(
                "the column '{name}' is unknown; the columns are {}",
                [T::REQUIRED, T::OPTIONAL].concat().join(", ")
            ));
        }
    }
    match T::REQUIRED
        .iter()
        .find(|c| !headers.iter().any(|h| h == **c))
    {
        Some(missing) => Err(format!("the column '{missing}' is missing")),
        None => Ok(()),
    }
}

fn field_problem(
    e: &csv::Error,
    headers: &csv::StringRecord,
    record: &csv::StringRecord,
) -> String {
    let csv::ErrorKind::Deserialize { err, .. } = e.kind() else {
        return e.to_string();
    };
    match err.field().and_then(|i| usize::try_from(i).ok()) {
        Some(i) => format!(
            "column '{}' holds '{}': {}",
            headers.get(i).unwrap_or("?"),
            record.get(i).unwrap_or(""),
            err.kind()
        ),
        None => err.kind().to_string(),
    }
}

fn of_csv(path: &Path, e: csv::Error) -> CsvError {
    let line = e.position().map_or(1, csv::Position::line);
    let problem = match e.into_kind() {
        csv::ErrorKind::Io(source) => {
            return CsvError::Read {
                path: path.to_owned(),
                source,
            };
        }
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("has {len} fields where the header has {expected_len}"),
        csv::ErrorKind::Utf8 { err, .. } => {
            format!("field {} is not valid UTF-8", err.field() + 1)
        }
        other => format!("{other:?}"),
    };
    CsvError::malformed(path, line, problem)
}

/// The bytes of a file that holds `records`. Floats are written with the fewest
/// digits that read back to the same f64.
pub(crate) fn to_bytes<T>(records: impl IntoIterator<Item = T>) -> io::Result<Vec<u8>>
where
    T: Columns + Serialize,
{
    let mut w = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    // Written by hand: the header is wanted when there is no record, too.
    w.write_record(T::REQUIRED).map_err(io::Error::other)?;
    for r in records {
        w.serialize(r).map_err(io::Error::other)?;
    }
    w.into_inner().map_err(|e| io::Error::other(e.to_string()))
}

/// Replaces the file at `path` at once: a reader, or a crash, sees the old file
/// or the new one. Folders are created.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), CsvError> {
    files::replace(path, |out| out.write_all(bytes)).map_err(|source| CsvError::Write {
        path: path.to_owned(),
        source,
    })
}
