//! How a run shows on stderr: lines at the foot of the terminal that a thread keeps
//! up to date, or a plain line now and then.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::signals;
use crate::backend::Interrupt;
use crate::fetch::{TerminalProgress, TransferProgress};
use crate::plan::RunSpec;
use crate::render;
use crate::results::{Outcome, ResultRow};
use crate::run::{Observation, Reporter, RerunReporter};
use crate::say::{self, Foot, bar, clock};

/// Between two drawings.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// A shorter time says nothing of the speed.
const WARM_UP: Duration = Duration::from_secs(2);
const BAR_COLUMNS: usize = 20;

/// What is known of one measurement.
struct Measuring {
    label: String,
    began: Instant,
    /// Seconds that it should take.
    expected: Option<f64>,
    counter: Interrupt,
    seen: Option<Seen>,
}

/// What the evaluation has told.
struct Seen {
    first: Instant,
    /// The counter's at `first`, and what will be added to it.
    before: u64,
    work: u64,
    evaluated: usize,
    pass: usize,
    passes: usize,
    windows_done: usize,
    windows: usize,
    ppl: String,
}

impl Measuring {
    fn new(label: &str, counter: &Interrupt, expected: Option<f64>) -> Self {
        Self {
            label: label.to_owned(),
            began: Instant::now(),
            expected,
            counter: counter.clone(),
            seen: None,
        }
    }

    fn see(&mut self, o: &Observation) {
        let ppl = o.moments.ppl();
        let ppl = ppl.map(|p| format!("PPL {}", render::ppl(p, o.moments.ppl_err())));
        let old = self.seen.as_ref();
        self.seen = Some(Seen {
            first: old.map_or_else(Instant::now, |s| s.first),
            before: old.map_or_else(|| self.counter.work(), |s| s.before),
            work: o.work,
            evaluated: o.evaluated,
            pass: o.pass,
            passes: o.passes.max(1),
            windows_done: o.windows_done,
            windows: o.windows,
            ppl: ppl.unwrap_or_default(),
        });
    }

    /// The share that is done, from 0 to 1: of the work that is counted while it is
    /// done, or of the windows that are finished.
    fn share(&self) -> f64 {
        let Some(seen) = &self.seen else {
            return 0.0;
        };
        let worked = self.counter.work().saturating_sub(seen.before);
        let share = match worked {
            0 => {
                let windows = (seen.passes * seen.windows).max(1);
                (seen.pass * seen.windows + seen.windows_done) as f64 / windows as f64
            }
            worked => worked as f64 / seen.work.max(1) as f64,
        };
        share.min(1.0)
    }

    /// Seconds that it takes in all, once it has run for a while.
    fn measured(&self) -> Option<f64> {
        let elapsed = self.seen.as_ref()?.first.elapsed();
        let share = self.share();
        (share > 0.0 && elapsed >= WARM_UP).then(|| elapsed.as_secs_f64() / share)
    }

    /// Seconds that it has left: measured, or else expected.
    fn left(&self) -> Option<f64> {
        match self.measured() {
            Some(all) => Some(all * (1.0 - self.share())),
            None => {
                let expected = self.expected?;
                Some((expected - self.began.elapsed().as_secs_f64()).max(0.0))
            }
        }
    }

    /// What is said of it, the most important first.
    fn parts(&self) -> Vec<String> {
        let share = self.share();
        let Some(seen) = &self.seen else {
            return vec![format!("loading, {}", clock(self.began.elapsed()))];
        };
        let pass = match seen.passes {
            1 => String::new(),
            n => format!("pass {}/{n}, ", seen.pass + 1),
        };
        let mut parts = vec![
            format!("{:3.0} %", (100.0 * share).floor()),
            format!("{pass}{}/{} windows", seen.windows_done, seen.windows),
        ];
        if let Some(left) = self.left() {
            parts.push(format!("ETA {}", clock(seconds(left))));
        }
        if let Some(all) = self.measured() {
            let speed = seen.evaluated as f64 / all;
            parts.push(match speed < 10.0 {
                true => format!("{speed:.1} tok/s"),
                false => format!("{speed:.0} tok/s"),
            });
        }
        if !seen.ppl.is_empty() {
            parts.push(seen.ppl.clone());
        }
        parts
    }

