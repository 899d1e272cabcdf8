//! The one place that prints.
//!
//! Messages go to stderr and never fail: whoever measures does not depend on who
//! reads along. Output goes to stdout, and whether it could be written is the
//! caller's to know. What names and metadata bring along is shown, not obeyed:
//! characters that move the cursor, colour or reorder text are printed escaped.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use console::Term;
use indicatif::{MultiProgress, ProgressDrawTarget, TermLike};

/// Stdout could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to stdout: {0}")]
pub struct OutputError(#[from] io::Error);

/// Prints a line on stderr. A reader that is gone or a disk that is full does not
/// matter.
pub fn message(text: impl std::fmt::Display) {
    // A name that prints itself badly is no reason to stop, either.
    let mut line = String::new();
    let _ = write!(line, "{text}");
    let line = format!("{}\n", escaped(&line));
    // At once: lines of several processes do not mix.
    let write = || drop(io::stderr().write_all(line.as_bytes()));
    match has_bars() {
        true => bars().suspend(write),
        false => write(),
    }
}

/// Whether stderr is a terminal that bars can be drawn on.
pub fn has_bars() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| io::stderr().is_terminal() && !console::is_dumb())
}

/// The bars at the foot of the terminal; messages go above them. Hidden where
/// stderr is no terminal.
pub fn bars() -> &'static MultiProgress {
    static BARS: OnceLock<MultiProgress> = OnceLock::new();
    BARS.get_or_init(|| {
        let target = match has_bars() {
            true => {
                let screen = Screen(Term::buffered_stderr());
                ProgressDrawTarget::term_like_with_hz(Box::new(screen), 20)
            }
            false => ProgressDrawTarget::hidden(),
        };
        MultiProgress::with_draw_target(target)
    })
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
}
