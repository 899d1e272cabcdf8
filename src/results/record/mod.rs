//! Records: what is known of every scored token of a finished run. They make the
//! comparison of two runs token by token possible, long after both.

mod excerpt;
mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use excerpt::Excerpt;
pub use file::RecordError;

use sha2::{Digest, Sha256};

use super::identity::arithmetic_of;
use super::row::{ResultRow, WindowRow};
use crate::eval::WindowScore;

/// The scores of all scored tokens of a run, in the order of its windows.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The run: what must be the same in its row. See [`Record::check`].
    identity: BTreeMap<String, String>,
    windows: Vec<RecordWindow>,
    tokens: TokenColumns,
    pieces: Pieces,
}

/// One window of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordWindow {
    /// Its number, from 0.
    pub window: usize,
    /// Corpus index of its first scored target; the others follow.
    pub first_target: u64,
    /// Scored targets in it.
    pub scored: usize,
    /// Sum of their NLL in nats, in f64.
    pub nll_sum: f64,
}

/// One value a scored token, each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenColumns {
    /// The id that was scored.
    pub target: Vec<u32>,
    /// `−ln p(target)` in nats, rounded to f32.
    pub nll: Vec<f32>,
    /// Vocabulary entries with a greater logit than the target's.
    pub rank: Vec<u32>,
    /// The most likely id, and its probability.
    pub top_id: Vec<u32>,
    /// Its probability.
    pub top_p: Vec<f32>,
    /// Entropy of the distribution in nats.
    pub entropy: Vec<f32>,
}

impl TokenColumns {
    /// Scored tokens.
    pub fn len(&self) -> usize {
        self.target.len()
    }

    /// Whether nothing was scored.
    pub fn is_empty(&self) -> bool {
        self.target.is_empty()
    }
}

/// The bytes of text that ids stand for, of the ids that occur.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pieces {
    /// Ascending.
    ids: Vec<u32>,
    /// Where in `text` the piece of each ends; it begins where the last one ended.
    ends: Vec<u32>,
    text: Vec<u8>,
}

impl Record {
    /// The record of a finished run: its row, its scores, the ids of its corpus and
    /// the bytes of text that each id stands for.
    pub fn new(
        row: &ResultRow,
        scores: &[WindowScore],
        ids: &[u32],
        piece: impl Fn(u32) -> Vec<u8>,
    ) -> Self {
        let windows = scores.iter().map(|s| RecordWindow {
            window: s.window.index,
            first_target: s.window.targets().start as u64,
            scored: s.tokens.len(),
            nll_sum: s.nll_sum(),
        });
        let mut tokens = TokenColumns::default();
        for s in scores {
            tokens.target.extend(&ids[s.window.targets()]);
            for t in &s.tokens {
                tokens.nll.push(t.nll as f32);
                tokens.rank.push(t.rank);
                tokens.top_id.push(t.top_id);
                tokens.top_p.push(t.top_p);
                tokens.entropy.push(t.entropy);
            }
        }
        let mut pieces = Pieces::default();
        let occurring: BTreeSet<u32> = [&tokens.target, &tokens.top_id]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        for id in occurring {
            pieces.text.extend(piece(id));
            pieces.ids.push(id);
            pieces.ends.push(pieces.text.len() as u32);
        }
        Record {
            identity: identity(row),
            windows: windows.collect(),
            tokens,
            pieces,
        }
    }

    /// The windows, in order.
    pub fn windows(&self) -> &[RecordWindow] {
        &self.windows
    }

    /// The scores of all tokens, in the order of the windows.
    pub fn tokens(&self) -> &TokenColumns {
        &self.tokens
    }

    /// The windows as a table has them, but for the bytes of their targets.
    pub fn window_rows(&self) -> Vec<WindowRow> {
        let row = |w: &RecordWindow| WindowRow {
            window: w.window,
            scored: w.scored,
            nll_sum: w.nll_sum,
            target_bytes: 0,
        };
        self.windows.iter().map(row).collect()
    }

    /// The record of these windows alone, as if no other had been scored.
    pub fn only(&self, windows: &BTreeSet<usize>) -> Self {
        fn part<T: Copy>(column: &[T], spans: &[Range<usize>]) -> Vec<T> {
            let parts = spans.iter().map(|span| &column[span.clone()]);
            parts.flatten().copied().collect()
        }
        let kept = self.spans().filter(|(w, _)| windows.contains(&w.window));
        let (windows, spans): (Vec<RecordWindow>, Vec<Range<usize>>) =
            kept.map(|(w, span)| (*w, span)).unzip();
        let t = &self.tokens;
        Record {
            identity: self.identity.clone(),
            windows,
            tokens: TokenColumns {
                target: part(&t.target, &spans),
                nll: part(&t.nll, &spans),
                rank: part(&t.rank, &spans),
                top_id: part(&t.top_id, &spans),
                top_p: part(&t.top_p, &spans),
                entropy: part(&t.entropy, &spans),
            },
            pieces: self.pieces.clone(),
        }
    }

