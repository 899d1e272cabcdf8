//! sha256 of files, and the memory of what was verified.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{FetchError, FetchOptions, TransferProgress};
use crate::files;

/// 64 lower-case hexadecimal digits.
pub(super) struct Sha256Hex(String);

impl Sha256Hex {
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(FetchError::MalformedSha256(text.to_owned()));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The sha256 of a file as 64 lower-case hexadecimal digits. Uses the
/// processor's SHA instructions where it has them.
///
/// # Errors
/// Where the file cannot be read.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    sha256_of(&mut File::open(path)?)
}

/// [`sha256_file`] of what is left to read of `source`.
///
/// # Errors
/// Where it cannot be read.
pub fn sha256_of(source: &mut dyn Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Bytes read at a time: a request to stop is looked for after each.
const BUFFER: usize = 1 << 20;

/// A file on its way through the hash: tells of progress, can be stopped.
struct Watched<'a> {
    file: &'a File,
    done: u64,
    path: &'a Path,
    progress: &'a dyn TransferProgress,
    options: &'a FetchOptions,
}

impl Watched<'_> {
    fn sha256(mut self, label: &str, total: u64) -> Result<String, FetchError> {
        self.progress.begin(label, Some(total));
        let (path, options) = (self.path, self.options);
        let result = sha256_of(&mut self);
        options.check()?;
        result.map_err(|e| FetchError::io("read", path, e))
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.options.is_interrupted() {
            return Err(io::Error::other("stopped"));
        }
        let n = self.file.read(buffer)?;
        self.done += n as u64;
        self.progress.at(self.done);
        Ok(n)
    }
}

/// The sha256 of an open file from its beginning, and the stamp that it had
/// before and after: the hash is that of the content under this stamp.
///
/// # Errors
/// Where it cannot be read, does not hold still, or is to stop.
pub(super) fn sha256_and_stamp(
    path: &Path,
    label: &str,
    options: &FetchOptions,
    progress: &dyn TransferProgress,
) -> Result<(String, Stamp), FetchError> {
    let error = |e| FetchError::io("read", path, e);
    // A link made or a mode set changes the stamp, too, so a second look is worth
    // its time.
    for _ in 0..3 {
        let file = File::open(path).map_err(error)?;
        let before = stamp(&file).map_err(error)?;
        let watched = Watched {
            file: &file,
            done: 0,
            path,
            progress,
            options,
        };
        let sha256 = watched.sha256(label, before.size)?;
        progress.end();
        if stamp(&file).map_err(error)? == before {
            return Ok((sha256, before));
        }
    }
    Err(FetchError::Changed(path.to_owned()))
}

fn stamp(file: &File) -> io::Result<Stamp> {
    Stamp::of(&file.metadata()?)
}

pub(super) fn sha256_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What tells that a file has not changed since it was hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    size: u64,
    mtime_ns: i128,
    /// Changes with every write, link and rename, and cannot be set by hand.
    ctime_ns: i128,
    inode: u64,
}

impl Stamp {
    /// The stamp of a file whose metadata these are.
    ///
    /// # Errors
    /// On systems that know no time of the last change.
    pub fn of(meta: &Metadata) -> io::Result<Self> {
        let (ctime_ns, inode) = change_time_and_inode(meta);
        Ok(Self {
            size: meta.len(),
            mtime_ns: since_epoch_ns(meta.modified()?),
            ctime_ns,
            inode,
        })
    }

    /// Whether a write from now on is sure to change the stamp: file systems
    /// count time in steps of up to two seconds.
    pub fn is_settled(&self) -> bool {
        self.is_settled_at(SystemTime::now())
    }

    fn is_settled_at(&self, now: SystemTime) -> bool {
        // A clock near the beginning of its time has no three seconds ago.
        let settled = now.checked_sub(Duration::from_secs(3));
        settled.is_some_and(|t| self.mtime_ns.max(self.ctime_ns) < since_epoch_ns(t))
    }
}

