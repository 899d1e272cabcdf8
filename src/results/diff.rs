//! The comparison of two result tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::csv_file::CsvError;
use super::gate::Gate;
use super::paired::{Paired, paired};
use super::row::{Figures, ResultRow, WindowRow, unpaired_sigma};
use super::schema::status_text;
use super::tables::{TablePaths, Windows, read_rows, read_windows};

/// A table as it is compared: what is wrong with single rows is part of the
/// verdict, not an error.
#[derive(Debug)]
pub struct Side {
    path: PathBuf,
    rows: BTreeMap<String, Vec<ResultRow>>,
    windows: Option<Windows>,
}

impl Side {
    /// Reads the table at `path` and the `*.windows.csv` beside it, if there is one.
    ///
    /// # Errors
    /// An unreadable or malformed file, with file and line.
    pub fn load(path: &Path) -> Result<Self, CsvError> {
        let mut rows = BTreeMap::<String, Vec<ResultRow>>::new();
        for (_, row) in read_rows(path)? {
            rows.entry(row.key.clone()).or_default().push(row);
        }
        Ok(Side {
            path: path.to_owned(),
            rows,
            windows: read_windows(&TablePaths::beside(path).windows)?,
        })
    }

    /// The row of a run and its figures, if they are fit to be compared.
    fn measured(&self, key: &str, side: &str) -> Result<(&ResultRow, &Figures), String> {
        let row = match self.rows.get(key).map(Vec::as_slice) {
            None | Some([]) => return Err(format!("{side} has no such row")),
            Some([row]) => row,
            Some(rows) => return Err(format!("{side} has {} such rows", rows.len())),
        };
        let figures = row
            .figures()
            .ok_or_else(|| format!("{side}: {}", status_text(&row.outcome)))?;
        row.check()
            .map_err(|problem| format!("{side}: {problem}"))?;
        Ok((row, figures))
    }

    fn windows(&self, row: &ResultRow) -> Option<&[WindowRow]> {
        self.windows.as_ref()?.get(&row.key).map(Vec::as_slice)
    }
}

/// The verdict on one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Compared; no gate was given.
    Compared,
    /// Compared, and within every bound of the gate.
    Within,
    /// Compared, and a bound is broken.
    Broken,
    /// Not comparable.
    NotMeasured,
}

impl Verdict {
    /// In words, for a table.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Compared => "compared",
            Verdict::Within => "within",
            Verdict::Broken => "BROKEN",
            Verdict::NotMeasured => "NOT MEASURED",
        }
    }
}

/// How two figures of the same run differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// PPL and its error in A and B.
    pub a: (f64, Option<f64>),
    pub b: (f64, Option<f64>),
    /// `B − A`
    pub delta: f64,
    /// `100 · delta / A`
    pub delta_pct: f64,
    /// `delta / sqrt(err_A² + err_B²)`, as if the runs were independent.
    pub unpaired_sigma: Option<f64>,
    /// The paired test, or why there is none.
    pub paired: Result<Paired, String>,
    /// What else is not the same: model file, engine, numerics, placement.
    pub changed: Vec<String>,
}

impl Difference {
    /// What [`Gate::max_sigma`] bounds: the paired t, which sees far smaller
    /// changes, or the unpaired σ where there is no paired test. NaN where
    /// neither can be told.
    pub fn gate_sigma(&self) -> f64 {
        match &self.paired {
            Ok(p) => p.t(),
            Err(_) => self.unpaired_sigma.unwrap_or(f64::NAN),
        }
    }

    fn gate_sigma_name(&self) -> &'static str {
        match self.paired {
            Ok(_) => "paired t",
            Err(_) => "unpaired σ",
        }
    }
}

/// One run of either table.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffRow {
    pub key: String,
    pub verdict: Verdict,
    /// The bounds that are broken, or why the run is not comparable; else empty.
    pub reason: String,
    pub difference: Option<Difference>,
}

/// Two tables compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    pub a: PathBuf,
    pub b: PathBuf,
    pub gate: Gate,
    /// All keys of both tables, sorted.
    pub rows: Vec<DiffRow>,
}

impl Diff {
    /// Compares B with A, run by run.
    pub fn new(a: &Side, b: &Side, gate: Gate) -> Self {
        let keys: BTreeSet<&String> = a.rows.keys().chain(b.rows.keys()).collect();
        let rows = keys.into_iter().map(|key| {
            let (verdict, reason, difference) = match compare(a, b, key) {
                Err(reason) => (Verdict::NotMeasured, reason, None),
                Ok(d) if gate.is_empty() => (Verdict::Compared, String::new(), Some(d)),
                Ok(d) if gate.max_sigma.is_some() && d.gate_sigma().is_nan() => {
                    let reason = "neither run has an error to judge σ by".to_owned();
                    (Verdict::NotMeasured, reason, Some(d))
                }
                Ok(d) => {
                    let breaches = gate.breaches(d.delta_pct, d.gate_sigma_name(), d.gate_sigma());
                    let verdict = if breaches.is_empty() {
                        Verdict::Within
                    } else {
                        Verdict::Broken
                    };
                    (verdict, breaches.join(", "), Some(d))
                }
            };
            DiffRow {
                key: key.clone(),
                verdict,
                reason,
                difference,
            }
        });
        Diff {
            a: a.path.clone(),
            b: b.path.clone(),
            gate,
            rows: rows.collect(),
        }
    }

    /// The row of a run.
    pub fn row(&self, key: &str) -> Option<&DiffRow> {
        let i = self.rows.binary_search_by(|r| r.key.as_str().cmp(key));
        i.ok().map(|i| &self.rows[i])
    }

    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|r| r.verdict == verdict).count()
    }

    /// Whether something was compared, everything could be, and no bound is broken.
    pub fn passes(&self) -> bool {
        !self.rows.is_empty()
            && self
                .rows
                .iter()
                .all(|r| matches!(r.verdict, Verdict::Compared | Verdict::Within))
    }
}

fn compare(a: &Side, b: &Side, key: &str) -> Result<Difference, String> {
    let sides = (a.measured(key, "A"), b.measured(key, "B"));
    let ((a_row, a_figures), (b_row, b_figures)) = match sides {
        (Ok(a), Ok(b)) => (a, b),
        (Err(e), Ok(_)) | (Ok(_), Err(e)) => return Err(e),
        (Err(e), Err(f)) => return Err(format!("{e}; {f}")),
    };
    same_measurement(a_row, b_row)?;
    let delta = b_figures.ppl - a_figures.ppl;
    let delta_pct = 100.0 * delta / a_figures.ppl;
    let paired = match (a.windows(a_row), b.windows(b_row)) {
        (Some(aw), Some(bw)) => {
            for (side, row, windows) in [("A", a_row, aw), ("B", b_row, bw)] {
                row.check_windows(windows)
                    .map_err(|problem| format!("{side}: {problem}"))?;
            }
            paired(aw, bw)
        }
        (None, Some(_)) => Err("no windows in A".to_owned()),
        (Some(_), None) => Err("no windows in B".to_owned()),
        (None, None) => Err("no windows in A and B".to_owned()),
    };
    Ok(Difference {
        a: (a_figures.ppl, a_figures.ppl_err),
        b: (b_figures.ppl, b_figures.ppl_err),
        delta,
        delta_pct,
        unpaired_sigma: unpaired_sigma(delta, a_figures.ppl_err, b_figures.ppl_err),
        paired,
        changed: changed(a_row, b_row),
    })
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
