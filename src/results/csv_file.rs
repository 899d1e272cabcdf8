//! Strict CSV files with named columns: every error says file, line and column.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::files;

/// Why a CSV file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
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

/// The version of a table's columns, e.g. `v1.1`. A minor version adds columns; a
/// major one changes what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.major, self.minor)
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.strip_prefix('v')?.split_once('.')?;
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse().ok(),
            false => None,
        };
        Some(Version {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

/// The last column of a table that has versions: the same in every row. Tables
/// without it are of the first minor version.
pub(crate) const SCHEMA_COLUMN: &str = "schema";

/// A column of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub name: &'static str,
    kind: Kind,
    /// The minor version that brought it.
    since: u32,
    /// What it holds where a file does not have it, as that would be written. `None`:
    /// every file has it.
    default: Option<&'static str>,
}

impl Column {
    /// A column that every file has, with values of type `T`.
    pub const fn of<T: Field>(name: &'static str) -> Self {
        Column {
            name,
            kind: T::KIND,
            since: 0,
            default: None,
        }
    }

    /// The same, but files of minor versions before `minor` do not have it: there it
    /// holds `default`.
    pub const fn since(mut self, minor: u32, default: &'static str) -> Self {
        self.since = minor;
        self.default = Some(default);
        self
    }

    /// The same, but a file may lack it: there it is empty.
    pub const fn optional(mut self) -> Self {
        self.default = Some("");
        self
    }

    /// What it holds in a file of version `v` that does not have it; `None` where that
    /// is an error. A file without rows (`None`) is of no version.
    fn absent(&self, v: Option<Version>) -> Option<&'static str> {
        let later = self.since > 0 && v.is_none_or(|v| v.minor < self.since);
        self.default.filter(|_| self.since == 0 || later)
    }
}

/// How the values of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bool,
    Integer,
    Float,
}

/// A type that a column can have.
pub(crate) trait Field {
    const KIND: Kind;
}

macro_rules! fields {
    ($($ty:ty: $kind:ident,)*) => { $(impl Field for $ty { const KIND: Kind = Kind::$kind; })* };
}

fields! {
    String: Text,
    bool: Bool,
    usize: Integer,
    u32: Integer,
    u64: Integer,
    f64: Float,
}

impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;
}

/// A record type whose fields are the columns of a file.
pub(crate) trait Columns {
    /// Columns in the order in which they are written.
    const COLUMNS: &'static [Column];
    /// The version that is written, in a column of its own; `None` for files of other
    /// programs, which have none.
    const SCHEMA: Option<Version> = None;
}

/// Names of all columns that are written, that of the version included.
pub(crate) fn names<T: Columns>() -> Vec<&'static str> {
    let own = T::COLUMNS.iter().map(|c| c.name);
    own.chain(T::SCHEMA.map(|_| SCHEMA_COLUMN)).collect()
}

/// A record and the line on which it starts.
pub(crate) struct Line<T> {
    pub line: u64,
    pub record: T,
}

/// What a file holds.
pub(crate) struct Contents<T> {
    pub lines: Vec<Line<T>>,
    /// What the reader of a newer table must know: which columns are ignored.
    pub note: Option<String>,
}

