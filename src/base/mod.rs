//! Stored bases: what one model says of a corpus, to compare others with.
//!
//! Two formats: our own, of the likeliest entries ([`top`]), and llama.cpp's, of
//! all log-probabilities in 16 bits ([`llama_cpp`]).

pub mod llama_cpp;
pub mod top;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::eval::{Geometry, StoredBase, StoredError};
use crate::files::NewFile;

/// What a stored base was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseInfo {
    /// Context length and mode.
    pub geometry: Geometry,
    /// Entries of the vocabulary.
    pub n_vocab: usize,
    /// What replaced the first token of each window; `None` where the file does
    /// not say.
    pub bos: Option<Bos>,
    /// Windows that are stored.
    pub windows: usize,
    /// The corpus's ids, as far as windows go.
    pub tokens: Vec<u32>,
    /// The model it was made with, where the file says.
    pub model: String,
    /// The arithmetic, where the file says.
    pub numerics: String,
    /// Where the model's layers ran, where the file says.
    pub placement: String,
    /// Who made it, where the file says.
    pub engine: String,
}

/// Whether windows begin with a token of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bos {
    /// There is none.
    None,
    /// This id stands in place of the first token of each window.
    Token(u32),
}

impl From<Option<u32>> for Bos {
    fn from(bos: Option<u32>) -> Self {
        bos.map_or(Bos::None, Bos::Token)
    }
}

/// An open stored base.
pub enum BaseFile {
    /// pplx's own format.
    Top(top::TopReader),
    /// llama-perplexity's format.
    LlamaCpp(llama_cpp::GridReader),
}

impl BaseFile {
    /// Whether a file begins as a stored base does.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn is_one(path: &Path) -> Result<bool, StoredError> {
        Ok(Kind::of(path)?.is_some())
    }

    /// Opens a file of either format.
    ///
    /// # Errors
    /// A file that is no stored base, or is malformed or cut short.
    pub fn open(path: &Path) -> Result<Self, StoredError> {
        match Kind::of(path)? {
            Some(Kind::Top) => top::TopReader::open(path).map(BaseFile::Top),
            Some(Kind::LlamaCpp) => llama_cpp::GridReader::open(path).map(BaseFile::LlamaCpp),
            None => Err(error(
                path,
                "is no stored base: it begins neither as pplx's nor as llama.cpp's do",
            )),
        }
    }

    /// What the file says of itself.
    pub fn info(&self) -> &BaseInfo {
        match self {
            BaseFile::Top(base) => base.info(),
            BaseFile::LlamaCpp(base) => base.info(),
        }
    }

    /// What a reader of the figures must know of the format.
    pub fn note(&self) -> Option<&'static str> {
        match self {
            BaseFile::Top(_) => None,
            BaseFile::LlamaCpp(_) => Some(llama_cpp::NOTE),
        }
    }

    /// As the evaluator reads it.
    pub fn rows(&mut self) -> &mut dyn StoredBase {
        match self {
            BaseFile::Top(base) => base,
            BaseFile::LlamaCpp(base) => base,
        }
    }
}

enum Kind {
    Top,
    LlamaCpp,
}

impl Kind {
    fn of(path: &Path) -> Result<Option<Self>, StoredError> {
        let mut magic = Vec::new();
        File::open(path)
            .and_then(|f| f.take(8).read_to_end(&mut magic))
            .map_err(|e| io_error(path, "read", &e))?;
        Ok(match magic.as_slice() {
            magic if magic == top::MAGIC => Some(Kind::Top),
            magic if magic == llama_cpp::MAGIC => Some(Kind::LlamaCpp),
            _ => None,
        })
    }
}

fn error(path: &Path, problem: impl Into<String>) -> StoredError {
    StoredError {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

fn io_error(path: &Path, what: &str, e: &std::io::Error) -> StoredError {
    error(path, format!("cannot {what} it: {e}"))
}

/// A file that is read from front to back and never beyond its end.
struct Source {
    path: PathBuf,
    file: BufReader<File>,
    left: u64,
}

impl Source {
    fn open(path: &Path) -> Result<Self, StoredError> {
        let file = File::open(path).map_err(|e| io_error(path, "read", &e))?;
        let left = file
            .metadata()
            .map_err(|e| io_error(path, "read", &e))?
            .len();
        Ok(Self {
            path: path.to_owned(),
            file: BufReader::new(file),
            left,
        })
    }

    /// The next `n` bytes; `what` they are is for messages. Nothing is allocated
    /// for more than the file has.
    fn take(&mut self, n: u64, what: &str) -> Result<Vec<u8>, StoredError> {
        if n > self.left {
            let problem = format!(
                "is cut short: {what} needs {n} bytes, {} are left",
                self.left
            );
            return Err(error(&self.path, problem));
        }
        let mut bytes = vec![0; n as usize];
        self.file
            .read_exact(&mut bytes)
            .map_err(|e| io_error(&self.path, "read", &e))?;
        self.left -= n;
        Ok(bytes)
    }

    fn take_u32(&mut self, what: &str) -> Result<u32, StoredError> {
        let bytes = self.take(4, what)?;
        Ok(u32s(&bytes).first().copied().unwrap_or(0))
    }
}

/// Little-endian numbers.
fn u32s(bytes: &[u8]) -> Vec<u32> {
    let chunks = bytes.as_chunks::<4>().0;
    chunks.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// A file in the making, which has its name when it is complete.
struct Target {
    path: PathBuf,
    file: NewFile,
}

impl Target {
    fn create(path: &Path) -> Result<Self, StoredError> {
        let file = NewFile::create(path).map_err(|e| io_error(path, "write", &e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoredError> {
        std::io::Write::write_all(&mut self.file, bytes)
            .map_err(|e| io_error(&self.path, "write", &e))
    }

    fn finish(self) -> Result<(), StoredError> {
        let path = self.path;
        self.file.finish().map_err(|e| io_error(&path, "write", &e))
    }
}
