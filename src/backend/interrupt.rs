//! A request to stop, which evaluation polls, and how much of it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::error::BackendError;

/// A shared flag that ends an evaluation early, and a count of the work that has
/// been done, for whoever waits. Clones share both; once raised it stays raised.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    work: Arc<AtomicU64>,
}

impl Interrupt {
    /// Asks for an end.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Whether an end is asked for.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`BackendError::Interrupted`] once the flag is raised.
    pub fn check(&self) -> Result<(), BackendError> {
        match self.is_raised() {
            true => Err(BackendError::Interrupted),
            false => Ok(()),
        }
    }

    /// The flag itself, for a signal handler to set.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.raised
    }

    /// Adds to the count: see [`work`]. Figures never depend on it.
    pub fn worked(&self, work: u64) {
        self.work.fetch_add(work, Ordering::Relaxed);
    }

    /// What has been added up since the beginning.
    pub fn work(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }
}

/// The work of taking so many rows through so many weights, in thousands of
/// multiplications or so: good for shares, not for speeds.
pub fn work(weights: usize, rows: usize) -> u64 {
    (weights as u64 / 1024).max(1).saturating_mul(rows as u64)
}