    /// A bar and as much as fits beside it.
    fn line(&self, columns: usize) -> String {
        let mut line = String::from("  ");
        if self.seen.is_some() && columns >= 60 {
            line += &bar(self.share(), BAR_COLUMNS);
        }
        for (i, part) in self.parts().iter().enumerate() {
            let gap = if i == 0 { " " } else { "  " };
            if line.len() + gap.len() + part.len() <= columns {
                line += gap;
                line += part;
            }
        }
        say::shortened(&line, columns)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// What a thread shows until it is dropped.
trait Shown: Send + 'static {
    /// Lines of at most so many columns, for the foot of a terminal.
    fn lines(&self, columns: usize) -> Vec<String>;

    /// A line for where there is no terminal, if there is something to say.
    fn plain(&self) -> Option<String>;
}

struct Live<S> {
    state: Arc<Mutex<S>>,
    foot: Option<Arc<Foot>>,
    ended: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Shown> Live<S> {
    fn new(state: S) -> Self {
        let foot = say::has_bars().then(|| Arc::new(Foot::new()));
        let state = Arc::new(Mutex::new(state));
        let (ended, end) = mpsc::channel();
        let (shown, drawn) = (state.clone(), foot.clone());
        let show = move || {
            let every = match drawn {
                Some(_) => DRAW_INTERVAL,
                None => LINE_INTERVAL,
            };
            while end.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                match &drawn {
                    Some(foot) => draw(foot, &shown),
                    None => {
                        let line = lock(&shown).plain();
                        line.into_iter().for_each(say::message);
                    }
                }
            }
        };
        let live = Self {
            // Without a thread nothing moves between two observations.
            thread: start(show).ok(),
            state,
            foot,
            ended,
        };
        live.draw();
        live
    }

    fn update<T>(&self, f: impl FnOnce(&mut S) -> T) -> T {
        let result = f(&mut lock(&self.state));
        self.draw();
        result
    }

    fn draw(&self) {
        if let Some(foot) = &self.foot {
            draw(foot, &self.state);
        }
    }
}

fn start(f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("progress".to_owned());
    thread.spawn(f)
}

fn lock<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw<S: Shown>(foot: &Foot, state: &Mutex<S>) {
    let lines = lock(state).lines(say::columns());
    foot.set(lines);
}

impl<S> Drop for Live<S> {
    fn drop(&mut self) {
        let _ = self.ended.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shown for Measuring {
    fn lines(&self, columns: usize) -> Vec<String> {
        vec![say::shortened(&self.label, columns), self.line(columns)]
    }

    fn plain(&self) -> Option<String> {
        self.seen.as_ref()?;
        Some(format!("  {}", self.parts().join(", ").trim_start()))
    }
}

/// The progress of one measurement.
pub struct WindowsBar(Live<Measuring>);

impl WindowsBar {
    /// `label` says what is measured, `counter` counts the work.
    pub fn new(label: &str, counter: &Interrupt) -> Self {
        Self(Live::new(Measuring::new(label, counter, None)))
    }

    pub fn at(&mut self, o: &Observation) {
        self.0.update(|m| m.see(o));
    }
}

/// What is known of a sweep.
struct Sweeping {
    began: Instant,
    /// Seconds that each run should take, where that is known.
    expected: Vec<Option<f64>>,
    /// Runs that have ended, for the bar.
    ended: usize,
    /// Seconds of those that were measured, what was expected of them, and how many.
    took: f64,
    should: f64,
    measured: usize,
    current: Option<Measuring>,
}

impl Sweeping {
    /// How much longer things take than they should: as those that have ended, or
    /// the one that runs.
    fn factor(&self) -> f64 {
        let current = self.current.as_ref();
        let current = current.and_then(|m| Some((m.measured()?, m.expected?)));
        match current {
            _ if self.should > 0.0 => self.took / self.should,
            Some((takes, should)) if should > 0.0 => takes / should,
            _ => 1.0,
        }
    }

    /// Seconds that the sweep has left: what is expected of the runs that are left,
    /// as much longer as others took.
    fn left(&self) -> Option<f64> {
        let current = match &self.current {
            Some(m) => m.left()?,
            None => 0.0,
        };
        let begun = self.ended + usize::from(self.current.is_some());
        let later = self.expected.get(begun..).unwrap_or_default();
        let expected: Option<f64> = later.iter().copied().sum();
        let later = match (expected, self.measured) {
            (Some(expected), _) => expected * self.factor(),
            (None, 0) => return None,
            (None, n) => self.took / n as f64 * later.len() as f64,
        };
        Some(current + later)
    }
}

impl Shown for Sweeping {
    fn lines(&self, columns: usize) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(m) = &self.current {
            lines = m.lines(columns);
        }
        if self.expected.len() > 1 {
            let (ended, of) = (self.ended, self.expected.len());
            let mut line = format!("{ended}/{of} runs, {}", clock(self.began.elapsed()));
            if let Some(left) = self.left() {
                line += &format!(", ETA {}", clock(seconds(left)));
            }
            lines.push(say::shortened(&line, columns));
        }
        lines
    }

    fn plain(&self) -> Option<String> {
        self.current.as_ref()?.plain()
    }
}

/// Shows a sweep: the current run, how many there are, and a line for each that has
/// ended.
pub struct SweepProgress {
    live: Live<Sweeping>,
    counter: Interrupt,
    place: String,
    finished: usize,
    runs: usize,
    transfers: TerminalProgress,
}

impl SweepProgress {
    /// `expected`: seconds that each run should take; `counter` counts the work.
    pub fn new(expected: Vec<Option<f64>>, counter: &Interrupt) -> Self {
        let runs = expected.len();
        let progress = Self {
            live: Live::new(Sweeping {
                began: Instant::now(),
                expected,
                ended: 0,
                took: 0.0,
                should: 0.0,
                measured: 0,
                current: None,
            }),
            counter: counter.clone(),
            place: String::new(),
            finished: 0,
            runs,
            transfers: TerminalProgress::new(),
        };
        progress.set_last_words();
        progress
    }

