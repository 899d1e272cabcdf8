//! How far figures move under changes that should not matter: what `pplx noise` measures.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

mod file;
mod shift;
#[cfg(test)]
mod tests;

use super::row::ResultRow;
use crate::stats::root_mean_square;

pub use shift::{Shift, shift_of_means};

/// A change of the arithmetic, or of how it is batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The terms of f32 products are summed from the other end.
    SummationOrder,
    /// Every input of every layer moves by one unit in the last place.
    Jitter,
    /// Keys and values are rounded to f16.
    KvF16,
    /// Queries and the numerators of the softmax are rounded to f16.
    AttentionF16,
    /// Activations are quantized to 8 bits.
    Q8,
    /// Another number of windows is evaluated together.
    BatchShape,
}

impl Component {
    /// All of them, in the order in which tables list them.
    pub const ALL: [Component; 6] = [
        Component::SummationOrder,
        Component::Jitter,
        Component::KvF16,
        Component::AttentionF16,
        Component::Q8,
        Component::BatchShape,
    ];

    /// Those that keep all arithmetic in f32 and yet change it: what makes a noise
    /// floor where nothing else is asked.
    pub const HARMLESS: [Component; 2] = [Component::SummationOrder, Component::Jitter];

    /// As in experiment files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Component::SummationOrder => "summation-order",
            Component::Jitter => "jitter",
            Component::KvF16 => "kv-f16",
            Component::AttentionF16 => "attention-f16",
            Component::Q8 => "q8",
            Component::BatchShape => "batch-shape",
        }
    }

    /// The component of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a run's calibration holds for; noise of another file says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The model file's hash.
    pub model_sha256: String,
    /// SHA-256 of the id stream.
    pub tokens_sha256: String,
    /// Whether BOS replaces the first token of each window.
    pub bos: bool,
    /// Windows that were scored.
    pub windows: usize,
    /// Tokens that were scored.
    pub scored_tokens: usize,
    /// What measured it.
    pub engine: String,
}

/// One component of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseRow {
    /// What was changed.
    pub component: Component,
    /// Of jitter, which is drawn several times.
    pub seed: Option<u64>,
    /// Whether it counts for the noise floor.
    pub in_floor: bool,
    /// How far the figure moved.
    pub shift: Shift,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunNoise {
    /// What was measured.
    pub subject: Subject,
    /// In the order of components and seeds.
    pub rows: Vec<NoiseRow>,
}

impl RunNoise {
    /// The noise floor: how large `|Δ ln PPL|` is, as a root mean square, over the
    /// components that count. Each is one draw of what a harmless change does; its
    /// sign is chance, so the mean is taken about 0. `None` where none counts.
    pub fn floor(&self) -> Option<f64> {
        let counted = self.rows.iter().filter(|r| r.in_floor);
        root_mean_square(counted.map(|r| r.shift.mean)).map(|rms| rms.value)
    }
}

/// What `pplx noise` measures: `NAME.noise.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    path: PathBuf,
    runs: BTreeMap<String, RunNoise>,
    note: Option<String>,
}

impl Calibration {
    /// An empty one, which [`save`](Self::save) writes to `path`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            runs: BTreeMap::new(),
            note: None,
        }
    }

    /// Sets what is known of a run.
    pub fn put(&mut self, key: &str, run: RunNoise) {
        self.runs.insert(key.to_owned(), run);
    }

    /// What is known of a run.
    pub fn run(&self, key: &str) -> Option<&RunNoise> {
        self.runs.get(key)
    }

    /// Drops the runs whose key `keep` refuses.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.runs.retain(|key, _| keep(key));
    }

    /// The runs, sorted by key.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (&str, &RunNoise)> {
        self.runs.iter().map(|(key, run)| (key.as_str(), run))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was ignored of a file that a newer pplx has written.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The noise floor of a run's row.
    ///
    /// # Errors
    /// Why there is none: the run was not calibrated, or was when it was another.
    pub fn floor(&self, row: &ResultRow) -> Result<f64, String> {
        let path = self.path.display();
        let run = self.runs.get(&row.key).ok_or_else(|| {
            format!("no noise floor: {path} has no such run; calibrate it with 'pplx noise'")
        })?;
        let (s, p) = (&run.subject, &row.provenance);
        let number = |n: Option<usize>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        for (what, calibrated, found) in [
            ("model file", s.model_sha256.clone(), p.model_sha256.clone()),
            ("tokens", s.tokens_sha256.clone(), p.tokens_sha256.clone()),
            (
                "BOS",
                s.bos.to_string(),
                p.bos.map_or_else(|| "?".to_owned(), |b| b.to_string()),
            ),
            ("window count", s.windows.to_string(), number(p.windows)),
            (
                "scored tokens",
                s.scored_tokens.to_string(),
                number(p.scored_tokens),
            ),
        ] {
            if calibrated != found {
                return Err(format!(
                    "no noise floor: {path} was measured with another {what} ({calibrated}, here \
                     {found}); run 'pplx noise' again"
                ));
            }
        }
        run.floor()
            .ok_or_else(|| format!("no noise floor: no component of the run in {path} counts"))
    }
}
