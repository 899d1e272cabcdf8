//! Files of token ids.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::CorpusError;
use crate::files;

/// Reads token ids: one a line, or a JSON array of numbers.
///
/// # Errors
/// The file cannot be read, or something in it is not an id; the message says
/// where.
pub fn read_ids(path: &Path) -> Result<Vec<u32>, CorpusError> {
    let text = std::fs::read_to_string(path).map_err(|error| CorpusError::Read {
        path: path.to_owned(),
        error,
    })?;
    let bad = |what: String| CorpusError::Ids {
        path: path.to_owned(),
        what,
    };
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(&text)
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
    files::replace(path, |out| {
        ids.iter().try_for_each(|id| writeln!(out, "{id}"))
    })
    .map_err(|error| CorpusError::Write {
        path: path.to_owned(),
        error,
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
