//! SentencePiece's precompiled character map: a trie of byte strings and what
//! replaces each.
//!
//! The blob holds a length, a double array of that many bytes whose nodes are
//! 32-bit words (child of node n by byte c at n ^ c; bits 10 and up the offset to
//! the children, bit 9 scales it, bit 8 marks a leaf, the low byte repeats c; a
//! leaf's value is an offset into the strings), then NUL-terminated strings. See
//! Kanda et al. 2018 on compact double arrays, and sentencepiece's normalizer.

use super::TokenizerError;
use super::trie::Trie;
use super::vocab::Vocab;
use crate::gguf::{Array, Metadata, Value};

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// Longer keys mean a broken map; real ones have at most some 20 bytes.
const LONGEST_KEY: usize = 256;

pub(super) struct Charsmap {
    keys: Vec<String>,
    /// Values are indices of `replacements`.
    trie: Trie<usize>,
    replacements: Vec<Vec<u8>>,
}

impl Charsmap {
    /// The map of a vocabulary; an empty one where it has none.
    pub(super) fn from_gguf(vocab: &Vocab, meta: &Metadata) -> Result<Self, TokenizerError> {
        let bytes: Vec<u8> = match meta.get(KEY) {
            None => Vec::new(),
            Some(Value::Array(Array::U8(bytes))) => bytes.clone(),
            Some(Value::Array(Array::I8(bytes))) => bytemuck::cast_slice(bytes).to_vec(),
            Some(other) => {
                return Err(vocab.malformed(format!("{KEY} is {}, not bytes", other.describe())));
            }
        };
        let entries = if bytes.is_empty() {
            Vec::new()
        } else {
            parse(&bytes).ok_or_else(|| vocab.malformed(format!("{KEY} is damaged")))?
        };
        let index = entries.iter().enumerate().map(|(i, (key, _))| (key, i));
        Ok(Self {
            trie: Trie::new(index),
            keys: entries.iter().map(|(key, _)| key.clone()).collect(),
            replacements: entries.into_iter().map(|(_, text)| text).collect(),
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// What replaces the longest key that `text` begins with, and its length.
    pub(super) fn longest(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let (len, i) = self.trie.longest(text)?;
        Some((&self.replacements[i], len))
    }
}

/// All entries of a map, or `None` if it is damaged.
fn parse(bytes: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    let (array, strings) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)?;
    let (words, odd) = array.as_chunks::<4>();
    if !odd.is_empty() {
        return None;
    }
    let nodes: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
    let offset = |word: u32| ((word >> 10) << ((word & (1 << 9)) >> 6)) as usize;

    let mut entries = Vec::new();
    let mut visited = vec![false; nodes.len()];
    let mut open = vec![(offset(*nodes.first()?), Vec::new())];
    while let Some((node, prefix)) = open.pop() {
        for byte in 1..=255u8 {
            let child = node ^ usize::from(byte);
            let Some(&word) = nodes.get(child) else {
                continue;
            };
            if word & (1 << 31 | 0xff) != u32::from(byte) {
                continue;
            }
            // A node with two parents would be a cycle or an overlap.
            if std::mem::replace(&mut visited[child], true) || prefix.len() >= LONGEST_KEY {
                return None;
            }
            let mut key: Vec<u8> = prefix.clone();
            key.push(byte);
            let next = child ^ offset(word);
            if word >> 8 & 1 == 1 {
                let value = nodes.get(next)? & !(1 << 31);
                let text = strings.get(value as usize..)?;
                let end = text.iter().position(|&b| b == 0)?;
                entries.push((String::from_utf8(key.clone()).ok()?, text[..end].to_vec()));
            }
            open.push((next, key));
        }
    }
    Some(entries)
}
