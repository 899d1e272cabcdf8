//! A [`Diff`] as text, Markdown, JSON and CSV.

use std::io;

use serde::Serialize;

use super::csv_file::{self, Columns};
use super::diff::{Diff, DiffRow, Difference, Verdict};
use super::gate::Gate;
use super::markdown::{self, code};
use super::render::{one_line, ppl, se, signed};

impl Diff {
    /// One line that says it all.
    pub fn summary(&self) -> String {
        let total = self.rows.len();
        let rows = if total == 1 { "row" } else { "rows" };
        let not_measured = match self.count(Verdict::NotMeasured) {
            0 => String::new(),
            n => format!(", {n} not measured"),
        };
        let good = if self.gate.is_empty() {
            format!("{} compared (no gate set)", self.count(Verdict::Compared))
        } else {
            format!(
                "{} within, {} broken",
                self.count(Verdict::Within),
                self.count(Verdict::Broken)
            )
        };
        let head = if self.passes() { "PASS" } else { "FAIL" };
        if total == 0 {
            return format!("{head}: neither table has a row, so nothing was compared");
        }
        format!(
            "{head}: {total} {rows}: {good}{not_measured}{}",
            self.gate_text()
        )
    }

    fn gate_text(&self) -> String {
        let mut bounds = Vec::new();
        if let Some(b) = self.gate.max_delta_pct {
            bounds.push(format!("Δ ±{b} %"));
        }
        if let Some(b) = self.gate.max_sigma {
            bounds.push(format!("σ ±{b}"));
        }
        match bounds.is_empty() {
            true => String::new(),
            false => format!("; gate {}", bounds.join(", ")),
        }
    }

    /// For a terminal of 100 columns: a few lines a run.
    pub fn to_text(&self) -> String {
        let mut out = format!("A  {}\nB  {}\n\n", self.a.display(), self.b.display());
        for row in &self.rows {
            out += &format!("{:<12}  {}\n", row.verdict.text(), one_line(&row.key));
            if let Some(d) = &row.difference {
                out += &format!(
                    "    A {}   B {}   Δ {} ({} %)\n",
                    ppl(d.a.0, d.a.1),
                    ppl(d.b.0, d.b.1),
                    signed(d.delta, 4),
                    signed(d.delta_pct, 4)
                );
                out += &format!("    {}\n", judged_text(d));
                if !d.changed.is_empty() {
                    out += &format!("    changed: {}\n", one_line(&d.changed.join(", ")));
                }
            }
            if !row.reason.is_empty() {
                out += &format!("    {}\n", one_line(&row.reason));
            }
        }
        if !self.rows.is_empty() {
            out.push('\n');
        }
        out + &self.summary() + "\n"
    }

    /// A table for a pull request.
    pub fn to_markdown(&self) -> String {
        let out = format!(
            "**{}**\n\nA: {}, B: {}\n",
            self.summary(),
            code(&self.a.display().to_string()),
            code(&self.b.display().to_string())
        );
        if self.rows.is_empty() {
            return out;
        }
        out + "\n" + &Self::markdown_table(&self.rows)
    }

