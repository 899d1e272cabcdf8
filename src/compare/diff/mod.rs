//! The comparison of two result tables.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rayon::prelude::*;
use serde::Serialize;

use super::gate::{Gate, Measured};
use super::noise_floor::{MaxDelta, NoiseFloor};
use super::paired::{MovedWindow, Paired, moved_windows, paired};
use super::tokens::TokenComparison;
use crate::results::schema::status_text;
use crate::results::{Figures, Record, ResultRow, Tables, WindowRow, unpaired_sigma};
use crate::stats::benjamini_hochberg;

mod table;

/// Windows and tokens listed as those that moved most.
const N_MOVED: usize = 10;

/// The row of a run and its figures, if there are any.
fn measured<'t>(
    tables: &'t Tables,
    key: &str,
    side: &str,
) -> Result<(&'t ResultRow, &'t Figures), String> {
    let row = tables
        .get(key)
        .ok_or_else(|| format!("{side} has no such row"))?;
    let figures = row
        .figures()
        .ok_or_else(|| format!("{side}: {}", status_text(&row.outcome)))?;
    Ok((row, figures))
}

/// The windows of a run, or why there are none.
fn windows<'t>(tables: &'t Tables, row: &ResultRow, side: &str) -> Result<&'t [WindowRow], String> {
    match tables.windows(&row.key) {
        [] => Err(format!(
            "no windows in {side}: {}",
            tables.no_windows_because(row)
        )),
        windows => Ok(windows),
    }
}

/// The record of a run, or why there is none that can be used.
fn record(tables: &Tables, row: &ResultRow, side: &str) -> Result<Record, String> {
    match tables.paths().records.load(row) {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err(format!("no record in {side}")),
        Err(e) => Err(format!("the record in {side} is not used: {e}")),
    }
}

/// The verdict on one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Compared; no gate was given.
    Compared,
    /// Compared, and within every bound of the gate.
    Pass,
    /// Compared, and a bound is broken.
    Fail,
    /// Compared, and no larger than what changes that should not matter do.
    BelowNoiseFloor,
    /// Not comparable.
    NotMeasured,
}

impl Verdict {
    /// In words, for a table.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Compared => "compared",
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::BelowNoiseFloor => "below noise floor",
            Verdict::NotMeasured => "NOT MEASURED",
        }
    }
}

/// How two figures of the same run differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// PPL and its error in A and B.
    pub a: (f64, Option<f64>),
    /// PPL and its error in B.
    pub b: (f64, Option<f64>),
    /// `B − A`
    pub delta: f64,
    /// `100 · delta / A`
    pub delta_pct: f64,
    /// `ln PPL_B − ln PPL_A`, the mean NLL difference in nats.
    pub delta_ln_ppl: f64,
    /// `delta / sqrt(err_A² + err_B²)`, as if the runs were independent.
    pub unpaired_sigma: Option<f64>,
    /// The paired test, or why there is none.
    pub paired: Result<Paired, String>,
    /// The p of the test that was made, adjusted for the number of rows compared
    /// ([`benjamini_hochberg`]); `None` where there is no test.
    pub adjusted_p: Option<f64>,
    /// The windows that moved most; none without a paired test.
    pub moved_windows: Vec<MovedWindow>,
    /// What the records of both sides say, or why they say nothing.
    pub tokens: Result<TokenComparison, String>,
    /// What else is not the same: model file, engine, numerics, placement.
    pub changed: Vec<String>,
}

impl Difference {
    /// The two-sided p of the paired test. Without one there is none, and the other
    /// rows are adjusted for their own number.
    pub fn p(&self) -> Option<f64> {
        self.paired.as_ref().ok().map(Paired::p)
    }

    /// What the paired figures stand on.
    pub fn basis(&self) -> Basis {
        match (&self.paired, &self.tokens) {
            (Err(_), _) => Basis::Unpaired,
            (Ok(_), Err(_)) => Basis::Windows,
            (Ok(_), Ok(_)) => Basis::Tokens,
        }
    }
}

/// What a comparison stands on, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Both sides have their records.
    Tokens,
    /// Sums by window.
    Windows,
    /// The two figures and their errors alone.
    Unpaired,
}

/// One run of either table.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffRow {
    /// The run's key.
    pub key: String,
    /// What the gate says of it.
    pub verdict: Verdict,
    /// The bounds that are broken, or why the run is not comparable; else empty.
    pub reason: String,
    /// How large `|Δ ln PPL|` may be and mean nothing, if that is known.
    pub noise_floor: Option<f64>,
    /// The figures beside each other, if both sides have them.
    pub difference: Option<Difference>,
}

