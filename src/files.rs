//! Files that are replaced as a whole, and what dead processes leave of it.
//!
//! A file in the making is `.pplx-XXXXXX` beside its place. Its process holds a
//! lock on it; so one that nobody holds is a dead process's, and is removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names that begin so are ours to remove.
const PREFIX: &str = ".pplx-";

/// The temporary files of this process, and directories where dead ones' were looked for.
struct Ours {
    files: BTreeSet<PathBuf>,
    cleaned: BTreeSet<PathBuf>,
}

static OURS: Mutex<Ours> = Mutex::new(Ours {
    files: BTreeSet::new(),
    cleaned: BTreeSet::new(),
});

fn ours() -> MutexGuard<'static, Ours> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file in the making. Until [`Self::finish`] gives it its name, whatever has
/// that name stays; dropped before, nothing is left.
#[derive(Debug)]
pub struct NewFile {
    out: BufWriter<File>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Written beside `to` under a name of ours.
    Beside {
        temporary: tempfile::TempPath,
        _held: Held,
        to: PathBuf,
    },
    /// Written to directly: a device or a pipe cannot be replaced.
    Direct,
}

impl NewFile {
    /// Begins a file for `path`, whose directory is created. Where `path` is a link, what
    /// it points to is replaced. The mode is that of any new file.
    ///
    /// # Errors
    /// A directory that cannot be created or written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path);
        if let Ok(found) = &found
            && !found.is_file()
        {
            return Ok(Self {
                out: BufWriter::new(File::options().write(true).open(path)?),
                place: Place::Direct,
            });
        }
        let to = match found {
            // Links are followed, as by whoever opens a file to write.
            Ok(_) if path.is_symlink() => fs::canonicalize(path)?,
            _ => path.to_owned(),
        };
        let directory = folder_of(&to);
        fs::create_dir_all(directory)?;
        clean(directory);
        let (file, _held) = temporary_in(directory)?;
        let (file, temporary) = file.into_parts();
        let place = Place::Beside {
            temporary,
            _held,
            to,
        };
        Ok(Self {
            out: BufWriter::new(file),
            place,
        })
    }

    /// Gives the file its name, once everything is on the disk.
    ///
    /// # Errors
    /// What could not be written; then nothing has changed.
    pub fn finish(self) -> io::Result<()> {
        self.finish_by(|temporary, to| Ok(temporary.persist(to)?))
    }

    /// [`Self::finish`], but never replaces a file.
    ///
    /// # Errors
    /// As [`Self::finish`]; `AlreadyExists` where something has the name.
    pub fn finish_new(self) -> io::Result<()> {
        self.finish_by(|temporary, to| Ok(temporary.persist_noclobber(to)?))
    }

    fn finish_by(
        mut self,
        name: impl FnOnce(tempfile::TempPath, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.flush()?;
        let Place::Beside {
            temporary,
            _held,
            to,
        } = self.place
        else {
            return Ok(());
        };
        self.out.get_ref().sync_all()?;
        name(temporary, &to)?;
        sync_folder(folder_of(&to))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Replaces the file at `path` by what `write` writes, at once: a reader, or a
/// crash, sees the old file or the new one.
///
/// # Errors
/// What could not be written; then the old file is there as it was.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    write(&mut file)?;
    file.finish()
}

/// The directory of a file.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Makes names in a directory last: a rename is a write to its directory.
///
/// # Errors
/// A disk that fails. Directories that cannot be opened or synchronized (some network
/// file systems) are passed over.
pub fn sync_folder(directory: &Path) -> io::Result<()> {
    let Ok(open) = File::open(directory) else {
        return Ok(());
    };
    match open.sync_all() {
        Err(e)
            if !matches!(
                e.kind(),
                io::ErrorKind::InvalidInput
                    | io::ErrorKind::Unsupported
                    | io::ErrorKind::PermissionDenied
            ) =>
        {
            Err(e)
        }
        _ => Ok(()),
    }
}

/// Removes temporary files that dead processes left in a directory; once in the life
/// of this process. What cannot be removed stays: it harms nobody.
pub fn clean(directory: &Path) {
    let key = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    if !ours().cleaned.insert(key) {
        return;
    }
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if ours && entry.file_type().is_ok_and(|t| t.is_file()) {
            remove_if_stale(&entry.path());
        }
    }
}

