//! Which figures a report has, and what is said below them.

use maud::{Markup, html};

use super::charts::{self, Effect, Interval};
use super::divergence;
use super::elements::{figure, name, swatch};
use super::plot::PlotError;
use super::series::{differences, running};
use super::{Comparison, Entry, Section};
use crate::compare::Paired;
use crate::compare::diff::{DiffRow, Difference, Verdict};
use crate::render::{delta_ln_ppl, one_line, ppl, signed, small};
use crate::results::{Figures, Tables, WindowRow};

/// Characters of a name at the left of a figure at most.
const LINE_NAME: usize = 18;

/// The curves of one run.
pub(super) fn run(
    section: &Section,
    entry: &Entry,
    base: Option<&Tables>,
) -> Result<Markup, PlotError> {
    let Some(figures) = entry.row.figures() else {
        return Ok(html! {});
    };
    let windows = section.tables.windows(&entry.row.key);
    if windows.is_empty() {
        return Ok(
            html! { p.soft { "No curves: the windows of this run are not beside its table." } },
        );
    }
    let id = format!("run-{}", entry.number);
    // Each comparison of the run: its pair, and the windows of the other side.
    let mut pairs: Vec<(&Comparison, &DiffRow, &Difference, &[WindowRow])> = Vec::new();
    for comparison in &section.comparisons {
        let other = match comparison.against_base {
            true => base,
            false => Some(&section.tables),
        };
        for row in comparison
            .diff
            .rows
            .iter()
            .filter(|r| r.b_key == entry.row.key)
        {
            if let (Some(d), Some(other)) = (&row.difference, other) {
                pairs.push((comparison, row, d, other.windows(&row.a_key)));
            }
        }
    }
    let a = pairs.first().map_or(&[][..], |(.., a)| a);
    let curve = running_figure(&id, figures, windows, a)?;
    let mut differences = Vec::new();
    for (i, (comparison, row, d, a)) in (1..).zip(&pairs) {
        let against = match comparison.against_base {
            true => None,
            false => Some(section.names.of(&row.a_key)),
        };
        differences.push(paired_figure(&format!("{id}-{i}"), against, d, a, windows)?);
    }
    let divergence = match section.tables.kld(&entry.row.key) {
        Some(row) => divergence::of_run(&id, row)?,
        None => html! {},
    };
    Ok(html! {
        div.figures {
            (curve)
            @for figure in &differences { (figure) }
            (divergence)
        }
    })
}

fn running_figure(
    id: &str,
    figures: &Figures,
    windows: &[WindowRow],
    base: &[WindowRow],
) -> Result<Markup, PlotError> {
    let [run, base] = [windows, base].map(running);
    if run.len() < 3 {
        return Ok(html! { p.soft { "No curve: the run has fewer than three windows." } });
    }
    let reference = figures.reference.as_ref().map(|r| r.ppl);
    let last = ppl(figures.ppl, figures.ppl_err_clustered);
    let n = windows.len();
    figure(
        &format!("{id}-running"),
        &charts::running(&run, &base, reference),
        "Running perplexity",
        &format!("Perplexity of the first windows of the run, up to {last} after all {n}."),
        html! {
            (swatch("run")) "Running PPL over " (n) " windows; band ± one clustered error, at the end " (last) ". "
            @if !base.is_empty() { (swatch("base")) "What it is compared with. " }
            @if let Some(r) = reference { (swatch("reference")) "Reference " (ppl(r, None)) "." }
        },
    )
}

/// `against` is what A is called, where it is not the base.
fn paired_figure(
    id: &str,
    against: Option<String>,
    difference: &Difference,
    a: &[WindowRow],
    b: &[WindowRow],
) -> Result<Markup, PlotError> {
    let other = html! {
        @match &against { Some(run) => (name(run)), None => "the base" }
    };
    let paired = match &difference.paired {
        Ok(p) => p,
        Err(why) => return Ok(html! { p.soft { "No paired test: " bdi { (why) } "." } }),
    };
    if a.len() != b.len() {
        return Ok(
            html! { p.soft { "No figure of the differences: the two have other windows beside their tables." } },
        );
    }
    if a.iter().zip(b).all(|(a, b)| a.nll_sum == b.nll_sum) {
        return Ok(
            html! { p.soft { "Identical to " (other) " in all " (paired.windows) " windows." } },
        );
    }
    let mean = interval(paired);
    let points = differences(a, b);
    let dot = match points.group {
        1 => "a window".to_owned(),
        n => format!("{n} windows"),
    };
    let text = format!(
        "{} ± {}",
        delta_ln_ppl(paired.mean, paired.se),
        small(paired.se)
    );
    figure(
        &format!("{id}-paired"),
        &charts::paired(&points, paired.windows, mean),
        "Paired differences",
        &format!("Difference in each window; its mean is {text} nat a token."),
        html! {
            (swatch("run")) "Less " (other) ", one dot " (dot) ". Line and band: mean and 95 % interval, paired over "
            (paired.windows) " windows: Δ ln PPL " (text) ", t " (signed(paired.t(), 2)) "."
        },
    )
}

