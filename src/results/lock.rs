//! One writer of a table at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why a table cannot be written to now.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum LockError {
    #[error(
        "{} is being written by another pplx{holder}; --wait waits for it, another --results \
         directory needs no waiting",
        table.display()
    )]
    Held { table: PathBuf, holder: String },
    #[error("interrupted while another pplx{holder} was writing {}", table.display())]
    Interrupted { table: PathBuf, holder: String },
    #[error("cannot lock {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// How long to wait for another writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until it is done.
    Forever,
    /// At most so long.
    AtMost(Duration),
}

/// Held while a table is written; released on drop, and by the system when the
/// process dies.
#[derive(Debug)]
pub struct TableLock {
    _file: File,
}

const POLL: Duration = Duration::from_millis(50);

impl TableLock {
    /// Takes the lock of `table`, which lies at `path`. `waiting` is told once of a
    /// wait; `stop` ends it.
    ///
    /// # Errors
    /// The table's other writer, where there is one for longer than `wait`; what the
    /// system says.
    pub fn acquire(
        table: &Path,
        path: &Path,
        wait: Wait,
        waiting: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, LockError> {
        let io = |source| LockError::Io {
            path: path.to_owned(),
            source,
        };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(io)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io)?;
        let start = Instant::now();
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // As on some network file systems: one writer is then the user's care.
                Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {
                    waiting(&format!(
                        "{} cannot be locked here; take care that no other pplx writes it",
                        table.display()
                    ));
                    return Ok(Self { _file: file });
                }
                Err(TryLockError::Error(e)) => return Err(io(e)),
                Err(TryLockError::WouldBlock) => {}
            }
            let holder = holder(&mut file);
            let table = table.to_owned();
            if stop() {
                return Err(LockError::Interrupted { table, holder });
            }
            if matches!(wait, Wait::AtMost(limit) if start.elapsed() >= limit) {
                return Err(LockError::Held { table, holder });
            }
            if !told {
                told = true;
                waiting(&format!(
                    "waiting for another pplx{holder} that writes {}",
                    table.display()
                ));
            }
            std::thread::sleep(POLL);
        }
        // For messages only.
        let _ = file.set_len(0).and_then(|()| {
            file.rewind()?;
            write!(file, "{}", std::process::id())
        });
        Ok(Self { _file: file })
    }
}

/// ` (process N)`, where the file says it.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    match read.is_ok().then(|| text.trim().parse::<u32>()) {
        Some(Ok(pid)) => format!(" (process {pid})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_waits_or_stops() {
        let dir = tempfile::tempdir().unwrap();
        let (table, path) = (dir.path().join("x.csv"), dir.path().join(".records/x.lock"));
        let acquire = |wait, stop: bool| {
            let mut notes = Vec::new();
            let mut note = |text: &str| notes.push(text.to_owned());
            let result = TableLock::acquire(&table, &path, wait, &mut note, &|| stop);
            (result, notes)
        };
        let now = Wait::AtMost(Duration::ZERO);
        let first = acquire(now, false).0.unwrap();
        let refused = acquire(now, false).0.unwrap_err().to_string();
        let pid = format!("(process {})", std::process::id());
        assert!(
            refused.contains(&pid) && refused.contains("x.csv"),
            "{refused}"
        );
        let stopped = acquire(Wait::Forever, true).0.unwrap_err();
        assert!(
            matches!(stopped, LockError::Interrupted { .. }),
            "{stopped}"
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| acquire(Wait::Forever, false));
            std::thread::sleep(3 * POLL);
            drop(first);
            let (second, notes) = waiting.join().unwrap();
            second.unwrap();
            assert!(notes.len() == 1 && notes[0].contains(&pid), "{notes:?}");
        });
    }
}
