//! Two runs beside each other.

use std::collections::BTreeSet;

use super::{Difference, Evidence};
use crate::compare::axis::Pair;
use crate::compare::paired::{moved_windows, paired};
use crate::compare::tokens::TokenComparison;
use crate::results::schema::status_text;
use crate::results::{Figures, Record, ResultRow, Tables, WindowRow, unpaired_sigma};
use crate::stats::Moments;

/// Windows and tokens listed as those that moved most.
const N_MOVED: usize = 10;

/// The row of a run and its figures, if there are any.
fn measured<'t>(
    tables: &'t Tables,
    key: &Result<String, String>,
    side: &str,
) -> Result<(&'t ResultRow, &'t Figures), String> {
    let key = key.as_ref().map_err(Clone::clone)?;
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

/// The figures of one side on the windows that are compared.
struct Side {
    mean_nll: f64,
    ppl: f64,
    err: Option<f64>,
}

impl Side {
    fn of(figures: &Figures) -> Self {
        Side {
            mean_nll: figures.mean_nll,
            ppl: figures.ppl,
            err: figures.ppl_err,
        }
    }

    /// Of some windows of a run. Only its record has an error that takes tokens as
    /// independent.
    fn of_windows(windows: &[WindowRow], record: Option<&Record>) -> Self {
        let scored: usize = windows.iter().map(|w| w.scored).sum();
        let sum: f64 = windows.iter().map(|w| w.nll_sum).sum();
        let mean_nll = sum / scored as f64;
        let nll = record.into_iter().flat_map(|r| &r.tokens().nll);
        let tokens: Moments = nll.map(|&x| f64::from(x)).collect();
        Side {
            mean_nll,
            ppl: mean_nll.exp(),
            err: tokens.ppl_err(),
        }
    }
}

/// Compares two runs.
///
/// # Errors
/// Why they cannot be.
pub(super) fn compare(
    a: &Tables,
    b: &Tables,
    pair: &Pair,
    evidence: Evidence,
) -> Result<Difference, String> {
    let sides = (measured(a, &pair.a, "A"), measured(b, &pair.b, "B"));
    let ((a_row, a_figures), (b_row, b_figures)) = both(sides)?;
    same_measurement(a_row, b_row)?;
    let mut records = match evidence {
        Evidence::Records => match (record(a, a_row, "A"), record(b, b_row, "B")) {
            (Err(e), Err(f)) if (&*e, &*f) == ("no record in A", "no record in B") => {
                Err("no records in A and B".to_owned())
            }
            records => both(records),
        },
        Evidence::Windows => Err("only windows are compared".to_owned()),
    };
    // Records know their windows, too.
    let mut windows = match (windows(a, a_row, "A"), windows(b, b_row, "B")) {
        (Ok(aw), Ok(bw)) => Ok((aw.to_vec(), bw.to_vec())),
        tables => match &records {
            Ok((a, b)) => Ok((a.window_rows(), b.window_rows())),
            Err(_) => both(tables).map(|(a, b)| (a.to_vec(), b.to_vec())),
        },
    };
    let mut sides = (Side::of(a_figures), Side::of(b_figures));
    let mut changed = changed(a_row, b_row);
    let size = |row: &ResultRow| (row.provenance.windows, row.provenance.scored_tokens);
    if size(a_row) != size(b_row) {
        let (aw, bw) = windows.map_err(|why| {
            let n = |row: &ResultRow| number(row.provenance.windows);
            format!(
                "{} windows in A and {} in B, and those that both have are not known: {why}",
                n(a_row),
                n(b_row)
            )
        })?;
        let (x, y) = (common(&aw, &bw), common(&bw, &aw));
        if x.is_empty() {
            return Err("A and B have no window in common".to_owned());
        }
        changed.push(format!(
            "windows {} → {}, compared on the {} that both have",
            aw.len(),
            bw.len(),
            x.len()
        ));
        let kept: BTreeSet<usize> = x.iter().map(|w| w.window).collect();
        records = records.map(|(a, b)| (a.only(&kept), b.only(&kept)));
        let (a_record, b_record) = records.as_ref().ok().map(|(a, b)| (a, b)).unzip();
        sides = (
            Side::of_windows(&x, a_record),
            Side::of_windows(&y, b_record),
        );
        windows = Ok((x, y));
    }
    let (a, b) = sides;
    let tokens = records.and_then(|(a, b)| TokenComparison::new(&a, &b, N_MOVED));
    let paired = match &windows {
        Ok((a, b)) => paired(a, b),
        Err(why) => Err(why.clone()),
    };
    let moved_windows = match (&paired, &windows) {
        (Ok(_), Ok((a, b))) => moved_windows(a, b, N_MOVED),
        _ => Vec::new(),
    };
    let delta = b.ppl - a.ppl;
    Ok(Difference {
        a: (a.ppl, a.err),
        b: (b.ppl, b.err),
        delta,
        delta_pct: 100.0 * delta / a.ppl,
        delta_ln_ppl: b.mean_nll - a.mean_nll,
        unpaired_sigma: unpaired_sigma(delta, a.err, b.err),
        paired,
        adjusted_p: None,
        moved_windows,
        tokens,
        changed,
    })
}

/// The windows of `a` that `b` has with as many scored tokens.
fn common(a: &[WindowRow], b: &[WindowRow]) -> Vec<WindowRow> {
    let shape = |w: &WindowRow| (w.window, w.scored);
    let of_b: BTreeSet<_> = b.iter().map(shape).collect();
    a.iter()
        .filter(|w| of_b.contains(&shape(w)))
        .copied()
        .collect()
}

fn number(n: Option<usize>) -> String {
    n.map_or_else(|| "?".to_owned(), |n| n.to_string())
}

/// What both sides have, or why one has not.
fn both<T>((a, b): (Result<T, String>, Result<T, String>)) -> Result<(T, T), String> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(e), Ok(_)) | (Ok(_), Err(e)) => Err(e),
        (Err(e), Err(f)) => Err(format!("{e}; {f}")),
    }
}

/// Whether both rows score targets of the same tokens, after the same tokens.
fn same_measurement(a: &ResultRow, b: &ResultRow) -> Result<(), String> {
    let (p, q) = (&a.provenance, &b.provenance);
    let geometry = |r: &ResultRow| {
        let g = r.provenance.geometry;
        format!("context {}, {}", g.n_ctx, g.mode)
    };
    let bos = |b: Option<bool>| {
        b.map_or("?", |b| if b { "BOS" } else { "no BOS" })
            .to_owned()
    };
    for (what, x, y) in [
        ("corpora", p.corpus_sha256.clone(), q.corpus_sha256.clone()),
        ("tokens", p.tokens_sha256.clone(), q.tokens_sha256.clone()),
        ("geometries", geometry(a), geometry(b)),
        ("first tokens", bos(p.bos), bos(q.bos)),
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
