//! The one place that prints.
//!
//! Messages go to stderr and never fail: whoever measures does not depend on who
//! reads along. Output goes to stdout, and whether it could be written is the
//! caller's to know. What names and metadata bring along is shown, not obeyed:
//! characters that move the cursor, colour or reorder text are printed escaped.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

/// Stdout could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to stdout: {0}")]
pub struct OutputError(#[from] io::Error);

/// Prints a line on stderr. A reader that is gone or a disk that is full does not
/// matter.
pub fn message(text: impl std::fmt::Display) {
    // A name that prints itself badly is not a reason to stop, either.
    let mut line = String::new();
    let _ = write!(line, "{text}");
    let write = || at_once(&line);
    match &screen().bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// [`message`], wherever the cursor is: for who may hold the screen himself.
pub fn at_once(text: &str) {
    let line = format!("{}\n", escaped(text));
    // In one piece: lines of several processes do not mix.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Whether stderr is a terminal that bars can be drawn on.
pub fn has_bars() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| io::stderr().is_terminal() && !console::is_dumb())
}

/// Lines at the foot of the terminal, until they are dropped; messages go above
/// them. Nothing where stderr is not a terminal.
pub struct Foot(u64);

/// What stands at the foot: the lines of each [`Foot`], drawn as one.
struct Shown {
    feet: Vec<(u64, Vec<String>)>,
    next: u64,
    bar: Option<ProgressBar>,
}

static SHOWN: Mutex<Shown> = Mutex::new(Shown {
    feet: Vec::new(),
    next: 0,
    bar: None,
});

fn screen() -> MutexGuard<'static, Shown> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Foot {
    /// Below those that are there; without lines yet.
    #[expect(clippy::new_without_default, reason = "it takes room on the screen")]
    pub fn new() -> Self {
        let mut screen = screen();
        let id = screen.next;
        screen.next += 1;
        screen.feet.push((id, Vec::new()));
        Self(id)
    }

    /// Replaces the lines, which are no longer than [`columns`].
    pub fn set(&self, lines: Vec<String>) {
        let mut screen = screen();
        if let Some(foot) = screen.feet.iter_mut().find(|foot| foot.0 == self.0) {
            foot.1 = lines;
        }
        screen.draw();
    }
}

impl Drop for Foot {
    fn drop(&mut self) {
        let mut screen = screen();
        screen.feet.retain(|foot| foot.0 != self.0);
        screen.draw();
    }
}

/// Takes all lines away from the foot of the terminal.
pub fn clear() {
    let mut screen = screen();
    screen.feet.clear();
    screen.draw();
}

