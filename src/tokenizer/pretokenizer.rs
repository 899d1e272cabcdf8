//! Splitting text into the pieces within which byte-level BPE merges.
//!
//! `tokenizers` could run these patterns with its `Split`, but with the regex
//! engine it offers without C++ a pattern that exceeds the backtracking limit
//! ends the splitting silently. Here the patterns run on finite automata, in
//! linear time and without limits; the one thing automata cannot do, looking
//! ahead past a run of white space, is a rule of its own ([`White`]).
//!
//! Character classes are those of Unicode 15.1, as in llama.cpp's tables.

use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta::Regex;

use super::TokenizerError;

/// One pass over the pieces of the pass before it; it splits each of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Every match is a piece, and so is every stretch between matches.
    Split(&'static str),
    /// The same, where runs of white space that the pattern does not match are
    /// matches too, of the length that the rule gives.
    SplitWhite(&'static str, White),
    /// Runs of numbers in groups of three counted from their end. The first
    /// group of a run takes the text before it along.
    NumbersFromRight,
    /// Runs of ASCII digits in groups of three counted from their end.
    DigitsFromRight,
}

/// How much of a run of white space is one piece.
#[derive(Clone, Copy, Debug)]
pub(super) enum White {
    /// `\s+(?!\S)|\s+`: all but the last character, which stays with the word
    /// behind it; all of it at the end of the text and where it is one character.
    LeaveLast,
    /// The same in steps: the largest of 512, 256, …, 4, 2, 1 characters that
    /// more white space, or the end, follows.
    Cascade,
}

impl White {
    /// The end of the piece, for the run `run` in a text that ends at `end`.
    fn piece_end(self, text: &str, run: Range<usize>, end: usize) -> usize {
        let at_end = run.end == end;
        match self {
            White::LeaveLast if at_end => run.end,
            White::LeaveLast => {
                let last = text[run.clone()].char_indices().next_back();
                let (last, _) = last.unwrap_or_default();
                if last == 0 { run.end } else { run.start + last }
            }
            White::Cascade => {
                let length = text[run.clone()].chars().count();
                let steps = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];
                let fits = |&n: &usize| n < length || (n == length && at_end);
                let n = steps.into_iter().find(fits).unwrap_or(1);
                let next = text[run.clone()].char_indices().nth(n);
                next.map_or(run.end, |(i, _)| run.start + i)
            }
        }
    }
}

enum Compiled {
    /// Pattern 1, if there is a rule for white space, is a run of it.
    Regex(Regex, Option<White>),
    NumbersFromRight(Regex),
    DigitsFromRight(Regex),
}

/// A compiled sequence of steps.
pub(super) struct PreTokenizer {
    steps: Vec<Compiled>,
}

impl PreTokenizer {
    pub(super) fn new(steps: &[Step]) -> Result<Self, TokenizerError> {
        let steps = steps.iter().map(|step| {
            Ok(match step {
                Step::Split(p) => Compiled::Regex(compile(&[p])?, None),
                Step::SplitWhite(p, white) => Compiled::Regex(compile(&[p, r"\s+"])?, Some(*white)),
                Step::NumbersFromRight => Compiled::NumbersFromRight(compile(&[r"\p{N}+"])?),
                Step::DigitsFromRight => Compiled::DigitsFromRight(compile(&["[0-9]+"])?),
            })
        });
        Ok(Self {
            steps: steps.collect::<Result<_, TokenizerError>>()?,
        })
    }

    /// The pieces of `text`, which tile it, as byte ranges.
    pub(super) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let whole = 0..text.len();
        let mut pieces = Vec::from_iter(Some(whole).filter(|w| !w.is_empty()));
        for step in &self.steps {
            let mut out = Vec::with_capacity(pieces.len().max(text.len() / 4));
            for piece in pieces {
                step.split(text, piece, &mut out);
            }
            pieces = out;
        }
        pieces
    }
}

impl Compiled {
    fn split(&self, text: &str, piece: Range<usize>, out: &mut Vec<Range<usize>>) {
        // Where the piece being built starts.
        let mut open = piece.start;
        let mut close = |open: &mut usize, at: usize| {
            if *open < at {
                out.push(*open..at);
                *open = at;
            }
        };
        // `$` is the end of the piece.
        let mut input = Input::new(&text[..piece.end]).range(piece.clone());
        let regex = match self {
            Self::Regex(r, _) | Self::NumbersFromRight(r) | Self::DigitsFromRight(r) => r,
        };
        while let Some(found) = regex.search(&input) {
            let mut end = found.end();
            match self {
                Self::Regex(_, white) => {
                    if let (Some(white), 1) = (white, found.pattern().as_usize()) {
                        end = white.piece_end(text, found.range(), piece.end);
                    }
                    close(&mut open, found.start());
                    close(&mut open, end);
                }
                Self::NumbersFromRight(_) => {
                    let groups = groups_of_three(text, found.range());
                    for group in groups.filter(|&at| at > found.start()) {
                        close(&mut open, group);
                    }
                    close(&mut open, end);
                }
                Self::DigitsFromRight(_) => {
                    for group in groups_of_three(text, found.range()) {
                        close(&mut open, group);
                    }
                }
            }
            input.set_start(end);
        }
        close(&mut open, piece.end);
    }
}

/// Where groups of three, counted from the end of the run, begin.
fn groups_of_three(text: &str, run: Range<usize>) -> impl Iterator<Item = usize> + '_ {
    let n = text[run.clone()].chars().count();
    let offsets = text[run.clone()].char_indices().enumerate();
    offsets.filter_map(move |(i, (at, _))| (n - i).is_multiple_of(3).then_some(run.start + at))
}

/// Compiles patterns of which earlier ones win where several match.
pub(super) fn compile(patterns: &[&str]) -> Result<Regex, TokenizerError> {
    let expanded: Vec<String> = patterns.iter().map(|p| with_unicode_15(p)).collect();
    Regex::new_many(&expanded).map_err(|e| {
        let syntax = e.syntax_error().map(ToString::to_string);
        TokenizerError::Internal(syntax.unwrap_or_else(|| e.to_string()))
    })
}

/// Confines the general categories in a pattern to Unicode 15.1, the version of
/// llama.cpp's tables; what came later is of no category there.
fn with_unicode_15(pattern: &str) -> String {
    ["L", "N", "M", "P", "S"]
        .iter()
        .fold(pattern.to_owned(), |p, c| {
            p.replace(
                &format!(r"\p{{{c}}}"),
                &format!(r"[\p{{{c}}}&&\p{{Age=15.1}}]"),
            )
        })
}
