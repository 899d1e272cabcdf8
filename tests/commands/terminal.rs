//! What a terminal of 80 columns shows.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use super::project::Project;
use crate::support::tiny::text;

const COLUMNS: usize = 80;

/// A terminal: whose end the program has, and the other.
fn terminal() -> (OwnedFd, File) {
    let size = libc::winsize {
        ws_row: 24,
        ws_col: COLUMNS as u16,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: all pointers are to things that outlive the call, or null; both
    // descriptors are new and have no other owner.
    unsafe {
        let (name, modes) = (std::ptr::null_mut(), std::ptr::null());
        let result = libc::openpty(&mut ours, &mut theirs, name, modes, &size);
        assert_eq!(result, 0);
        (OwnedFd::from_raw_fd(theirs), File::from_raw_fd(ours))
    }
}

/// Lines of text with a cursor, and what bars need of a terminal's orders.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    order: Option<String>,
}

impl Screen {
    fn put(&mut self, c: char) {
        if let Some(order) = &mut self.order {
            order.push(c);
            if c.is_ascii_alphabetic() {
                let order = self.order.take().unwrap();
                self.obey(&order);
            }
            return;
        }
        match c {
            '\u{1b}' => self.order = Some(String::new()),
            '\r' => self.column = 0,
            '\n' => self.row += 1,
            c => {
                if self.column == COLUMNS {
                    (self.row, self.column) = (self.row + 1, 0);
                }
                let column = self.column;
                let line = self.line();
                if line.len() <= column {
                    line.resize(column + 1, ' ');
                }
                line[column] = c;
                self.column += 1;
            }
        }
    }

    fn line(&mut self) -> &mut Vec<char> {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, Vec::new());
        }
        &mut self.lines[self.row]
    }

    fn obey(&mut self, order: &str) {
        let (n, what) = order[1..].split_at(order.len() - 2);
        let n = n.parse().unwrap_or(1);
        match what {
            "A" => self.row = self.row.saturating_sub(n),
            "B" => self.row += n,
            "C" => self.column = (self.column + n).min(COLUMNS - 1),
            "D" => self.column = self.column.saturating_sub(n),
            "K" => self.line().clear(),
            "m" => {}
            _ => panic!("the terminal does not know {order:?}"),
        }
    }

    fn text(&self) -> Vec<String> {
        let line = |l: &Vec<char>| l.iter().collect::<String>().trim_end().to_owned();
        self.lines
            .iter()
            .map(line)
            .filter(|l| !l.is_empty())
            .collect()
    }
}

/// Every screen after a piece of output of a command, the last one at its end.
fn screens(mut command: Command) -> Vec<Vec<String>> {
    let (theirs, mut ours) = terminal();
    command
        .env("TERM", "xterm")
        .stderr(theirs)
        .stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command); // and with it our copy of their end
    let (mut screen, mut all) = (Screen::default(), Vec::new());
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    // At its end a terminal's reader has an error.
    while let Ok(n @ 1..) = ours.read(&mut piece) {
        bytes.extend(&piece[..n]);
        let whole = match std::str::from_utf8(&bytes) {
            Ok(text) => text.len(),
            Err(e) => e.valid_up_to(),
        };
        let text = String::from_utf8(bytes.drain(..whole).collect()).unwrap();
        text.chars().for_each(|c| screen.put(c));
        all.push(screen.text());
    }
    assert!(child.wait().unwrap().success());
    all
}

#[test]
fn bars_move_and_leave_nothing_behind() {
    let project = Project::new();
    let corpus = format!("c/{}.txt", "long-name-".repeat(12));
    project.write(&corpus, &text(20_000));
    let experiment = format!(
        "name = \"x\"\n[sweep]\ncorpora = [\"{corpus}\"]\ncontexts = [32, 48]\n\
         [[models]]\npath = \"m/llama.gguf\"\n"
    );
    project.write("experiments/x.toml", &experiment);
    let run = ["run", "experiments/x.toml", "-t", "1"];
    let all = screens(project.command(&run));
    let has = |screen: &[String], what: &str| screen.iter().filter(|l| l.contains(what)).count();
    assert!(
        all.iter()
            .any(|s| has(s, " windows") == 1 && has(s, " %") == 1),
        "{all:#?}"
    );
    assert!(all.iter().any(|s| has(s, "0/2 runs, ") == 1));
    for screen in &all {
        // Never two of them, which is what a line that wrapped leaves.
        for part in [" windows", " runs, ", "loading, "] {
            assert!(has(screen, part) <= 1, "{screen:#?}");
        }
    }
    // One line a run, which the terminal wraps as it likes, and notes.
    let end = all.last().unwrap();
    for part in [" windows", " runs, ", "loading", "[=", "[>", "ETA"] {
        assert_eq!(has(end, part), 0, "{end:#?}");
    }
    assert_eq!(has(end, "[1/2] llama/long-name-"), 1, "{end:#?}");
    assert_eq!(has(end, "[2/2] llama/long-name-"), 1, "{end:#?}");
    assert_eq!(has(end, "PPL "), 2, "{end:#?}");
}
