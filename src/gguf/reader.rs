//! Open models: files mapped into memory, and their tensors by name.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::{GgufError, Problem};
use super::header::parse_header;
use super::metadata::Metadata;
use super::split::Split;
use super::tensor_info::TensorInfo;

enum Bytes {
    /// The map, and the file that stays the same when its name is given to another.
    Mapped(Mmap, File),
    Owned(Vec<u8>),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(m, _) => m,
            Bytes::Owned(v) => v,
        }
    }

    /// Unmaps the pages of a range for now.
    fn release(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map, _) = self
            && !bytes.is_empty()
        {
            use memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the map is read-only and of a file, so a page that is gone
            // is read from the file again and holds what it held.
            let _ = unsafe { map.unchecked_advise_range(DontNeed, bytes.start, bytes.len()) };
        }
    }
}

/// One file, read.
struct Part {
    path: PathBuf,
    bytes: Bytes,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

impl Part {
    fn open(path: &Path) -> Result<Self, GgufError> {
        let map = || -> std::io::Result<Bytes> {
            let file = File::open(path)?;
            if !file.metadata()?.is_file() {
                return Err(std::io::Error::other("not a regular file"));
            }
            // SAFETY: the map is read-only. A file that another process
            // truncates meanwhile faults, as with every tool that maps models.
            let map = unsafe { Mmap::map(&file) }?;
            Ok(Bytes::Mapped(map, file))
        };
        let bytes = map().map_err(|e| GgufError::new(path, Problem::Io(e)))?;
        Self::parse(path, bytes)
    }

    fn parse(path: &Path, bytes: Bytes) -> Result<Self, GgufError> {
        let mut metadata = Metadata::new(path.to_owned());
        let tensors = parse_header(bytes.as_slice(), &mut metadata)
            .map_err(|problem| GgufError::new(path, problem))?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
            metadata,
            tensors,
        })
    }
}

/// An open GGUF model, in one file or split into several.
pub struct Gguf {
    paths: Vec<PathBuf>,
    /// One for each path.
    bytes: Vec<Bytes>,
    /// Of the first file.
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Gguf {
    /// Maps `path` and reads its header; tensor data is only paged in when used.
    /// If it is the first part of a split model, so are all others, which lie
    /// beside it.
    ///
    /// # Errors
    /// Every malformed file is a [`GgufError`] that names what is wrong, and so
    /// is every part that is missing or does not fit the first one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let mut gguf = Self::from_first(Part::open(path.as_ref())?);
        let Some(split) = Split::read(&gguf.metadata)? else {
            return Ok(gguf);
        };
        for no in 1..split.count {
            let path = split.part(no)?;
            let part = Part::open(&path).map_err(|e| match e.problem {
                Problem::Io(io) if io.kind() == std::io::ErrorKind::NotFound => {
                    split.missing(no, &path)
                }
                _ => e,
            })?;
            split.check_part(no, &part.metadata)?;
            gguf.add(part)?;
        }
        split.check_total(gguf.tensors.len())?;
        Ok(gguf)
    }

    /// Reads a GGUF image held in memory; `name` stands for the path in messages.
    ///
    /// # Errors
    /// As [`Self::open`]; parts of split models are refused.
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Self, GgufError> {
        let gguf = Self::from_first(Part::parse(name.as_ref(), Bytes::Owned(bytes))?);
        match Split::read(&gguf.metadata)? {
            Some(Split { count, .. }) => Err(GgufError::new(
                name.as_ref(),
                Problem::PartInMemory { count },
            )),
            None => Ok(gguf),
        }
    }

    fn from_first(first: Part) -> Self {
        let index = first
            .tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        Self {
            paths: vec![first.path],
            bytes: vec![first.bytes],
            metadata: first.metadata,
            tensors: first.tensors,
            index,
        }
    }

    /// Adds the tensors of another part.
    fn add(&mut self, part: Part) -> Result<(), GgufError> {
        for mut tensor in part.tensors {
            if let Some(twin) = self.tensor(&tensor.name) {
                let problem = Problem::TensorInTwoParts {
                    other: self.paths[twin.part].clone(),
                    name: tensor.name,
                };
                return Err(GgufError::new(&part.path, problem));
            }
            tensor.part = self.paths.len();
            self.index.insert(tensor.name.clone(), self.tensors.len());
            self.tensors.push(tensor);
        }
        self.paths.push(part.path);
        self.bytes.push(part.bytes);
        Ok(())
    }

    /// The file that was opened.
    pub fn path(&self) -> &Path {
        &self.paths[0]
    }

    /// All files of the model in the order of its parts; usually one.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The open files, in the order of [`Self::paths`]; none of an image in memory.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.bytes.iter().filter_map(|bytes| match bytes {
            Bytes::Mapped(_, file) => Some(file),
            Bytes::Owned(_) => None,
        })
    }

    /// The key-value part, of the first file where there are several.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The raw blocks of a tensor of this model.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        &self.bytes[tensor.part].as_slice()[tensor.bytes()]
    }

    /// Takes a part of a tensor's blocks, a range of bytes within them, out of this
    /// process's memory; they are read again when they are used again. Whole pages
    /// go, so neighbors may too. Only advice: a system that cannot follow it keeps
    /// the pages.
    pub fn release(&self, tensor: &TensorInfo, bytes: Range<usize>) {
        let end = bytes.end.min(tensor.n_bytes);
        self.bytes[tensor.part].release(tensor.offset + bytes.start..tensor.offset + end);
    }

    /// As [`Gguf::release`], for all that has been read of all files.
    pub fn release_all(&self) {
        for bytes in &self.bytes {
            bytes.release(0..bytes.as_slice().len());
        }
    }

    /// Length of all files in bytes.
    pub fn file_len(&self) -> usize {
        self.bytes.iter().map(|b| b.as_slice().len()).sum()
    }
}
