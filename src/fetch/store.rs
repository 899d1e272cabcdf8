//! The cache directory:
//!
//! ```text
//! blobs/SHA256       verified files, named by their content
//! partial/KEY/       one unfinished download
//! locks/KEY          held while that download runs
//! verified.json      hashes of files that have not changed since
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::resume::Resume;
use super::{FetchError, FetchOptions};
use crate::files::{self, NewFile};

/// What keys of downloads begin with whose content is not known beforehand.
pub(super) const UNHASHED: &str = "unhashed-";

pub(super) struct Store {
    root: PathBuf,
}

/// Held while one artifact is fetched; released on drop, and by the system when
/// the process dies.
pub(super) struct Lock {
    _file: File,
}

impl Store {
    /// Nothing is created before there is something to write.
    pub fn new(root: &Path) -> Result<Self, FetchError> {
        let root = std::path::absolute(root).map_err(|e| FetchError::io("resolve", root, e))?;
        Ok(Self { root })
    }

    /// Where the content with this hash lies, if it is there.
    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(sha256)
    }

    /// Moves a file, whose content has this hash, into the cache. What has the
    /// name of a blob is on the disk.
    pub fn keep(&self, file: &Path, sha256: &str) -> Result<PathBuf, FetchError> {
        let directory = self.root.join("blobs");
        self.create(&directory)?;
        sync(file)?;
        let blob = directory.join(sha256);
        fs::rename(file, &blob).map_err(|e| FetchError::io("rename", file, e))?;
        files::sync_folder(&directory).map_err(|e| FetchError::io("write", &directory, e))?;
        Ok(blob)
    }

    /// Waits for the lock of `key`; `waiting` is called once if that takes time.
    pub fn lock(
        &self,
        key: &str,
        options: &FetchOptions,
        waiting: impl FnOnce(),
    ) -> Result<Lock, FetchError> {
        let directory = self.root.join("locks");
        self.create(&directory)?;
        let path = directory.join(key);
        let file = File::create(&path).map_err(|e| self.unusable(e))?;
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(fs::TryLockError::WouldBlock) => {
                    if let Some(waiting) = waiting.take() {
                        waiting();
                    }
                    super::background::pause(super::background::POLL, options)?;
                }
                Err(fs::TryLockError::Error(e)) => {
                    return Err(FetchError::io("lock", &path, e));
                }
            }
        }
    }

    /// The directory of one unfinished download.
    pub fn workspace(&self, key: &str) -> Result<Workspace, FetchError> {
        let directory = self.root.join("partial").join(key);
        self.create(&directory)?;
        Ok(Workspace::new(directory))
    }

    /// Removes what fetches left that is of no use to anybody: nothing may keep a
    /// disk full for nothing. This is the next fetch's business as much, since those
    /// that are killed cannot do it. What cannot be removed stays.
    pub fn tidy(&self) {
        let Ok(directories) = fs::read_dir(self.root.join("partial")) else {
            return;
        };
        for directory in directories.flatten() {
            let lock = self.root.join("locks").join(directory.file_name());
            let lock = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(lock);
            if let Ok(lock) = lock
                && lock.try_lock().is_ok()
            {
                let workspace = Workspace::new(directory.path());
                match self
                    .root
                    .join("blobs")
                    .join(directory.file_name())
                    .is_file()
                {
                    true => workspace.remove().unwrap_or_default(),
                    false => workspace.drop_useless(),
                }
            }
        }
    }

    fn create(&self, directory: &Path) -> Result<(), FetchError> {
        fs::create_dir_all(directory).map_err(|e| self.unusable(e))
    }

    fn unusable(&self, cause: io::Error) -> FetchError {
        FetchError::Cache {
            directory: self.root.clone(),
            cause,
        }
    }
}

pub(super) struct Workspace {
    directory: PathBuf,
    /// Whether the hash of the whole is known.
    hashed: bool,
}