/// Nanoseconds since 1970; negative before.
fn since_epoch_ns(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(d) => d.as_nanos() as i128,
        Err(e) => -(e.duration().as_nanos() as i128),
    }
}

#[cfg(unix)]
fn change_time_and_inode(meta: &Metadata) -> (i128, u64) {
    use std::os::unix::fs::MetadataExt;
    let ctime = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
    (ctime, meta.ino())
}

#[cfg(not(unix))]
fn change_time_and_inode(_: &Metadata) -> (i128, u64) {
    (0, 0)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    stamp: Stamp,
    sha256: String,
}

type Entries = BTreeMap<String, Entry>;

/// The file of the memory. One of another version, or whose entries do not have
/// the checksum, is ignored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryFile {
    version: u32,
    /// Of the entries as compact JSON.
    entries_sha256: String,
    entries: Entries,
}

const MEMORY_VERSION: u32 = 1;

impl MemoryFile {
    fn new(entries: Entries) -> io::Result<Self> {
        Ok(Self {
            version: MEMORY_VERSION,
            entries_sha256: sha256_bytes(&serde_json::to_vec(&entries)?),
            entries,
        })
    }

    /// The entries of a file that is in order.
    fn read(bytes: &[u8]) -> Option<Entries> {
        let file: Self = serde_json::from_slice(bytes).ok()?;
        let again = Self::new(file.entries).ok()?;
        let whole = file.version == MEMORY_VERSION && file.entries_sha256 == again.entries_sha256;
        let mut entries = again.entries;
        entries.retain(|_, e| Sha256Hex::parse(&e.sha256).is_ok_and(|h| h.as_str() == e.sha256));
        whole.then_some(entries)
    }
}

/// Hashes of files that have not changed since, so that a model of 100 GB is
/// not read through at every start. Only ever a saving of time: whatever cannot
/// be read or written here means hashing again.
pub(super) struct VerifiedFiles {
    /// None where no directory for a cache is known.
    file: Option<PathBuf>,
}