/// Two tables compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// The table that is compared with.
    pub a: PathBuf,
    /// The table that is compared.
    pub b: PathBuf,
    /// The bounds that were set.
    pub gate: Gate,
    /// All keys of both tables, sorted.
    pub rows: Vec<DiffRow>,
}

impl Diff {
    /// Compares B with A, run by run on all cores; the noise floors are those of A's
    /// runs. Records are read when their runs are compared.
    pub fn new(a: &Tables, b: &Tables, gate: Gate, noise: &NoiseFloor) -> Self {
        let keys = a.rows().chain(b.rows()).map(|row| row.key.as_str());
        let keys = Vec::from_iter(keys.collect::<BTreeSet<_>>());
        let mut compared: Vec<(&str, Result<Difference, String>)> = keys
            .into_par_iter()
            .map(|key| (key, compare(a, b, key)))
            .collect();
        adjust(compared.iter_mut().filter_map(|(_, d)| d.as_mut().ok()));
        let rows = compared.into_iter().map(|(key, difference)| {
            let noise_floor = measured(a, key, "A").and_then(|(row, _)| noise.of(row));
            let (verdict, reason) = match &difference {
                Err(reason) => (Verdict::NotMeasured, reason.clone()),
                Ok(d) => judge(d, gate, &noise_floor),
            };
            DiffRow {
                key: key.to_owned(),
                verdict,
                reason,
                noise_floor: noise_floor.ok(),
                difference: difference.ok(),
            }
        });
        Diff {
            a: a.paths().table.clone(),
            b: b.paths().table.clone(),
            gate,
            rows: rows.collect(),
        }
    }

    /// The row of a run.
    pub fn row(&self, key: &str) -> Option<&DiffRow> {
        let i = self.rows.binary_search_by(|r| r.key.as_str().cmp(key));
        i.ok().map(|i| &self.rows[i])
    }

    /// How many rows have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|r| r.verdict == verdict).count()
    }

    /// Whether something was compared, everything could be, and no bound is broken.
    pub fn passes(&self) -> bool {
        let good = |r: &DiffRow| !matches!(r.verdict, Verdict::Fail | Verdict::NotMeasured);
        !self.rows.is_empty() && self.rows.iter().all(good)
    }
}

/// The verdict on a difference, and the bounds that it breaks.
fn judge(d: &Difference, gate: Gate, noise_floor: &Result<f64, String>) -> (Verdict, String) {
    // The unpaired σ sees some hundred times less: what it misses has not passed.
    let t = d.paired.as_ref().map_or(f64::NAN, Paired::t);
    if gate.max_sigma.is_some() || gate.significance.is_some() {
        let why = match &d.paired {
            Err(why) => Some(why.as_str()),
            Ok(_) if t.is_nan() => Some("its t is not a number"),
            Ok(_) => None,
        };
        if let Some(why) = why {
            let reason =
                format!("a bound on σ or p is for the paired test, and there is none: {why}");
            return (Verdict::NotMeasured, reason);
        }
    }
    if let (Some(MaxDelta::Noise(_)), Err(why)) = (gate.max_delta, noise_floor) {
        return (Verdict::NotMeasured, why.clone());
    }
    let noise_floor = noise_floor.as_ref().ok().copied();
    let measured = Measured {
        delta_ln_ppl: d.delta_ln_ppl,
        noise_floor,
        delta_pct: d.delta_pct,
        t,
        adjusted_p: d.adjusted_p,
    };
    // What does not differ passes; a bound on ln PPL that is tighter than the floor
    // was meant.
    let size = d.delta_ln_ppl.abs();
    let below = size > 0.0 && noise_floor.is_some_and(|floor| size <= floor);
    if below && gate.max_delta_breach(measured).is_none() {
        return (Verdict::BelowNoiseFloor, String::new());
    }
    if gate.is_empty() {
        return (Verdict::Compared, String::new());
    }
    let breaches = gate.breaches(measured);
    match breaches.is_empty() {
        true => (Verdict::Pass, String::new()),
        false => (Verdict::Fail, breaches.join(", ")),
    }
}

