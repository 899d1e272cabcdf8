//! The report as Markdown, for a comment on a pull request: verdicts first, then
//! what has no figure, then everything else folded.

use super::{Entry, Report, Section, divergence};
use crate::compare::diff::{Diff, Verdict};
use crate::render::markdown::{code, for_a_comment, text};
use crate::render::{ppl, signed};
use crate::results::{Outcome, ResultRow};

/// Rows that are shown unfolded at most.
const OPEN_ROWS: usize = 20;

impl Report {
    /// The report as Markdown for a pull request.
    pub fn to_markdown(&self) -> String {
        let mut out = "## Perplexity report\n".to_owned();
        if let Some(base) = &self.base {
            let path = base.paths().table.display().to_string();
            out += &format!("\nBase (A): {}\n", code(&path));
        }
        for section in &self.sections {
            out += &format!("\n### {}\n\n", code(&section.path()));
            if let Some(diff) = &section.diff {
                out += &comparison(diff);
            }
            if let Some(diff) = &section.among {
                out += &format!("Runs against each other. {}", comparison(diff));
            }
            out += &unmeasured(section);
            let rows: Vec<_> = section.entries().map(|e| e.row).collect();
            let figures = figures(&rows);
            // Beside a comparison, figures are details.
            let divergences = divergence::in_markdown(section);
            let open = section.diff.is_none() && rows.len() <= OPEN_ROWS;
            let summary = format!("Figures: {}", section.counts());
            out += &match open {
                true => format!("{summary}\n\n{figures}\n"),
                false => folded(&summary, &figures),
            };
            if !divergences.is_empty() {
                out += &folded("KL divergence from the base model", &divergences);
            }
        }
        out += "\nPPL ± one standard error, as llama-perplexity computes it. σ takes both figures as \
                independent; t is of the paired test, by window over identical tokens. p is adjusted for the \
                number of rows.\n";
        for_a_comment(out)
    }
}

/// The summary, what a reviewer must look at, and the rest folded.
fn comparison(diff: &Diff) -> String {
    let mut out = format!("**{}**\n\n", diff.summary());
    let (mut open, mut rest) = (Vec::new(), Vec::new());
    for row in &diff.rows {
        let good = matches!(row.verdict, Verdict::Pass | Verdict::BelowNoiseFloor);
        if good && diff.rows.len() > OPEN_ROWS {
            rest.push(row);
        } else {
            open.push(row);
        }
    }
    if !open.is_empty() {
        out += &Diff::markdown_table(open);
        out.push('\n');
    }
    if !rest.is_empty() {
        let summary = format!("{} rows that pass or are below the noise floor", rest.len());
        out += &folded(&summary, &Diff::markdown_table(rest));
    }
    out
}

/// Runs without figures, with the reason.
fn unmeasured(section: &Section) -> String {
    let mut out = String::new();
    for Entry { row, .. } in section.entries() {
        let what = match &row.outcome {
            Outcome::Ok(_) => continue,
            Outcome::Failed(why) => format!("failed: {}", text(why)),
            Outcome::NotRun => "not run".to_owned(),
        };
        out += &format!("- {}: **{what}**\n", code(&row.key));
    }
    match out.is_empty() {
        true => out,
        false => format!("Without a figure:\n\n{out}\n"),
    }
}

fn figures(rows: &[&ResultRow]) -> String {
    let mut out = "| run | status | PPL | reference | Δ | Δ % | σ |\n\
                   | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for row in rows {
        let mut cells = [const { String::new() }; 5];
        let status = match &row.outcome {
            Outcome::Ok(f) => {
                cells[0] = ppl(f.ppl, f.ppl_err);
                if let Some(r) = &f.reference {
                    cells[1] = ppl(r.ppl, r.err);
                    cells[2] = signed(r.delta, 4);
                    cells[3] = signed(r.delta_pct, 3);
                    cells[4] = r.sigma.map_or_else(|| "-".to_owned(), |s| signed(s, 2));
                }
                "ok"
            }
            Outcome::Failed(_) => "failed",
            Outcome::NotRun => "not run",
        };
        out += &format!(
            "| {} | {status} | {} |\n",
            code(&row.key),
            cells.join(" | ")
        );
    }
    out
}

/// A block that GitHub shows when it is clicked. Markdown in it needs the blank lines.
fn folded(summary: &str, body: &str) -> String {
    format!("<details><summary>{summary}</summary>\n\n{body}\n</details>\n")
}
