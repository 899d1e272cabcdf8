//! Hidden states at the cut of a cycle, kept from one pass to the next: in memory
//! up to a budget, the rest in a temporary file.
//!
//! The batches of all passes are the same and hidden states have one size, so
//! every batch has a slot of its own, and one boundary's worth of slots serves
//! the whole cycle: a pass takes a batch out of its slot before it puts the
//! batch's new states there, and needs nothing of any other batch. Slots are
//! used in order, so the file is read and written from front to back.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::CheckpointError;
use crate::backend::Hidden;

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;

/// Where hidden states are kept between passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Bytes of memory that they may take; the rest goes to a file.
    pub memory: u64,
    /// Folder of that file.
    pub dir: PathBuf,
}

impl Default for CheckpointOptions {
    /// 1 GiB of memory, then the system's folder for temporary files.
    fn default() -> Self {
        Self {
            memory: 1024 * MIB,
            dir: std::env::temp_dir(),
        }
    }
}

/// The states of one batch.
enum Slot {
    /// Taken, or not there yet.
    Empty,
    Memory {
        tags: Vec<u64>,
        hidden: Hidden,
    },
    /// At `offset` of the file: a tag for each sequence, the states, what is
    /// carried beside them.
    File {
        offset: u64,
        n_tags: usize,
        n_states: usize,
        n_carried: usize,
        /// All but the values.
        shape: Hidden,
    },
}

fn value_bytes(hidden: &Hidden) -> usize {
    size_of_val(hidden.data.as_slice()) + size_of_val(hidden.carried.as_slice())
}

/// The hidden states of all batches at one cut.
pub(super) struct Checkpoints {
    options: CheckpointOptions,
    /// Rows of the whole corpus.
    rows: usize,
    slots: Vec<Slot>,
    memory_left: u64,
    /// Once memory is used up.
    file: Option<File>,
    file_len: u64,
}

impl Checkpoints {
    /// For `rows` rows in all. Nothing is allocated before the first batch comes.
    pub fn new(options: CheckpointOptions, rows: usize) -> Self {
        Self {
            memory_left: options.memory,
            options,
            rows,
            slots: Vec::new(),
            file: None,
            file_len: 0,
        }
    }

    /// Keeps the states of batch `index`, whose sequences have these tags.
    pub fn put(
        &mut self,
        index: usize,
        tags: Vec<u64>,
        hidden: Hidden,
    ) -> Result<(), CheckpointError> {
        let bytes = value_bytes(&hidden) as u64;
        if index >= self.slots.len() {
            if index == 0 {
                self.check_space(&hidden)?;
            }
            self.slots.resize_with(index + 1, || Slot::Empty);
            self.slots[index] = match self.memory_left.checked_sub(bytes) {
                Some(left) => {
                    self.memory_left = left;
                    Slot::Memory { tags, hidden }
                }
                None => {
                    self.memory_left = 0;
                    let offset = self.file_len;
                    self.file_len += bytes + size_of_val(tags.as_slice()) as u64;
                    self.write(offset, tags, hidden)?
                }
            };
            return Ok(());
        }
        self.slots[index] = match &self.slots[index] {
            Slot::File { offset, .. } => {
                let offset = *offset;
                self.write(offset, tags, hidden)?
            }
            Slot::Empty | Slot::Memory { .. } => Slot::Memory { tags, hidden },
        };
        Ok(())
    }

    /// The states of batch `index`, and the tags that they were kept under.
    pub fn take(&mut self, index: usize) -> Result<(Vec<u64>, Hidden), CheckpointError> {
        let slot = self.slots.get_mut(index);
        match slot {
            Some(Slot::File {
                offset,
                n_tags,
                n_states,
                n_carried,
                shape,
            }) => {
                let mut tags = vec![0; *n_tags];
                let mut hidden = shape.clone();
                hidden.data = vec![0.0; *n_states];
                hidden.carried = vec![0.0; *n_carried];
                let offset = *offset;
                let file = self.file.as_mut();
                let read = file.map_or(Err(std::io::ErrorKind::NotFound.into()), |file| {
                    file.seek(SeekFrom::Start(offset))?;
                    file.read_exact(bytemuck::cast_slice_mut(&mut tags))?;
                    file.read_exact(bytemuck::cast_slice_mut(&mut hidden.data))?;
                    file.read_exact(bytemuck::cast_slice_mut(&mut hidden.carried))
                });
                read.map_err(|e| io_error(&self.options.dir, &e))?;
                Ok((tags, hidden))
            }
            Some(slot) => match std::mem::replace(slot, Slot::Empty) {
                Slot::Memory { tags, hidden } => Ok((tags, hidden)),
                _ => Err(CheckpointError::Missing(index)),
            },
            None => Err(CheckpointError::Missing(index)),
        }
    }

    /// Exchanges what two slots hold, to see that it is noticed.
    #[cfg(test)]
    pub fn swap(&mut self, a: usize, b: usize) {
        self.slots.swap(a, b);
    }

