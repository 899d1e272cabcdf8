//! Tables of a report: one content, as HTML and as Markdown. Columns that are empty
//! throughout are left out of both.

use maud::{Markup, html};

use super::elements::{name, table};
use crate::render::markdown::{code, text};
use crate::render::one_line;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub title: &'static str,
    /// Numbers stand at the right.
    pub is_number: bool,
}

/// A column of numbers.
pub(super) const fn number(title: &'static str) -> Column {
    Column {
        title,
        is_number: true,
    }
}

/// A column of words.
pub(super) const fn words(title: &'static str) -> Column {
    Column {
        title,
        is_number: false,
    }
}

/// What stands in a column; empty text says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub text: String,
    /// What belongs to it, such as its error.
    pub more: String,
    /// Its class in the page: `good`, `open`, `bad`.
    pub class: &'static str,
}

impl Cell {
    pub fn new(text: impl Into<String>) -> Self {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }

    /// The same with what belongs to it.
    pub fn and(self, more: impl Into<String>) -> Self {
        Cell {
            more: more.into(),
            ..self
        }
    }

    pub fn classed(self, class: &'static str) -> Self {
        Cell { class, ..self }
    }

    /// Empty where there is nothing.
    pub fn of(text: Option<String>) -> Self {
        Cell::new(text.unwrap_or_default())
    }
}

/// A row.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// Of the run, which the row leads to.
    pub number: Option<usize>,
    /// What the run is called in this table.
    pub name: String,
    /// What must be known besides.
    pub remarks: String,
    /// One a column, but for those at the end that are empty.
    pub cells: Vec<Cell>,
    /// Why its first cell says what it does: a status, a verdict.
    pub why: String,
}

/// A table.
pub(super) struct Grid {
    columns: Vec<Column>,
    lines: Vec<Line>,
}

impl Grid {
    /// Rows with their columns, those that are empty throughout left out.
    pub fn new(columns: &[Column], mut lines: Vec<Line>) -> Self {
        let is_empty = |line: &Line, i: usize| line.cells.get(i).is_none_or(|c| c.text.is_empty());
        let filled = |i: usize| lines.iter().any(|line| !is_empty(line, i));
        let kept: Vec<bool> = (0..columns.len()).map(filled).collect();
        for line in &mut lines {
            let mut kept = kept.iter();
            line.cells.retain(|_| kept.next().is_some_and(|kept| *kept));
        }
        let columns = columns.iter().zip(&kept);
        let columns = columns
            .filter(|(_, kept)| **kept)
            .map(|(c, _)| *c)
            .collect();
        Grid { columns, lines }
    }

    /// The table with its caption. `id` is unique in the page.
    pub fn to_html(&self, id: &str, caption: Markup) -> Markup {
        let class = |c: &Column| if c.is_number { "num" } else { "" };
        let rows = html! {
            thead {
                tr {
                    th scope="col" { "run" }
                    @for c in &self.columns { th scope="col" class=(class(c)) { (c.title) } }
                }
            }
            tbody { @for line in &self.lines { (self.html_line(line)) } }
        };
        table(id, caption, rows)
    }

    fn html_line(&self, line: &Line) -> Markup {
        let rest = self.columns.len().saturating_sub(line.cells.len());
        let has_rest = rest > 0;
        html! {
            tr {
                th scope="row" {
                    @match line.number {
                        Some(n) => a href={ "#run-" (n) } { (n) " · " (name(&line.name)) },
                        None => (name(&line.name)),
                    }
                    @for text in [&line.why, &line.remarks] {
                        @let is_below = has_rest && text == &line.why;
                        @if !text.is_empty() && !is_below { p.soft { bdi { (one_line(text)) } } }
                    }
                }
                @for (c, cell) in self.columns.iter().zip(&line.cells) {
                    @let number = if c.is_number { "num " } else { "" };
                    @let class = if cell.text.is_empty() { "none" } else { cell.class };
                    td class={ (number) (class) } data-label=(c.title) {
                        @if cell.text.is_empty() { "–" } @else { bdi { (one_line(&cell.text)) } }
                        @if !cell.more.is_empty() { " " small { (one_line(&cell.more)) } }
                    }
                }
                @if has_rest { td.text colspan=(rest) { bdi { (one_line(&line.why)) } } }
            }
        }
    }

    /// The table.
    pub fn to_markdown(&self) -> String {
        let mut out = "| run |".to_owned();
        let mut rule = "| --- |".to_owned();
        for c in &self.columns {
            out += &format!(" {} |", c.title);
            rule += if c.is_number { " ---: |" } else { " --- |" };
        }
        out += &format!("\n{rule}\n");
        for line in &self.lines {
            let empty = Cell::default();
            let mut cells = vec![format!("{} {}", code(&line.name), text(&line.remarks))];
            for i in 0..self.columns.len() {
                let cell = line.cells.get(i).unwrap_or(&empty);
                cells.push(format!("{} {}", text(&cell.text), text(&cell.more)));
            }
            if let (Some(cell), false) = (cells.get_mut(1), line.why.is_empty()) {
                *cell = format!("{}: {}", cell.trim(), text(&line.why));
            }
            let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).collect();
            out += &format!("| {} |\n", cells.join(" | "));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let line = |name: &str, cells: &[&str], why: &str| Line {
            name: name.to_owned(),
            cells: cells.iter().map(|c| Cell::new(*c)).collect(),
            why: why.to_owned(),
            ..Line::default()
        };
        let columns = [words("status"), number("a"), number("b"), number("c")];
        let lines = vec![
            line("x", &["failed"], "no | b"),
            line("y", &["ok", "1", "", "3"], ""),
            line("z", &["ok", "", "", "4"], ""),
        ];
        Grid::new(&columns, lines)
    }

    #[test]
    fn columns_that_are_empty_throughout_are_left_out() {
        assert_eq!(
            grid().to_markdown(),
            "| run | status | a | c |\n| --- | --- | ---: | ---: |\n\
             | `x` | failed: <code>no &#124; b</code> |  |  |\n| `y` | ok | 1 | 3 |\n| `z` | ok |  | 4 |\n"
        );
        let html = grid().to_html("t", html! { "caption" }).into_string();
        assert!(!html.contains("data-label=\"b\""), "{html}");
        assert_eq!(html.matches("<td class=\"num none\"").count(), 1, "{html}");
        assert!(
            html.contains("<td class=\"text\" colspan=\"2\"><bdi>no | b"),
            "{html}"
        );
    }
}
