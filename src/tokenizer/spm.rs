//! SentencePiece BPE (`tokenizer.ggml.model = llama`).
//!
//! The adjacent pair whose joined text is the token of the highest score merges
//! first, the leftmost of equals; spaces are written as U+2581, there is no
//! pre-tokenizer, and a character that is not a token becomes its bytes' tokens.
//!
//! `tokenizers` cannot express this: its BPE ranks merges of pairs of ids. A
//! score belongs to the product, so each way to split a token is a merge, and
//! converters that list them (`transformers`) give those of one token different
//! ranks and drop those whose parts are not listed; with repeated characters
//! (runs of spaces, "aaaa") the order, and so the ids, come out different.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::TokenizerError;
use super::cut::{ModelCut, Pairs};
use super::vocab::Vocab;

pub(super) struct SpmBpe {
    index: Arc<HashMap<String, u32>>,
    scores: Vec<f32>,
    /// The longest token, in bytes.
    longest: usize,
    bytes: Box<[Option<u32>; 256]>,
    pairs: Arc<Pairs>,
    add_space_prefix: bool,
}

/// A candidate merge of two neighbours.
struct Merge {
    score: f32,
    left: u32,
    right: u32,
    /// Bytes of both; a candidate whose parts have changed since is stale.
    len: usize,
}

impl Ord for Merge {
    fn cmp(&self, other: &Self) -> Ordering {
        // Scores are never NaN: the vocabulary is checked.
        let by_score = self.score.partial_cmp(&other.score);
        by_score
            .unwrap_or(Ordering::Equal)
            .then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Merge {}

const NONE: u32 = u32::MAX;

/// A part of the text: `start..start + len`; `len` 0 marks one merged away.
struct Symbol {
    start: usize,
    len: usize,
    prev: u32,
    next: u32,
}

impl SpmBpe {
    pub(super) fn new(vocab: &Vocab, add_space_prefix: bool) -> Result<Self, TokenizerError> {
        let scores = vocab.require_scores("llama")?.to_vec();
        let mut pairs = Pairs::default();
        vocab.texts.iter().for_each(|t| pairs.insert_all(t));
        let bytes = std::array::from_fn(|b| {
            let byte = vocab.id(&format!("<0x{b:02X}>"));
            // llama.cpp's second try: the byte as a text.
            byte.or_else(|| vocab.id(std::str::from_utf8(&[b as u8]).ok()?))
        });
        Ok(Self {
            index: Arc::clone(&vocab.index),
            scores,
            longest: vocab.texts.iter().map(String::len).max().unwrap_or(0),
            bytes: Box::new(bytes),
            pairs: Arc::new(pairs),
            add_space_prefix,
        })
    }

    pub(super) fn cut(&self) -> ModelCut {
        ModelCut::BetweenPairs(Arc::clone(&self.pairs))
    }

    /// `starts`: the text begins the corpus or follows a special token.
    pub(super) fn encode(
        &self,
        text: &str,
        starts: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut escaped = String::with_capacity(text.len() + text.len() / 2);
        if starts && self.add_space_prefix {
            escaped.push('\u{2581}');
        }
        escaped.extend(text.chars().map(|c| if c == ' ' { '\u{2581}' } else { c }));
        // Merges do not reach over pairs that no token holds, so each stretch
        // between them is a problem of its own, and most are short and frequent.
        let mut cache: HashMap<&str, Vec<u32>> = HashMap::new();
        for stretch in self.stretches(&escaped) {
            if let Some(known) = cache.get(stretch) {
                ids.extend(known);
                continue;
            }
            let from = ids.len();
            self.merge(stretch, ids)?;
            cache.insert(stretch, ids[from..].to_vec());
        }
        Ok(())
    }

    fn stretches<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut chars = text.char_indices().peekable();
        let mut start = 0;
        std::iter::from_fn(move || {
            while let Some((_, a)) = chars.next() {
                match chars.peek() {
                    Some(&(_, b)) if self.pairs.contains(a, b) => {}
                    Some(&(at, _)) => return Some(&text[std::mem::replace(&mut start, at)..at]),
                    None => return Some(&text[start..]),
                }
            }
            None
        })
    }

    fn merge(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol {
                start,
                len: c.len_utf8(),
                prev: (i as u32).wrapping_sub(1),
                next: i as u32 + 1,
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let mut heap = BinaryHeap::new();
        for right in 1..symbols.len() as u32 {
            self.consider(text, &symbols, right - 1, right, &mut heap);
        }
        while let Some(merge) = heap.pop() {
            let (left, right) = (merge.left as usize, merge.right as usize);
            let (a, b) = (symbols[left].len, symbols[right].len);
            if a == 0 || b == 0 || a + b != merge.len {
                continue; // stale
            }
            symbols[left].len = a + b;
            symbols[right].len = 0;
            let next = symbols[right].next;
            symbols[left].next = next;
            if next != NONE {
                symbols[next as usize].prev = merge.left;
            }
            let prev = symbols[left].prev;
            self.consider(text, &symbols, prev, merge.left, &mut heap);
            self.consider(text, &symbols, merge.left, next, &mut heap);
        }
        for symbol in symbols.iter().filter(|s| s.len > 0) {
            self.push(&text[symbol.start..symbol.start + symbol.len], ids)?;
        }
        Ok(())
    }

    fn consider(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: u32,
        right: u32,
        heap: &mut BinaryHeap<Merge>,
    ) {
        if left == NONE || right == NONE {
            return;
        }
        let first = &symbols[left as usize];
        let len = first.len + symbols[right as usize].len;
        if len > self.longest {
            return;
        }
        if let Some(&id) = self.index.get(&text[first.start..first.start + len]) {
            heap.push(Merge {
                score: self.scores[id as usize],
                left,
                right,
                len,
            });
        }
    }

    fn push(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if let Some(&id) = self.index.get(text) {
            ids.push(id);
            return Ok(());
        }
        for b in text.bytes() {
            let id = self.bytes[usize::from(b)].ok_or_else(|| TokenizerError::NoToken {
                piece: text.to_owned(),
            })?;
            ids.push(id);
        }
        Ok(())
    }
}
