//! Unigram vocabularies (`tokenizer.ggml.model = t5`): the sequence of tokens
//! with the highest sum of scores, after SentencePiece's normalization.
//!
//! `tokenizers` has such a model, but it takes every token of the vocabulary
//! for matching and for the score of unknown characters, where llama.cpp leaves
//! control and byte tokens out and scores user-defined ones 0. Sums are `f64` of
//! `f32` scores, added from the left: exact, and so the same from wherever they
//! begin, until they outgrow 53 bits.

use super::TokenizerError;
use super::charsmap::Charsmap;
use super::cut::{ModelCut, UnigramCut};
use super::trie::Trie;
use super::vocab::{Kind, Vocab};
use crate::gguf::Metadata;

/// How much worse than the worst token an unknown character is.
const UNKNOWN_PENALTY: f32 = 10.0;

const ESCAPED_SPACE: &[u8] = "\u{2581}".as_bytes();

pub(super) struct Unigram {
    tokens: Trie<u32>,
    scores: Vec<f64>,
    unknown: u32,
    unknown_score: f64,
    charsmap: Charsmap,
    /// Their beginnings are exempt from normalization.
    user_defined: Trie<()>,
    add_space_prefix: bool,
    merge_spaces: bool,
}

/// The best way to a position: its last token, where that begins, the sum.
#[derive(Clone, Copy)]
struct Best {
    id: u32,
    start: usize,
    score: f64,
}

impl Unigram {
    pub(super) fn new(
        vocab: &Vocab,
        meta: &Metadata,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let unknown = unknown.ok_or_else(|| {
            vocab.malformed("tokenizer.ggml.unknown_token_id names no token, and unigram needs it")
        })?;
        let stored = vocab.require_scores("t5")?;
        let normal = stored.iter().zip(&vocab.stored_kinds);
        let normal = normal.filter(|(_, kind)| **kind == Kind::Normal);
        let worst = normal.map(|(s, _)| *s).fold(f32::MAX, f32::min);
        let scores = stored.iter().zip(&vocab.stored_kinds).zip(&vocab.kinds);
        let scores = scores.map(|((&score, stored), kind)| {
            let user_defined = [stored, kind].contains(&&Kind::UserDefined);
            if user_defined { 0.0 } else { f64::from(score) }
        });
        let user_defined = matched(vocab).filter(|&(_, _, kind)| kind == Kind::UserDefined);
        Ok(Self {
            tokens: Trie::new(matched(vocab).map(|(text, id, _)| (text, id))),
            scores: scores.collect(),
            unknown,
            unknown_score: f64::from(worst - UNKNOWN_PENALTY),
            charsmap: Charsmap::from_gguf(vocab, meta)?,
            user_defined: Trie::new(user_defined.map(|(text, _, _)| (text, ()))),
            add_space_prefix: meta
                .bool("tokenizer.ggml.add_space_prefix")?
                .unwrap_or(false),
            merge_spaces: meta
                .bool("tokenizer.ggml.remove_extra_whitespaces")?
                .unwrap_or(false),
        })
    }

    pub(super) fn cut(&self, vocab: &Vocab) -> ModelCut {
        let mut rule = UnigramCut::default();
        for (text, _, _) in matched(vocab) {
            rule.pairs.insert_all(text);
            let mut chars = text.chars();
            if let (Some(c), None) = (chars.next(), chars.next()) {
                rule.single.insert(c);
            }
        }
        for key in self.charsmap.keys() {
            rule.rewritten.insert_all(key);
            rule.firsts.extend(key.chars().next());
            rule.lasts.extend(key.chars().last());
        }
        ModelCut::Unigram(Box::new(rule))
    }

    /// `starts`: the text begins the corpus or follows a special token.
    pub(super) fn encode(&self, text: &str, starts: bool, ids: &mut Vec<u32>) {
        let text = self.normalize(text.as_bytes(), starts);
        if text.is_empty() {
            return;
        }
        let unreached = Best {
            id: self.unknown,
            start: 0,
            score: f64::MIN,
        };
        let mut best = vec![unreached; text.len() + 1];
        best[0].score = 0.0;
        let mut start = 0;
        while start < text.len() {
            let char_len = char_len(text[start]).min(text.len() - start);
            let so_far = best[start].score;
            let mut offer = |end: usize, id: u32, score: f64| {
                let score = so_far + score;
                if score > best[end].score {
                    best[end] = Best { id, start, score };
                }
            };
            let mut known = false;
            for (len, id) in self.tokens.walk(&text[start..]) {
                if let Some(id) = id {
                    known |= len == char_len;
                    offer(start + len, id, self.scores[id as usize]);
                }
            }
            if !known {
                offer(start + char_len, self.unknown, self.unknown_score);
            }
            start += char_len;
        }
        self.collect(&best, ids);
    }

    /// Follows the best way back; neighbouring unknown tokens become one.
    fn collect(&self, best: &[Best], ids: &mut Vec<u32>) {
        let from = ids.len();
        let mut at = best.len() - 1;
        while at > 0 {
            let Best { id, start, .. } = best[at];
            let repeats = id == self.unknown && ids[from..].last() == Some(&id);
            if !repeats {
                ids.push(id);
            }
            at = start;
        }
        ids[from..].reverse();
    }

    /// SentencePiece's normalization: the character map, then spaces. A space is
    /// put before the first word, and runs of spaces become one (none at the
    /// end), as the vocabulary asks.
    fn normalize(&self, text: &[u8], starts: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + text.len() / 2);
        // A part that continues a text does so behind a word.
        let mut prefix_due = self.add_space_prefix && starts;
        let mut in_word = !starts;
        let mut at = 0;
        while at < text.len() {
            let (replacement, consumed) = self.normalize_prefix(&text[at..]);
            for &byte in replacement {
                if byte == b' ' {
                    in_word = false;
                    if !self.merge_spaces {
                        out.extend(ESCAPED_SPACE);
                    }
                    continue;
                }
                if !in_word {
                    in_word = true;
                    if prefix_due || self.merge_spaces {
                        out.extend(ESCAPED_SPACE);
                        prefix_due = false;
                    }
                }
                out.push(byte);
            }
            at += consumed;
        }
        out
    }

    /// What the beginning of `text` becomes, and how many bytes that replaces.
    fn normalize_prefix<'t>(&'t self, text: &'t [u8]) -> (&'t [u8], usize) {
        if let Some((len, _)) = self.user_defined.walk(text).last() {
            return (&text[..len], len);
        }
        if let Some((replacement, len)) = self.charsmap.longest(text) {
            return (replacement, len);
        }
        let len = char_len(text[0]);
        match text.get(..len) {
            Some(char) if std::str::from_utf8(char).is_ok() => (char, len),
            // The rest of a character whose beginning is a user-defined token's.
            _ => ("\u{fffd}".as_bytes(), 1),
        }
    }
}

/// The tokens that text can become: text, id and kind as stored.
fn matched(vocab: &Vocab) -> impl Iterator<Item = (&str, u32, Kind)> {
    let tokens = vocab.texts.iter().zip(0..).zip(&vocab.stored_kinds);
    tokens
        .map(|((text, id), &kind)| (text.as_str(), id, kind))
        .filter(|(_, _, kind)| matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused))
}

/// The length of the character that begins with `byte`; 1 inside a character.
fn char_len(byte: u8) -> usize {
    match byte {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0.. => 4,
        _ => 1,
    }
}
