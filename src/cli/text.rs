//! The text of `-f`: a file, a pipe, or stdin.

use std::io::{Read, stdin};
use std::path::{Path, PathBuf};

use super::Failure;
use crate::corpus::{CorpusTokens, DEFAULT_CHUNK, tokenize_file, tokenize_reader};
use crate::tokenizer::Tokenizer;

/// A text that is tokenized as often as there are tokenizers. What can be read only
/// once is kept.
pub struct Text {
    path: PathBuf,
    kept: Option<Vec<u8>>,
}

impl Text {
    /// `-` is stdin.
    ///
    /// # Errors
    /// A pipe that cannot be read.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            let mut kept = Vec::new();
            let read = stdin().lock().read_to_end(&mut kept);
            read.map_err(|e| Failure::usage(format!("stdin cannot be read: {e}")))?;
            return Ok(Self {
                path: PathBuf::from("stdin"),
                kept: Some(kept),
            });
        }
        // A file is read in parts, and one that is missing is reported then.
        let once = std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir());
        let kept = once.then(|| std::fs::read(path)).transpose();
        Ok(Self {
            path: path.to_owned(),
            kept: kept
                .map_err(|e| Failure::usage(format!("{}: cannot be read: {e}", path.display())))?,
        })
    }

    /// Its tokens, read `chunk_bytes` at a time.
    ///
    /// # Errors
    /// Those of the corpus.
    pub fn tokenize_in(
        &self,
        chunk_bytes: usize,
        tokenizer: &Tokenizer,
    ) -> Result<CorpusTokens, Failure> {
        let path = &self.path;
        let tokens = match &self.kept {
            None => tokenize_file(path, tokenizer, chunk_bytes),
            Some(text) => tokenize_reader(&mut &text[..], path, tokenizer, chunk_bytes),
        };
        tokens.map_err(Failure::usage)
    }

    /// [`Self::tokenize_in`] parts of the usual size.
    ///
    /// # Errors
    /// Those of the corpus.
    pub fn tokenize(&self, tokenizer: &Tokenizer) -> Result<CorpusTokens, Failure> {
        self.tokenize_in(DEFAULT_CHUNK, tokenizer)
    }
}
