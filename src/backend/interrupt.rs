//! A request to stop, which evaluation polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::BackendError;

/// A shared flag that ends an evaluation early. Clones share it; once raised it
/// stays raised.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
        &self.0
    }
}
