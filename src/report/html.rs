//! The report as one HTML page that loads nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::comparison::{self, common_remarks, perplexity};
use super::elements::name;
use super::grid::{Cell, Column, Grid, Line, number, words};
use super::names::Names;
use super::plot::{Ink, PlotError};
use super::{Comparison, Report, Section, divergence, figures, runs, sizes};
use crate::compare::diff::Diff;
use crate::render::{one_line, signed};
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
        let origin = self.origin();
        let title = [vec![self.title()], origin].concat().join(" · ");
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) " · perplexity report" }
                    style { (PreEscaped(include_str!("style.css"))) (PreEscaped(Ink::css())) }
                }
                body {
                    header { (self.head()) }
                    main { @for section in &sections { (section) } }
                    footer { (notes()) }
                }
            }
        };
        Ok(page.into_string())
    }

    fn head(&self) -> Markup {
        let origin = self.origin();
        html! {
            h1 { bdi { (self.title()) } }
            p.soft {
                "Perplexity report"
                @for part in &origin { " · " bdi { (part) } }
            }
            @if let Some(base) = &self.base {
                p { "Base (A): " (name(&base.paths().table.display().to_string())) }
            }
            nav aria-label="Tables" {
                ul {
                    @for (i, s) in (1..).zip(&self.sections) {
                        li {
                            a href={ "#table-" (i) } { (name(&s.path())) }
                            span.soft { " · " (s.counts()) }
                            @for c in &s.comparisons {
                                " · " span class=(class(&c.diff)) { (c.diff.summary()) }
                            }
                        }
                    }
                }
            }
            (self.troubles_list())
        }
    }

    /// What a reviewer must look at.
    fn troubles_list(&self) -> Markup {
        let troubles = self.troubles();
        html! {
            @if !troubles.listed.is_empty() {
                section.troubles aria-labelledby="troubles" {
                    h2 id="troubles" { "What needs a look" }
                    ul {
                        @for t in &troubles.listed {
                            li {
                                span.bad { (t.what) } " "
                                @match t.number {
                                    Some(n) => a href={ "#run-" (n) } { (n) " · " (name(&t.name)) },
                                    None => (name(&t.name)),
                                }
                                @if !t.why.is_empty() { span.soft { ": " bdi { (one_line(&t.why)) } } }
                            }
                        }
                    }
                    @if troubles.others > 0 { p.soft { "And " (troubles.others) " more, in the tables." } }
                }
            }
        }
    }

    fn section(&self, s: &Section, number: usize) -> Result<Markup, PlotError> {
        let mut articles = Vec::new();
        for entry in s.entries() {
            articles.push(runs::article(self, s, &entry)?);
        }
        let effects = figures::against_references(s, number)?;
        let mut comparisons = Vec::new();
        for (i, c) in (1..).zip(&s.comparisons) {
            comparisons.push(compared(s, c, &format!("comparison-{number}-{i}"))?);
        }
        let has_references = s
            .tables
            .rows()
            .filter_map(ResultRow::figures)
            .any(|f| f.reference.is_some());
        Ok(html! {
            section aria-labelledby={ "table-" (number) } {
                h2 id={ "table-" (number) } { (name(&s.path())) }
                @for comparison in &comparisons { (comparison) }
                h3 { "Figures" }
                (figures_grid(s).to_html(&format!("figures-{number}"), html! {
                    (s.counts()) ". " (shared(&s.names))
                    "PPL ± one standard error, tokens taken as independent; clustered: "
                    "tokens of a window may be correlated."
                    @if has_references { " Δ and σ against the reference row, unpaired." }
                }))
                (effects)
                (sizes::in_html(s, number)?)
                (divergence::in_html(s, number))
                h3 { "Runs" }
                div.runs { @for article in &articles { (article) } }
            }
        })
    }
}

/// What the names of a list leave out.
fn shared(names: &Names) -> Markup {
    html! {
        @if let Some(shared) = names.shared() { "Runs are named by what differs in " (name(&shared)) ". " }
    }
}

