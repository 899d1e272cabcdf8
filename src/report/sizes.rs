//! Sweeps of one model's quantizations: what size costs in perplexity and in KL
//! divergence.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::charts::{self, Choice};
use super::elements::{figure, name, swatch};
use super::names::natural;
use super::pareto::dominators;
use super::plot::PlotError;
use super::{Entry, Section};
use crate::render::markdown::code;
use crate::render::one_line;
use crate::results::{KldOutcome, Provenance};

/// Models whose numbers of weights differ by less are one: files of a few weights have
/// a larger share of vocabulary, and heads are tied in some.
const SAME_MODEL: f64 = 1.25;

/// Characters of a name in a figure at most.
const NAME: usize = 14;

/// What is drawn against size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Ppl,
    Kld,
}

/// The quantizations of a model, measured alike.
struct Sweep {
    /// What all of its runs share.
    shared: Option<String>,
    measure: Measure,
    /// Bits a weight, or GiB where these are not known of all.
    unit: &'static str,
    /// By size.
    choices: Vec<Choice>,
}

/// All that must be the same for two runs to stand in one figure, but the model file.
fn measured_alike(p: &Provenance) -> Vec<String> {
    let g = p.geometry;
    vec![
        p.architecture.clone(),
        p.tokens_sha256.clone(),
        format!("{} {}", g.n_ctx, g.mode),
        format!("{:?} {:?} {:?}", p.bos, p.windows, p.scored_tokens),
        p.placement.clone(),
        p.numerics.clone(),
    ]
}

/// About how many weights a model has: its file is some more than they are.
fn weights(p: &Provenance) -> Option<f64> {
    Some(8.0 * p.size.bytes? as f64 / p.size.bits_per_weight?)
}

/// The sweeps of a table: groups of runs of at least two sizes.
fn sweeps(s: &Section) -> Vec<Sweep> {
    let mut groups: BTreeMap<Vec<String>, Vec<Entry<'_>>> = BTreeMap::new();
    for entry in s.entries() {
        let p = &entry.row.provenance;
        if entry.row.figures().is_some() && p.size.bytes.is_some() {
            groups.entry(measured_alike(p)).or_default().push(entry);
        }
    }
    let groups = groups.into_values().flat_map(by_model);
    let mut groups: Vec<_> = groups.filter(|runs| sizes(runs) > 1).collect();
    groups.sort_by(|a, b| natural(&a[0].row.key, &b[0].row.key));
    let of_group = |runs: &Vec<Entry<'_>>| {
        let ppl = |e: &Entry| e.row.figures().map(|f| f.ppl);
        let mut all = vec![sweep(runs, Measure::Ppl, ppl)];
        let base = |e: &Entry| Some(s.tables.kld(&e.row.key)?.base_sha256.clone());
        let mut bases: Vec<String> = runs.iter().filter_map(base).collect();
        bases.sort();
        bases.dedup();
        // Divergences from different models are no sweep.
        if let [_] = bases.as_slice() {
            let kld = |e: &Entry| match &s.tables.kld(&e.row.key)?.outcome {
                KldOutcome::Ok(summary) => Some(summary.kld),
                KldOutcome::Failed(_) | KldOutcome::NotRun => None,
            };
            all.push(sweep(runs, Measure::Kld, kld));
        }
        all
    };
    let all = groups.iter().flat_map(of_group);
    all.filter(|sweep| sweep.choices.len() > 1).collect()
}

/// How many sizes the runs have.
fn sizes(runs: &[Entry]) -> usize {
    let mut bytes: Vec<_> = runs.iter().map(|e| e.row.provenance.size.bytes).collect();
    bytes.sort_unstable();
    bytes.dedup();
    bytes.len()
}

