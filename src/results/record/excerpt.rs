//! Excerpts of the scored text around a token.

use std::ops::Range;

use serde::Serialize;

use super::Record;

/// A scored token with the scored text around it, as one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Excerpt {
    /// What is scored before it, shortened.
    pub before: String,
    /// The token.
    pub token: String,
    /// What is scored after it, shortened.
    pub after: String,
}

/// Characters shown on each side of a token.
const BEFORE: usize = 40;
const AFTER: usize = 16;

impl Record {
    /// The token at place `at` of the columns, and what is scored around it in its
    /// window, whose tokens lie at `span`.
    pub fn excerpt(&self, at: usize, span: Range<usize>) -> Excerpt {
        let text = |span: Range<usize>| -> Vec<u8> {
            let ids = &self.tokens.target[span];
            ids.iter()
                .flat_map(|&id| self.piece(id).unwrap_or_default())
                .copied()
                .collect()
        };
        // A token stands for a byte at least, or for nothing at all.
        let before = text(at.saturating_sub(4 * BEFORE).max(span.start)..at);
        let after = text((at + 1).min(span.end)..(at + 1 + 4 * AFTER).min(span.end));
        let before: Vec<char> = one_line(&before).chars().collect();
        Excerpt {
            before: before[before.len().saturating_sub(BEFORE)..]
                .iter()
                .collect(),
            token: one_line(&text(at..at + 1)),
            after: one_line(&after).chars().take(AFTER).collect(),
        }
    }

    /// The text of an id as one line; `<id N>` where it stands for none.
    pub fn piece_text(&self, id: u32) -> String {
        match self.piece(id) {
            Some(bytes) if !bytes.is_empty() => one_line(bytes),
            _ => format!("<id {id}>"),
        }
    }
}

/// Bytes as text without control characters; pieces may split characters, which
/// leaves replacement characters.
fn one_line(bytes: &[u8]) -> String {
    let mut out = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\n' => out.push('⏎'),
            '\t' => out.push('⇥'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
