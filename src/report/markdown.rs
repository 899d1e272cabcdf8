//! The report as Markdown, for a comment on a pull request: what needs a look first,
//! then verdicts, then everything else folded.

use super::comparison::{self, common_remarks};
use super::html::figures_grid;
use super::names::Names;
use super::{Comparison, Report, Section, divergence, sizes};
use crate::compare::diff::DiffRow;
use crate::render::markdown::{code, for_a_comment, text};

/// Rows that are shown unfolded at most.
const OPEN_ROWS: usize = 20;

impl Report {
    /// The report as Markdown for a pull request.
    pub fn to_markdown(&self) -> String {
        let mut out = format!("## {}\n\nPerplexity report", text(&self.title()));
        for part in self.origin() {
            out += &format!(" · {}", text(&part));
        }
        out.push('\n');
        if let Some(base) = &self.base {
            let path = base.paths().table.display().to_string();
            out += &format!("\nBase (A): {}\n", code(&path));
        }
        out += &self.troubles_in_markdown();
        for section in &self.sections {
            out += &format!("\n### {}\n\n", code(&section.path()));
            for c in &section.comparisons {
                out += &compared(section, c);
            }
            let figures = shared(&section.names) + &figures_grid(section).to_markdown();
            let summary = format!("Figures: {}", section.counts());
            // Beside a comparison, figures are details.
            let open = section.comparisons.is_empty() && section.order.len() <= OPEN_ROWS;
            out += &match open {
                true => format!("{summary}\n\n{figures}\n"),
                false => folded(&summary, &figures),
            };
            let sizes = sizes::in_markdown(section);
            if !sizes.is_empty() {
                out += &format!("{sizes}\n");
            }
            let divergences = divergence::in_markdown(section);
            if !divergences.is_empty() {
                out += &folded("KL divergence from the base model", &divergences);
            }
        }
        out += "\nPPL ± one standard error, as llama-perplexity computes it. σ takes both figures as \
                independent; t is of the paired test, by window over identical tokens. p is adjusted for the \
                number of rows; detectable is the smallest Δ ln PPL that these windows show in four of five \
                repetitions.\n";
        for_a_comment(out)
    }

    /// What a reviewer must look at.
    fn troubles_in_markdown(&self) -> String {
        let troubles = self.troubles();
        if troubles.listed.is_empty() {
            return String::new();
        }
        let mut out = "\nWhat needs a look:\n\n".to_owned();
        for t in &troubles.listed {
            let why = match t.why.as_str() {
                "" => String::new(),
                why => format!(": {}", text(why)),
            };
            out += &format!("- **{}** {}{why}\n", t.what, code(&t.name));
        }
        if troubles.others > 0 {
            out += &format!("- and {} more, in the tables\n", troubles.others);
        }
        out
    }
}

/// What the names of a list leave out.
fn shared(names: &Names) -> String {
    match names.shared() {
        Some(shared) => format!("Runs are named by what differs in {}.\n\n", code(&shared)),
        None => String::new(),
    }
}

/// The summary, what a reviewer must look at, and the rest folded.
fn compared(s: &Section, c: &Comparison) -> String {
    let mut out = format!(
        "{}: **{}**\n\n{}",
        c.title(),
        c.diff.summary(),
        shared(&c.names)
    );
    let common: Vec<String> = common_remarks(c)
        .iter()
        .map(|remark| text(remark))
        .collect();
    if !common.is_empty() {
        out += &format!("In all rows: {}.\n\n", common.join("; "));
    }
    let rows = c.rows();
    let needs_a_look = |row: &&DiffRow| row.urgency() < 3;
    let (open, rest): (Vec<_>, Vec<_>) = match rows.len() > OPEN_ROWS {
        true => rows.into_iter().partition(needs_a_look),
        false => (rows, Vec::new()),
    };
    if !open.is_empty() {
        out += &comparison::grid(s, c, &open).to_markdown();
        out.push('\n');
    }
    if !rest.is_empty() {
        let summary = format!("{} rows that need no look", rest.len());
        out += &folded(&summary, &comparison::grid(s, c, &rest).to_markdown());
    }
    out
}

/// A block that GitHub shows when it is clicked. Markdown in it needs the blank lines.
fn folded(summary: &str, body: &str) -> String {
    format!("<details><summary>{summary}</summary>\n\n{body}\n</details>\n")
}
