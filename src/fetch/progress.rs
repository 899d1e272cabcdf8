//! How a fetch tells how far it is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::say;

/// Receives the progress of one transfer (or one verification) after another.
pub trait Progress: Sync {
    /// A transfer of `total` bytes, where that is known, begins.
    fn begin(&self, label: &str, total: Option<u64>);
    /// So many bytes of it are done (counted from the beginning of the file, so
    /// that a resumed one does not start at 0).
    fn at(&self, done: u64);
    /// It is complete.
    fn end(&self);
    /// Something worth a line.
    fn note(&self, message: &str);
}

/// Says nothing.
pub struct Quiet;

impl Progress for Quiet {
    fn begin(&self, _: &str, _: Option<u64>) {}
    fn at(&self, _: u64) {}
    fn end(&self) {}
    fn note(&self, _: &str) {}
}

/// A bar on stderr where that is a terminal, else a line every few seconds.
#[derive(Default)]
pub struct TerminalProgress {
    current: Mutex<Option<Current>>,
}

struct Current {
    label: String,
    total: Option<u64>,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

const LINE_INTERVAL: Duration = Duration::from_secs(5);

impl TerminalProgress {
    pub fn new() -> Self {
        Self::default()
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for TerminalProgress {
    fn begin(&self, label: &str, total: Option<u64>) {
        let bar = say::has_bars().then(|| {
            let template = match total {
                Some(_) => "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} ({eta})",
                None => "{msg} {spinner} {bytes} {bytes_per_sec}",
            };
            let bar = match total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::new_spinner(),
            };
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            // Half of the line is for the bar.
            bar.set_message(say::shortened(label, say::columns() / 2));
            say::bars().add(bar)
        });
        let previous = self.current().replace(Current {
            label: label.to_owned(),
            total,
            bar,
            last_line: Instant::now(),
        });
        if let Some(bar) = previous.and_then(|p| p.bar) {
            bar.finish_and_clear();
        }
    }

    fn at(&self, done: u64) {
        let mut guard = self.current();
        let Some(current) = guard.as_mut() else {
            return;
        };
        if let Some(bar) = &current.bar {
            bar.set_position(done);
        } else if current.last_line.elapsed() >= LINE_INTERVAL {
            current.last_line = Instant::now();
            let label = &current.label;
            match current.total {
                Some(total) => {
                    let (done, total) = (HumanBytes(done), HumanBytes(total));
                    say::message(format!("{label}: {done} of {total}"));
                }
                None => say::message(format!("{label}: {}", HumanBytes(done))),
            }
        }
    }

    fn end(&self) {
        if let Some(bar) = self.current().take().and_then(|c| c.bar) {
            bar.finish_and_clear();
        }
    }

    fn note(&self, message: &str) {
        say::message(message);
    }
}

/// A bar must not stay on the screen when a transfer fails.
impl Drop for TerminalProgress {
    fn drop(&mut self) {
        self.end();
    }
}
