//! How a fetch tells how far it is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::HumanBytes;

use crate::say::{self, Foot, bar, clock};

/// Receives the progress of one transfer (or one verification) after another.
pub trait TransferProgress: Sync {
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

impl TransferProgress for Quiet {
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
    foot: Option<Foot>,
    began: Instant,
    /// What was done when it began, for the speed.
    first: Option<u64>,
    last_line: Instant,
}

const LINE_INTERVAL: Duration = Duration::from_secs(5);
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
const BAR_COLUMNS: usize = 10;

impl Current {
    /// A line of at most so many columns.
    fn line(&self, done: u64, columns: usize) -> String {
        let speed = (done - self.first.unwrap_or(done).min(done)) as f64
            / self.began.elapsed().as_secs_f64();
        let rate = format!("{}/s", HumanBytes(speed as u64));
        let right = match self.total {
            Some(total) => {
                let bar = bar(done as f64 / total.max(1) as f64, BAR_COLUMNS);
                let left = total.saturating_sub(done) as f64 / speed;
                let left = Duration::try_from_secs_f64(left);
                let eta = left.map_or(String::new(), |left| format!("  ETA {}", clock(left)));
                format!(
                    "  {bar}  {} of {}  {rate}{eta}",
                    HumanBytes(done),
                    HumanBytes(total)
                )
            }
            None => format!("  {}  {rate}", HumanBytes(done)),
        };
        let label = say::shortened(&self.label, columns.saturating_sub(right.len()));
        say::shortened(&format!("{label}{right}"), columns)
    }
}

impl TerminalProgress {
    /// Shows nothing until there is something to show.
    pub fn new() -> Self {
        Self::default()
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TransferProgress for TerminalProgress {
    fn begin(&self, label: &str, total: Option<u64>) {
        let began = Instant::now();
        *self.current() = Some(Current {
            label: label.to_owned(),
            total,
            foot: say::has_bars().then(Foot::new),
            began,
            first: None,
            last_line: began,
        });
    }

    fn at(&self, done: u64) {
        let mut guard = self.current();
        let Some(current) = guard.as_mut() else {
            return;
        };
        current.first.get_or_insert(done);
        let interval = match current.foot {
            Some(_) => DRAW_INTERVAL,
            None => LINE_INTERVAL,
        };
        if current.last_line.elapsed() < interval {
            return;
        }
        current.last_line = Instant::now();
        let label = &current.label;
        match (&current.foot, current.total) {
            (Some(foot), _) => foot.set(vec![current.line(done, say::columns())]),
            (None, Some(total)) => {
                let (done, total) = (HumanBytes(done), HumanBytes(total));
                say::message(format!("{label}: {done} of {total}"));
            }
            (None, None) => say::message(format!("{label}: {}", HumanBytes(done))),
        }
    }

    fn end(&self) {
        *self.current() = None;
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
