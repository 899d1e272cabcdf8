//! sha256 of files, and the memory of what was verified.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{FetchError, Progress, Quiet};

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
    sha256_with_progress(path, "", &Quiet)
}

pub(super) fn sha256_with_progress(
    path: &Path,
    label: &str,
    progress: &dyn Progress,
) -> io::Result<String> {
    let mut file = File::open(path)?;
    let total = file.metadata()?.len();
    progress.begin(label, Some(total));
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                hash.update(&buffer[..n]);
                done += n as u64;
                progress.at(done);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    progress.end();
    Ok(hex(&hash.finalize()))
}

pub(super) fn sha256_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A file's hash, and what tells that it has not changed since.
#[derive(Clone, Debug, PartialEq)]
pub struct Hashed {
    /// 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// Taken before the file was read.
    pub stamp: Stamp,
    /// Whether a write after the stamp was taken is sure to have changed it.
    pub settled: bool,
}

impl Hashed {
    /// Hashes an open file from its beginning; its name may have been given to
    /// another file meanwhile.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn of(file: &File) -> io::Result<Self> {
        let stamp = Stamp::of(&file.metadata()?)?;
        let settled = stamp.is_settled();
        let mut reader = Positioned { file, at: 0 };
        let mut hash = Sha256::new();
        io::copy(&mut reader, &mut hash)?;
        Ok(Self {
            sha256: hex(&hash.finalize()),
            stamp,
            settled,
        })
    }

    /// Whether `file` is what was hashed. The stamp tells while it is the same and
    /// settled. A link or a change of mode changes the stamp alone: else the bytes
    /// are hashed again.
    pub fn is_of(&mut self, file: &File) -> bool {
        let stamp = file.metadata().and_then(|meta| Stamp::of(&meta));
        if self.settled && stamp.is_ok_and(|stamp| stamp == self.stamp) {
            return true;
        }
        match Self::of(file) {
            Ok(again) if again.sha256 == self.sha256 => {
                *self = again;
                true
            }
            _ => false,
        }
    }
}

/// Reads a shared file without moving its position.
struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Positioned<'_> {
    #[cfg(unix)]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = std::os::unix::fs::FileExt::read_at(self.file, buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }

    #[cfg(not(unix))]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::io::{Seek, SeekFrom};
        let mut file = self.file;
        file.seek(SeekFrom::Start(self.at))?;
        let n = file.read(buffer)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// What tells that a file has not changed since it was hashed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamp {
    size: u64,
    mtime_ns: i128,
    /// Changes with every write, link and rename, and cannot be set by hand.
    ctime_ns: i128,
    inode: u64,
}

impl Stamp {
    fn of(meta: &Metadata) -> io::Result<Self> {
        let since_epoch = meta.modified()?.duration_since(SystemTime::UNIX_EPOCH);
        let (ctime_ns, inode) = change_time_and_inode(meta);
        Ok(Self {
            size: meta.len(),
            mtime_ns: match since_epoch {
                Ok(d) => d.as_nanos() as i128,
                Err(e) => -(e.duration().as_nanos() as i128),
            },
            ctime_ns,
            inode,
        })
    }

    /// Whether a write from now on is sure to change the stamp: file systems
    /// count time in steps of up to two seconds.
    fn is_settled(&self) -> bool {
        let settled = SystemTime::now() - Duration::from_secs(3);
        match settled.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(d) => self.mtime_ns.max(self.ctime_ns) < d.as_nanos() as i128,
            Err(_) => false,
        }
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
struct Entry {
    stamp: Stamp,
    sha256: String,
}

/// Hashes of files that have not changed since, so that a model of 100 GB is
/// not read through at every start. Only ever a saving of time: whatever cannot
/// be read or written here means hashing again.
pub(super) struct VerifiedFiles {
    file: PathBuf,
}

impl VerifiedFiles {
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// The sha256 of `path`, remembered or computed.
    pub fn sha256(&self, path: &Path, label: &str, progress: &dyn Progress) -> io::Result<String> {
        Ok(self.hashed(path, label, progress)?.sha256)
    }

    /// [`Self::sha256`], with the stamp that it holds for.
    pub fn hashed(&self, path: &Path, label: &str, progress: &dyn Progress) -> io::Result<Hashed> {
        let path = path.canonicalize()?;
        let before = Stamp::of(&path.metadata()?)?;
        let key = path.to_str();
        if let Some(key) = key
            && let Some(entry) = self.load().remove(key)
            && entry.stamp == before
        {
            return Ok(Hashed {
                sha256: entry.sha256,
                settled: before.is_settled(),
                stamp: before,
            });
        }
        let settled = before.is_settled();
        let sha256 = sha256_with_progress(&path, label, progress)?;
        if let Some(key) = key
            && settled
            && Stamp::of(&path.metadata()?)? == before
        {
            let entry = Entry {
                stamp: before.clone(),
                sha256: sha256.clone(),
            };
            // A memory that cannot be written costs time, not correctness.
            let _ = self.remember(key, entry);
        }
        Ok(Hashed {
            sha256,
            stamp: before,
            settled,
        })
    }

    fn load(&self) -> BTreeMap<String, Entry> {
        std::fs::read(&self.file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Two processes that write at once may lose one entry, never mix them: the
    /// file is replaced as a whole.
    fn remember(&self, key: &str, entry: Entry) -> io::Result<()> {
        let mut entries = self.load();
        entries.retain(|path, _| Path::new(path).exists());
        entries.insert(key.to_owned(), entry);
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let mut temp = tempfile::NamedTempFile::new_in(folder)?;
        temp.write_all(&serde_json::to_vec_pretty(&entries)?)?;
        temp.persist(&self.file)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let verified = VerifiedFiles::new(memory.clone());
        let truth = verified.sha256(&file, "", &Quiet).unwrap();
        // Written a moment ago: not remembered, since a second write could leave
        // the same time behind.
        assert!(!memory.exists());

        // Plant a lie under the right stamp: it is believed, so memory is used.
        let plant = |stamp: Stamp| {
            let sha256 = "lie".to_owned();
            let key = file.to_str().unwrap();
            verified.remember(key, Entry { stamp, sha256 }).unwrap();
        };
        let stamp = Stamp::of(&file.metadata().unwrap()).unwrap();
        plant(stamp.clone());
        assert_eq!(verified.sha256(&file, "", &Quiet).unwrap(), "lie");
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
            plant(other);
            assert_eq!(verified.sha256(&file, "", &Quiet).unwrap(), truth);
        }
        // An old time alone does not make a file that was just changed settled.
        age(&file);
        assert_eq!(verified.sha256(&file, "", &Quiet).unwrap(), truth);
        #[cfg(unix)]
        assert!(!Stamp::of(&file.metadata().unwrap()).unwrap().is_settled());
        // A damaged memory is no memory.
        std::fs::write(&memory, b"{not json").unwrap();
        assert_eq!(verified.sha256(&file, "", &Quiet).unwrap(), truth);
    }
}
