//! A [`Diff`] as text and Markdown.

use rayon::prelude::*;

use super::markdown::{self, code};
use super::{delta_ln_ppl, one_line, percent, ppl, probability, signed, small};
use crate::compare::diff::{Diff, DiffRow, Difference, Verdict};
use crate::compare::{MovedScore, Paired, TokenComparison};
use crate::say::{Tone, Toned};
use crate::stats::{Estimate, PERCENTILES};

impl Diff {
    /// One line that says it all.
    pub fn summary(&self) -> String {
        let total = self.rows.len();
        let rows = if total == 1 { "row" } else { "rows" };
        if total == 0 {
            return "FAIL: there is no row, so nothing was compared".to_owned();
        }
        let counts = [
            (Verdict::Pass, "pass"),
            (Verdict::Fail, "fail"),
            (Verdict::Compared, "compared"),
            (Verdict::BelowNoiseFloor, "below noise floor"),
            (Verdict::Inconclusive, "inconclusive"),
            (Verdict::NotMeasured, "not measured"),
        ];
        let gated = !self.gate.is_empty();
        let counts = counts.into_iter().filter_map(|(verdict, name)| {
            let always = gated && matches!(verdict, Verdict::Pass | Verdict::Fail);
            let n = self.count(verdict);
            (n > 0 || always).then(|| format!("{n} {name}"))
        });
        let counts = Vec::from_iter(counts).join(", ");
        let unchanged = match self.rows.iter().filter(|r| r.is_unchanged()).count() {
            0 => String::new(),
            n => format!(" ({n} unchanged)"),
        };
        let only_open = [Verdict::Fail, Verdict::NotMeasured].map(|v| self.count(v)) == [0, 0];
        let head = match (self.passes(), only_open, gated) {
            (true, _, true) => "PASS",
            // Nothing was asked, so nothing has passed.
            (true, _, false) => "compared, no gate",
            (false, true, _) => "INCONCLUSIVE",
            (false, false, _) => "FAIL",
        };
        let gate = match self.gate.texts() {
            texts if texts.is_empty() => String::new(),
            texts => format!("; gate {}", texts.join(", ")),
        };
        format!("{head}: {total} {rows}: {counts}{unchanged}{gate}")
    }

    /// For a terminal of 100 columns: a few lines a run, more with `details`. What needs
    /// a look comes first; runs that have not changed are one line.
    pub fn to_text(&self, details: bool) -> Toned {
        let mut out = Toned::default();
        match self.a == self.b {
            true => out.push(&format!("{}\n\n", self.a.display())),
            false => out.push(&format!(
                "A  {}\nB  {}\n\n",
                self.a.display(),
                self.b.display()
            )),
        }
        let unchanged = |row: &&DiffRow| row.is_unchanged() && row.urgency() > 2;
        let rows = self.by_urgency();
        let (same, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| !details && unchanged(row));
        let blocks: Vec<String> = rows.par_iter().map(|row| block(row, details)).collect();
        for (row, block) in rows.iter().zip(&blocks) {
            out.push_toned(&format!("{:<12}", row.verdict.text()), tone(row.verdict));
            out.push(block);
        }
        match same.as_slice() {
            [] => {}
            [row] => out.push(&format!(
                "unchanged     {}: every figure has the same bits\n",
                one_line(&row.key)
            )),
            rows => out.push(&format!(
                "unchanged     {} runs: every figure has the same bits; --details lists them\n",
                rows.len()
            )),
        }
        if !self.rows.is_empty() {
            out.push("\n");
        }
        let summary = self.summary();
        let (head, rest) = summary.split_once(':').unwrap_or((&summary, ""));
        let head_tone = match (self.passes(), self.gate.is_empty()) {
            (true, true) => None,
            (true, false) => Some(Tone::Good),
            (false, _) if head == "INCONCLUSIVE" => Some(Tone::Open),
            (false, _) => Some(Tone::Bad),
        };
        out.push_toned(head, head_tone);
        out.push(&format!(":{rest}\n"));
        out
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
        markdown::for_a_comment(out + "\n" + &Self::markdown_table(self.by_urgency()))
    }

