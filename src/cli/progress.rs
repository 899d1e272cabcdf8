//! How a run shows on stderr: bars where that is a terminal, else plain lines.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::fetch::{Progress, TerminalProgress};
use crate::plan::RunSpec;
use crate::results::{Outcome, ResultRow, render};
use crate::run::{Observation, Reporter, RerunReporter};
use crate::say;

const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of one measurement.
pub struct WindowsBar {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl WindowsBar {
    /// `label` names the run; the bar joins `group` where there is one.
    pub fn new(label: &str, group: Option<&MultiProgress>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = "{prefix} [{bar:24}] {pos}/{len} windows, {elapsed}, ETA {eta}  {msg}";
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> "),
            );
            bar.set_prefix(say::on_one_line(label).into_owned());
            match group {
                Some(group) => group.add(bar),
                None => bar,
            }
        });
        Self {
            bar,
            last_line: Instant::now(),
        }
    }

    pub fn at(&mut self, o: &Observation) {
        let ppl = o.moments.ppl();
        let ppl = ppl.map_or(String::new(), |p| {
            format!("PPL {}", render::ppl(p, o.moments.ppl_err()))
        });
        if let Some(bar) = &self.bar {
            // The passes of a cycle in one row.
            bar.set_length((o.passes * o.windows) as u64);
            bar.set_position((o.pass * o.windows + o.windows_done) as u64);
            bar.set_message(ppl);
        } else if o.windows_done > 0 && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let pass = match o.passes {
                0 | 1 => String::new(),
                n => format!("pass {}/{n}, ", o.pass + 1),
            };
            say::message(format!(
                "  {pass}{}/{} windows  {ppl}",
                o.windows_done, o.windows
            ));
        }
    }
}

impl Drop for WindowsBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows a sweep: a bar for all runs, one for the current run, and a line for
/// each that has ended.
pub struct SweepProgress {
    group: MultiProgress,
    all: Option<ProgressBar>,
    current: Option<WindowsBar>,
    place: String,
    transfers: TerminalProgress,
}

impl SweepProgress {
    pub fn new(runs: usize) -> Self {
        let group = MultiProgress::new();
        let all = (std::io::stderr().is_terminal() && runs > 1).then(|| {
            let bar = group.add(ProgressBar::new(runs as u64));
            let style = "{pos}/{len} runs [{bar:24}] {elapsed}, ETA {eta}";
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> "),
            );
            bar
        });
        Self {
            group,
            all,
            current: None,
            place: String::new(),
            transfers: TerminalProgress::new(),
        }
    }

    fn line(&self, text: &str) {
        // Above the bars, if there are any.
        self.group.suspend(|| say::message(text));
        if let Some(all) = &self.all {
            all.inc(1);
        }
    }
}

impl Reporter for SweepProgress {
    fn begin(&mut self, n: usize, of: usize, run: &RunSpec) {
        self.place = format!("[{n}/{of}] {}", run.key);
        self.current = Some(WindowsBar::new(&run.key, Some(&self.group)));
        if !std::io::stderr().is_terminal() {
            say::message(&self.place);
        }
    }

    fn progress(&mut self, observation: &Observation) {
        if let Some(bar) = &mut self.current {
            bar.at(observation);
        }
    }

    fn end(&mut self, row: &ResultRow, took: Duration) {
        self.current = None;
        let result = match &row.outcome {
            Outcome::Ok(f) => format!("PPL {}", render::ppl(f.ppl, f.ppl_err)),
            Outcome::Failed(reason) => format!("FAILED: {reason}"),
            Outcome::NotRun => "not run".to_owned(),
        };
        self.line(&format!(
            "{}  {result}  ({:.1} s)",
            self.place,
            took.as_secs_f64()
        ));
    }

    fn kept(&mut self, n: usize, of: usize, row: &ResultRow) {
        self.line(&format!("[{n}/{of}] {}  kept", row.key));
    }

    fn transfers(&self) -> &dyn Progress {
        &self.transfers
    }
}

impl Drop for SweepProgress {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            all.finish_and_clear();
        }
    }
}

/// Shows runs that are measured again and again: a bar for the measurement that is
/// on its way, a line for each.
pub struct RerunProgress {
    current: Option<WindowsBar>,
    transfers: TerminalProgress,
}

impl RerunProgress {
    pub fn new() -> Self {
        Self {
            current: None,
            transfers: TerminalProgress::new(),
        }
    }
}

impl RerunProgress {
    /// Takes the bar away.
    pub fn clear(&mut self) {
        self.current = None;
    }
}

impl RerunReporter for RerunProgress {
    fn begin(&mut self, n: usize, of: usize, run: &RunSpec, change: &str) {
        self.current = None;
        say::message(format!("[{n}/{of}] {}: {change}", run.key));
        self.current = Some(WindowsBar::new(change, None));
    }

    fn progress(&mut self, observation: &Observation) {
        if let Some(bar) = &mut self.current {
            bar.at(observation);
        }
    }

    fn failed(&mut self, run: &RunSpec, reason: &str) {
        self.current = None;
        say::message(format!("{}  FAILED: {reason}", run.key));
    }

    fn note(&mut self, run: &RunSpec, note: &str) {
        self.current = None;
        say::message(format!("note: {}: {note}", run.key));
    }

    fn transfers(&self) -> &dyn Progress {
        &self.transfers
    }
}
