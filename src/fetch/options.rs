//! Where downloads are kept, how patient they are, and what interrupts them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::{FetchError, nameless};
use super::progress::TransferProgress;

/// Where downloads are kept, and how patient they are.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// None where no directory is known: then nothing is remembered, and nothing can
    /// be downloaded.
    pub cache_dir: Option<PathBuf>,
    /// Attempts in a row that gain (almost) nothing before a download fails.
    pub attempts: u32,
    /// Pause before the second attempt; doubled for each one after it.
    pub retry_delay: Duration,
    /// How long a server may stay silent.
    pub stall_timeout: Duration,
    /// Raised to end hashing and downloads early, with [`FetchError::Interrupted`].
    pub interrupt: Arc<AtomicBool>,
    /// Trouble with the cache has been noted. Clones share it: once is enough.
    noted: Arc<AtomicBool>,
}

impl FetchOptions {
    /// Defaults, with everything kept under `cache_dir`.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: Some(cache_dir.into()),
            attempts: 5,
            retry_delay: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(60),
            interrupt: Arc::default(),
            noted: Arc::default(),
        }
    }

    /// Defaults, with the cache in `PPLX_CACHE`, else `$XDG_CACHE_HOME/pplx`,
    /// else `~/.cache/pplx`; without one where none of them is known.
    pub fn from_env() -> Self {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        // The XDG specification says that relative paths are to be ignored.
        let xdg = || {
            let xdg = var("XDG_CACHE_HOME").map(PathBuf::from);
            xdg.filter(|p| p.is_absolute())
        };
        let home = || std::env::home_dir().filter(|p| !p.as_os_str().is_empty());
        let user = || xdg().or_else(|| home().map(|h| h.join(".cache")));
        let cache_dir = match var("PPLX_CACHE") {
            Some(dir) => Some(PathBuf::from(dir)),
            None => user().map(|dir| dir.join("pplx")),
        };
        Self {
            cache_dir,
            ..Self::new("")
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`FetchError::Interrupted`] once the flag is raised.
    pub(super) fn check(&self) -> Result<(), FetchError> {
        match self.is_interrupted() {
            true => Err(FetchError::Interrupted),
            false => Ok(()),
        }
    }

    /// Notes that the cache cannot be written, the first time that it is called
    /// for these options or a clone of them. Nothing but time is lost by it.
    pub fn note_cache_trouble(&self, error: &io::Error, progress: &dyn TransferProgress) {
        if self.noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let directory = self.cache_dir.clone().unwrap_or_default();
        progress.note(&format!(
            "note: the cache '{}' cannot be written ({}); files are hashed and tokenized \
             without it, which takes longer",
            directory.display(),
            nameless(error)
        ));
    }
}
