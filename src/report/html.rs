//! The report as one HTML page that loads nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::divergence;
use super::elements::{link, name, table};
use super::figures;
use super::plot::{Ink, PlotError};
use super::{Entry, Report, Section};
use crate::compare::diff::{Diff, DiffRow, Difference, Verdict};
use crate::render::{delta_ln_ppl, one_line, percent, ppl, probability, signed, small};
use crate::results::{Figures, Outcome, ResultRow};

/// Lets the page apply its own styles and nothing else: no script, no request.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl Report {
    /// The report as one page of HTML.
    ///
    /// # Errors
    /// A figure that plotters cannot draw.
    pub fn to_html(&self) -> Result<String, PlotError> {
        let mut sections = Vec::with_capacity(self.sections.len());
        for (i, section) in self.sections.iter().enumerate() {
            sections.push(self.section(section, i + 1)?);
        }
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "Perplexity report" }
                    style { (PreEscaped(include_str!("style.css"))) (PreEscaped(Ink::css())) }
                }
                body {
                    header { (self.head()) }
                    main { @for section in &sections { (section) } }
                    footer { (notes(self.base.is_some())) }
                }
            }
        };
        Ok(page.into_string())
    }

    fn head(&self) -> Markup {
        html! {
            h1 { "Perplexity report" }
            @if let Some(base) = &self.base {
                p { "Base (A): " (name(&base.paths().table.display().to_string())) }
            }
            nav aria-label="Tables" {
                ol {
                    @for (i, s) in (1..).zip(&self.sections) {
                        li {
                            a href={ "#table-" (i) } { (name(&s.path())) }
                            span.soft { " · " (s.counts()) }
                            @if let Some(d) = &s.diff { " · " span class=(class(d)) { (d.summary()) } }
                        }
                    }
                }
            }
        }
    }

    fn section(&self, s: &Section, number: usize) -> Result<Markup, PlotError> {
        let mut runs = Vec::new();
        for entry in s.entries() {
            runs.push(html! {
                article.run id={ "run-" (entry.number) } {
                    h4 { (entry.number) " · " (name(&entry.row.key)) }
                    (outcome(entry.row))
                    (figures::run(s, &entry, self.base.as_ref())?)
                    (provenance(entry.row))
                }
            });
        }
        let effects = figures::against_references(s, number)?;
        let against_base = match &s.diff {
            Some(diff) => comparison(
                s,
                diff,
                &format!("{number}"),
                "Against the base",
                "B, this table, against A, the base. ",
            )?,
            None => html! {},
        };
        let among = match &s.among {
            Some(diff) => comparison(
                s,
                diff,
                &format!("{number}-among"),
                "Runs against each other",
                "",
            )?,
            None => html! {},
        };
        Ok(html! {
            section aria-labelledby={ "table-" (number) } {
                h2 id={ "table-" (number) } { (name(&s.path())) }
                (against_base)
                (among)
                h3 { "Figures" }
                (table(&format!("figures-{number}"), html! {
                    (s.counts()) ". PPL ± one standard error, tokens taken as independent; clustered: "
                    "tokens of a window may be correlated. Δ and σ against the reference row, unpaired."
                }, figures_table(s)))
                (effects)
                (divergence::in_html(s, number))
                h3 { "Runs" }
                @for run in &runs { (run) }
            }
        })
    }
}

/// A number with what belongs to it below.
fn cell(number: &str, below: &str) -> Markup {
    html! { td.num { (number) @if !below.is_empty() { " " small { (below) } } } }
}

fn perplexity(value: f64, err: Option<f64>) -> Markup {
    let err = err.map_or_else(String::new, |e| format!("± {e:.5}"));
    cell(&ppl(value, None), &err)
}