/// Reads a whole file. Columns are found by name, in any order. A file without a
/// byte has no rows.
///
/// # Errors
/// Missing, unknown and repeated columns, except that a table of a later minor
/// version may have columns that are unknown here, and one of an earlier version
/// lacks those that came later; a table of another major version; fields that do not
/// parse.
pub(crate) fn read<T>(path: &Path) -> Result<Contents<T>, CsvError>
where
    T: Columns + DeserializeOwned,
{
    let bytes = fs::read(path).map_err(|source| CsvError::Read {
        path: path.to_owned(),
        source,
    })?;
    let malformed = |line, problem: String| CsvError::malformed(path, line, problem);
    let bytes = text_of(&bytes).map_err(|problem| malformed(1, problem))?;
    let mut numbers = LineNumbers::new(bytes);
    let mut reader = csv::Reader::from_reader(bytes);
    let headers = match reader.headers() {
        Ok(headers) => headers.clone(),
        Err(e) => return Err(of_csv(path, e, &mut numbers)),
    };
    if headers.is_empty() {
        return Ok(Contents {
            lines: Vec::new(),
            note: None,
        });
    }
    let mut records = reader.into_records().peekable();
    let at = T::SCHEMA.and_then(|_| headers.iter().position(|h| h == SCHEMA_COLUMN));
    let version = match (T::SCHEMA, at, records.peek()) {
        (Some(own), Some(at), Some(Ok(first))) => {
            let version = check_version(first.get(at).unwrap_or(""), own);
            Some(version.map_err(|problem| malformed(numbers.of(first.position()), problem))?)
        }
        (Some(_), Some(_), _) => None,
        (own, ..) => Some(Version {
            major: own.map_or(0, |v| v.major),
            minor: 0,
        }),
    };
    let layout = Layout::new::<T>(&headers, version).map_err(|problem| malformed(1, problem))?;

    let mut lines = Vec::new();
    for record in records {
        let record = record.map_err(|e| of_csv(path, e, &mut numbers))?;
        let line = numbers.of(record.position());
        let read = layout.read(&record, at.zip(version));
        lines.push(Line {
            line,
            record: read.map_err(|problem| malformed(line, problem))?,
        });
    }
    let note = match (layout.ignored.as_slice(), version.zip(T::SCHEMA)) {
        ([], _) => None,
        (ignored, versions) => {
            let ignored = format!(
                "{}: ignored columns: {}",
                path.display(),
                ignored.join(", ")
            );
            Some(match versions {
                Some((found, own)) => {
                    format!("{ignored}; they came with schema {found}, this build knows {own}")
                }
                None => ignored,
            })
        }
    };
    Ok(Contents { lines, note })
}

/// [`read`], or `None` where there is no such file.
pub(crate) fn read_if_exists<T>(path: &Path) -> Result<Option<Contents<T>>, CsvError>
where
    T: Columns + DeserializeOwned,
{
    match read(path) {
        Err(CsvError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The CSV text of a file, less the byte order mark that spreadsheets put before it.
fn text_of(bytes: &[u8]) -> Result<&[u8], String> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("the file is UTF-16 text; save it as CSV in UTF-8".to_owned());
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let header = text.split(|b| matches!(b, b'\r' | b'\n')).next();
    let header = header.unwrap_or_default();
    for (separator, name) in [(b';', "semicolons"), (b'\t', "tabs")] {
        if header.contains(&separator) && !header.contains(&b',') {
            return Err(format!(
                "the columns are separated by {name}; save the file with commas"
            ));
        }
    }
    Ok(text)
}

/// Tells the lines on which records start, in their order. The csv crate's own count
/// takes `\r\n` for two lines.
struct LineNumbers<'a> {
    bytes: &'a [u8],
    counted: usize,
    line: u64,
}

impl<'a> LineNumbers<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            counted: 0,
            line: 1,
        }
    }

    fn of(&mut self, position: Option<&csv::Position>) -> u64 {
        let byte = position.map_or(0, |p| usize::try_from(p.byte()).unwrap_or(usize::MAX));
        let is_break = |i: &usize| matches!(self.bytes.get(*i), Some(b'\r' | b'\n'));
        // A record's position may be before the rest of the line break above it.
        let mut start = byte.min(self.bytes.len());
        while is_break(&start) {
            start += 1;
        }
        let breaks = (self.counted..start).filter(|&i| match self.bytes[i] {
            b'\n' => true,
            b'\r' => self.bytes.get(i + 1) != Some(&b'\n'),
            _ => false,
        });
        self.line += breaks.count() as u64;
        self.counted = self.counted.max(start);
        self.line
    }
}

/// The version that a row names, if this build reads it.
fn check_version(text: &str, own: Version) -> Result<Version, String> {
    let version = Version::parse(text).ok_or_else(|| {
        format!("column '{SCHEMA_COLUMN}' holds '{text}', no version such as {own}")
    })?;
    let Version { major, .. } = own;
    if version.major > major {
        return Err(format!(
            "was written by a newer pplx: schema {version}; this build reads v{major}.x"
        ));
    }
    if version.major < major {
        return Err(format!(
            "has schema {version}, which is unknown; this build reads v{major}.x"
        ));
    }
    Ok(version)
}

/// Where the columns of a record type are in a file.
struct Layout {
    /// Places of the columns that the file has.
    places: Vec<(usize, Column)>,
    /// What the others hold.
    defaults: Vec<&'static str>,
    /// Names of both, in this order.
    headers: csv::StringRecord,
    /// Columns of a later version.
    ignored: Vec<String>,
}

