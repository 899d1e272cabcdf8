//! The files of a plan: their hashes, and whether they are still what was hashed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::{RunError, SweepError};
use crate::fetch::{
    FetchError, FetchOptions, Stamp, TransferProgress, remembered_sha256_with_stamp, sha256_of,
    sha256_of_parts,
};
use crate::gguf::Gguf;
use crate::plan::{ModelSpec, Plan};

/// The models and corpora of a plan, hashed once, and looked at again when they
/// are opened and when a run ends: what a row says of its files is what was
/// measured.
pub(super) struct Inputs {
    files: HashMap<PathBuf, Result<RefCell<Input>, String>>,
}

/// A model or corpus; a split model has a part for each file.
struct Input {
    sha256: String,
    parts: Vec<Part>,
}

struct Part {
    sha256: String,
    stamp: Stamp,
    /// Whether every write since the stamp was taken has changed it.
    settled: bool,
}

impl Part {
    fn hash(
        path: &Path,
        fetch: &FetchOptions,
        progress: &dyn TransferProgress,
    ) -> Result<Self, FetchError> {
        let (sha256, stamp) = remembered_sha256_with_stamp(path, fetch, progress)?;
        Ok(Self {
            sha256,
            settled: stamp.is_settled(),
            stamp,
        })
    }

    /// Whether `file` is what was hashed. The stamp tells while it is the same and
    /// settled. A link or a change of mode changes the stamp alone: else the bytes
    /// are hashed again.
    fn is_of(&mut self, file: &File) -> bool {
        let stamp = || file.metadata().and_then(|meta| Stamp::of(&meta)).ok();
        let Some(before) = stamp() else {
            return false;
        };
        if self.settled && before == self.stamp {
            return true;
        }
        let settled = before.is_settled();
        let sha256 = sha256_of(&mut FromStart { file, at: 0 });
        if !sha256.is_ok_and(|sha256| sha256 == self.sha256) {
            return false;
        }
        (self.stamp, self.settled) = (before, settled);
        true
    }
}

/// Reads a file from its beginning and leaves its position alone.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    #[cfg(unix)]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = std::os::unix::fs::FileExt::read_at(self.file, buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }

    #[cfg(not(unix))]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut file = self.file;
        io::Seek::seek(&mut file, io::SeekFrom::Start(self.at))?;
        let n = file.read(buffer)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Inputs {
    /// Hashes every model and corpus of the plan, or takes the hash that is
    /// remembered. What cannot be read is its runs' matter.
    ///
    /// # Errors
    /// Interruption.
    pub fn new(
        plan: &Plan,
        fetch: &FetchOptions,
        progress: &dyn TransferProgress,
    ) -> Result<Self, SweepError> {
        let mut files = HashMap::new();
        for run in &plan.runs {
            let base = run.base.as_ref().map(|base| &base.model.path);
            let models = [&run.model.path].into_iter().chain(base);
            for path in models.chain([&run.corpus.path]) {
                if files.contains_key(path) {
                    continue;
                }
                let parts = match path == &run.corpus.path {
                    true => vec![path.clone()],
                    // A file that cannot be opened gets a row that says why.
                    false => match Gguf::open(path) {
                        Ok(gguf) => gguf.paths().to_vec(),
                        Err(_) => vec![path.clone()],
                    },
                };
                let parts = parts.iter().map(|part| Part::hash(part, fetch, progress));
                let input = match parts.collect::<Result<Vec<_>, FetchError>>() {
                    Ok(parts) => Ok(RefCell::new(Input {
                        sha256: sha256_of_parts(parts.iter().map(|part| part.sha256.as_str())),
                        parts,
                    })),
                    Err(FetchError::Interrupted) => return Err(SweepError::Interrupted),
                    Err(e) => Err(e.to_string()),
                };
                files.insert(path.clone(), input);
            }
        }
        Ok(Self { files })
    }

    /// None: of measurements that name no files.
    pub fn none() -> Self {
        Self {
            files: HashMap::new(),
        }
    }

    /// The hash that rows name; empty where the file cannot be read.
    pub fn sha256(&self, path: &Path) -> String {
        match self.files.get(path) {
            Some(Ok(input)) => input.borrow().sha256.clone(),
            _ => String::new(),
        }
    }

    /// Whether the open model is the one that was hashed, and the one that the
    /// experiment pins.
    ///
    /// # Errors
    /// A file that was changed or replaced since.
    pub fn check_model(&self, model: &ModelSpec, gguf: &Gguf) -> Result<(), RunError> {
        let Some(Ok(input)) = self.files.get(&model.path) else {
            return Ok(());
        };
        let mut input = input.borrow_mut();
        if let (Some(wanted), [part]) = (&model.sha256, input.parts.as_slice())
            && !wanted.eq_ignore_ascii_case(&part.sha256)
        {
            return Err(RunError::OtherHash {
                path: model.path.clone(),
                found: part.sha256.clone(),
                wanted: wanted.clone(),
            });
        }
        let changed = |path: &Path| RunError::Changed {
            path: path.to_owned(),
        };
        if gguf.paths().len() != input.parts.len() {
            return Err(changed(&model.path));
        }
        for ((part, path), file) in input.parts.iter_mut().zip(gguf.paths()).zip(gguf.files()) {
            part.is_of(file)
                .then_some(())
                .ok_or_else(|| changed(path))?;
        }
        Ok(())
    }

    /// Whether a text that was read is that of the corpus that was hashed.
    ///
    /// # Errors
    /// It was changed or replaced since.
    pub fn check_corpus(&self, path: &Path, sha256: &str) -> Result<(), RunError> {
        match self.files.get(path) {
            Some(Ok(input)) if input.borrow().sha256 != sha256 => Err(RunError::Changed {
                path: path.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}
