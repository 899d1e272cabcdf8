//! The cache folder:
//!
//! ```text
//! blobs/SHA256       verified files, named by their content
//! partial/KEY/       one unfinished download
//! locks/KEY          held while that download runs
//! verified.json      hashes of files that have not changed since
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::FetchError;
use crate::files::{self, NewFile};

pub(super) struct Store {
    root: PathBuf,
}

/// Held while one artifact is fetched; released on drop, and by the system when
/// the process dies.
pub(super) struct Lock {
    _file: File,
}

impl Store {
    pub fn new(root: &Path) -> Result<Self, FetchError> {
        let root = std::path::absolute(root).map_err(|e| FetchError::io("resolve", root, e))?;
        for folder in ["blobs", "partial", "locks"] {
            create_dir_all(&root.join(folder))?;
        }
        Ok(Self { root })
    }

    /// Where the content with this hash lies, if it is there.
    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(sha256)
    }

    /// Waits for the lock of `key`; `waiting` is called once if that takes time.
    pub fn lock(&self, key: &str, waiting: impl FnOnce()) -> Result<Lock, FetchError> {
        let path = self.root.join("locks").join(key);
        let error = |e| FetchError::io("lock", &path, e);
        let file = File::create(&path).map_err(error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                waiting();
                file.lock().map_err(error)?;
            }
            Err(fs::TryLockError::Error(e)) => return Err(error(e)),
        }
        Ok(Lock { _file: file })
    }

    /// The folder of one unfinished download.
    pub fn workspace(&self, key: &str) -> Result<Workspace, FetchError> {
        let folder = self.root.join("partial").join(key);
        create_dir_all(&folder)?;
        Ok(Workspace { folder })
    }
}

pub(super) struct Workspace {
    folder: PathBuf,
}

impl Workspace {
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// An empty folder; what an interrupted fetch left in it is removed.
    pub fn fresh_folder(&self, name: &str) -> Result<PathBuf, FetchError> {
        let folder = self.file(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|e| FetchError::io("remove", &folder, e))?;
        }
        create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Joins the parts in order.
    pub fn join(&self, parts: &[PathBuf]) -> Result<PathBuf, FetchError> {
        let whole = self.file("whole");
        let mut out = File::create(&whole).map_err(|e| FetchError::io("create", &whole, e))?;
        for part in parts {
            let mut part_file = File::open(part).map_err(|e| FetchError::io("open", part, e))?;
            io::copy(&mut part_file, &mut out).map_err(|e| FetchError::io("write", &whole, e))?;
        }
        Ok(whole)
    }

    pub fn remove(&self) -> Result<(), FetchError> {
        fs::remove_dir_all(&self.folder).map_err(|e| FetchError::io("remove", &self.folder, e))
    }
}

/// Makes the content of `from` appear at `to`, complete or not at all, by a hard
/// link or else by a copy. Never replaces what is there.
///
/// # Errors
/// An [`FetchError::Io`] of the kind `AlreadyExists` where `to` exists.
pub(super) fn place(from: &Path, to: &Path) -> Result<(), FetchError> {
    let folder = files::folder_of(to);
    create_dir_all(folder)?;
    match fs::hard_link(from, to) {
        Ok(()) => {
            return files::sync_folder(folder).map_err(|e| FetchError::io("write", folder, e));
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(FetchError::io("create", to, e));
        }
        // Another disk, or a file system without hard links.
        Err(_) => {}
    }
    let error = |e| FetchError::io("write", to, e);
    let mut file = NewFile::create(to).map_err(error)?;
    let mut source = File::open(from).map_err(|e| FetchError::io("open", from, e))?;
    io::copy(&mut source, &mut file).map_err(error)?;
    file.finish_new()
        .map_err(|e| FetchError::io("create", to, e))
}

fn create_dir_all(folder: &Path) -> Result<(), FetchError> {
    fs::create_dir_all(folder).map_err(|e| FetchError::io("create the folder", folder, e))
}
