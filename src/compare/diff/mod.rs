//! The comparison of two result tables, or of the runs of one.

use std::path::PathBuf;

use rayon::prelude::*;
use serde::Serialize;

use super::axis::{Pair, Pairing};
use super::gate::Gate;
use super::noise_floor::NoiseFloor;
use super::paired::{MovedWindow, Paired};
use super::tokens::TokenComparison;
use crate::results::{ResultRow, Tables};
use crate::stats::benjamini_hochberg;

mod judge;
mod rows;
mod table;

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
    /// Compared, and what was measured shows neither.
    Inconclusive,
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
            Verdict::Inconclusive => "INCONCLUSIVE",
            Verdict::BelowNoiseFloor => "below noise floor",
            Verdict::NotMeasured => "NOT MEASURED",
        }
    }
}

/// How the figures of two runs differ.
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
    /// What else is not the same: model file, engine, numerics, placement, limits.
    pub changed: Vec<String>,
}

impl Difference {
    /// The two-sided p of the paired test. Without one there is none, and the other
    /// rows are adjusted for their own number.
    pub fn p(&self) -> Option<f64> {
        self.paired.as_ref().ok().map(Paired::p)
    }

    /// Whether every window has the same bits on both sides.
    pub fn is_unchanged(&self) -> bool {
        self.paired.as_ref().is_ok_and(Paired::is_unchanged) && self.has_same_figures()
    }

    /// Whether the figures have the same bits.
    pub fn has_same_figures(&self) -> bool {
        self.delta_ln_ppl == 0.0 && self.a == self.b
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

/// What a comparison may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Records of every token, where both sides have them.
    Records,
    /// The windows' sums beside the tables, which are committed: the same bytes
    /// wherever they are.
    Windows,
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

/// One pair.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffRow {
    /// The key of both, or [`Pair::name`].
    pub key: String,
    /// The run of A; empty if there is none.
    pub a_key: String,
    /// The run of B; empty if there is none.
    pub b_key: String,
    /// What the gate says of it.
    pub verdict: Verdict,
    /// The bounds that are broken, or why the run is not comparable; else empty.
    pub reason: String,
    /// How large `|Δ ln PPL|` may be and mean nothing, if that is known.
    pub noise_floor: Option<f64>,
    /// The figures beside each other, if both sides have them.
    pub difference: Option<Difference>,
}

impl DiffRow {
    /// Whether both sides have the same bits.
    pub fn is_unchanged(&self) -> bool {
        self.difference
            .as_ref()
            .is_some_and(Difference::is_unchanged)
    }

    /// Where it stands among others: what needs a look comes first.
    pub fn urgency(&self) -> u8 {
        match self.verdict {
            Verdict::Fail => 0,
            Verdict::NotMeasured => 1,
            Verdict::Inconclusive => 2,
            Verdict::Compared | Verdict::Pass | Verdict::BelowNoiseFloor => 3,
        }
    }
}

/// Two tables compared, or the runs of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// The table that is compared with.
    pub a: PathBuf,
    /// The table that is compared.
    pub b: PathBuf,
    /// The bounds that were set.
    pub gate: Gate,
    /// The pairs, by key. Without a [`Pairing`] these are all keys of both tables.
    pub rows: Vec<DiffRow>,
}

impl Diff {
    /// Compares B with A, pair by pair on all cores; the noise floors are those of A's
    /// runs. Records are read when their runs are compared.
    ///
    /// # Errors
    /// Pairs that cannot be made: [`Pairing::pairs`].
    pub fn new(
        a: &Tables,
        b: &Tables,
        pairing: &Pairing,
        evidence: Evidence,
        gate: Gate,
        noise: &NoiseFloor,
    ) -> Result<Self, String> {
        let (of_a, of_b) = (Vec::from_iter(a.rows()), Vec::from_iter(b.rows()));
        let pairs = pairing.pairs(&of_a, &of_b, std::ptr::eq(a, b))?;
        let mut compared: Vec<(Pair, Result<Difference, String>)> = pairs
            .into_par_iter()
            .map(|pair| {
                let difference = rows::compare(a, b, &pair, evidence);
                (pair, difference)
            })
            .collect();
        adjust(compared.iter_mut().filter_map(|(_, d)| d.as_mut().ok()));
        let rows = compared.into_iter().map(|(pair, difference)| {
            let a_row = pair.a.as_ref().ok().and_then(|key| a.get(key));
            let noise_floor = match a_row.filter(|row| row.figures().is_some()) {
                Some(row) => noise.of(row),
                None => Err("there is nothing to compare with".to_owned()),
            };
            let (verdict, reason) = match &difference {
                Err(reason) => (Verdict::NotMeasured, reason.clone()),
                Ok(d) => judge::judge(
                    d,
                    gate,
                    &noise_floor,
                    a_row.and_then(ResultRow::windows_of_corpus),
                ),
            };
            DiffRow {
                key: pair.name,
                a_key: pair.a.unwrap_or_default(),
                b_key: pair.b.unwrap_or_default(),
                verdict,
                reason,
                noise_floor: noise_floor.ok(),
                difference: difference.ok(),
            }
        });
        Ok(Diff {
            a: a.paths().table.clone(),
            b: b.paths().table.clone(),
            gate,
            rows: rows.collect(),
        })
    }

    /// The row whose B is the run `key`.
    pub fn row(&self, key: &str) -> Option<&DiffRow> {
        let i = self.rows.binary_search_by(|r| r.key.as_str().cmp(key));
        let same = i.ok().map(|i| &self.rows[i]);
        same.or_else(|| self.rows.iter().find(|r| r.b_key == key))
    }

    /// The rows, those that need a look first.
    pub fn by_urgency(&self) -> Vec<&DiffRow> {
        let mut rows = Vec::from_iter(&self.rows);
        rows.sort_by_key(|row| row.urgency());
        rows
    }

    /// How many rows have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|r| r.verdict == verdict).count()
    }

    /// Whether something was compared, everything could be, no bound is broken, and
    /// every bound was decided or need not be.
    pub fn passes(&self) -> bool {
        let good = |row: &DiffRow| match row.verdict {
            Verdict::Fail | Verdict::NotMeasured => false,
            Verdict::Inconclusive => self.gate.allow_inconclusive,
            Verdict::Compared | Verdict::Pass | Verdict::BelowNoiseFloor => true,
        };
        !self.rows.is_empty() && self.rows.iter().all(good)
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