    /// The rows of runs that have ended are on the disk when the next one begins.
    fn set_last_words(&self) {
        signals::set_last_words(&interrupted(self.finished, self.runs));
    }
}

/// How far an interrupted sweep is.
pub fn interrupted(finished: usize, runs: usize) -> String {
    format!(
        "interrupted with {finished} of {runs} runs finished; the other rows are as they were; --resume \
         measures what is missing"
    )
}

impl Reporter for SweepProgress {
    fn begin(&mut self, n: usize, of: usize, run: &RunSpec) {
        self.set_last_words();
        self.place = format!("[{n}/{of}] {}", say::on_one_line(&run.key));
        if !say::has_bars() {
            say::message(&self.place);
        }
        self.live.update(|s| {
            let expected = s.expected.get(n - 1).copied().flatten();
            let expected = expected.map(|seconds| seconds * s.factor());
            s.ended = n - 1;
            s.current = Some(Measuring::new(&self.place, &self.counter, expected));
        });
    }

    fn progress(&mut self, observation: &Observation) {
        self.live.update(|s| {
            if let Some(m) = &mut s.current {
                m.see(observation);
            }
        });
    }

    fn end(&mut self, row: &ResultRow, took: Duration) {
        self.live.update(|s| {
            let took = took.as_secs_f64();
            s.current = None;
            if let Outcome::Ok(_) = &row.outcome {
                let expected = s.expected.get(s.ended).copied().flatten();
                s.should += expected.unwrap_or(0.0);
                s.took += took;
                s.measured += 1;
            }
            s.ended += 1;
        });
        let result = match &row.outcome {
            Outcome::Ok(f) => {
                self.finished += 1;
                format!("PPL {}", render::ppl(f.ppl, f.ppl_err))
            }
            Outcome::Failed(reason) => format!("FAILED: {reason}"),
            Outcome::NotRun => "not run".to_owned(),
        };
        let (place, took) = (&self.place, took.as_secs_f64());
        say::message(format!("{place}  {result}  ({took:.1} s)"));
        if !row.note.is_empty() {
            say::message(format!("note: {}: {}", row.key, row.note));
        }
    }

    fn kept(&mut self, n: usize, of: usize, row: &ResultRow) {
        self.finished += 1;
        self.live.update(|s| s.ended = n);
        let key = say::on_one_line(&row.key);
        say::message(format!("[{n}/{of}] {key}  kept"));
    }