    /// Rows as a Markdown table.
    pub fn markdown_table<'r>(rows: impl IntoIterator<Item = &'r DiffRow>) -> String {
        let mut out =
            "| run | PPL A | PPL B | Δ % | Δ ln PPL (paired) | t | p (adjusted) | same top | \
                Δp RMS | verdict |\n\
                | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
                .to_owned();
        for row in rows {
            let mut cells = [const { String::new() }; 8];
            if let Some(d) = &row.difference {
                cells[0] = ppl(d.a.0, d.a.1);
                cells[1] = ppl(d.b.0, d.b.1);
                cells[2] = signed(d.delta_pct, 4);
                match &d.paired {
                    Ok(p) => {
                        cells[3] = format!("{} ± {}", delta_ln_ppl(p.mean, p.se), small(p.se));
                        cells[4] = signed(p.t(), 2);
                    }
                    Err(_) => {
                        cells[3] = format!("unpaired, σ {}", sigma_text(d.unpaired_sigma));
                    }
                }
                cells[5] = d.adjusted_p.map_or_else(|| "-".to_owned(), probability);
                if let Ok(t) = &d.tokens {
                    cells[6] = percent(t.same_top, 2);
                    cells[7] = percent(t.delta_p.rms, 3);
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
}

/// The colour of a verdict.
fn tone(verdict: Verdict) -> Option<Tone> {
    match verdict {
        Verdict::Pass | Verdict::BelowNoiseFloor => Some(Tone::Good),
        Verdict::Fail | Verdict::NotMeasured => Some(Tone::Bad),
        Verdict::Inconclusive => Some(Tone::Open),
        Verdict::Compared => None,
    }
}

/// What is said of a run, after its verdict.
fn block(row: &DiffRow, details: bool) -> String {
    let mut out = format!("  {}\n", one_line(&row.key));
    let mut lines = row.difference.iter().flat_map(compact).collect::<Vec<_>>();
    if let (Some(floor), Some(d)) = (row.noise_floor, &row.difference) {
        lines.push(format!(
            "noise floor: |Δ ln PPL| {}, here {}",
            small(floor),
            signed(d.delta_ln_ppl, 6)
        ));
    }
    if !row.reason.is_empty() {
        lines.push(one_line(&row.reason));
    }
    if details {
        lines.extend(row.difference.iter().flat_map(detailed));
    }
    for line in lines {
        out += &format!("    {line}\n");
    }
    out
}

/// What is said of every run.
fn compact(d: &Difference) -> Vec<String> {
    let mut lines = vec![format!(
        "A {}   B {}   Δ {} ({} %)",
        ppl(d.a.0, d.a.1),
        ppl(d.b.0, d.b.1),
        signed(d.delta, 4),
        signed(d.delta_pct, 4)
    )];
    let unpaired = sigma_text(d.unpaired_sigma);
    match &d.paired {
        Ok(p) => {
            lines.push(format!(
                "paired, {} windows: Δ ln PPL {} ± {}, t {}   (unpaired σ {unpaired})",
                p.windows,
                delta_ln_ppl(p.mean, p.se),
                small(p.se),
                signed(p.t(), 2)
            ));
            lines.push(tests(d, p));
        }
        Err(why) => lines.push(format!(
            "unpaired σ {unpaired}   (no paired test: {})",
            one_line(why)
        )),
    }
    match &d.tokens {
        Ok(t) => lines.push(format!(
            "{} tokens: same top {}, Δp {}, RMS {}{}",
            t.n(),
            percent(t.same_top, 2),
            percent(t.delta_p.mean, 3),
            percent(t.delta_p.rms, 3),
            t.correlation
                .map_or_else(String::new, |r| format!(", r {r:.6}"))
        )),
        Err(why) => lines.push(format!("not by token: {}", one_line(why))),
    }
    if !d.changed.is_empty() {
        lines.push(format!("changed: {}", one_line(&d.changed.join(", "))));
    }
    lines
}

fn tests(d: &Difference, p: &Paired) -> String {
    let (low, high) = p.interval();
    format!(
        "95 % from {} to {}; p {}, permuted {}, adjusted {}; detectable {}",
        signed(low, 6),
        signed(high, 6),
        probability(p.p()),
        probability(p.permutation_p()),
        d.adjusted_p.map_or_else(|| "-".to_owned(), probability),
        small(p.detectable())
    )
}

/// What `--details` adds.
fn detailed(d: &Difference) -> Vec<String> {
    let mut lines = Vec::new();
    if let Ok(p) = &d.paired {
        lines.push(format!(
            "PPL(B)/PPL(A) {}, PPL(B) − PPL(A) {}",
            estimate(p.ppl_ratio(), 6),
            estimate(p.ppl_difference, 6)
        ));
    }
    if let Ok(t) = &d.tokens {
        lines.push(format!(
            "Δ ln PPL ± {} if tokens were independent",
            t.mean.se.map_or_else(|| "-".to_owned(), small)
        ));
        lines.push("Δp of the targets, in percent:".to_owned());
        let percentiles = PERCENTILES.iter().zip(&t.delta_p.percentiles);
        let cells: Vec<String> = percentiles
            .map(|((name, _), x)| format!("{name} {}", signed(100.0 * x, 3)))
            .collect();
        lines.extend(cells.chunks(5).map(|c| format!("  {}", c.join("   "))));
    }
    if !d.moved_windows.is_empty() {
        lines.push("windows that moved most (mean NLL):".to_owned());
        lines.push(format!(
            "  {:>8} {:>8} {:>12} {:>12} {:>11}",
            "window", "scored", "A", "B", "B − A"
        ));
    }
    for w in &d.moved_windows {
        lines.push(format!(
            "  {:>8} {:>8} {:>12.6} {:>12.6} {:>11}",
            w.window,
            w.scored,
            w.nll_a,
            w.nll_b,
            signed(w.nll_b - w.nll_a, 6)
        ));
    }
    lines.extend(d.tokens.iter().flat_map(moved_tokens));
    lines
}

fn moved_tokens(t: &TokenComparison) -> Vec<String> {
    let mut lines = Vec::new();
    if !t.moved.is_empty() {
        lines.push("tokens that moved most (NLL, rank; the most likely token):".to_owned());
    }
    for m in &t.moved {
        lines.push(format!(
            "  window {}, token {}: {} → {} ({}), rank {} → {}",
            m.window,
            m.index,
            nll(&m.a),
            nll(&m.b),
            signed(f64::from(m.b.nll) - f64::from(m.a.nll), 4),
            m.a.rank,
            m.b.rank
        ));
        lines.push(format!(
            "    …{}«{}»{}…",
            m.text.before, m.text.token, m.text.after
        ));
        lines.push(format!("    most likely: {} → {}", top(&m.a), top(&m.b)));
    }
    lines
}

fn nll(score: &MovedScore) -> String {
    format!("{:.4}", score.nll)
}

fn top(score: &MovedScore) -> String {
    format!("«{}» {:.2} %", score.top, 100.0 * score.top_p)
}

fn estimate(e: Estimate, decimals: usize) -> String {
    match e.se {
        Some(se) => format!("{:.decimals$} ± {}", e.value, small(se)),
        None => format!("{:.decimals$}", e.value),
    }
}

fn sigma_text(sigma: Option<f64>) -> String {
    sigma.map_or_else(|| "-".to_owned(), |s| signed(s, 2))
}
