//! Models in several files, as `llama-gguf-split` writes them: each part is a
//! GGUF file with tensors of its own, and the first has the model's metadata.
//! Names are those of llama.cpp's `llama_split_path`: `NAME-00001-of-00003.gguf`.

use std::path::{Path, PathBuf};

use super::error::{GgufError, Problem};
use super::metadata::Metadata;

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// What the first part says of the whole.
pub(super) struct Split {
    first: PathBuf,
    /// Number of parts.
    pub count: u64,
    /// Number of tensors in all parts.
    tensors: u64,
}

impl Split {
    /// `None` for a model in one file, which may have a count of 0 or 1.
    ///
    /// # Errors
    /// A part that is not the first.
    pub fn read(metadata: &Metadata) -> Result<Option<Self>, GgufError> {
        let Some(count) = metadata.u64(COUNT)?.filter(|&n| n > 1) else {
            return Ok(None);
        };
        let first = metadata.path();
        let no = metadata.require_u64(NO)?;
        if no != 0 {
            let problem = Problem::NotFirstPart {
                part: no.saturating_add(1),
                count,
                first: sibling(first, no, 0, count),
            };
            return Err(GgufError::new(first, problem));
        }
        Ok(Some(Self {
            first: first.to_owned(),
            count,
            tensors: metadata.require_u64(TENSORS)?,
        }))
    }

    /// Where part `no` (counted from 0) must lie.
    pub fn part(&self, no: u64) -> Result<PathBuf, GgufError> {
        sibling(&self.first, 0, no, self.count).ok_or_else(|| {
            let problem = Problem::PartName {
                count: self.count,
                suffix: suffix(0, self.count),
            };
            GgufError::new(&self.first, problem)
        })
    }

    /// Checks what part `no` says of itself.
    pub fn check_part(&self, no: u64, metadata: &Metadata) -> Result<(), GgufError> {
        let stated = [
            (NO, Some(metadata.require_u64(NO)?), no),
            (COUNT, metadata.u64(COUNT)?, self.count),
            (TENSORS, metadata.u64(TENSORS)?, self.tensors),
        ];
        for (key, found, expected) in stated {
            if let Some(found) = found.filter(|&n| n != expected) {
                let problem = Problem::PartKey {
                    key,
                    found,
                    expected,
                    part: no + 1,
                    first: self.first.clone(),
                };
                return Err(GgufError::new(metadata.path(), problem));
            }
        }
        Ok(())
    }

    /// The error for a part that is not there.
    pub fn missing(&self, no: u64, path: &Path) -> GgufError {
        let problem = Problem::MissingPart {
            part: no + 1,
            count: self.count,
            first: self.first.clone(),
        };
        GgufError::new(path, problem)
    }

    /// Checks the number of tensors of all parts.
    pub fn check_total(&self, found: usize) -> Result<(), GgufError> {
        if found as u64 == self.tensors {
            return Ok(());
        }
        let problem = Problem::PartTensors {
            count: self.count,
            found,
            declared: self.tensors,
        };
        Err(GgufError::new(&self.first, problem))
    }
}

/// The first part of the split model of which `path`, going by its name, is
/// another part.
pub fn first_part(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (name, count) = name.rsplit_once("-of-")?;
    let (_, part) = name.rsplit_once('-')?;
    match part.parse().ok()? {
        0 | 1 => None,
        part => sibling(path, part - 1, 0, count.parse().ok()?),
    }
}

fn suffix(no: u64, count: u64) -> String {
    format!("-{:05}-of-{count:05}.gguf", no.saturating_add(1))
}

/// Part `other` of the model of which `path` is part `no`, if it is named so.
fn sibling(path: &Path, no: u64, other: u64, count: u64) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let prefix = name.strip_suffix(&suffix(no, count))?;
    if prefix.is_empty() {
        return None;
    }
    Some(path.with_file_name(prefix.to_owned() + &suffix(other, count)))
}
