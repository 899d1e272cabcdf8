//! Token ids on disk, so that a sweep tokenizes a corpus once per tokenizer.
//!
//! An entry's name and header hold the hashes of the tokenizer and the corpus;
//! the ids follow, with a hash of their own. An entry that does not check out is
//! made anew.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};

use super::{CorpusError, CorpusTokens, check, tokenize_file_until};
use crate::files;
use crate::tokenizer::Tokenizer;

const MAGIC: &[u8; 8] = b"pplxtok1";

/// A directory of cached token streams.
pub struct TokenCache {
    /// None: nothing is cached.
    directory: Option<PathBuf>,
}

impl TokenCache {
    /// The directory is created when the first entry is written.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory }
    }

    /// [`tokenize_file`](super::tokenize_file), or its cached result, until
    /// `interrupt` is raised. `forgetful` is told why the result was not cached,
    /// which costs time and nothing else.
    ///
    /// # Errors
    /// As [`tokenize_file_until`]; also if the file changes meanwhile.
    pub fn tokenize(
        &self,
        path: &Path,
        tokenizer: &Tokenizer,
        chunk_bytes: usize,
        interrupt: &AtomicBool,
        forgetful: &mut dyn FnMut(io::Error),
    ) -> Result<CorpusTokens, CorpusError> {
        let Some(directory) = &self.directory else {
            return tokenize_file_until(path, tokenizer, chunk_bytes, interrupt);
        };
        let (sha256, text_bytes) = hash_file(path, interrupt)?;
        let fingerprint = tokenizer.fingerprint();
        let entry = directory.join(entry_name(&fingerprint, &sha256));
        let header = header(&fingerprint, &sha256, text_bytes);
        if let Some(ids) = read_entry(&entry, &header, tokenizer) {
            return Ok(CorpusTokens {
                ids,
                text_bytes,
                sha256,
            });
        }
        let tokens = tokenize_file_until(path, tokenizer, chunk_bytes, interrupt)?;
        if tokens.sha256 != sha256 {
            return Err(CorpusError::Changed {
                path: path.to_owned(),
            });
        }
        write_entry(&entry, &header, &tokens.ids).unwrap_or_else(forgetful);
        Ok(tokens)
    }
}

/// The name of an entry's file.
fn entry_name(fingerprint: &str, sha256: &str) -> String {
    let short = |hash: &str| hash.chars().take(16).collect::<String>();
    format!("{}-{}.tokens", short(sha256), short(fingerprint))
}

fn write_entry(entry: &Path, header: &[u8], ids: &[u32]) -> io::Result<()> {
    let body: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    files::replace(entry, |out| {
        out.write_all(header)?;
        out.write_all(&Sha256::digest(&body))?;
        out.write_all(&body)
    })
}

fn header(fingerprint: &str, sha256: &str, text_bytes: u64) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(fingerprint.as_bytes());
    header.extend(sha256.as_bytes());
    header.extend(text_bytes.to_le_bytes());
    header
}

/// The ids of an entry, if it is there and in order.
fn read_entry(entry: &Path, header: &[u8], tokenizer: &Tokenizer) -> Option<Vec<u32>> {
    let bytes = std::fs::read(entry).ok()?;
    let rest = bytes.strip_prefix(header)?;
    let (hash, body) = rest.split_at_checked(Sha256::output_size())?;
    let (words, odd) = body.as_chunks::<4>();
    if !odd.is_empty() || Sha256::digest(body).as_slice() != hash {
        return None;
    }
    let ids: Vec<u32> = words.iter().map(|&b| u32::from_le_bytes(b)).collect();
    let known = |&id: &u32| (id as usize) < tokenizer.vocab_size();
    ids.iter().all(known).then_some(ids)
}

/// Hash (hex) and length of a file.
fn hash_file(path: &Path, interrupt: &AtomicBool) -> Result<(String, u64), CorpusError> {
    let error = |error| CorpusError::Read {
        path: path.to_owned(),
        error,
    };
    let mut file = File::open(path).map_err(error)?;
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        check(interrupt)?;
        match file.read(&mut buffer) {
            Ok(0) => return Ok((format!("{:x}", hash.finalize()), length)),
            Ok(n) => {
                hash.update(&buffer[..n]);
                length += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(error(e)),
        }
    }
}