/// A comparison with its figures.
fn compared(s: &Section, c: &Comparison, id: &str) -> Result<Markup, PlotError> {
    let figures = figures::compared(s, c, id)?;
    let common = common_remarks(c);
    let sides = match c.against_base {
        true => "B, this table, against A, the base. ",
        false => "B against A, both of this table. ",
    };
    Ok(html! {
        h3 { (c.title()) }
        p class={ "verdict " (class(&c.diff)) } { (c.diff.summary()) }
        (comparison::grid(s, c, &c.rows()).to_html(id, html! {
            (sides) (shared(&c.names)) (comparison::LEGEND)
            @if !common.is_empty() {
                " In all rows: "
                @for (i, remark) in common.iter().enumerate() {
                    @if i > 0 { "; " }
                    bdi { (one_line(remark)) }
                }
                "."
            }
        }))
        (figures)
    })
}

const FIGURES: [Column; 11] = [
    words("status"),
    number("PPL"),
    number("clustered"),
    number("bits/byte"),
    words("quantization"),
    number("reference"),
    number("Δ"),
    number("Δ %"),
    number("σ"),
    number("windows"),
    number("tokens"),
];

/// The figures of all rows.
pub(super) fn figures_grid(s: &Section) -> Grid {
    let all_ok = s.tables.rows().all(|row| row.figures().is_some());
    let lines = s.entries().map(|entry| {
        let (status, why, class) = match &entry.row.outcome {
            Outcome::Ok(_) if all_ok => ("", "", ""),
            Outcome::Ok(_) => ("ok", "", ""),
            Outcome::Failed(why) => ("failed", why.as_str(), "bad"),
            Outcome::NotRun => ("not run", "no figure", "bad"),
        };
        let mut cells = vec![Cell::new(status).classed(class)];
        cells.extend(
            entry
                .row
                .figures()
                .into_iter()
                .flat_map(|f| figures_of(entry.row, f)),
        );
        Line {
            number: Some(entry.number),
            name: entry.name,
            cells,
            why: why.to_owned(),
            ..Line::default()
        }
    });
    Grid::new(&FIGURES, lines.collect())
}

fn figures_of(row: &ResultRow, f: &Figures) -> [Cell; 10] {
    let p = &row.provenance;
    let count = |n: Option<usize>| Cell::of(n.map(|n| n.to_string()));
    let r = f.reference.as_ref();
    let bits = p.size.bits_per_weight.map(|b| format!("{b:.2} bits"));
    let size = match p.size.quantization.as_str() {
        "" => Cell::of(bits),
        name => Cell::new(name).and(bits.unwrap_or_default()),
    };
    [
        perplexity(f.ppl, f.ppl_err),
        Cell::of(f.ppl_err_clustered.map(|e| format!("± {e:.5}"))),
        Cell::of(f.bits_per_byte.map(|b| format!("{b:.5}"))),
        size,
        r.map_or_else(Cell::default, |r| perplexity(r.ppl, r.err)),
        Cell::of(r.map(|r| signed(r.delta, 4))),
        Cell::of(r.map(|r| signed(r.delta_pct, 3))),
        Cell::of(r.and_then(|r| r.sigma).map(|s| signed(s, 2))),
        count(p.windows),
        count(p.scored_tokens),
    ]
}

fn notes() -> Markup {
    html! {
        p.soft {
            "PPL = exp(mean NLL). Its error bar is llama-perplexity's. σ takes two figures as independent, "
            "which runs over one text are not: a small σ is no proof of agreement. The paired test compares "
            "the same tokens, window by window; its interval is Student's."
        }
    }
}

/// The colour of a summary.
fn class(diff: &Diff) -> &'static str {
    match (diff.passes(), diff.gate.is_empty()) {
        (true, true) => "",
        (true, false) => "good",
        (false, _) => "bad",
    }
}
