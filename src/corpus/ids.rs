//! Files of token ids.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{CorpusError, Text};

/// Reads token ids: one a line, or a JSON array of numbers.
///
/// # Errors
/// The file cannot be read, or something in it is not an id; the message says
/// where.
pub fn read_ids(path: &Path) -> Result<Vec<u32>, CorpusError> {
    Text::new(path).ids()
}

/// The ids that a text lists; `path` is for messages.
pub(super) fn parse_ids(text: &str, path: &Path) -> Result<Vec<u32>, CorpusError> {
    let bad = |what: String| CorpusError::Ids {
        path: path.to_owned(),
        what,
    };
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text)
            .map_err(|e| bad(format!("not a JSON array of token ids: {e}")));
    }
    let mut ids = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() {
            ids.push(line.parse().map_err(|_| {
                let shown: String = line.chars().take(40).collect();
                bad(format!("line {}: {shown:?} is not a token id", i + 1))
            })?);
        }
    }
    Ok(ids)
}

/// Writes token ids, one a line, replacing the file only once all are written.
///
/// # Errors
/// The file cannot be written.
pub fn write_ids(path: &Path, ids: &[u32]) -> Result<(), CorpusError> {
    replace_file(path, |out| {
        ids.iter().try_for_each(|id| writeln!(out, "{id}"))
    })
}

/// SHA-256 (hex) of a stream of ids, each as four little-endian bytes.
pub fn ids_sha256(ids: &[u32]) -> String {
    let mut hash = Sha256::new();
    for id in ids {
        hash.update(id.to_le_bytes());
    }
    format!("{:x}", hash.finalize())
}

/// Writes a file beside `path`, then moves it there.
pub(super) fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CorpusError> {
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let replace = || {
        let mut builder = tempfile::Builder::new();
        // As `File::create` would, and not for the user alone.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.prefix(".pplx-").tempfile_in(folder)?;
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        let file = out.into_inner().map_err(|e| e.into_error())?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    replace().map_err(|error| CorpusError::Write {
        path: path.to_owned(),
        error,
    })
}