fn interval(paired: &Paired) -> Interval {
    let (low, high) = paired.interval();
    Interval {
        mean: paired.mean,
        low,
        high,
    }
}

/// Δ against the error of each run that has a reference.
pub(super) fn against_references(s: &Section, table: usize) -> Result<Markup, PlotError> {
    let effects: Vec<Effect> = s
        .entries()
        .filter_map(|e| {
            let f = e.row.figures()?;
            let r = f.reference.as_ref()?;
            let se = 100.0 * f.ppl_err?.hypot(r.err?) / r.ppl;
            Some(Effect {
                name: line_name(e.number, &e.name),
                value: Interval::normal(r.delta_pct, se),
                label: format!(
                    "σ {}",
                    r.sigma.map_or_else(|| "-".to_owned(), |s| signed(s, 2))
                ),
                broken: false,
            })
        })
        .collect();
    effects_figure(
        &format!("table-{table}-references"),
        &effects,
        None,
        "Δ against the references",
        "unpaired, from the errors of both figures",
    )
}

/// Δ against the error of each run that was compared with another: by the paired
/// test, and the others apart, whose errors are far larger.
pub(super) fn compared(s: &Section, c: &Comparison, id: &str) -> Result<Markup, PlotError> {
    let bound = c.diff.gate.max_delta_pct;
    let collect = |effect: fn(&Difference) -> Option<(Interval, String)>| -> Vec<Effect> {
        let line = |row: &DiffRow| {
            let (value, label) = effect(row.difference.as_ref()?)?;
            Some(Effect {
                name: line_name(s.number(&row.b_key)?, &c.names.of(&row.key)),
                value,
                label,
                broken: row.verdict == Verdict::Fail,
            })
        };
        c.rows().into_iter().filter_map(line).collect()
    };
    let paired = collect(|d| {
        let p = d.paired.as_ref().ok()?;
        // The same interval, in percent of A.
        let pct = |ln: f64| 100.0 * ln.exp_m1();
        let Interval { low, high, .. } = interval(p);
        let value = Interval {
            mean: d.delta_pct,
            low: pct(low),
            high: pct(high),
        };
        Some((value, format!("t {}", signed(p.t(), 2))))
    });
    let unpaired = collect(|d| {
        d.paired.as_ref().err()?;
        let se = 100.0 * d.a.1?.hypot(d.b.1?) / d.a.0;
        let sigma = d
            .unpaired_sigma
            .map_or_else(|| "-".to_owned(), |s| signed(s, 2));
        Some((Interval::normal(d.delta_pct, se), format!("σ {sigma}")))
    });
    let figure = |kind: &str, effects: &[Effect], test| {
        let title = match c.against_base {
            true => "Δ against the base",
            false => "Δ of B against A",
        };
        effects_figure(&format!("{id}-{kind}"), effects, bound, title, test)
    };
    Ok(html! {
        div.figures {
            (figure("paired", &paired, "paired, clustered by window")?)
            (figure("unpaired", &unpaired, "unpaired, from the errors of both figures")?)
        }
    })
}

/// What stands at the left of a line: the number of the run and its name, shortened in
/// its middle.
fn line_name(number: usize, name: &str) -> String {
    let name: Vec<char> = one_line(name).chars().collect();
    let short: String = match name.len() > LINE_NAME {
        true => {
            let (head, tail) = (LINE_NAME / 2, LINE_NAME - LINE_NAME / 2 - 1);
            let tail = &name[name.len() - tail..];
            name[..head].iter().chain(&['…']).chain(tail).collect()
        }
        false => name.iter().collect(),
    };
    format!("{number} {short}")
}

fn effects_figure(
    id: &str,
    effects: &[Effect],
    bound: Option<f64>,
    title: &str,
    test: &str,
) -> Result<Markup, PlotError> {
    if effects.is_empty() {
        return Ok(html! {});
    }
    let n = effects.len();
    let runs = if n == 1 { "run" } else { "runs" };
    if effects
        .iter()
        .all(|e| e.value.mean == 0.0 && e.value.low == 0.0 && e.value.high == 0.0)
    {
        return Ok(html! { p.soft { (title) ": exactly 0 in " (n) " " (runs) "." } });
    }
    figure(
        id,
        &charts::effects("Δ PPL", "%", effects, bound),
        title,
        &format!(
            "Δ in percent with its 95 % interval, {n} {runs}, {test}; the table above has the numbers."
        ),
        html! {
            (swatch("run")) (title) " with 95 % intervals: " (test) "; t or σ at the right."
            @if let Some(b) = bound { " " (swatch("broken")) "Gate ±" (b) " %, and what breaks it." }
        },
    )
}