fn comparison(
    s: &Section,
    diff: &Diff,
    id: &str,
    title: &str,
    sides: &str,
) -> Result<Markup, PlotError> {
    let rows = html! {
        thead {
            tr {
                th.num scope="col" { "#" } th scope="col" { "run" } th scope="col" { "verdict" }
                th.num scope="col" { "PPL A" } th.num scope="col" { "PPL B" }
                th.num scope="col" { "Δ" } th.num scope="col" { "Δ %" }
                th.num scope="col" { "Δ ln PPL ± se" } th.num scope="col" { "test" }
                th.num scope="col" { "adjusted p" }
            }
        }
        tbody { @for row in &diff.rows { (comparison_row(s, row)) } }
    };
    let figures = figures::against_base(s, diff, id, title)?;
    Ok(html! {
        h3 { (title) }
        p class={ "verdict " (class(diff)) } { (diff.summary()) }
        (table(&format!("comparison-{id}"), html! {
            (sides) "t: paired, from the sums of NLL of windows over identical "
            "tokens, with windows − 1 degrees of freedom. σ: unpaired, as if the runs were independent. "
            "p: two-sided, adjusted for the number of rows (Benjamini and Hochberg)."
        }, rows))
        (figures)
    })
}

fn comparison_row(s: &Section, row: &DiffRow) -> Markup {
    let color = match row.verdict {
        Verdict::Pass | Verdict::BelowNoiseFloor => "good",
        Verdict::Fail | Verdict::NotMeasured => "bad",
        Verdict::Inconclusive => "open",
        Verdict::Compared => "",
    };
    let remarks = remarks(row);
    html! {
        tr {
            td.num { (link(s.number(&row.b_key))) }
            th scope="row" {
                (name(&row.key))
                @if !remarks.is_empty() { p.soft { bdi { (remarks) } } }
            }
            td class=(color) { (row.verdict.text()) }
            @match &row.difference {
                None => td.soft colspan="7" { "no figures to compare" },
                Some(d) => {
                    (perplexity(d.a.0, d.a.1))
                    (perplexity(d.b.0, d.b.1))
                    td.num { (signed(d.delta, 4)) }
                    td.num { (signed(d.delta_pct, 4)) }
                    @match &d.paired {
                        Ok(p) => {
                            (cell(&delta_ln_ppl(p.mean, p.se), &format!("± {}", small(p.se))))
                            (cell(&format!("t {}", signed(p.t(), 2)), &format!("{} windows", p.windows)))
                        }
                        Err(_) => {
                            td.num { "-" }
                            (cell(&format!("σ {}", optional(d.unpaired_sigma.map(|s| signed(s, 2)))), "unpaired"))
                        }
                    }
                    td.num { (optional(d.adjusted_p.map(probability))) }
                }
            }
        }
    }
}

/// What must be known of a comparison besides its figures, on one line.
fn remarks(row: &DiffRow) -> String {
    let mut remarks = Vec::new();
    if !row.reason.is_empty() {
        remarks.push(row.reason.clone());
    }
    if let (Some(floor), Some(d)) = (row.noise_floor, &row.difference) {
        let here = signed(d.delta_ln_ppl, 6);
        remarks.push(format!("noise floor: |Δ ln PPL| {floor}, here {here}"));
    }
    if let Some(d) = &row.difference {
        remarks.extend(by_token(d));
        if let Err(why) = &d.paired {
            remarks.push(format!("no paired test: {why}"));
        }
        remarks.extend(d.changed.iter().map(|c| format!("changed: {c}")));
    }
    one_line(&remarks.join("; "))
}

/// What the records of both sides say.
fn by_token(d: &Difference) -> Option<String> {
    let t = d.tokens.as_ref().ok()?;
    Some(format!(
        "{} tokens: same top {}, Δp RMS {}",
        t.n(),
        percent(t.same_top, 2),
        percent(t.delta_p.rms, 3)
    ))
}

fn figures_table(s: &Section) -> Markup {
    html! {
        thead {
            tr {
                th.num scope="col" { "#" } th scope="col" { "run" } th scope="col" { "status" }
                th.num scope="col" { "PPL ± err" } th.num scope="col" { "clustered" }
                th.num scope="col" { "bits/byte" } th.num scope="col" { "reference" }
                th.num scope="col" { "Δ" } th.num scope="col" { "Δ %" } th.num scope="col" { "σ" }
                th.num scope="col" { "windows" } th.num scope="col" { "tokens" }
            }
        }
        tbody { @for entry in s.entries() { (figures_row(&entry)) } }
    }
}