    /// Each window and the places of its tokens in the columns.
    pub fn spans(&self) -> impl Iterator<Item = (&RecordWindow, Range<usize>)> {
        let mut at = 0;
        self.windows.iter().map(move |w| {
            let span = at..at + w.scored;
            at = span.end;
            (w, span)
        })
    }

    /// The bytes of text that an id stands for; `None` for one that does not occur.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        let i = self.pieces.ids.binary_search(&id).ok()?;
        let start = i.checked_sub(1).map_or(0, |i| self.pieces.ends[i]);
        self.pieces
            .text
            .get(start as usize..self.pieces.ends[i] as usize)
    }

    /// Whether this is the record of `row`, figure included: a record that an
    /// earlier run left behind is not.
    ///
    /// # Errors
    /// What is not the same.
    pub fn check(&self, row: &ResultRow) -> Result<(), String> {
        let want = identity(row);
        for (name, value) in &want {
            let found = self.identity.get(name).map_or("nothing", String::as_str);
            if found != value {
                return Err(format!(
                    "it belongs to another run: its {name} is {found}, the row's {value}"
                ));
            }
        }
        row.check_windows(&self.window_rows())
    }
}

/// All that can move a number, and the number.
fn identity(row: &ResultRow) -> BTreeMap<String, String> {
    let p = &row.provenance;
    let number = |n: Option<usize>| n.map_or_else(String::new, |n| n.to_string());
    [
        ("key", row.key.clone()),
        ("model_sha256", p.model_sha256.clone()),
        ("corpus_sha256", p.corpus_sha256.clone()),
        ("tokens_sha256", p.tokens_sha256.clone()),
        ("n_ctx", p.geometry.n_ctx.to_string()),
        ("mode", p.geometry.mode.to_string()),
        ("bos", p.bos.map_or_else(String::new, |b| b.to_string())),
        ("windows", number(p.windows)),
        ("scored_tokens", number(p.scored_tokens)),
        ("layer_placement", p.layer_placement.clone()),
        ("numerics", p.numerics.clone()),
        ("engine", arithmetic_of(&p.engine)),
        (
            "mean_nll",
            row.figures()
                .map_or_else(String::new, |f| f.mean_nll.to_string()),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Where the records of one experiment's runs lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFolder(PathBuf);

const EXTENSION: &str = "safetensors";

impl RecordFolder {
    /// That of the table at `path`: `.records/NAME` beside `NAME.csv`.
    pub fn beside(table: &Path) -> Self {
        let name = table.file_stem().unwrap_or_default();
        Self(table.with_file_name(".records").join(name))
    }

    /// The file of a run. Keys hold slashes, and file systems have their own ideas
    /// of case and length: a hash keeps names apart.
    pub fn path(&self, key: &str) -> PathBuf {
        const READABLE: usize = 80;
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let readable: String = key
            .chars()
            .take(READABLE)
            .map(|c| if safe(c) { c } else { '_' })
            .collect();
        let hash = format!("{:x}", Sha256::digest(key));
        self.0
            .join(format!("{readable}-{}.{EXTENSION}", &hash[..16]))
    }

    /// Writes the record of the run `key`; the file is replaced at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn save(&self, key: &str, record: &Record) -> Result<(), RecordError> {
        record.write(&self.path(key))
    }

    /// The record of `row`; `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or belongs to another run.
    pub fn load(&self, row: &ResultRow) -> Result<Option<Record>, RecordError> {
        let path = self.path(&row.key);
        let Some(record) = Record::read_if_exists(&path)? else {
            return Ok(None);
        };
        match record.check(row) {
            Ok(()) => Ok(Some(record)),
            Err(problem) => Err(RecordError::Malformed { path, problem }),
        }
    }

    /// Deletes the record of `row`, where there is one. Another file at its place,
    /// such as another experiment's record in a shared directory, stays.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, row: &ResultRow) -> Result<(), RecordError> {
        let path = self.path(&row.key);
        match self.load(row) {
            Ok(Some(_)) => {
                std::fs::remove_file(&path).map_err(|source| RecordError::Write { path, source })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