impl Workspace {
    fn new(directory: PathBuf) -> Self {
        let name = directory.file_name().unwrap_or_default();
        let hashed = !name.as_encoded_bytes().starts_with(UNHASHED.as_bytes());
        Self { directory, hashed }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A directory that no other process, not even an orphan of an earlier fetch,
    /// writes to.
    pub fn scratch(&self) -> Result<PathBuf, FetchError> {
        let scratch = tempfile::Builder::new()
            .prefix("scratch-")
            .tempdir_in(&self.directory)
            .map_err(|e| FetchError::io("create a directory in", &self.directory, e))?;
        Ok(scratch.keep())
    }

    /// Joins the parts in order.
    pub fn join(&self, parts: &[PathBuf], options: &FetchOptions) -> Result<PathBuf, FetchError> {
        let whole = self.file("whole");
        let sizes = parts.iter().map(|p| p.metadata().map_or(0, |m| m.len()));
        check_room(&whole, sizes.sum())?;
        let mut out = File::create(&whole).map_err(|e| FetchError::io("create", &whole, e))?;
        for part in parts {
            copy(part, &mut out, &whole, options)?;
        }
        Ok(whole)
    }

    /// Removes what no later fetch could use: a part that cannot be gone on with,
    /// and, without a hash, parts that are complete (only a hash can tell whether
    /// parts of different days belong together).
    pub fn drop_useless(&self) {
        for file in files_in(&self.directory) {
            let extension = file.extension().and_then(OsStr::to_str);
            let useful = match extension {
                Some("part") => {
                    Resume::load(&file).is_some_and(|r| r.is_of_use(self.hashed))
                        && file.metadata().is_ok_and(|m| m.len() > 0)
                }
                Some("done") => self.hashed,
                _ => false,
            };
            if !useful {
                match file.is_dir() && !file.is_symlink() {
                    true => fs::remove_dir_all(&file).ok(),
                    false if extension == Some("json") => None,
                    false => fs::remove_file(&file).ok(),
                };
            }
        }
        for note in files_in(&self.directory) {
            let part = note.with_extension("").with_extension("part");
            if note.extension() == Some(OsStr::new("json")) && !part.exists() {
                fs::remove_file(&note).ok();
            }
        }
        // Only if it is empty.
        fs::remove_dir(&self.directory).ok();
    }

    /// Removes all that is in it.
    pub fn clear(&self) -> Result<(), FetchError> {
        self.remove()?;
        fs::create_dir(&self.directory)
            .map_err(|e| FetchError::io("create the directory", &self.directory, e))
    }

    pub fn remove(&self) -> Result<(), FetchError> {
        fs::remove_dir_all(&self.directory)
            .map_err(|e| FetchError::io("remove", &self.directory, e))
    }
}

fn files_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|e| e.path())
}

/// Whether the disk of `file` has room for so many bytes more.
///
/// # Errors
/// [`FetchError::NoRoom`]: better before the disk is full than when it is.
pub(super) fn check_room(file: &Path, bytes: u64) -> Result<(), FetchError> {
    match free_bytes(files::folder_of(file)) {
        Some(free) if free < bytes => Err(FetchError::NoRoom {
            path: file.to_owned(),
            needed: bytes,
            free,
        }),
        _ => Ok(()),
    }
}

/// Bytes that this user may write to the disk of `directory`, where it tells.
#[cfg(unix)]
fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    // Some file systems know no sizes.
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// Copies `from` to `out`, which messages call `to`.
pub(super) fn copy(
    from: &Path,
    out: &mut dyn Write,
    to: &Path,
    options: &FetchOptions,
) -> Result<(), FetchError> {
    let mut file = File::open(from).map_err(|e| FetchError::io("open", from, e))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        options.check()?;
        let n = match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(FetchError::io("read", from, e)),
        };
        out.write_all(&buffer[..n])
            .map_err(|e| FetchError::io("write", to, e))?;
    }
}

/// Brings the content of a file to the disk.
pub(super) fn sync(file: &Path) -> Result<(), FetchError> {
    let open = File::open(file).map_err(|e| FetchError::io("open", file, e))?;
    open.sync_all()
        .map_err(|e| FetchError::io("write", file, e))
}

/// Whether a file can be made at `to`: to be known before it is downloaded.
pub(super) fn check_place(to: &Path) -> Result<(), FetchError> {
    // Of directories that are yet to be made, the nearest that is there.
    let mut directory = files::folder_of(to);
    while !directory.exists() {
        directory = files::folder_of(directory);
    }
    match NewFile::create(&directory.join(".pplx")) {
        Ok(_) => Ok(()),
        Err(e) => Err(FetchError::io("create", to, e)),
    }
}

/// Makes the content of `from`, which is on the disk, appear at `to`, complete or
/// not at all, by a hard link or else by a copy. Never replaces what is there.
///
/// # Errors
/// An [`FetchError::Io`] of the kind `AlreadyExists` where `to` exists.
pub(super) fn place(from: &Path, to: &Path, options: &FetchOptions) -> Result<(), FetchError> {
    let directory = files::folder_of(to);
    fs::create_dir_all(directory)
        .map_err(|e| FetchError::io("create the directory", directory, e))?;
    // What a fetch that was killed left of its copy.
    files::clean(directory);
    match fs::hard_link(from, to) {
        Ok(()) => {
            return files::sync_folder(directory)
                .map_err(|e| FetchError::io("write", directory, e));
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(FetchError::io("create", to, e));
        }
        // Another disk, or a file system without hard links.
        Err(_) => {}
    }
    check_room(to, from.metadata().map_or(0, |m| m.len()))?;
    let mut file = NewFile::create(to).map_err(|e| FetchError::io("create", to, e))?;
    copy(from, &mut file, to, options)?;
    file.finish_new()
        .map_err(|e| FetchError::io("create", to, e))
}
