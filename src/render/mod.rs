//! Text and Markdown for people, of tables and of what compares them. Who calls for it
//! prints it.

mod attribution;
mod diff;
pub mod kld;
pub(crate) mod markdown;
mod noise;

use crate::results::schema::status_text;
use crate::results::{Outcome, ResultRow};

pub use crate::stats::format::{delta_ln_ppl, percent, ppl, probability, signed, small};

/// The key figures of `rows`, one run a line and notes below their run.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a ResultRow>) -> String {
    let header = ["run", "PPL", "reference", "Δ", "Δ %", "σ"].map(str::to_owned);
    let mut lines = vec![(header, None)];
    for row in rows {
        let mut cells = [const { String::new() }; 6];
        cells[0].clone_from(&row.key);
        match &row.outcome {
            Outcome::Ok(f) => {
                cells[1] = ppl(f.ppl, f.ppl_err);
                if let Some(r) = &f.reference {
                    cells[2] = ppl(r.ppl, r.err);
                    cells[3] = signed(r.delta, 4);
                    cells[4] = signed(r.delta_pct, 3);
                    cells[5] = r.sigma.map_or_else(|| "-".to_owned(), |s| signed(s, 2));
                }
            }
            other => cells[1] = status_text(other),
        }
        lines.push((cells, Some(row)));
    }
    // A reason of failure is as long as it is: it does not widen the column.
    let figures = |c: &str| !c.starts_with("failed");
    let mut widths = [0; 6];
    for (cells, _) in &lines {
        for (w, c) in widths.iter_mut().zip(cells).filter(|(_, c)| figures(c)) {
            *w = (*w).max(c.chars().count());
        }
    }
    let mut out = String::new();
    for (cells, row) in &lines {
        let mut line = format!("{:<w$}", cells[0], w = widths[0]);
        for (c, w) in cells[1..].iter().zip(&widths[1..]) {
            line += &if figures(c) {
                format!("  {c:>w$}")
            } else {
                format!("  {c}")
            };
        }
        out += line.trim_end();
        out.push('\n');
        for note in row.iter().flat_map(|r| [&r.ref_note, &r.note]) {
            if !note.is_empty() {
                out += &format!("    note: {}\n", one_line(note));
            }
        }
    }
    out
}

/// The text on one line, which line breaks would tear. What is not a visible
/// character, and could make a terminal or a page show something else than is
/// there, is escaped: control characters and those that set the direction of text.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        for c in word.chars() {
            let invisible = matches!(
                c,
                '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
            );
            if c.is_control() || invisible {
                out.extend(c.escape_unicode());
            } else {
                out.push(c);
            }
        }
    }
    out
}