    fn transfers(&self) -> &dyn TransferProgress {
        &self.transfers
    }
}

/// Shows runs that are measured again and again: the measurement that is on its way,
/// a line for each.
pub struct RerunProgress {
    current: Option<WindowsBar>,
    counter: Interrupt,
    transfers: TerminalProgress,
}

impl RerunProgress {
    /// `counter` counts the work.
    pub fn new(counter: &Interrupt) -> Self {
        Self {
            current: None,
            counter: counter.clone(),
            transfers: TerminalProgress::new(),
        }
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        self.current = None;
    }
}

impl RerunReporter for RerunProgress {
    fn begin(&mut self, n: usize, of: usize, run: &RunSpec, change: &str) {
        self.current = None;
        let place = format!("[{n}/{of}] {}: {change}", say::on_one_line(&run.key));
        say::message(&place);
        self.current = Some(WindowsBar::new(&place, &self.counter));
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

    fn transfers(&self) -> &dyn TransferProgress {
        &self.transfers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::Moments;

    fn seen(m: &mut Measuring, windows_done: usize, work: u64) {
        m.see(&Observation {
            pass: 0,
            passes: 1,
            windows_done,
            windows: 40,
            work,
            evaluated: 20_000,
            moments: Moments::default(),
            new: &[],
        });
    }

    #[test]
    fn a_bar_moves_with_the_work_within_a_batch() {
        let counter = Interrupt::default();
        counter.worked(500); // of an earlier run
        let mut m = Measuring::new("key", &counter, Some(60.0));
        assert!(m.line(79).starts_with("   loading, 0:00"), "{}", m.line(79));
        assert_eq!(m.plain(), None);
        seen(&mut m, 0, 1000);
        let line = m.line(79);
        assert!(
            line.contains("[>                   ]   0 %  0/40 windows"),
            "{line}"
        );
        assert!(
            line.ends_with("ETA 0:59") || line.ends_with("ETA 1:00"),
            "{line}"
        );
        counter.worked(250);
        let line = m.line(79);
        assert!(
            line.contains("[=====>              ]  25 %  0/40 windows"),
            "{line}"
        );
        counter.worked(750);
        seen(&mut m, 40, 1000);
        let line = m.line(79);
        assert!(
            line.contains("[====================] 100 %  40/40 windows"),
            "{line}"
        );
        // A backend that counts nothing moves by windows.
        let mut m = Measuring::new("key", &Interrupt::default(), None);
        seen(&mut m, 10, 1000);
        assert!(m.line(79).contains("25 %  10/40"), "{}", m.line(79));
    }

    #[test]
    fn an_eta_is_measured_after_a_while_and_expected_before() {
        let counter = Interrupt::default();
        let mut m = Measuring::new("key", &counter, Some(1000.0));
        seen(&mut m, 0, 100);
        counter.worked(20);
        assert!((999.0..=1000.0).contains(&m.left().unwrap()));
        if let Some(seen) = &mut m.seen {
            seen.first = seen.first.checked_sub(Duration::from_secs(10)).unwrap();
        }
        // A fifth in ten seconds.
        assert!((40.0..41.0).contains(&m.left().unwrap()));
        let line = m.line(79);
        assert!(line.contains("ETA 0:40  400 tok/s"), "{line}");
        for columns in 0..100 {
            let lines = m.lines(columns);
            assert!(
                lines.iter().all(|l| l.chars().count() <= columns),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn a_sweep_has_an_eta_in_the_measure_of_what_has_ended() {
        let mut s = Sweeping {
            began: Instant::now(),
            expected: vec![Some(10.0), Some(20.0), Some(30.0)],
            ended: 0,
            took: 0.0,
            should: 0.0,
            measured: 0,
            current: None,
        };
        assert_eq!(s.left(), Some(60.0));
        (s.ended, s.measured, s.took, s.should) = (1, 1, 5.0, 10.0);
        assert_eq!(s.left(), Some(25.0));
        s.expected[2] = None;
        assert_eq!(s.left(), Some(10.0));
        (s.measured, s.took) = (0, 0.0);
        assert_eq!(s.left(), None);
        assert_eq!(s.lines(79), ["1/3 runs, 0:00"]);
    }
}