fn figures_row(entry: &Entry) -> Markup {
    let p = &entry.row.provenance;
    html! {
        tr {
            td.num { (link(Some(entry.number))) }
            th scope="row" { (name(&entry.row.key)) }
            @match &entry.row.outcome {
                Outcome::Ok(f) => {
                    td { "ok" }
                    (perplexity(f.ppl, f.ppl_err))
                    td.num { (optional(f.ppl_err_clustered.map(|e| format!("± {e:.5}")))) }
                    td.num { (optional(f.bits_per_byte.map(|b| format!("{b:.5}")))) }
                    @match &f.reference {
                        Some(r) => {
                            (perplexity(r.ppl, r.err))
                            td.num { (signed(r.delta, 4)) }
                            td.num { (signed(r.delta_pct, 3)) }
                            td.num { (optional(r.sigma.map(|s| signed(s, 2)))) }
                        }
                        None => @for _ in 0..4 { td.num { "-" } },
                    }
                    td.num { (count(p.windows)) }
                    td.num { (count(p.scored_tokens)) }
                }
                other => {
                    td.bad { @if matches!(other, Outcome::NotRun) { "not run" } @else { "failed" } }
                    td.text colspan="9" { (reason(other)) }
                }
            }
        }
    }
}

/// Why there is no figure.
fn reason(outcome: &Outcome) -> Markup {
    html! {
        @if let Outcome::Failed(why) = outcome { bdi { (one_line(why)) } } @else { "no figure" }
    }
}

fn outcome(row: &ResultRow) -> Markup {
    html! {
        @match &row.outcome {
            Outcome::Ok(f) => p { (in_words(f)) },
            Outcome::Failed(why) => p.bad { "failed: " bdi { (one_line(why)) } },
            Outcome::NotRun => p.bad { "not run" },
        }
        @for note in [&row.note, &row.ref_note] {
            @if !note.is_empty() { p.soft { "Note: " bdi { (one_line(note)) } } }
        }
    }
}

fn in_words(f: &Figures) -> Markup {
    html! {
        "PPL " (ppl(f.ppl, f.ppl_err))
        @if let Some(r) = &f.reference {
            span.soft { " · reference " (ppl(r.ppl, r.err)) " from " bdi { (one_line(&r.engine)) } }
        }
    }
}

fn provenance(row: &ResultRow) -> Markup {
    let p = &row.provenance;
    let lines = [
        ("model", format!("{} {}", p.model, p.model_type)),
        ("architecture", p.architecture.clone()),
        ("corpus", p.corpus.clone()),
        (
            "geometry",
            format!("context {}, {}", p.geometry.n_ctx, p.geometry.mode),
        ),
        ("windows", count(p.windows)),
        ("scored tokens", count(p.scored_tokens)),
        ("tokens of the corpus", count(p.tokens)),
        ("BOS", p.bos.map_or_else(String::new, |b| b.to_string())),
        (
            "placement",
            format!("{}: {}", p.placement, p.layer_placement),
        ),
        ("numerics", p.numerics.clone()),
        ("engine", p.engine.clone()),
        ("model SHA-256", p.model_sha256.clone()),
        ("corpus SHA-256", p.corpus_sha256.clone()),
        ("tokens SHA-256", p.tokens_sha256.clone()),
    ];
    html! {
        details {
            summary { "What was measured" }
            dl {
                @for (what, text) in lines.iter().filter(|(_, t)| !t.is_empty() && t != "-") {
                    dt { (what) } dd { (name(text)) }
                }
            }
        }
    }
}

fn notes(base: bool) -> Markup {
    html! {
        p.soft {
            "PPL = exp(mean NLL). Its error bar is llama-perplexity's. σ takes two figures as independent, "
            "which runs over one text are not: a small σ is no proof of agreement."
            @if base {
                " The paired test compares the same tokens, window by window; its interval is Student's."
            }
        }
    }
}

fn class(diff: &Diff) -> &'static str {
    if diff.passes() { "good" } else { "bad" }
}

fn count(n: Option<usize>) -> String {
    optional(n.map(|n| n.to_string()))
}

fn optional(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
