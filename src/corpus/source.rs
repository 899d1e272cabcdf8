//! Where the text of a command comes from: a file, a pipe, standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{CorpusError, CorpusTokens, DEFAULT_CHUNK, tokenize_reader};
use crate::tokenizer::Tokenizer;

/// The name that stands for standard input.
const STDIN: &str = "-";

/// A text that is named on the command line.
#[derive(Clone, Debug)]
pub struct Text {
    path: PathBuf,
    /// All of it, where it can be read only once and is wanted more often.
    held: Option<Vec<u8>>,
}

impl Text {
    /// The text at `path`, to be read once; `-` is standard input.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            held: None,
        }
    }

    /// The text at `path`, to be read as often as wanted. What is no regular file
    /// (a pipe, standard input) is read to its end now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn held(path: &Path) -> Result<Self, CorpusError> {
        let mut text = Self::new(path);
        if text.is_stdin() || !path.is_file() {
            let mut bytes = Vec::new();
            let read = text.open()?.read_to_end(&mut bytes);
            read.map_err(|e| text.unreadable(e))?;
            text.held = Some(bytes);
        }
        Ok(text)
    }

    fn is_stdin(&self) -> bool {
        self.path == Path::new(STDIN)
    }

    /// What messages and results call it.
    pub fn name(&self) -> &Path {
        match self.is_stdin() {
            true => Path::new("standard input"),
            false => &self.path,
        }
    }

    fn unreadable(&self, error: io::Error) -> CorpusError {
        CorpusError::Read {
            path: self.name().to_owned(),
            error,
        }
    }

    fn open(&self) -> Result<Box<dyn Read + '_>, CorpusError> {
        if let Some(bytes) = &self.held {
            return Ok(Box::new(bytes.as_slice()));
        }
        if self.is_stdin() {
            return Ok(Box::new(io::stdin().lock()));
        }
        let file = File::open(&self.path).map_err(|e| self.unreadable(e))?;
        Ok(Box::new(file))
    }

    /// Its tokens, as of [`tokenize_file`](super::tokenize_file).
    ///
    /// # Errors
    /// It cannot be read or is not UTF-8, or the vocabulary cannot express it.
    pub fn tokenize(&self, tokenizer: &Tokenizer) -> Result<CorpusTokens, CorpusError> {
        self.tokenize_by(tokenizer, DEFAULT_CHUNK)
    }

    /// [`Self::tokenize`], read `chunk_bytes` at a time.
    ///
    /// # Errors
    /// As of [`Self::tokenize`].
    pub fn tokenize_by(
        &self,
        tokenizer: &Tokenizer,
        chunk_bytes: usize,
    ) -> Result<CorpusTokens, CorpusError> {
        tokenize_reader(&mut self.open()?, self.name(), tokenizer, chunk_bytes)
    }

    /// The token ids that it lists: one a line, or a JSON array.
    ///
    /// # Errors
    /// It cannot be read, or something in it is not an id; the message says where.
    pub fn ids(&self) -> Result<Vec<u32>, CorpusError> {
        let mut text = String::new();
        let read = self.open()?.read_to_string(&mut text);
        read.map_err(|e| self.unreadable(e))?;
        super::ids::parse_ids(&text, self.name())
    }
}
