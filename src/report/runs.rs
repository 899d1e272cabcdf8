//! What a report says of a single run: what came out, its curves, the tokens that moved
//! most, and what was measured.

use maud::{Markup, html};

use super::elements::name;
use super::plot::PlotError;
use super::{Entry, Report, Section, figures};
use crate::compare::MovedToken;
use crate::render::{one_line, ppl, signed};
use crate::results::{Figures, Outcome, ResultRow};

/// Tokens that are listed of each comparison at most.
const MOVED: usize = 5;

/// A run with its curves.
pub(super) fn article(report: &Report, s: &Section, entry: &Entry) -> Result<Markup, PlotError> {
    let compared = s.comparisons.iter().flat_map(|c| &c.diff.rows);
    let is_compared = compared
        .filter(|row| row.b_key == entry.row.key)
        .any(|row| row.difference.is_some());
    // Runs with a single figure stand side by side.
    let is_wide = is_compared || s.tables.kld(&entry.row.key).is_some();
    let class = if is_wide { "run wide" } else { "run" };
    Ok(html! {
        article class=(class) id={ "run-" (entry.number) } {
            h4 { (entry.number) " · " (name(&entry.name)) }
            (outcome(entry.row))
            (figures::run(s, entry, report.base.as_ref())?)
            (moved(s, entry))
            (provenance(entry.row))
        }
    })
}

/// What is said of an outcome, and what must be known besides.
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

/// The tokens that moved most in each comparison whose sides have their records.
fn moved(s: &Section, entry: &Entry) -> Markup {
    let rows = s.comparisons.iter().flat_map(|c| &c.diff.rows);
    let rows = rows.filter(|row| row.b_key == entry.row.key);
    let lists = rows.filter_map(|row| {
        let tokens = row.difference.as_ref()?.tokens.as_ref().ok()?;
        let moved = tokens.moved.iter().filter(|m| m.a.nll != m.b.nll);
        let moved: Vec<_> = moved.take(MOVED).collect();
        (!moved.is_empty()).then_some((row, moved))
    });
    html! {
        @for (row, moved) in lists {
            details {
                summary {
                    "Tokens that moved most"
                    @if row.a_key != row.b_key { " against " (name(&s.names.of(&row.a_key))) }
                }
                ol.moved { @for m in moved { li { (token(m)) } } }
            }
        }
    }
}

fn token(m: &MovedToken) -> Markup {
    let change = f64::from(m.b.nll) - f64::from(m.a.nll);
    html! {
        bdi.context {
            "…" (one_line_kept(&m.text.before)) mark { (one_line_kept(&m.text.token)) }
            (one_line_kept(&m.text.after)) "…"
        }
        " "
        span.soft {
            "window " (m.window) ", token " (m.index) ": NLL " (format!("{:.4}", m.a.nll)) " → "
            (format!("{:.4}", m.b.nll)) " (" (signed(change, 4)) "), rank " (m.a.rank) " → " (m.b.rank)
            "; likeliest " bdi { "«" (one_line_kept(&m.a.top)) "»" } " → " bdi { "«" (one_line_kept(&m.b.top)) "»" }
        }
    }
}

/// An excerpt, which is one line already: spaces at its ends stay, and what is not
/// visible is escaped.
fn one_line_kept(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(one_line).collect();
    words.join(" ")
}

fn provenance(row: &ResultRow) -> Markup {
    let p = &row.provenance;
    let number = |n: Option<usize>| n.map_or_else(String::new, |n| n.to_string());
    let named = match p.size.quantization.as_str() {
        "" => p.model_type.clone(),
        name => format!("{name}, most weights in {}", p.model_type),
    };
    let size = [
        p.size
            .bytes
            .map(|b| format!("{:.1} MiB", b as f64 / f64::from(1 << 20))),
        p.size
            .bits_per_weight
            .map(|b| format!("{b:.3} bits per weight")),
    ];
    let lines = [
        ("run", row.key.clone()),
        ("model", p.model.clone()),
        ("quantization", named),
        (
            "size",
            Vec::from_iter(size.into_iter().flatten()).join(", "),
        ),
        ("architecture", p.architecture.clone()),
        ("corpus", p.corpus.clone()),
        (
            "geometry",
            format!("context {}, {}", p.geometry.n_ctx, p.geometry.mode),
        ),
        ("windows", number(p.windows)),
        ("scored tokens", number(p.scored_tokens)),
        ("tokens of the corpus", number(p.tokens)),
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
                @for (what, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
                    dt { (what) } dd { (name(text)) }
                }
            }
        }
    }
}
