//! Corpora: text files, read in parts and tokenized in parallel, and files of
//! token ids.
//!
//! A file is read in chunks, and what has been read is cut where the tokenizer
//! allows it ([`Tokenizer::last_cut`]), so that the ids are those of the whole
//! text whatever the chunk size. Where it allows no cut, reading goes on and the
//! part grows, in the worst case to the whole file.

mod cache;
mod ids;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::tokenizer::{Tokenizer, TokenizerError};
pub use cache::TokenCache;
pub use ids::{ids_sha256, read_ids, write_ids};

/// Bytes read at a time, unless the user says otherwise.
pub const DEFAULT_CHUNK: usize = 64 * 1024;

/// Text waiting to be tokenized in parallel: this much, or this many parts a
/// thread, and no more.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_PARTS_A_THREAD: usize = 8;

/// Why a corpus cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each message says it")]
pub enum CorpusError {
    #[error("{}: cannot be read: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: cannot be written: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error(
        "{}: not valid UTF-8 at byte {offset}; convert the corpus to UTF-8 or cut the bad bytes out",
        path.display()
    )]
    Utf8 { path: PathBuf, offset: u64 },
    #[error("{}: {error}", path.display())]
    Tokenizer {
        path: PathBuf,
        error: TokenizerError,
    },
    #[error("the chunk size must be at least 1 byte")]
    ChunkSize,
    #[error("{}: {what}", path.display())]
    Ids { path: PathBuf, what: String },
    #[error("{}: changed while it was being read", path.display())]
    Changed { path: PathBuf },
    #[error("interrupted")]
    Interrupted,
}

/// The tokens of a text file.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusTokens {
    /// The ids, with BOS and EOS where the tokenizer adds them.
    pub ids: Vec<u32>,
    /// Length of the text.
    pub text_bytes: u64,
    /// Hash of the file, in hex.
    pub sha256: String,
}

/// Tokenizes a file, read `chunk_bytes` at a time, on the threads of rayon's
/// current pool. The ids depend on neither.
///
/// # Errors
/// The file cannot be read or is not UTF-8, or the vocabulary cannot express it.
pub fn tokenize_file(
    path: &Path,
    tokenizer: &Tokenizer,
    chunk_bytes: usize,
) -> Result<CorpusTokens, CorpusError> {
    tokenize_file_until(path, tokenizer, chunk_bytes, &AtomicBool::new(false))
}

/// [`tokenize_file`], which ends early once `interrupt` is raised.
///
/// # Errors
/// As [`tokenize_file`]; also [`CorpusError::Interrupted`].
pub fn tokenize_file_until(
    path: &Path,
    tokenizer: &Tokenizer,
    chunk_bytes: usize,
    interrupt: &AtomicBool,
) -> Result<CorpusTokens, CorpusError> {
    let mut file = File::open(path).map_err(|error| CorpusError::Read {
        path: path.to_owned(),
        error,
    })?;
    tokenize_reader_until(&mut file, path, tokenizer, chunk_bytes, interrupt)
}

/// [`tokenize_file`] of any source; `path` is for messages.
pub fn tokenize_reader(
    source: &mut dyn Read,
    path: &Path,
    tokenizer: &Tokenizer,
    chunk_bytes: usize,
) -> Result<CorpusTokens, CorpusError> {
    let never = AtomicBool::new(false);
    tokenize_reader_until(source, path, tokenizer, chunk_bytes, &never)
}

/// [`tokenize_file_until`] of any source; `path` is for messages.
pub fn tokenize_reader_until(
    source: &mut dyn Read,
    path: &Path,
    tokenizer: &Tokenizer,
    chunk_bytes: usize,
    interrupt: &AtomicBool,
) -> Result<CorpusTokens, CorpusError> {
    if chunk_bytes == 0 {
        return Err(CorpusError::ChunkSize);
    }
    let mut parts = Parts {
        path,
        tokenizer,
        interrupt,
        waiting: Vec::new(),
        waiting_bytes: 0,
        first: true,
        ids: Vec::from_iter(tokenizer.prefix()),
    };
    let not_utf8 = |offset| CorpusError::Utf8 {
        path: path.to_owned(),
        offset,
    };
    let mut hash = Sha256::new();
    let mut chunk = vec![0; chunk_bytes];
    // Read and not yet cut off: valid text, then the bytes of a character that
    // the read split.
    let mut text = String::new();
    let mut partial: Vec<u8> = Vec::new();
    let mut text_bytes = 0;
    loop {
        check(interrupt)?;
        let n = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err(CorpusError::Read {
                    path: path.to_owned(),
                    error,
                });
            }
        };
        hash.update(&chunk[..n]);
        let known = text.len(); // no cut before this
        partial.extend_from_slice(&chunk[..n]);
        let valid = match std::str::from_utf8(&partial) {
            Ok(_) => partial.len(),
            Err(e) if e.error_len().is_some() => {
                return Err(not_utf8(text_bytes + e.valid_up_to() as u64));
            }
            Err(e) => e.valid_up_to(),
        };
        text.push_str(std::str::from_utf8(&partial[..valid]).unwrap_or_default());
        text_bytes += valid as u64;
        partial.drain(..valid);
        if let Some(cut) = tokenizer.last_cut(&text, known) {
            let rest = text.split_off(cut);
            parts.push(std::mem::replace(&mut text, rest))?;
        }
    }
    if !partial.is_empty() {
        return Err(not_utf8(text_bytes));
    }
    parts.push(text)?;
    Ok(CorpusTokens {
        ids: parts.finish()?,
        text_bytes,
        sha256: format!("{:x}", hash.finalize()),
    })
}

/// # Errors
/// [`CorpusError::Interrupted`] once the flag is raised.
fn check(interrupt: &AtomicBool) -> Result<(), CorpusError> {
    match interrupt.load(Ordering::Relaxed) {
        true => Err(CorpusError::Interrupted),
        false => Ok(()),
    }
}

/// Parts of a text on their way to ids.
struct Parts<'a> {
    path: &'a Path,
    tokenizer: &'a Tokenizer,
    interrupt: &'a AtomicBool,
    waiting: Vec<String>,
    waiting_bytes: usize,
    /// No part has been tokenized yet.
    first: bool,
    ids: Vec<u32>,
}

impl Parts<'_> {
    fn push(&mut self, part: String) -> Result<(), CorpusError> {
        self.waiting_bytes += part.len();
        self.waiting.push(part);
        let many = BATCH_PARTS_A_THREAD * rayon::current_num_threads();
        if self.waiting_bytes >= BATCH_BYTES || self.waiting.len() >= many {
            self.tokenize()?;
        }
        Ok(())
    }

    fn tokenize(&mut self) -> Result<(), CorpusError> {
        let first = self.first;
        let encode = |(i, part): (usize, &String)| {
            check(self.interrupt)?;
            self.tokenizer
                .encode_part(part, first && i == 0)
                .map_err(|error| CorpusError::Tokenizer {
                    path: self.path.to_owned(),
                    error,
                })
        };
        let parts = self.waiting.par_iter().enumerate();
        let encoded: Vec<Vec<u32>> = parts.map(encode).collect::<Result<_, _>>()?;
        encoded.iter().for_each(|ids| self.ids.extend(ids));
        self.first = false;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<u32>, CorpusError> {
        self.tokenize()?;
        self.ids.extend(self.tokenizer.suffix());
        Ok(self.ids)
    }
}
