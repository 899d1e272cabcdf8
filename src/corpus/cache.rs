//! Token ids on disk, so that a sweep tokenizes a corpus once per tokenizer.
//!
//! An entry's name and header hold the hashes of the tokenizer and the corpus;
//! the ids follow, with a hash of their own. An entry that does not check out is
//! made anew.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{CorpusError, CorpusTokens, ids, tokenize_file};
use crate::tokenizer::Tokenizer;

const MAGIC: &[u8; 8] = b"pplxtok1";

/// A folder of cached token streams.
pub struct TokenCache {
    folder: PathBuf,
}

impl TokenCache {
    /// The folder is created when the first entry is written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// [`tokenize_file`], or its cached result.
    ///
    /// # Errors
    /// As [`tokenize_file`]; also if the file changes meanwhile, or the cache
    /// cannot be written.
    pub fn tokenize(
        &self,
        path: &Path,
        tokenizer: &Tokenizer,
        chunk_bytes: usize,
    ) -> Result<CorpusTokens, CorpusError> {
        let (sha256, text_bytes) = hash_file(path)?;
        let fingerprint = tokenizer.fingerprint();
        let entry = self.entry(&fingerprint, &sha256);
        let header = header(&fingerprint, &sha256, text_bytes);
        if let Some(ids) = read_entry(&entry, &header, tokenizer) {
            return Ok(CorpusTokens {
                ids,
                text_bytes,
                sha256,
            });
        }
        let tokens = tokenize_file(path, tokenizer, chunk_bytes)?;
        if tokens.sha256 != sha256 {
            return Err(CorpusError::Changed {
                path: path.to_owned(),
            });
        }
        std::fs::create_dir_all(&self.folder).map_err(|error| CorpusError::Write {
            path: self.folder.clone(),
            error,
        })?;
        let body: Vec<u8> = tokens.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        ids::replace_file(&entry, |out| {
            out.write_all(&header)?;
            out.write_all(&Sha256::digest(&body))?;
            out.write_all(&body)
        })?;
        Ok(tokens)
    }

    /// The file of an entry.
    fn entry(&self, fingerprint: &str, sha256: &str) -> PathBuf {
        let short = |hash: &str| hash.chars().take(16).collect::<String>();
        let name = format!("{}-{}.tokens", short(sha256), short(fingerprint));
        self.folder.join(name)
    }
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
fn hash_file(path: &Path) -> Result<(String, u64), CorpusError> {
    let hash = || {
        let mut hash = Sha256::new();
        let n = io::copy(&mut File::open(path)?, &mut hash)?;
        Ok((format!("{:x}", hash.finalize()), n))
    };
    hash().map_err(|error| CorpusError::Read {
        path: path.to_owned(),
        error,
    })
}