    /// Rows as a Markdown table.
    pub fn markdown_table<'a>(rows: impl IntoIterator<Item = &'a DiffRow>) -> String {
        let mut out = "| run | PPL A | PPL B | Δ % | σ | Δ ln PPL (paired) | t | verdict |\n\
                | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
            .to_owned();
        for row in rows {
            let mut cells = [const { String::new() }; 6];
            if let Some(d) = &row.difference {
                cells[0] = ppl(d.a.0, d.a.1);
                cells[1] = ppl(d.b.0, d.b.1);
                cells[2] = signed(d.delta_pct, 4);
                cells[3] = sigma_text(d.unpaired_sigma);
                match &d.paired {
                    Ok(p) => {
                        cells[4] = format!("{} ± {}", signed(p.mean, 6), se(p.se));
                        cells[5] = signed(p.t(), 2);
                    }
                    Err(_) => "unpaired".clone_into(&mut cells[4]),
                }
            }
            let mut verdict = row.verdict.text().to_owned();
            let changed = row.difference.iter().flat_map(|d| &d.changed).cloned();
            let remarks: Vec<String> = Some(row.reason.clone())
                .filter(|r| !r.is_empty())
                .into_iter()
                .chain(changed.map(|c| format!("changed {c}")))
                .collect();
            if !remarks.is_empty() {
                verdict += &format!(": {}", markdown::text(&remarks.join("; ")));
            }
            out += &format!(
                "| {} | {} | {verdict} |\n",
                code(&row.key),
                cells.join(" | ")
            );
        }
        out
    }

    /// The schema that `docs/results.md` states.
    pub fn to_json(&self) -> io::Result<String> {
        #[derive(Serialize)]
        struct Json<'a> {
            schema: u32,
            a: String,
            b: String,
            gate: Gate,
            pass: bool,
            compared: usize,
            within: usize,
            broken: usize,
            not_measured: usize,
            rows: Vec<Record<'a>>,
        }
        let judged = self.count(Verdict::Within) + self.count(Verdict::Broken);
        let json = Json {
            schema: 1,
            a: self.a.display().to_string(),
            b: self.b.display().to_string(),
            gate: self.gate,
            pass: self.passes(),
            compared: self.count(Verdict::Compared) + judged,
            within: self.count(Verdict::Within),
            broken: self.count(Verdict::Broken),
            not_measured: self.count(Verdict::NotMeasured),
            rows: self.rows.iter().map(Record::new).collect(),
        };
        Ok(serde_json::to_string_pretty(&json)? + "\n")
    }

    /// One line a run; the columns are the fields of a row in the JSON.
    pub fn to_csv(&self) -> io::Result<Vec<u8>> {
        csv_file::to_bytes(self.rows.iter().map(Record::new))
    }
}

/// The figure that a gate on σ judges, and the other one.
fn judged_text(d: &Difference) -> String {
    let unpaired = sigma_text(d.unpaired_sigma);
    match &d.paired {
        Ok(p) => format!(
            "paired, {} windows: Δ ln PPL {} ± {}, t {}   (unpaired σ {unpaired})",
            p.windows,
            signed(p.mean, 6),
            se(p.se),
            signed(p.t(), 2)
        ),
        Err(why) => format!("unpaired σ {unpaired}   (no paired test: {why})"),
    }
}

fn sigma_text(sigma: Option<f64>) -> String {
    sigma.map_or_else(|| "-".to_owned(), |s| signed(s, 2))
}

/// A row in JSON and CSV.
#[derive(Serialize)]
struct Record<'a> {
    key: &'a str,
    verdict: Verdict,
    reason: &'a str,
    a_ppl: Option<f64>,
    a_err: Option<f64>,
    b_ppl: Option<f64>,
    b_err: Option<f64>,
    delta: Option<f64>,
    delta_pct: Option<f64>,
    sigma: Option<f64>,
    paired_windows: Option<usize>,
    paired_delta_ln_ppl: Option<f64>,
    paired_se: Option<f64>,
    paired_t: Option<f64>,
    unpaired_because: &'a str,
    changed: String,
}

impl Columns for Record<'_> {
    const REQUIRED: &'static [&'static str] = &[
        "key",
        "verdict",
        "reason",
        "a_ppl",
        "a_err",
        "b_ppl",
        "b_err",
        "delta",
        "delta_pct",
        "sigma",
        "paired_windows",
        "paired_delta_ln_ppl",
        "paired_se",
        "paired_t",
        "unpaired_because",
        "changed",
    ];
}

impl<'a> Record<'a> {
    fn new(row: &'a DiffRow) -> Self {
        let d = row.difference.as_ref();
        let paired = d.and_then(|d| d.paired.as_ref().ok());
        Record {
            key: &row.key,
            verdict: row.verdict,
            reason: &row.reason,
            a_ppl: d.map(|d| d.a.0),
            a_err: d.and_then(|d| d.a.1),
            b_ppl: d.map(|d| d.b.0),
            b_err: d.and_then(|d| d.b.1),
            delta: d.map(|d| d.delta),
            delta_pct: d.map(|d| d.delta_pct),
            sigma: d.and_then(|d| d.unpaired_sigma),
            paired_windows: paired.map(|p| p.windows),
            paired_delta_ln_ppl: paired.map(|p| p.mean),
            paired_se: paired.map(|p| p.se),
            // Infinite where every window moved alike: no number in JSON.
            paired_t: paired.map(|p| p.t()).filter(|t| t.is_finite()),
            unpaired_because: d
                .and_then(|d| d.paired.as_ref().err())
                .map_or("", String::as_str),
            changed: d.map_or_else(String::new, |d| d.changed.join("; ")),
        }
    }
}
