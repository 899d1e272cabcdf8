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

/// What the model of a vocabulary allows, special tokens aside.
pub(super) enum ModelCut {
    /// Before a space that follows a character of this class.
    BeforeSpace(CharClass),
    /// Between characters that are no pair of the vocabulary.
    BetweenPairs(Arc<Pairs>),
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
