//! Work that blocks (networks, mostly) on a thread of its own, so that whoever
//! waits for it sees an interrupt at once.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::{FetchError, FetchOptions};

/// How often an interrupt is looked for.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// What the thread yields. Dropped, it is waited for no longer; the thread ends
/// when it next sends something, or with the process.
pub(super) struct Background<T>(Receiver<T>);

impl<T: Send + 'static> Background<T> {
    /// Starts `work`, which sends what it yields.
    pub fn start(work: impl FnOnce(SyncSender<T>) + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(4);
        std::thread::Builder::new().spawn(move || work(sender))?;
        Ok(Self(receiver))
    }

    /// The next of it; None at its end.
    ///
    /// # Errors
    /// [`FetchError::Interrupted`].
    pub fn next(&self, options: &FetchOptions) -> Result<Option<T>, FetchError> {
        self.next_within(Duration::MAX, options)
    }

    /// [`Self::next`]; None, too, after so long a silence.
    pub fn next_within(
        &self,
        silence: Duration,
        options: &FetchOptions,
    ) -> Result<Option<T>, FetchError> {
        let begin = Instant::now();
        while begin.elapsed() < silence {
            options.check()?;
            match self.0.recv_timeout(POLL) {
                Ok(item) => return Ok(Some(item)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(None)
    }
}

/// Sleeps, but not through an interrupt.
pub(super) fn pause(duration: Duration, options: &FetchOptions) -> Result<(), FetchError> {
    let mut left = duration;
    while !left.is_zero() {
        options.check()?;
        let nap = left.min(POLL);
        std::thread::sleep(nap);
        left -= nap;
    }
    options.check()
}