/// Adjusts the p-values of all rows for their number.
fn adjust<'d>(differences: impl Iterator<Item = &'d mut Difference>) {
    let mut tested: Vec<(f64, &mut Difference)> =
        differences.filter_map(|d| Some((d.p()?, d))).collect();
    let p: Vec<f64> = tested.iter().map(|(p, _)| *p).collect();
    for (adjusted, (_, d)) in benjamini_hochberg(&p).into_iter().zip(&mut tested) {
        d.adjusted_p = Some(adjusted);
    }
}

fn compare(a: &Tables, b: &Tables, key: &str) -> Result<Difference, String> {
    let sides = (measured(a, key, "A"), measured(b, key, "B"));
    let ((a_row, a_figures), (b_row, b_figures)) = both(sides)?;
    same_measurement(a_row, b_row)?;
    let delta = b_figures.ppl - a_figures.ppl;
    let delta_pct = 100.0 * delta / a_figures.ppl;
    let records = match (record(a, a_row, "A"), record(b, b_row, "B")) {
        (Err(e), Err(f)) if (&*e, &*f) == ("no record in A", "no record in B") => {
            Err("no records in A and B".to_owned())
        }
        records => both(records),
    };
    // Records know their windows, too.
    let of_records = records.as_ref().ok();
    let of_records = of_records.map(|(a, b)| (a.window_rows(), b.window_rows()));
    let windows = match (windows(a, a_row, "A"), windows(b, b_row, "B"), &of_records) {
        (Err(_), _, Some((aw, bw))) | (_, Err(_), Some((aw, bw))) => {
            Ok((aw.as_slice(), bw.as_slice()))
        }
        (aw, bw, _) => both((aw, bw)),
    };
    let tokens = records.and_then(|(a, b)| TokenComparison::new(&a, &b, N_MOVED));
    let paired = windows.clone().and_then(|(a, b)| paired(a, b));
    let moved_windows = match (&paired, &windows) {
        (Ok(_), Ok((a, b))) => moved_windows(a, b, N_MOVED),
        _ => Vec::new(),
    };
    Ok(Difference {
        a: (a_figures.ppl, a_figures.ppl_err),
        b: (b_figures.ppl, b_figures.ppl_err),
        delta,
        delta_pct,
        delta_ln_ppl: b_figures.mean_nll - a_figures.mean_nll,
        unpaired_sigma: unpaired_sigma(delta, a_figures.ppl_err, b_figures.ppl_err),
        paired,
        adjusted_p: None,
        moved_windows,
        tokens,
        changed: changed(a_row, b_row),
    })
}

/// What both sides have, or why one has not.
fn both<T>((a, b): (Result<T, String>, Result<T, String>)) -> Result<(T, T), String> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(e), Ok(_)) | (Ok(_), Err(e)) => Err(e),
        (Err(e), Err(f)) => Err(format!("{e}; {f}")),
    }
}

/// Whether both rows scored the same targets after the same tokens.
fn same_measurement(a: &ResultRow, b: &ResultRow) -> Result<(), String> {
    let (p, q) = (&a.provenance, &b.provenance);
    let geometry = |r: &ResultRow| {
        let g = r.provenance.geometry;
        format!("context {}, {}", g.n_ctx, g.mode)
    };
    let number = |n: Option<usize>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let bos = |b: Option<bool>| {
        b.map_or("?", |b| if b { "BOS" } else { "no BOS" })
            .to_owned()
    };
    for (what, x, y) in [
        ("corpora", p.corpus_sha256.clone(), q.corpus_sha256.clone()),
        ("tokens", p.tokens_sha256.clone(), q.tokens_sha256.clone()),
        ("geometries", geometry(a), geometry(b)),
        ("first tokens", bos(p.bos), bos(q.bos)),
        ("window counts", number(p.windows), number(q.windows)),
        (
            "scored tokens",
            number(p.scored_tokens),
            number(q.scored_tokens),
        ),
    ] {
        if x != y {
            return Err(format!("different {what}: {x} in A, {y} in B"));
        }
    }
    Ok(())
}

/// What differs and may: the things whose effect a diff is for.
fn changed(a: &ResultRow, b: &ResultRow) -> Vec<String> {
    let (p, q) = (&a.provenance, &b.provenance);
    let mut out = Vec::new();
    if p.model_sha256 != q.model_sha256 {
        out.push("model file".to_owned());
    }
    for (what, x, y) in [
        ("engine", &p.engine, &q.engine),
        ("numerics", &p.numerics, &q.numerics),
        ("layer placement", &p.layer_placement, &q.layer_placement),
    ] {
        if x != y {
            out.push(format!("{what} {x} → {y}"));
        }
    }
    out
}
