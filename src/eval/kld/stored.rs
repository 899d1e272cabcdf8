//! Distributions of a base that were stored, and how they are stored.

use crate::eval::error::StoredError;
use crate::eval::geometry::Window;

/// The distributions of a base for the scored targets of corpus windows.
pub trait StoredBase {
    /// Entries of the vocabulary.
    fn n_vocab(&self) -> usize;

    /// Windows whose rows fit into memory together.
    fn windows_at_once(&self) -> usize;

    /// The rows of these windows, which follow those of the call before.
    ///
    /// # Errors
    /// What is wrong with the file.
    fn rows(&mut self, windows: &[Window]) -> Result<Vec<StoredRow>, StoredError>;
}

/// What is stored of the distribution of one scored target.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredRow {
    /// The entries above a threshold, and a sample of the others.
    Top(TopRow),
    /// All entries on a grid of 16 bits.
    Grid(GridRow),
}

/// The likeliest entries, all of `p ≥ step` and the likeliest of all, and of the
/// others (the tail) a systematic sample: each with probability `p / step`.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRow {
    /// Ascending.
    pub ids: Vec<u32>,
    /// Exactly.
    pub logits: Vec<f32>,
    /// `ln Σ e^logit` over the vocabulary.
    pub lse: f64,
    /// `−ln p` of the target, which may be in the tail.
    pub nll: f64,
    /// `Σ p` over the tail.
    pub tail_mass: f64,
    /// `exp(ln_step)`.
    pub step: f64,
    /// `ln step`.
    pub ln_step: f64,
}

impl TopRow {
    /// Of each entry, whether it is there for its probability, not by chance.
    pub fn known(&self) -> impl Iterator<Item = bool> {
        let top = self.top_index();
        // Of differences alone, so that every machine sees the same.
        let likely = |&l: &f32| f64::from(l) - self.lse >= self.ln_step;
        let each = self.logits.iter().enumerate();
        each.map(move |(i, l)| likely(l) || top == Some(i))
    }

    /// The likeliest id, the first of those that tie.
    pub fn top(&self) -> Option<usize> {
        self.top_index().map(|i| self.ids[i] as usize)
    }

    fn top_index(&self) -> Option<usize> {
        let best = self.logits.iter().copied().max_by(f32::total_cmp)?;
        self.logits.iter().position(|&l| l == best)
    }
}

/// All log-probabilities, rounded to a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct GridRow {
    /// From one code to the next, in nats.
    pub scale: f32,
    /// `ln p` of code 0.
    pub min: f32,
    /// One for each id.
    pub codes: Vec<u16>,
}

impl GridRow {
    /// The log-probability that a code stands for.
    pub fn ln_p(&self, code: u16) -> f32 {
        self.scale * f32::from(code) + self.min
    }
}

/// Where a base is stored, in some format.
pub trait BaseSink: Sync {
    /// The bytes of one scored target's row, whose logits these are; `at` is the
    /// target's place in the corpus.
    fn encode(&self, logits: &[f32], target: u32, at: usize) -> Vec<u8>;

    /// Stores a window's rows; windows come in order.
    ///
    /// # Errors
    /// A disk that is full, and the like.
    fn put(&mut self, window: &Window, rows: &[Vec<u8>]) -> Result<(), StoredError>;
}
