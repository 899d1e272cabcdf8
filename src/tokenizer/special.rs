//! Special tokens in a text: which stretches of it are tokens outright, before
//! any model of words looks at it.
//!
//! llama.cpp's rule: user-defined tokens are always found; control and unknown
//! tokens only where special tokens are to be parsed. The longest token takes
//! its occurrences first, from the left; then the next longest takes what lies
//! in the text still free. (`tokenizers` would take the leftmost first, which
//! differs where tokens overlap.) Tokens of one length go by id; llama.cpp
//! leaves their order to its sort.

use std::collections::{BTreeMap, HashMap};

use aho_corasick::AhoCorasick;

use super::TokenizerError;
use super::vocab::{Kind, Vocab};
use crate::gguf::Metadata;

/// A stretch of a text: plain text or a special token.
#[derive(Debug, PartialEq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

struct SpecialToken {
    id: u32,
    text: String,
    /// White space around the token belongs to it.
    strip_left: bool,
    strip_right: bool,
}

/// The special tokens that are looked for, longest first.
pub(super) struct SpecialTokens {
    tokens: Vec<SpecialToken>,
    /// Finds all occurrences of all of them; pattern i is `tokens[i]`.
    finder: Option<AhoCorasick>,
}

impl SpecialTokens {
    pub(super) fn new(
        vocab: &Vocab,
        meta: &Metadata,
        parse_special: bool,
    ) -> Result<Self, TokenizerError> {
        let strips = Strips::from_names(meta)?;
        let mut tokens: Vec<SpecialToken> = Vec::new();
        for (id, (text, kind)) in vocab.texts.iter().zip(&vocab.kinds).enumerate() {
            let active = match kind {
                Kind::UserDefined => true,
                Kind::Control | Kind::Unknown => parse_special,
                _ => false,
            };
            if active {
                tokens.push(SpecialToken {
                    id: id as u32,
                    strip_left: strips.left(text),
                    strip_right: strips.right(text),
                    text: text.clone(),
                });
            }
        }
        tokens.sort_by(|a, b| (b.text.len(), a.id).cmp(&(a.text.len(), b.id)));
        let finder = if tokens.is_empty() {
            None
        } else {
            let built = AhoCorasick::new(tokens.iter().map(|t| &t.text));
            Some(built.map_err(|e| TokenizerError::Internal(e.to_string()))?)
        };
        Ok(Self { tokens, finder })
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|t| t.text.as_str())
    }

    /// Whether some token swallows the white space beside it.
    pub(super) fn strip(&self) -> bool {
        self.tokens.iter().any(|t| t.strip_left || t.strip_right)
    }

    /// Splits `text` into plain stretches and special tokens.
    pub(super) fn partition<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut occurrences: HashMap<usize, Vec<usize>> = HashMap::new();
        if let Some(finder) = &self.finder {
            for m in finder.find_overlapping_iter(text) {
                let starts = occurrences.entry(m.pattern().as_usize()).or_default();
                starts.push(m.start());
            }
        }
        let mut found: Vec<_> = occurrences.into_iter().collect();
        found.sort_unstable_by_key(|&(token, _)| token);
        let mut taken = Taken::default();
        for (token, starts) in found {
            for start in starts {
                taken.take(text, start, &self.tokens[token]);
            }
        }
        taken.fragments(text)
    }
}

/// The stretches that special tokens have taken: start → (end, id).
#[derive(Default)]
struct Taken(BTreeMap<usize, (usize, u32)>);

impl Taken {
    fn take(&mut self, text: &str, mut start: usize, token: &SpecialToken) {
        let mut end = start + token.text.len();
        // The free stretch around `start`; taken ones are disjoint.
        let before = self.0.range(..=start).next_back();
        let free_start = before.map_or(0, |(_, &(end, _))| end);
        let free_end = self.0.range(start..).next().map_or(text.len(), |(&s, _)| s);
        if start < free_start || end > free_end {
            return;
        }
        let space = |b: u8| matches!(b, b' ' | b'\t'..=b'\r');
        if token.strip_left {
            while start > free_start && space(text.as_bytes()[start - 1]) {
                start -= 1;
            }
        }
        if token.strip_right {
            while end < free_end && space(text.as_bytes()[end]) {
                end += 1;
            }
        }
        self.0.insert(start, (end, token.id));
    }

    fn fragments<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::with_capacity(2 * self.0.len() + 1);
        let mut at = 0;
        for (&start, &(end, id)) in &self.0 {
            if at < start {
                fragments.push(Fragment::Text(&text[at..start]));
            }
            fragments.push(Fragment::Token(id));
            at = end;
        }
        if at < text.len() {
            fragments.push(Fragment::Text(&text[at..]));
        }
        fragments
    }
}

/// Which special tokens swallow white space: no metadata key says so; llama.cpp
/// decides by the names of the model and the pre-tokenizer.
enum Strips {
    None,
    Phi3,
    Left(&'static str),
}

impl Strips {
    fn from_names(meta: &Metadata) -> Result<Self, TokenizerError> {
        let name = meta.string("general.name")?.unwrap_or("").to_lowercase();
        let pre = meta.string("tokenizer.ggml.pre")?.unwrap_or("");
        let jina = ["jina-v2-de", "jina-v2-es", "jina-v2-code"];
        Ok(if jina.iter().any(|j| pre.contains(j)) {
            Strips::Left("<mask>")
        } else if name.contains("phi-3") || name.contains("phi3") {
            Strips::Phi3
        } else if name.contains("modern-bert") {
            Strips::Left("[MASK]")
        } else {
            Strips::None
        })
    }

    fn left(&self, text: &str) -> bool {
        matches!(self, Strips::Left(t) if *t == text)
    }

    fn right(&self, text: &str) -> bool {
        matches!(self, Strips::Phi3) && !["<unk>", "<s>", "<|endoftext|>"].contains(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, text: &str) -> SpecialToken {
        SpecialToken {
            id,
            text: text.to_owned(),
            strip_left: false,
            strip_right: false,
        }
    }

    fn special(tokens: Vec<SpecialToken>) -> SpecialTokens {
        let finder = AhoCorasick::new(tokens.iter().map(|t| &t.text)).unwrap();
        SpecialTokens {
            tokens,
            finder: Some(finder),
        }
    }

    #[test]
    fn the_longest_token_takes_first() {
        // The leftmost match would be "abc".
        let s = special(vec![token(1, "bcde"), token(0, "abc")]);
        assert_eq!(
            s.partition("abcde abc"),
            [
                Fragment::Text("a"),
                Fragment::Token(1),
                Fragment::Text(" "),
                Fragment::Token(0)
            ]
        );
    }

    #[test]
    fn occurrences_of_one_token_do_not_overlap() {
        let s = special(vec![token(3, "\n\n\n"), token(2, "\n\n")]);
        assert_eq!(
            s.partition("a\n\n\n\n\n\n\n\nb"),
            [
                Fragment::Text("a"),
                Fragment::Token(3),
                Fragment::Token(3),
                Fragment::Token(2),
                Fragment::Text("b")
            ]
        );
    }

    #[test]
    fn stripped_white_space_stops_at_the_next_token() {
        let mut longest = token(1, "\n<b>");
        let mut shorter = token(0, "<a>");
        (longest.strip_right, shorter.strip_right) = (true, true);
        let s = special(vec![longest, shorter]);
        assert_eq!(
            s.partition("x <a> \t\n<b>  y"),
            [
                Fragment::Text("x "),
                Fragment::Token(0),
                Fragment::Token(1),
                Fragment::Text("y")
            ]
        );
    }
}
