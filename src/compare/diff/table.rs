//! A [`Diff`] as JSON and CSV: the same fields, listed here and nowhere else.

use std::io;

use rayon::prelude::*;
use serde::Serialize;

use super::{Basis, Diff, DiffRow, Difference, Verdict};
use crate::compare::{Gate, MovedToken, MovedWindow};
use crate::results::csv_file::{self, Column, Columns, Version};
use crate::stats::{Estimate, PERCENTILES};

/// The major version, which JSON names, is raised where a field changes its meaning or
/// goes; the minor one where one is added.
const SCHEMA: Version = Version { major: 2, minor: 2 };

/// Declares the record of a run: its fields are the columns, in this order.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident<'a> { $($field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[derive(Serialize)]
        struct $name<'a> { $($field: $ty,)* }

        impl Columns for $name<'_> {
            // It is never read back, so the types do not matter.
            const COLUMNS: &'static [Column] = &[$(Column::of::<String>(stringify!($field))),*];
            const SCHEMA: Option<Version> = Some(SCHEMA);
        }
    };
}

record! {
    /// A run in JSON and CSV. Figures that are missing or infinite are `None`.
    Record<'a> {
        key: &'a str,
        verdict: Verdict,
        reason: &'a str,
        basis: Option<Basis>,
        a_ppl: Option<f64>,
        a_err: Option<f64>,
        b_ppl: Option<f64>,
        b_err: Option<f64>,
        delta: Option<f64>,
        delta_pct: Option<f64>,
        delta_ln_ppl: Option<f64>,
        noise_floor: Option<f64>,
        sigma: Option<f64>,
        paired_windows: Option<usize>,
        paired_delta_ln_ppl: Option<f64>,
        paired_se: Option<f64>,
        paired_t: Option<f64>,
        paired_p: Option<f64>,
        paired_low: Option<f64>,
        paired_high: Option<f64>,
        permutation_p: Option<f64>,
        adjusted_p: Option<f64>,
        detectable: Option<f64>,
        ppl_ratio: Option<f64>,
        ppl_ratio_se: Option<f64>,
        ppl_difference_se: Option<f64>,
        tokens: Option<usize>,
        independent_se: Option<f64>,
        correlation: Option<f64>,
        same_top: Option<f64>,
        same_top_se: Option<f64>,
        delta_p_mean: Option<f64>,
        delta_p_mean_se: Option<f64>,
        delta_p_rms: Option<f64>,
        delta_p_rms_se: Option<f64>,
        delta_p_max: Option<f64>,
        delta_p_99_9: Option<f64>,
        delta_p_99: Option<f64>,
        delta_p_95: Option<f64>,
        delta_p_90: Option<f64>,
        delta_p_75: Option<f64>,
        delta_p_median: Option<f64>,
        delta_p_25: Option<f64>,
        delta_p_10: Option<f64>,
        delta_p_5: Option<f64>,
        delta_p_1: Option<f64>,
        delta_p_0_1: Option<f64>,
        delta_p_min: Option<f64>,
        unpaired_because: &'a str,
        not_by_token_because: &'a str,
        changed: String,
        a_key: &'a str,
        b_key: &'a str,
    }
}