    /// Finds out whether the disk has room for what will not fit in memory, as
    /// the first batch comes.
    fn check_space(&self, hidden: &Hidden) -> Result<(), CheckpointError> {
        let row_bytes = value_bytes(hidden) / hidden.rows().max(1);
        let all = self.rows as u64 * row_bytes as u64;
        let need = all.saturating_sub(self.options.memory);
        match free_space(&self.options.dir) {
            Some(free) if need > free => Err(CheckpointError::Space {
                dir: self.options.dir.clone(),
                need: need.div_ceil(MIB),
                free: free / MIB,
            }),
            _ => Ok(()),
        }
    }

    fn write(
        &mut self,
        offset: u64,
        tags: Vec<u64>,
        mut hidden: Hidden,
    ) -> Result<Slot, CheckpointError> {
        let dir = &self.options.dir;
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                // It has no name, so nothing is left however the process ends.
                let file = tempfile::tempfile_in(dir).map_err(|e| io_error(dir, &e))?;
                self.file.insert(file)
            }
        };
        let written = (file.seek(SeekFrom::Start(offset)))
            .and_then(|_| file.write_all(bytemuck::cast_slice(&tags)))
            .and_then(|()| file.write_all(bytemuck::cast_slice(&hidden.data)))
            .and_then(|()| file.write_all(bytemuck::cast_slice(&hidden.carried)));
        written.map_err(|e| io_error(dir, &e))?;
        Ok(Slot::File {
            offset,
            n_tags: tags.len(),
            n_states: std::mem::take(&mut hidden.data).len(),
            n_carried: std::mem::take(&mut hidden.carried).len(),
            shape: hidden,
        })
    }
}

fn io_error(dir: &Path, e: &std::io::Error) -> CheckpointError {
    let dir = dir.to_owned();
    match e.kind() {
        std::io::ErrorKind::StorageFull => CheckpointError::Full { dir },
        _ => CheckpointError::Io {
            dir,
            message: e.to_string(),
        },
    }
}

/// Bytes that are left in a folder's file system; `None` where the system does
/// not tell.
fn free_space(dir: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let stat = rustix::fs::statvfs(dir).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = dir;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(batch: usize, pass: usize, rows: usize) -> Hidden {
        let value = |i: usize| (batch * 1000 + pass * 100 + i) as f32;
        Hidden {
            data: (0..rows * 3).map(value).collect(),
            width: 3,
            carried: (0..rows).map(|i| -value(i)).collect(),
            lens: vec![rows],
            n_ctx: 8,
            needed_from: 0,
        }
    }

    fn options(memory: u64) -> CheckpointOptions {
        CheckpointOptions {
            memory,
            ..CheckpointOptions::default()
        }
    }

    /// Four batches of 3, 3, 3 and 1 rows of 16 bytes, over three passes.
    #[test]
    fn what_is_put_is_what_is_taken() {
        let rows = [3, 3, 3, 1];
        for (memory, in_file) in [(1000, 0), (160, 0), (159, 1), (100, 2), (48, 3), (0, 4)] {
            let mut kept = Checkpoints::new(options(memory), 10);
            for pass in 0..3 {
                for (batch, &rows) in rows.iter().enumerate() {
                    if pass > 0 {
                        let (tags, states) = kept.take(batch).unwrap();
                        assert_eq!(tags, [batch as u64]);
                        assert_eq!(states, hidden(batch, pass - 1, rows), "{memory}");
                    }
                    let states = hidden(batch, pass, rows);
                    kept.put(batch, vec![batch as u64], states).unwrap();
                }
            }
            let file = |slot: &&Slot| matches!(slot, Slot::File { .. });
            assert_eq!(kept.slots.iter().filter(file).count(), in_file, "{memory}");
            assert_eq!(kept.file.is_some(), in_file > 0);
        }
    }

    #[test]
    fn a_slot_is_emptied_once() {
        let mut kept = Checkpoints::new(options(1000), 3);
        assert_eq!(kept.take(0), Err(CheckpointError::Missing(0)));
        kept.put(0, vec![1], hidden(0, 0, 3)).unwrap();
        kept.take(0).unwrap();
        assert_eq!(kept.take(0), Err(CheckpointError::Missing(0)));
    }

    #[test]
    fn too_little_space_is_known_beforehand() {
        let mut kept = Checkpoints::new(options(0), 1 << 55);
        let error = kept.put(0, vec![1], hidden(0, 0, 3)).unwrap_err();
        assert!(matches!(error, CheckpointError::Space { .. }), "{error}");
        assert!(kept.file.is_none());
    }

    #[test]
    fn a_folder_that_is_not_there() {
        let options = CheckpointOptions {
            memory: 0,
            dir: "/no/such/folder".into(),
        };
        let mut kept = Checkpoints::new(options, 3);
        let error = kept.put(0, vec![1], hidden(0, 0, 3)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cannot keep hidden states in /no/such/folder: "),
            "{text}"
        );
    }

    /// A device that is always full.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk() {
        let mut kept = Checkpoints::new(options(0), 3);
        kept.file = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .ok();
        let error = kept.put(0, vec![1], hidden(0, 0, 3)).unwrap_err();
        assert!(matches!(error, CheckpointError::Full { .. }), "{error}");
    }
}