/// Runs of one model each, by the number of its weights where all have it.
fn by_model(mut runs: Vec<Entry<'_>>) -> Vec<Vec<Entry<'_>>> {
    if runs.iter().any(|e| weights(&e.row.provenance).is_none()) {
        return vec![runs];
    }
    let of = |e: &Entry| weights(&e.row.provenance).unwrap_or(0.0);
    runs.sort_by(|a, b| of(a).total_cmp(&of(b)));
    let mut models: Vec<Vec<Entry<'_>>> = Vec::new();
    for run in runs {
        match models
            .last_mut()
            .filter(|m| of(&run) <= SAME_MODEL * of(&m[0]))
        {
            Some(model) => model.push(run),
            None => models.push(vec![run]),
        }
    }
    models
}

fn sweep(runs: &[Entry], measure: Measure, value: impl Fn(&Entry) -> Option<f64>) -> Sweep {
    let bits = |e: &Entry| e.row.provenance.size.bits_per_weight;
    let by_bits = runs.iter().all(|e| bits(e).is_some());
    let gib = |e: &Entry| Some(e.row.provenance.size.bytes? as f64 / f64::from(1 << 30));
    let size = |e: &Entry| if by_bits { bits(e) } else { gib(e) };
    let named = |name: &str| {
        let same = runs
            .iter()
            .filter(|e| e.row.provenance.size.quantization == name);
        same.count()
    };
    let name = |e: &Entry| {
        let name = &e.row.provenance.size.quantization;
        match (name.is_empty(), named(name)) {
            (true, _) => format!("run {}", e.number),
            (false, 1) => short(name),
            (false, _) => format!("{} ({})", short(name), e.number),
        }
    };
    let choice = |e: &Entry| {
        Some(Choice {
            name: name(e),
            size: size(e)?,
            value: value(e)?,
            dominated_by: None,
        })
    };
    let mut choices: Vec<Choice> = runs.iter().filter_map(choice).collect();
    choices.sort_by(|a, b| a.size.total_cmp(&b.size));
    let points: Vec<(f64, f64)> = choices.iter().map(|c| (c.size, c.value)).collect();
    for (choice, by) in choices.iter_mut().zip(dominators(&points)) {
        choice.dominated_by = by;
    }
    let names = super::Names::new(runs.iter().map(|e| e.row.key.as_str()));
    Sweep {
        shared: names.shared(),
        measure,
        unit: if by_bits { "bits per weight" } else { "GiB" },
        choices,
    }
}

/// A name that figures have room for.
fn short(name: &str) -> String {
    let name = one_line(name);
    match name.chars().count() > NAME {
        true => name.chars().take(NAME - 1).chain(['…']).collect(),
        false => name,
    }
}

impl Measure {
    fn title(self) -> &'static str {
        match self {
            Measure::Ppl => "PPL",
            Measure::Kld => "Mean KLD",
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Measure::Ppl => format!("{value:.4}"),
            Measure::Kld => format!("{value:.6}"),
        }
    }
}

impl Sweep {
    fn title(&self) -> String {
        format!("{} against size", self.measure.title())
    }

    /// The Pareto front, and what is dominated by what. `quoted` is how names stand in
    /// the text.
    fn in_words(&self, quoted: fn(&str) -> String) -> String {
        let one = |c: &Choice| {
            let value = self.measure.text(c.value);
            format!("{} ({:.2} {}, {value})", quoted(&c.name), c.size, self.unit)
        };
        let front = self.choices.iter().filter(|c| c.dominated_by.is_none());
        let mut out = format!(
            "Pareto front: {}.",
            front.map(one).collect::<Vec<_>>().join(", ")
        );
        let dominated = self.choices.iter().filter_map(|c| {
            let by = &self.choices[c.dominated_by?];
            Some(format!("{} by {}", one(c), quoted(&by.name)))
        });
        let dominated: Vec<String> = dominated.collect();
        if !dominated.is_empty() {
            out += &format!(" Dominated: {}.", dominated.join(", "));
        }
        out
    }
}

/// The figures of a table; nothing without a sweep.
pub(super) fn in_html(s: &Section, table: usize) -> Result<Markup, PlotError> {
    let sweeps = sweeps(s);
    if sweeps.is_empty() {
        return Ok(html! {});
    }
    let mut figures = Vec::new();
    for (i, sweep) in (1..).zip(&sweeps) {
        let chart = charts::sizes(
            match sweep.unit {
                "GiB" => ("size of the file", "GiB"),
                unit => (unit, ""),
            },
            match sweep.measure {
                Measure::Ppl => ("PPL", ""),
                Measure::Kld => ("mean KLD", "nat"),
            },
            &sweep.choices,
        );
        let words = sweep.in_words(one_line);
        figures.push(figure(
            &format!("table-{table}-sizes-{i}"),
            &chart,
            &sweep.title(),
            &words,
            html! {
                (swatch("run")) (sweep.title())
                @if let Some(shared) = &sweep.shared { " · " (name(shared)) }
                ". " bdi { (words) }
            },
        )?);
    }
    Ok(html! {
        h3 { "Size" }
        p.caption {
            "Quantizations of one model, measured alike. On the Pareto front, the line, nothing is at once no "
            "larger and no worse; hollow points are dominated. By the figures as they are: whether two of "
            "them differ, a paired comparison says."
        }
        div.figures { @for figure in &figures { (figure) } }
    })
}

/// The same in words; empty without a sweep.
pub(super) fn in_markdown(s: &Section) -> String {
    let line = |sweep: &Sweep| {
        let shared = sweep.shared.as_ref();
        let shared = shared.map_or_else(String::new, |shared| format!(" ({})", code(shared)));
        format!("- {}{shared}. {}\n", sweep.title(), sweep.in_words(code))
    };
    sweeps(s).iter().map(line).collect()
}
