//! Byte-level BPE (`tokenizer.ggml.model = gpt2`): the pre-tokenizer's pieces,
//! their bytes written as characters, merged by `tokenizers`.
//!
//! llama.cpp merges strings, `tokenizers` merges ids. So that both see the same
//! merges, parts of merges that are no tokens get ids behind the vocabulary;
//! where one is left over at the end, llama.cpp falls back to its characters.

use std::collections::{HashMap, HashSet};

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, BpeBuilder};

use super::TokenizerError;
use super::cut::{CharClass, ModelCut};
use super::pretokenizer::PreTokenizer;
use super::table::Definition;
use super::vocab::Vocab;
use crate::gguf::Metadata;

const MERGES: &str = "tokenizer.ggml.merges";

/// Pieces in a thread's cache; `tokenizers` merges the others again each time.
const CACHED_PIECES: usize = 1 << 16;

pub(super) struct ByteLevelBpe {
    definition: &'static Definition,
    pre_tokenizer: PreTokenizer,
    merges: BPE,
    byte_chars: [char; 256],
    vocab_len: u32,
    /// Stand-ins for the ids behind the vocabulary, in order; `None` where
    /// llama.cpp would drop bytes.
    fallbacks: Vec<(String, Option<Vec<u32>>)>,
}

impl ByteLevelBpe {
    pub(super) fn new(
        vocab: &Vocab,
        meta: &Metadata,
        definition: &'static Definition,
    ) -> Result<Self, TokenizerError> {
        let byte_chars = byte_chars();
        let merges = read_merges(vocab, meta)?;

        let mut ids: tokenizers::models::bpe::Vocab =
            vocab.index.iter().map(|(t, &id)| (t.clone(), id)).collect();
        let mut fallbacks = Vec::new();
        let products = merges.iter().map(|(a, b)| format!("{a}{b}"));
        let parts = merges.iter().flat_map(|(a, b)| [a.clone(), b.clone()]);
        let bytes = byte_chars.iter().map(|c| c.to_string());
        for text in bytes.chain(parts).chain(products) {
            if !ids.contains_key(&text) {
                // llama.cpp looks each byte of the text up as a token of its own.
                let chars = text.chars().map(|c| {
                    let ascii = c.is_ascii().then(|| vocab.id(c.encode_utf8(&mut [0; 4])));
                    ascii.flatten()
                });
                fallbacks.push((text.clone(), chars.collect()));
                ids.insert(text, (vocab.len() + fallbacks.len() - 1) as u32);
            }
        }
        let merges = BpeBuilder::new()
            .vocab_and_merges(ids, merges)
            .ignore_merges(definition.ignore_merges)
            .cache_capacity(CACHED_PIECES)
            .build()
            .map_err(|e| vocab.malformed(e.to_string()))?;
        Ok(Self {
            definition,
            pre_tokenizer: PreTokenizer::new(definition.steps)?,
            merges,
            byte_chars,
            vocab_len: vocab.len() as u32,
            fallbacks,
        })
    }

    pub(super) fn cut(&self) -> Result<ModelCut, TokenizerError> {
        let class = CharClass::new(self.definition.cut_after)?;
        Ok(ModelCut::BeforeSpace(class))
    }

    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut piece = String::new();
        for range in self.pre_tokenizer.split(text) {
            piece.clear();
            let bytes = text[range].bytes();
            piece.extend(bytes.map(|b| self.byte_chars[usize::from(b)]));
            let tokens = self.merges.tokenize(&piece);
            for token in tokens.map_err(|e| TokenizerError::Internal(e.to_string()))? {
                self.push(token.id, ids)?;
            }
        }
        Ok(())
    }

    fn push(&self, id: u32, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if id < self.vocab_len {
            ids.push(id);
            return Ok(());
        }
        match self.fallbacks.get((id - self.vocab_len) as usize) {
            Some((_, Some(stand_ins))) => ids.extend(stand_ins),
            Some((text, None)) => {
                return Err(TokenizerError::NoToken {
                    piece: String::from_utf8_lossy(&decode(text)).into_owned(),
                });
            }
            None => return Err(TokenizerError::Internal(format!("no token {id}"))),
        }
        Ok(())
    }
}

/// The merges, best first; of equal pairs the first counts.
fn read_merges(vocab: &Vocab, meta: &Metadata) -> Result<Vec<(String, String)>, TokenizerError> {
    let lines = meta.require_strings(MERGES)?;
    let mut seen = HashSet::with_capacity(lines.len());
    let mut merges = Vec::with_capacity(lines.len());
    for (i, line) in lines.iter().enumerate() {
        // The first part may itself begin with a space.
        let space = line.bytes().skip(1).position(|b| b == b' ').map(|p| p + 1);
        let parts = space.and_then(|p| Some((line.get(..p)?, line.get(p + 1..)?)));
        match parts {
            Some((a, b)) if !b.is_empty() => {
                if seen.insert((a, b)) {
                    merges.push((a.to_owned(), b.to_owned()));
                }
            }
            _ => {
                return Err(vocab.malformed(format!(
                    "merge {i} is {line:?}; two parts with a space between are needed"
                )));
            }
        }
    }
    Ok(merges)
}

/// GPT-2's characters for the 256 bytes: printable Latin-1 stands for itself,
/// the other bytes, in order, are U+0100 and up.
fn byte_chars() -> [char; 256] {
    let mut next = 0x100u16;
    std::array::from_fn(|b| match b as u8 {
        b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(b),
        _ => {
            next += 1;
            char::from_u32(u32::from(next - 1)).unwrap_or_default()
        }
    })
}

/// The bytes that a byte-level text stands for. Characters that stand for no
/// byte are kept as they are.
pub(super) fn decode(text: &str) -> Vec<u8> {
    static BYTES: std::sync::LazyLock<HashMap<char, u8>> = std::sync::LazyLock::new(|| {
        let chars = byte_chars().into_iter();
        chars.zip(0..=255).collect()
    });
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match BYTES.get(&c) {
            Some(&b) => out.push(b),
            None => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}