fn remove_if_stale(path: &Path) {
    // For writing: some network file systems lock nothing else.
    let Ok(file) = File::options().read(true).write(true).open(path) else {
        return;
    };
    // Where locks are not to be had nobody knows who lives, and it stays.
    if file.try_lock().is_ok() {
        // While it is locked: who has made it a moment ago waits and looks again.
        let _ = fs::remove_file(path);
    }
}

/// A temporary file of this process, as long as it is one.
#[derive(Debug)]
struct Held(PathBuf);

impl Drop for Held {
    fn drop(&mut self) {
        ours().files.remove(&self.0);
    }
}

/// Creates a temporary file that this process holds.
fn temporary_in(directory: &Path) -> io::Result<(tempfile::NamedTempFile, Held)> {
    // Absolute, since [`abandon`] may find another working directory.
    let directory = std::path::absolute(directory)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX);
    // Temporary files are private by default; what becomes of them is not.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    loop {
        let mut ours = ours();
        let file = builder.tempfile_in(&directory)?;
        ours.files.insert(file.path().to_owned());
        drop(ours);
        let held = Held(file.path().to_owned());
        // Waits for nothing but a cleaner that came between. Where locks are not to
        // be had, cleaners remove nothing.
        let locked = file.as_file().lock().is_ok();
        if !locked || file.path().try_exists()? {
            return Ok((file, held));
        }
    }
}

/// Removes the temporary files of this process, which is about to end: no other
/// can be made from now on, and who tries waits for the end.
pub fn abandon() {
    let ours = ours();
    for path in &ours.files {
        let _ = fs::remove_file(path);
    }
    std::mem::forget(ours);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
        replace(path, |out| out.write_all(bytes))
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/directory/f");
        put(&path, b"one").unwrap();
        let fails = replace(&path, |out| {
            out.write_all(b"two")?;
            Err(io::Error::other("no"))
        });
        assert!(fails.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        put(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let directory = path.parent().unwrap();
        assert_eq!(names(directory), ["f"]);
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"three").unwrap();
        let there = file.finish_new().unwrap_err();
        assert_eq!(there.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(directory), ["f"]);
        assert!(ours().files.iter().all(|f| !f.starts_with(dir.path())));
    }

    #[cfg(unix)]
    #[test]
    fn modes_are_those_of_new_files_and_links_and_devices_stay() {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (plain, ours) = (dir.path().join("plain"), dir.path().join("ours"));
        fs::write(&plain, b"").unwrap();
        put(&ours, b"x").unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode();
        assert_eq!(mode(&plain), mode(&ours));

        let link = dir.path().join("link");
        symlink("ours", &link).unwrap();
        put(&link, b"through").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&ours).unwrap(), b"through");

        put(Path::new("/dev/null"), b"gone").unwrap();
        let null = fs::metadata("/dev/null").unwrap();
        assert!(null.file_type().is_char_device());
    }

    #[cfg(unix)]
    #[test]
    fn what_dead_processes_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in [".pplx-dead01", ".pplx-fetch-dead02", ".other", "pplx-x"] {
            fs::write(at(name), b"").unwrap();
        }
        fs::create_dir(at(".pplx-directory")).unwrap();
        fs::write(at("precious"), b"").unwrap();
        std::os::unix::fs::symlink("precious", at(".pplx-link")).unwrap();
        // Another process's: locks are of open files, not of processes.
        fs::write(at(".pplx-alive1"), b"").unwrap();
        let alive = File::open(at(".pplx-alive1")).unwrap();
        alive.lock().unwrap();
        clean(dir.path());
        let left = [
            ".other",
            ".pplx-alive1",
            ".pplx-directory",
            ".pplx-link",
            "pplx-x",
            "precious",
        ];
        assert_eq!(names(dir.path()), left);
    }

    /// A cleaner that comes between the creation of a file and its lock takes it
    /// away; who has created it notices.
    #[test]
    fn files_in_the_making_survive_cleaners() {
        let dir = tempfile::tempdir().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let cleaner = || {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for entry in fs::read_dir(dir.path()).unwrap().flatten() {
                        if entry.file_name().as_encoded_bytes().starts_with(b".pplx-") {
                            remove_if_stale(&entry.path());
                        }
                    }
                }
            };
            scope.spawn(cleaner);
            scope.spawn(cleaner);
            let writers: Vec<_> = (0..2)
                .map(|t| {
                    let path = dir.path().join(format!("f{t}"));
                    scope.spawn(move || (0..200).try_for_each(|i| put(&path, &[t, i])))
                })
                .collect();
            let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            for result in results {
                result.unwrap().unwrap();
            }
        });
        assert_eq!(names(dir.path()), ["f0", "f1"]);
    }
}
