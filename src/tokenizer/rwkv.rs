//! RWKV's "world" vocabularies (`tokenizer.ggml.model = rwkv`): again and again
//! the longest token with which the text begins. `tokenizers` has no such model.

use super::TokenizerError;
use super::cut::{BytePairs, ModelCut};
use super::trie::Trie;
use super::vocab::Vocab;

pub(super) struct Rwkv {
    tokens: Trie<u32>,
    unknown: Option<u32>,
}

impl Rwkv {
    pub(super) fn new(vocab: &Vocab, unknown: Option<u32>) -> Self {
        let tokens = vocab.texts.iter().map(|t| unescape(t)).zip(0..);
        Self {
            tokens: Trie::new(tokens),
            unknown,
        }
    }

    pub(super) fn cut(&self, vocab: &Vocab) -> ModelCut {
        let mut pairs = BytePairs::default();
        vocab
            .texts
            .iter()
            .for_each(|t| pairs.insert_all(&unescape(t)));
        ModelCut::BetweenBytePairs(pairs)
    }

    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let mut walk = self.tokens.walk(&bytes[at..]).peekable();
            if walk.peek().is_none() {
                // A byte that begins no token.
                ids.push(self.unknown.ok_or_else(|| no_token(bytes[at]))?);
                at += 1;
                continue;
            }
            // llama.cpp never ends where a token's beginning is not a token.
            let (len, id) = self
                .tokens
                .longest(&bytes[at..])
                .ok_or_else(|| no_token(bytes[at]))?;
            ids.push(id);
            at += len;
        }
        Ok(())
    }
}

fn no_token(byte: u8) -> TokenizerError {
    TokenizerError::NoToken {
        piece: byte.escape_ascii().to_string(),
    }
}

/// The bytes of a token: its text escapes with backslashes what is not text.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b't') => out.push(b'\t'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b'x') => {
                let digits = [bytes.next(), bytes.next()];
                if let [Some(high), Some(low)] = digits.map(|d| d.and_then(hex_digit)) {
                    out.push(high << 4 | low);
                }
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|d| d as u8)
}
