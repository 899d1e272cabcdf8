//! BPE behind a pre-tokenizer (`tokenizer.ggml.model = gpt2` and `gemma4`): the
//! pieces are spelled in the vocabulary's alphabet and merged by `tokenizers`.
//!
//! llama.cpp merges strings, `tokenizers` merges ids. So that both see the same
//! merges, parts of merges that are not tokens get ids behind the vocabulary;
//! where one is left over at the end, llama.cpp falls back to its bytes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, BpeBuilder};

use super::TokenizerError;
use super::cut::{CharClass, ModelCut, Pairs};
use super::pretokenizer::PreTokenizer;
use super::table::{Definition, Spelling};
use super::vocab::Vocab;
use crate::gguf::Metadata;

const MERGES: &str = "tokenizer.ggml.merges";

/// Pieces in a thread's cache; `tokenizers` merges the others again each time.
const CACHED_PIECES: usize = 1 << 16;

pub(super) struct Bpe {
    definition: &'static Definition,
    pre_tokenizer: PreTokenizer,
    merges: BPE,
    /// All tokens, for pieces that are looked up whole.
    index: Arc<HashMap<String, u32>>,
    vocab_len: u32,
    /// The ids behind the vocabulary, in order: their texts and what stands in
    /// for them; `None` where llama.cpp would drop bytes.
    fallbacks: Vec<(String, Option<Vec<u32>>)>,
    /// For text that is spelled as it is: the pairs within tokens and merges.
    pairs: Arc<Pairs>,
}

impl Bpe {
    /// Whether both take texts apart before they merge in the same way.
    pub(super) fn cuts_as(&self, other: &Self) -> bool {
        std::ptr::eq(self.definition, other.definition)
    }

    pub(super) fn new(
        vocab: &Vocab,
        meta: &Metadata,
        definition: &'static Definition,
    ) -> Result<Self, TokenizerError> {
        let merges = read_merges(vocab, meta)?;
        let bytewise = definition.spelling == Spelling::Bytes;
        if !bytewise {
            require_byte_tokens(vocab)?;
        }
        let mut ids: tokenizers::models::bpe::Vocab =
            vocab.index.iter().map(|(t, &id)| (t.clone(), id)).collect();
        let mut fallbacks = Vec::new();
        let products = merges.iter().map(|(a, b)| format!("{a}{b}"));
        let parts = merges.iter().flat_map(|(a, b)| [a.clone(), b.clone()]);
        let bytes = bytewise.then(|| BYTE_CHARS.iter().map(char::to_string));
        for text in bytes.into_iter().flatten().chain(parts).chain(products) {
            if !ids.contains_key(&text) {
                let stand_in = |b: u8| byte_id(vocab, definition.spelling, b);
                fallbacks.push((text.clone(), text.bytes().map(stand_in).collect()));
                ids.insert(text, (vocab.len() + fallbacks.len() - 1) as u32);
            }
        }
        let mut pairs = Pairs::default();
        if !bytewise {
            let products = fallbacks.iter().map(|(text, _)| text);
            vocab
                .texts
                .iter()
                .chain(products)
                .for_each(|t| pairs.insert_all(t));
        }
        let merges = BpeBuilder::new()
            .vocab_and_merges(ids, merges)
            .ignore_merges(definition.ignore_merges)
            .byte_fallback(!bytewise)
            .cache_capacity(CACHED_PIECES)
            .build()
            .map_err(|e| vocab.malformed(e.to_string()))?;
        Ok(Self {
            definition,
            pre_tokenizer: PreTokenizer::new(definition.steps)?,
            merges,
            index: Arc::clone(&vocab.index),
            vocab_len: vocab.len() as u32,
            fallbacks,
            pairs: Arc::new(pairs),
        })
    }

    pub(super) fn cut(&self) -> Result<ModelCut, TokenizerError> {
        Ok(match self.definition.spelling {
            Spelling::Bytes => ModelCut::BeforeSpace(CharClass::new(self.definition.cut_after)?),
            Spelling::Text { .. } => ModelCut::BetweenPairs(Arc::clone(&self.pairs)),
        })
    }

    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let (text, whole_newlines) = match self.definition.spelling {
            Spelling::Bytes => (Cow::Borrowed(text), false),
            Spelling::Text { whole_newlines } => {
                (Cow::Owned(text.replace(' ', "\u{2581}")), whole_newlines)
            }
        };
        let mut spelled = String::new();
        for range in self.pre_tokenizer.split(&text) {
            let piece = &text[range];
            if whole_newlines && piece.starts_with('\n') {
                // The pre-tokenizer keeps newlines apart from all else.
                if let Some(&id) = self.index.get(piece) {
                    ids.push(id);
                    continue;
                }
            }
            let piece = match self.definition.spelling {
                Spelling::Bytes => {
                    spelled.clear();
                    spelled.extend(piece.bytes().map(|b| BYTE_CHARS[usize::from(b)]));
                    &spelled
                }
                Spelling::Text { .. } => piece,
            };
            let tokens = self.merges.tokenize(piece);
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
                    piece: String::from_utf8_lossy(&self.decode(text)).into_owned(),
                });
            }
            None => return Err(TokenizerError::Internal(format!("no token {id}"))),
        }
        Ok(())
    }

    /// The bytes that the text of a token stands for.
    pub(super) fn decode(&self, text: &str) -> Vec<u8> {
        match self.definition.spelling {
            Spelling::Bytes => decode_bytes(text),
            Spelling::Text { .. } => text.replace('\u{2581}', " ").into_bytes(),
        }
    }
}

/// The token that llama.cpp falls back to for one byte of a token's text.
fn byte_id(vocab: &Vocab, spelling: Spelling, byte: u8) -> Option<u32> {
    match spelling {
        Spelling::Bytes if byte.is_ascii() => vocab.id(char::from(byte).encode_utf8(&mut [0; 4])),
        Spelling::Bytes => None,
        Spelling::Text { .. } => vocab.id(&format!("<0x{byte:02X}>")),
    }
}

/// Text spelled as it is needs tokens for all bytes that text can have.
fn require_byte_tokens(vocab: &Vocab) -> Result<(), TokenizerError> {
    let used = |b: &u8| !matches!(b, 0xc0 | 0xc1 | 0xf5..);
    let text = Spelling::Text {
        whole_newlines: false,
    };
    match (0..=255)
        .filter(used)
        .find(|&b| byte_id(vocab, text, b).is_none())
    {
        None => Ok(()),
        Some(b) => Err(vocab.malformed(format!(
            "it has no byte token <0x{b:02X}>, so some text could not be expressed"
        ))),
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
static BYTE_CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut next = 0x100u16;
    std::array::from_fn(|b| match b as u8 {
        b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(b),
        _ => {
            next += 1;
            char::from_u32(u32::from(next - 1)).unwrap_or_default()
        }
    })
});

/// The bytes that a byte-level text stands for. Characters that stand for no
/// byte are kept as they are.
fn decode_bytes(text: &str) -> Vec<u8> {
    static BYTES: LazyLock<HashMap<char, u8>> =
        LazyLock::new(|| BYTE_CHARS.iter().copied().zip(0..=255).collect());
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match BYTES.get(&c) {
            Some(&b) => out.push(b),
            None => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}
