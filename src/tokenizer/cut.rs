//! Where a text can be cut so that its parts, tokenized one by one, give the
//! tokens of the whole.
//!
//! Every rule here looks at the two characters around the cut and nothing else,
//! so that a reader needs no look-ahead. It must hold for any text around them:
//!
//! - Byte-level BPE merges within the pieces of its pre-tokenizer. No pattern of
//!   the table lets a piece run on over a space behind a character of the
//!   definition's `cut_after` class, and none looks further ahead than the run
//!   of white space it matched. So before a space behind such a character a
//!   piece ends and the next begins, whatever follows; the run of white space
//!   moves whole into the next part.
//! - Models without a pre-tokenizer (SentencePiece BPE, unigram, tries) build
//!   tokens that are in the vocabulary. Where no token of the vocabulary has the
//!   two characters side by side, none can span the cut, and what happens on
//!   either side does not reach the other.
//! - Special tokens are found in plain text: the same rule of pairs holds for
//!   them. Behind one, some models add a space and some swallow white space, so
//!   no cut is made behind the last character of any.

use std::collections::HashSet;
use std::sync::Arc;

use regex_automata::meta::Regex;

use super::TokenizerError;
use super::special::SpecialTokens;

/// The pairs of adjacent characters in a set of texts.
#[derive(Default)]
pub(super) struct Pairs(HashSet<(char, char)>);

impl Pairs {
    pub(super) fn insert_all(&mut self, text: &str) {
        self.0.extend(text.chars().zip(text.chars().skip(1)));
    }

    pub(super) fn contains(&self, a: char, b: char) -> bool {
        self.0.contains(&(a, b))
    }
}

/// The pairs of adjacent bytes in a set of byte strings.
pub(super) struct BytePairs(Vec<bool>);

impl Default for BytePairs {
    fn default() -> Self {
        Self(vec![false; 1 << 16])
    }
}

impl BytePairs {
    fn index(a: u8, b: u8) -> usize {
        usize::from(a) << 8 | usize::from(b)
    }

    pub(super) fn insert_all(&mut self, bytes: &[u8]) {
        for pair in bytes.windows(2) {
            self.0[Self::index(pair[0], pair[1])] = true;
        }
    }

    /// Whether the last byte of `a` and the first of `b` are a pair.
    fn contains_cut(&self, a: char, b: char) -> bool {
        let (mut left, mut right) = ([0; 4], [0; 4]);
        let (left, right) = (a.encode_utf8(&mut left), b.encode_utf8(&mut right));
        let last = left.bytes().last().unwrap_or_default();
        let first = right.bytes().next().unwrap_or_default();
        self.0[Self::index(last, first)]
    }
}

/// What the model of a vocabulary allows, special tokens aside.
pub(super) enum ModelCut {
    /// Before a space that follows a character of this class.
    BeforeSpace(CharClass),
    /// Between characters that are not a pair of the vocabulary.
    BetweenPairs(Arc<Pairs>),
    /// Between characters whose bytes at the cut are not a pair of the vocabulary.
    BetweenBytePairs(BytePairs),
    Unigram(Box<UnigramCut>),
}

/// A unigram model's rule: no pair of the vocabulary; and normalization must not
/// reach over the cut nor change the characters around it; and as neighbouring
/// unknown characters are joined, not both may be unknown.
#[derive(Default)]
pub(super) struct UnigramCut {
    pub pairs: Pairs,
    /// Characters that are tokens, so never unknown.
    pub single: HashSet<char>,
    /// Pairs, first and last characters of what normalization rewrites.
    pub rewritten: Pairs,
    pub firsts: HashSet<char>,
    pub lasts: HashSet<char>,
}

impl UnigramCut {
    fn is_safe(&self, a: char, b: char) -> bool {
        // Behind a space the state of normalization would matter.
        a != ' '
            && !self.pairs.contains(escape(a), escape(b))
            && (self.single.contains(&escape(a)) || self.single.contains(&escape(b)))
            && !self.rewritten.contains(a, b)
            && !self.lasts.contains(&a)
            && !self.firsts.contains(&b)
    }
}

/// When text may be cut between two characters.
pub(super) struct CutRule {
    model: ModelCut,
    special_pairs: Pairs,
    special_ends: HashSet<char>,
    /// Some special token swallows white space: no cut inside a run of it.
    special_strip: bool,
}

impl CutRule {
    pub(super) fn new(model: ModelCut, special: &SpecialTokens) -> Self {
        let mut special_pairs = Pairs::default();
        special.texts().for_each(|t| special_pairs.insert_all(t));
        Self {
            model,
            special_pairs,
            special_ends: special.texts().filter_map(|t| t.chars().last()).collect(),
            special_strip: special.strip(),
        }
    }

    /// Whether `…a` and `b…` can be tokenized apart.
    pub(super) fn is_safe(&self, a: char, b: char) -> bool {
        let special = self.special_pairs.contains(a, b)
            || self.special_ends.contains(&a)
            || (self.special_strip && a.is_ascii_whitespace());
        match &self.model {
            _ if special => false,
            ModelCut::BeforeSpace(after) => b == ' ' && after.contains(a),
            ModelCut::BetweenPairs(pairs) => !pairs.contains(escape(a), escape(b)),
            ModelCut::BetweenBytePairs(pairs) => !pairs.contains_cut(a, b),
            ModelCut::Unigram(rule) => rule.is_safe(a, b),
        }
    }
}

/// The space as vocabularies without a pre-tokenizer write it.
fn escape(c: char) -> char {
    if c == ' ' { '\u{2581}' } else { c }
}

/// A set of characters, given as a class of the regex syntax.
pub(super) struct CharClass {
    ascii: u128,
    regex: Regex,
}

impl CharClass {
    pub(super) fn new(class: &str) -> Result<Self, TokenizerError> {
        let regex = super::pretokenizer::compile(&[class])?;
        let matches = |c: &u8| regex.is_match(char::from(*c).encode_utf8(&mut [0; 4]) as &str);
        let ascii = (0..128u8).filter(matches).fold(0, |set, c| set | 1 << c);
        Ok(Self { ascii, regex })
    }

    fn contains(&self, c: char) -> bool {
        if c.is_ascii() {
            self.ascii >> (c as u32) & 1 == 1
        } else {
            self.regex.is_match(c.encode_utf8(&mut [0; 4]) as &str)
        }
    }
}