impl<'a> Record<'a> {
    fn new(row: &'a DiffRow) -> Self {
        let d = row.difference.as_ref();
        let paired = d.and_then(|d| d.paired.as_ref().ok());
        let tokens = d.and_then(|d| d.tokens.as_ref().ok());
        let (low, high) = paired.map(|p| p.interval()).unzip();
        let ratio = paired.map(|p| p.ppl_ratio());
        let value = |e: Option<Estimate>| e.map(|e| e.value);
        let se = |e: Option<Estimate>| e.and_then(|e| e.se);
        let same_top = tokens.map(|t| t.same_top);
        let mean = tokens.map(|t| t.delta_p.mean);
        let rms = tokens.map(|t| t.delta_p.rms);
        let percentiles = tokens.map_or([None; PERCENTILES.len()], |t| {
            t.delta_p.percentiles.map(Some)
        });
        let [
            max,
            p999,
            p99,
            p95,
            p90,
            p75,
            p50,
            p25,
            p10,
            p5,
            p1,
            p01,
            min,
        ] = percentiles;
        Record {
            key: &row.key,
            verdict: row.verdict,
            reason: &row.reason,
            basis: d.map(Difference::basis),
            a_ppl: d.map(|d| d.a.0),
            a_err: d.and_then(|d| d.a.1),
            b_ppl: d.map(|d| d.b.0),
            b_err: d.and_then(|d| d.b.1),
            delta: d.map(|d| d.delta),
            delta_pct: d.map(|d| d.delta_pct),
            delta_ln_ppl: d.map(|d| d.delta_ln_ppl),
            noise_floor: row.noise_floor,
            sigma: d.and_then(|d| d.unpaired_sigma),
            paired_windows: paired.map(|p| p.windows),
            paired_delta_ln_ppl: paired.map(|p| p.mean),
            paired_se: paired.map(|p| p.se),
            // Infinite where every window moved alike: no number in JSON.
            paired_t: paired.map(|p| p.t()).filter(|t| t.is_finite()),
            paired_p: paired.map(|p| p.p()),
            paired_low: low,
            paired_high: high,
            permutation_p: paired.map(|p| p.permutation_p()),
            adjusted_p: d.and_then(|d| d.adjusted_p),
            detectable: paired.map(|p| p.detectable()),
            ppl_ratio: value(ratio),
            ppl_ratio_se: se(ratio),
            ppl_difference_se: se(paired.map(|p| p.ppl_difference)),
            tokens: tokens.map(|t| t.n()),
            independent_se: se(tokens.map(|t| t.mean)),
            correlation: tokens.and_then(|t| t.correlation),
            same_top: value(same_top),
            same_top_se: se(same_top),
            delta_p_mean: value(mean),
            delta_p_mean_se: se(mean),
            delta_p_rms: value(rms),
            delta_p_rms_se: se(rms),
            delta_p_max: max,
            delta_p_99_9: p999,
            delta_p_99: p99,
            delta_p_95: p95,
            delta_p_90: p90,
            delta_p_75: p75,
            delta_p_median: p50,
            delta_p_25: p25,
            delta_p_10: p10,
            delta_p_5: p5,
            delta_p_1: p1,
            delta_p_0_1: p01,
            delta_p_min: min,
            unpaired_because: because(d.map(|d| &d.paired)),
            not_by_token_because: because(d.map(|d| &d.tokens)),
            changed: d.map_or_else(String::new, |d| d.changed.join("; ")),
            a_key: &row.a_key,
            b_key: &row.b_key,
        }
    }
}

/// Why there is no such comparison; empty if there is one.
fn because<T>(result: Option<&Result<T, String>>) -> &str {
    match result {
        Some(Err(why)) => why,
        _ => "",
    }
}

/// A run in JSON, with the lists that a table has no place for.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    record: Record<'a>,
    moved_windows: &'a [MovedWindow],
    moved_tokens: &'a [MovedToken],
}

impl<'a> Row<'a> {
    fn new(row: &'a DiffRow) -> Self {
        let d = row.difference.as_ref();
        let tokens = d.and_then(|d| d.tokens.as_ref().ok());
        Row {
            record: Record::new(row),
            moved_windows: d.map_or(&[], |d| d.moved_windows.as_slice()),
            moved_tokens: tokens.map_or(&[], |t| t.moved.as_slice()),
        }
    }
}

impl Diff {
    /// The schema that `docs/results.md` states.
    ///
    /// # Errors
    /// None is expected; they are those of the writer.
    pub fn to_json(&self) -> io::Result<String> {
        #[derive(Serialize)]
        struct Json<'a> {
            schema: u32,
            a: String,
            b: String,
            gate: Gate,
            pass: bool,
            compared: usize,
            passed: usize,
            failed: usize,
            below_noise_floor: usize,
            inconclusive: usize,
            not_measured: usize,
            rows: Vec<Row<'a>>,
        }
        let not_measured = self.count(Verdict::NotMeasured);
        let json = Json {
            schema: SCHEMA.major,
            a: self.a.display().to_string(),
            b: self.b.display().to_string(),
            gate: self.gate,
            pass: self.passes(),
            compared: self.rows.len() - not_measured,
            passed: self.count(Verdict::Pass),
            failed: self.count(Verdict::Fail),
            below_noise_floor: self.count(Verdict::BelowNoiseFloor),
            inconclusive: self.count(Verdict::Inconclusive),
            not_measured,
            rows: self.rows.par_iter().map(Row::new).collect(),
        };
        Ok(serde_json::to_string_pretty(&json)? + "\n")
    }

    /// One line a run; the columns are the fields of a row in the JSON, less the
    /// lists.
    ///
    /// # Errors
    /// None is expected; they are those of the writer.
    pub fn to_csv(&self) -> io::Result<Vec<u8>> {
        let records: Vec<Record> = self.rows.par_iter().map(Record::new).collect();
        csv_file::to_bytes(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::csv_file::names;

    /// `docs/results.md` lists the columns as they are.
    #[test]
    fn every_column_is_documented() {
        let docs = include_str!("../../../docs/results.md");
        let words: Vec<&str> = docs.split_whitespace().collect();
        assert!(words.join(" ").contains(&names::<Record>().join(", ")));
    }
}