impl Layout {
    /// `None` is the version of a table without rows.
    fn new<T: Columns>(
        headers: &csv::StringRecord,
        version: Option<Version>,
    ) -> Result<Self, String> {
        let mut layout = Layout {
            places: Vec::new(),
            defaults: Vec::new(),
            headers: csv::StringRecord::new(),
            ignored: Vec::new(),
        };
        let newer = version.is_none_or(|v| T::SCHEMA.is_some_and(|own| v > own));
        for (i, name) in headers.iter().enumerate() {
            if headers.iter().take(i).any(|h| h == name) {
                return Err(format!("the column '{name}' occurs twice"));
            }
            let known = T::COLUMNS.iter().find(|c| c.name == name);
            match known {
                Some(c) if version.is_some_and(|v| v.minor < c.since) => {
                    let (v, since) = (version.map_or(0, |v| v.minor), c.since);
                    let major = T::SCHEMA.map_or(0, |own| own.major);
                    return Err(format!(
                        "the column '{name}' came with schema v{major}.{since}, but the table's is \
                         v{major}.{v}: its column '{SCHEMA_COLUMN}' is missing or wrong"
                    ));
                }
                Some(c) => {
                    layout.places.push((i, *c));
                    layout.headers.push_field(name);
                }
                None if T::SCHEMA.is_some() && name == SCHEMA_COLUMN => {}
                None if newer => layout.ignored.push(format!("'{name}'")),
                None => {
                    return Err(format!(
                        "the column '{name}' is unknown; the columns are {}",
                        names::<T>().join(", ")
                    ));
                }
            }
        }
        for column in T::COLUMNS {
            if headers.iter().any(|h| h == column.name) {
                continue;
            }
            let default = column
                .absent(version)
                .ok_or_else(|| format!("the column '{}' is missing", column.name))?;
            layout.defaults.push(default);
            layout.headers.push_field(column.name);
        }
        Ok(layout)
    }

    /// The record of a row; `version` is that of the rows above, with its place.
    fn read<T: DeserializeOwned>(
        &self,
        row: &csv::StringRecord,
        version: Option<(usize, Version)>,
    ) -> Result<T, String> {
        if let Some((at, version)) = version {
            let text = row.get(at).unwrap_or("");
            if Version::parse(text) != Some(version) {
                return Err(format!(
                    "column '{SCHEMA_COLUMN}' holds '{text}', but rows above are of {version}; a \
                     table is of one version"
                ));
            }
        }
        let present = self.places.iter().map(|(i, column)| {
            let text = row.get(*i).unwrap_or("");
            plain(text, column.kind)
        });
        let fields: csv::StringRecord = present.chain(self.defaults.iter().copied()).collect();
        fields
            .deserialize(Some(&self.headers))
            .map_err(|e| field_problem(&e, &self.headers, &fields))
    }
}

/// A value as pplx writes it, where a spreadsheet or pandas has written it otherwise
/// and only one value can be meant: `TRUE`, `False`, `33.0` for 33.
fn plain(text: &str, kind: Kind) -> &str {
    match kind {
        Kind::Bool if text.eq_ignore_ascii_case("true") => "true",
        Kind::Bool if text.eq_ignore_ascii_case("false") => "false",
        Kind::Integer => match text.split_once('.') {
            Some((whole, zeros))
                if !whole.is_empty() && !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') =>
            {
                whole
            }
            _ => text,
        },
        Kind::Bool | Kind::Text | Kind::Float => text,
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

fn of_csv(path: &Path, e: csv::Error, numbers: &mut LineNumbers) -> CsvError {
    let line = numbers.of(e.position());
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
    w.write_record(names::<T>()).map_err(io::Error::other)?;
    let schema = T::SCHEMA.map(|v| v.to_string());
    for r in records {
        match &schema {
            Some(schema) => w.serialize((r, schema)),
            None => w.serialize(r),
        }
        .map_err(io::Error::other)?;
    }
    w.into_inner().map_err(|e| io::Error::other(e.to_string()))
}

/// Replaces the file at `path` at once: a reader, or a crash, sees the old file
/// or the new one. Directories are created.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), CsvError> {
    files::replace(path, |out| out.write_all(bytes)).map_err(|source| CsvError::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