impl Shown {
    fn draw(&mut self) {
        if !has_bars() {
            return;
        }
        let lines: Vec<&str> = self
            .feet
            .iter()
            .flat_map(|(_, l)| l)
            .map(String::as_str)
            .collect();
        if lines.is_empty() {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let screen = Box::new(Screen(Term::buffered_stderr()));
            let target = ProgressDrawTarget::term_like_with_hz(screen, 20);
            let bar = ProgressBar::with_draw_target(None, target);
            let style = ProgressStyle::with_template("{msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        bar.set_message(lines.join("\n"));
    }
}

/// `[====>   ]` of so many columns within the brackets, for a share from 0 to 1.
pub fn bar(share: f64, columns: usize) -> String {
    // A cast stops at the limits of its type.
    let full = ((share * columns as f64) as usize).min(columns);
    let head = usize::from(full < columns);
    let rest = columns - full - head;
    let (done, head, rest) = ("=".repeat(full), ">".repeat(head), " ".repeat(rest));
    format!("[{done}{head}{rest}]")
}

/// `1:02:03`, or `2:03`.
pub fn clock(time: Duration) -> String {
    let s = time.as_secs();
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    match h {
        0 => format!("{m}:{s:02}"),
        h => format!("{h}:{m:02}:{s:02}"),
    }
}

/// Columns that a line of a bar may take.
pub fn columns() -> usize {
    // A full line would wrap on some terminals.
    usize::from(Term::stderr().size().1).saturating_sub(1)
}

/// `text` on one line of at most so many columns: what is too long loses its
/// middle, since keys differ at both ends.
pub fn shortened(text: &str, columns: usize) -> String {
    let text = on_one_line(text);
    if console::measure_text_width(&text) <= columns {
        return text.into_owned();
    }
    let room = columns.saturating_sub(1);
    let width = |s: &[char]| console::measure_text_width(&s.iter().collect::<String>());
    let chars: Vec<char> = text.chars().collect();
    let (mut head, mut tail) = (0, chars.len());
    // From both ends in turn, as long as there is room.
    while head < tail {
        let from_head = head <= chars.len() - tail;
        let (h, t) = match from_head {
            true => (head + 1, tail),
            false => (head, tail - 1),
        };
        if width(&chars[..h]) + width(&chars[t..]) > room {
            break;
        }
        (head, tail) = (h, t);
    }
    let mut out: String = chars[..head].iter().collect();
    out.extend(
        std::iter::once('…')
            .chain(chars[tail..].iter().copied())
            .take(columns),
    );
    out
}

/// A terminal that may go away: what cannot be drawn is not drawn.
#[derive(Debug)]
struct Screen(Term);

impl TermLike for Screen {
    fn width(&self) -> u16 {
        self.0.size().1
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        let _ = self.0.move_cursor_up(n);
        Ok(())
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        let _ = self.0.move_cursor_down(n);
        Ok(())
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        let _ = self.0.move_cursor_right(n);
        Ok(())
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        let _ = self.0.move_cursor_left(n);
        Ok(())
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        let _ = self.0.write_line(s);
        Ok(())
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        let _ = self.0.write_str(s);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        let _ = self.0.clear_line();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// Prints text for people on stdout, as it is but for control characters.
///
/// # Errors
/// As [`stream`].
pub fn text(text: &str) -> Result<(), OutputError> {
    stream(|out| out.write_all(escaped(text).as_bytes()))
}

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Green.
    Good,
    /// Red.
    Bad,
    /// Yellow.
    Open,
}

/// Text whose lines may begin with words in colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toned {
    text: String,
    /// Where in `text` words are coloured, in order.
    tones: Vec<(Range<usize>, Tone)>,
}

impl Toned {
    /// Adds text.
    pub fn push(&mut self, text: &str) {
        self.text += text;
    }

    /// Adds words in colour, where there are colours.
    pub fn push_toned(&mut self, words: &str, tone: Option<Tone>) {
        let start = self.text.len();
        self.text += words;
        if let Some(tone) = tone {
            self.tones.push((start..self.text.len(), tone));
        }
    }

    /// Without colours.
    pub fn plain(&self) -> &str {
        &self.text
    }

    fn coloured(&self) -> String {
        let (mut out, mut at) = (String::new(), 0);
        for (place, tone) in &self.tones {
            out += &escaped(&self.text[at..place.start]);
            let words = console::style(escaped(&self.text[place.clone()])).force_styling(true);
            let words = match tone {
                Tone::Good => words.green(),
                Tone::Bad => words.red().bold(),
                Tone::Open => words.yellow(),
            };
            let _ = write!(out, "{words}");
            at = place.end;
        }
        out + &escaped(&self.text[at..])
    }
}

/// [`text`], in colour where the terminal, `NO_COLOR`, `CLICOLOR` and `CLICOLOR_FORCE`
/// want it.
///
/// # Errors
/// As [`stream`].
pub fn toned(toned: &Toned) -> Result<(), OutputError> {
    match console::colors_enabled() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) {
        true => stream(|out| out.write_all(toned.coloured().as_bytes())),
        false => text(toned.plain()),
    }
}

/// Prints what programs read on stdout: every byte as it is, unless a terminal
/// would read it.
///
/// # Errors
/// As [`stream`].
pub fn data(bytes: &[u8]) -> Result<(), OutputError> {
    match io::stdout().is_terminal() {
        true => text(&String::from_utf8_lossy(bytes)),
        false => stream(|out| out.write_all(bytes)),
    }
}

/// Lets `write` write on stdout, buffered. It writes nothing that a terminal would
/// obey. A reader that has seen enough (a closed pipe) ends it quietly.
///
/// # Errors
/// Anything else that keeps stdout from being written.
pub fn stream(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), OutputError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => {
            // What could not be written is not tried again.
            let _ = out.into_parts();
            Ok(())
        }
    }
}

/// `text` with its control characters, those that reorder text among them, as
/// escapes (`\u{1b}`). Newlines and tabs stay.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |c| c != '\n' && c != '\t' && is_control(c))
}

/// [`escaped`] for what has to stay in its line: newlines and tabs are escaped, too.
pub fn on_one_line(text: &str) -> Cow<'_, str> {
    escape(text, is_control)
}

fn escape(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_bad(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether a terminal or a viewer takes a character for an order: C0, DEL, C1,
/// separators of lines, and what changes the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_the_rest_stays() {
        for plain in [
            "",
            "Größe 5 µ, 漢字 🦙",
            "two\nlines\tand a tab",
            "n\u{303}",
        ] {
            assert!(matches!(escaped(plain), Cow::Borrowed(p) if p == plain));
        }
        for (bad, shown) in [
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("over\rwritten", "over\\rwritten"),
            ("back\u{8}space", "back\\u{8}space"),
            ("nul\0, del\u{7f}", "nul\\u{0}, del\\u{7f}"),
            ("c1 \u{9b}31m", "c1 \\u{9b}31m"),
            ("txt\u{202e}fugg", "txt\\u{202e}fugg"),
            ("iso\u{2066}late\u{2069}", "iso\\u{2066}late\\u{2069}"),
            ("line\u{2028}separator", "line\\u{2028}separator"),
        ] {
            assert_eq!(escaped(bad), shown);
            assert_eq!(on_one_line(bad), shown);
        }
        assert_eq!(on_one_line("two\nlines\tand"), "two\\nlines\\tand");
    }

    #[test]
    fn what_is_too_long_loses_its_middle() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("abcdefghij", 7), "abc…hij");
        assert_eq!(shortened("abcdefghij", 6), "abc…ij");
        assert_eq!(shortened("漢字漢字", 6), "漢…字");
        assert_eq!(shortened("a\u{1b}b", 3), "a…b");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("abc", 0), "");
    }

    #[test]
    fn bars_and_times() {
        let bars = [0.0, 0.5, 0.99, 1.0, f64::NAN].map(|share| bar(share, 4));
        assert_eq!(bars, ["[>   ]", "[==> ]", "[===>]", "[====]", "[>   ]"]);
        let of = |s| clock(Duration::from_secs(s));
        assert_eq!(
            [of(0), of(59), of(61), of(3723)],
            ["0:00", "0:59", "1:01", "1:02:03"]
        );
    }
}