impl VerifiedFiles {
    /// Those that the cache of these options remembers.
    pub fn of(options: &FetchOptions) -> Self {
        let directory = options.cache_dir.as_ref();
        Self::new(directory.map(|dir| dir.join("verified.json")))
    }

    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file }
    }

    /// The sha256 of `path`, remembered or computed, and the stamp under which it
    /// was. Where it cannot be remembered, that is noted, once for these options.
    pub fn sha256(
        &self,
        path: &Path,
        label: &str,
        options: &FetchOptions,
        progress: &dyn TransferProgress,
    ) -> Result<(String, Stamp), FetchError> {
        let error = |e| FetchError::io("read", path, e);
        let path = path.canonicalize().map_err(error)?;
        let key = path.to_str();
        let now = path.metadata().and_then(|m| Stamp::of(&m)).map_err(error)?;
        if let Some(key) = key
            && let Some(entry) = self.load().remove(key)
            && entry.stamp == now
        {
            return Ok((entry.sha256, now));
        }
        let (sha256, stamp) = sha256_and_stamp(&path, label, options, progress)?;
        if let Some(key) = key
            && let Some(file) = &self.file
            && stamp.is_settled()
        {
            let entry = Entry {
                stamp: stamp.clone(),
                sha256: sha256.clone(),
            };
            self.remember(file, key, entry)
                .unwrap_or_else(|e| options.note_cache_trouble(&e, progress));
        }
        Ok((sha256, stamp))
    }

    fn load(&self) -> Entries {
        let bytes = self.file.as_ref().and_then(|f| std::fs::read(f).ok());
        bytes
            .and_then(|bytes| MemoryFile::read(&bytes))
            .unwrap_or_default()
    }

    /// Two processes that write at once may lose one entry, never mix them: the
    /// file is replaced as a whole.
    fn remember(&self, file: &Path, key: &str, entry: Entry) -> io::Result<()> {
        let mut entries = self.load();
        entries.retain(|path, _| Path::new(path).exists());
        entries.insert(key.to_owned(), entry);
        let bytes = serde_json::to_vec_pretty(&MemoryFile::new(entries)?)?;
        files::replace(file, |out| out.write_all(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::fetch::Quiet;

    fn age(path: &Path) {
        let then = SystemTime::now() - Duration::from_secs(100);
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(then)
            .unwrap();
    }

    #[test]
    fn known_digests() {
        // FIPS 180-2, appendix B, and the empty string.
        assert_eq!(
            sha256_bytes(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("million-a");
        std::fs::write(&file, vec![b'a'; 1_000_000]).unwrap();
        assert_eq!(
            sha256_file(&file).unwrap(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
        std::fs::write(&file, b"").unwrap();
        assert_eq!(
            sha256_file(&file).unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_remembered_hash_is_used_only_while_the_stamp_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (file, memory) = (dir.path().join("f"), dir.path().join("memory.json"));
        std::fs::write(&file, b"abc").unwrap();
        let file = file.canonicalize().unwrap();
        let verified = VerifiedFiles::new(Some(memory.clone()));
        let options = FetchOptions::new(dir.path());
        let sha256 = || verified.sha256(&file, "", &options, &Quiet).unwrap().0;
        let truth = sha256();
        // Written a moment ago: not remembered, since a second write could leave
        // the same time behind.
        assert!(!memory.exists());

        // Plant a lie under the right stamp: it is believed, so memory is used.
        let plant = |stamp: Stamp, sha256: &str| {
            let sha256 = sha256.to_owned();
            let key = file.to_str().unwrap();
            let entry = Entry { stamp, sha256 };
            verified.remember(&memory, key, entry).unwrap();
        };
        let stamp = Stamp::of(&file.metadata().unwrap()).unwrap();
        let lie = "a".repeat(64);
        plant(stamp.clone(), &lie);
        assert_eq!(sha256(), lie);
        // Any difference in the stamp: hashed again.
        for other in [
            Stamp {
                size: 4,
                ..stamp.clone()
            },
            Stamp {
                mtime_ns: 1,
                ..stamp.clone()
            },
            Stamp {
                ctime_ns: 1,
                ..stamp.clone()
            },
            Stamp {
                inode: 1,
                ..stamp.clone()
            },
        ] {
            plant(other, &lie);
            assert_eq!(sha256(), truth);
        }
        // Only hashes are entries.
        for no_hash in ["", "lie", &"a".repeat(63), &"A".repeat(64), &"g".repeat(64)] {
            plant(stamp.clone(), no_hash);
            assert_eq!(sha256(), truth, "{no_hash:?}");
        }
        // An old time alone does not make a file that was just changed settled.
        age(&file);
        assert_eq!(sha256(), truth);
        #[cfg(unix)]
        assert!(!Stamp::of(&file.metadata().unwrap()).unwrap().is_settled());
    }

    #[test]
    fn a_damaged_or_foreign_memory_is_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (file, memory) = (dir.path().join("f"), dir.path().join("memory.json"));
        std::fs::write(&file, b"abc").unwrap();
        let file = file.canonicalize().unwrap();
        let verified = VerifiedFiles::new(Some(memory.clone()));
        let options = FetchOptions::new(dir.path());
        let sha256 = || verified.sha256(&file, "", &options, &Quiet).unwrap().0;
        let truth = sha256();
        let stamp = Stamp::of(&file.metadata().unwrap()).unwrap();
        let lie = "a".repeat(64);
        let entry = Entry {
            stamp,
            sha256: lie.clone(),
        };
        let key = file.to_str().unwrap();
        verified.remember(&memory, key, entry.clone()).unwrap();
        assert_eq!(sha256(), lie);
        let whole = std::fs::read_to_string(&memory).unwrap();

        // The memory of before there was a checksum.
        let plain: Entries = [(key.to_owned(), entry)].into();
        let mut damaged = vec![
            String::new(),
            "{not json".to_owned(),
            serde_json::to_string(&plain).unwrap(),
            whole.replace("\"version\": 1", "\"version\": 2"),
            whole.replace(&lie, &"b".repeat(64)),
            whole.replace("\"size\": 3", "\"size\": 4"),
        ];
        // A digit, a letter or a bracket that fell over, anywhere.
        for (i, c) in whole.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            let other = if c == '7' { '6' } else { '7' };
            let mut text = whole.clone();
            text.replace_range(i..=i, &other.to_string());
            damaged.push(text);
        }
        for text in damaged {
            std::fs::write(&memory, &text).unwrap();
            assert_eq!(sha256(), truth, "{text}");
        }
    }

    #[test]
    fn no_clock_is_too_odd() {
        let stamp = |mtime_ns, ctime_ns| Stamp {
            size: 1,
            mtime_ns,
            ctime_ns,
            inode: 1,
        };
        let epoch = SystemTime::UNIX_EPOCH;
        let second = Duration::from_secs(1);
        assert!(!stamp(0, 0).is_settled_at(epoch));
        assert!(stamp(0, 0).is_settled_at(epoch + 4 * second));
        assert!(stamp(-20_000_000_000, -20_000_000_000).is_settled_at(epoch - 10 * second));
        assert!(!stamp(i128::MAX, 0).is_settled_at(epoch + 4 * second));
        // The beginning of time, as far as this system counts.
        let (mut earliest, mut step) = (epoch, Duration::from_secs(1 << 62));
        while step > Duration::ZERO {
            match earliest.checked_sub(step) {
                Some(t) => earliest = t,
                None => step /= 2,
            }
        }
        assert!(!stamp(0, 0).is_settled_at(earliest));
    }

    #[test]
    fn a_stopped_hash_is_no_hash() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, vec![0; 3 * BUFFER]).unwrap();
        /// Raises the flag at the first sign of life.
        struct CtrlC<'a>(&'a FetchOptions);
        impl TransferProgress for CtrlC<'_> {
            fn begin(&self, _: &str, _: Option<u64>) {}
            fn at(&self, done: u64) {
                assert!(done <= BUFFER as u64, "it went on");
                self.0.interrupt.store(true, Ordering::Relaxed);
            }
            fn end(&self) {}
            fn note(&self, _: &str) {}
        }
        let options = FetchOptions::new(dir.path());
        let error = sha256_and_stamp(&file, "", &options, &CtrlC(&options)).unwrap_err();
        assert!(matches!(error, FetchError::Interrupted), "{error}");
    }

    #[test]
    fn a_file_that_does_not_hold_still_has_no_hash() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, b"abc").unwrap();
        /// Edits the file while it is read, so many times.
        struct Editor<'a>(&'a Path, AtomicU32);
        impl TransferProgress for Editor<'_> {
            fn begin(&self, _: &str, _: Option<u64>) {}
            fn at(&self, _: u64) {}
            fn end(&self) {
                if self.1.load(Ordering::Relaxed) > 0 {
                    self.1.fetch_sub(1, Ordering::Relaxed);
                    let mut file = File::options().append(true).open(self.0).unwrap();
                    file.write_all(b"x").unwrap();
                }
            }
            fn note(&self, _: &str) {}
        }
        let options = FetchOptions::new(dir.path());
        // Edited once: the second look finds it at rest.
        let once = Editor(&file, 1.into());
        let (sha256, stamp) = sha256_and_stamp(&file, "", &options, &once).unwrap();
        assert_eq!(sha256, sha256_bytes(b"abcx"));
        assert_eq!(stamp, Stamp::of(&file.metadata().unwrap()).unwrap());
        let always = Editor(&file, 1000.into());
        let error = sha256_and_stamp(&file, "", &options, &always).unwrap_err();
        assert!(error.to_string().contains("changed while"), "{error}");
    }
}
