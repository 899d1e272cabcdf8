//! Per-token figures of another engine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::eval::WindowScore;
use crate::results::CsvError;
use crate::results::csv_file::{self, Column, Columns};

/// One line: what `pplx score --per-token` writes, too.
#[derive(Deserialize)]
struct Record {
    chunk: usize,
    pos: usize,
    target: u32,
    nll: f64,
}

impl Columns for Record {
    const COLUMNS: &'static [Column] = &[
        Column::of::<usize>("chunk"),
        Column::of::<usize>("pos"),
        Column::of::<u32>("target"),
        Column::of::<f64>("nll"),
    ];
}

/// The NLL of each target that another engine has scored.
#[derive(Clone, Debug)]
pub struct TokenReference {
    path: PathBuf,
    /// Target and NLL by window and position.
    rows: HashMap<(usize, usize), (u32, f64)>,
}

impl TokenReference {
    /// Reads a file with the columns `chunk,pos,target,nll`: number of the window
    /// from 0, position of the target in it, its id, its NLL in nats.
    ///
    /// # Errors
    /// An unreadable or malformed file, with file and line.
    pub fn load(path: &Path) -> Result<Self, CsvError> {
        let mut rows = HashMap::new();
        for csv_file::Line { line, record: r } in csv_file::read::<Record>(path)?.lines {
            let malformed = |problem: String| CsvError::malformed(path, line, problem);
            if !r.nll.is_finite() {
                return Err(malformed(format!("column 'nll' holds {}", r.nll)));
            }
            if rows.insert((r.chunk, r.pos), (r.target, r.nll)).is_some() {
                let (chunk, pos) = (r.chunk, r.pos);
                return Err(malformed(format!(
                    "chunk {chunk}, position {pos} occurs twice"
                )));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            rows,
        })
    }

    /// The file that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Targets that it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no token.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its NLLs of the targets of `scores`, window by window; `tokens` are the
    /// corpus's.
    ///
    /// # Errors
    /// A target that it lacks, or that is another token there.
    pub fn nll(&self, scores: &[WindowScore], tokens: &[u32]) -> Result<Vec<Vec<f64>>, String> {
        let path = self.path.display();
        let one = |window: usize, pos: usize, id: u32| match self.rows.get(&(window, pos)) {
            Some(&(target, nll)) if target == id => Ok(nll),
            Some((target, _)) => Err(format!(
                "{path}: the target at chunk {window}, position {pos} is {target}, here {id}: other \
                 tokens were scored"
            )),
            None => Err(format!(
                "{path} has no chunk {window}, position {pos}; it and the run must have the same \
                 context and windows (--set limits.windows=N)"
            )),
        };
        let of_window = |s: &WindowScore| {
            let targets = tokens[s.window.targets()].iter().enumerate();
            targets
                .map(|(i, &id)| one(s.window.index, s.window.first_target + i, id))
                .collect()
        };
        scores.iter().map(of_window).collect()
    }
}
