//! The columns of the result files. This is the one place that lists them;
//! `docs/results.md` explains each.

use serde::{Deserialize, Serialize};

use super::csv_file::{Column, Columns, Version};
use super::row::{
    Comparison, Figures, ModelSize, Outcome, Provenance, ResultRow, TimingRow, WindowRow,
};
use crate::eval::{Geometry, Mode};

/// The version of the tables that this build writes. A column that is added raises the
/// minor version and says so here (`name: type = since MINOR, "DEFAULT",`); `docs/results.md`
/// states the rules.
pub(super) const TABLES: Version = Version { major: 1, minor: 2 };

/// Declares a record: its fields are the columns of a file, in this order.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident {
        $($field:ident: $ty:ty $(= since $minor:literal, $default:literal)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub(super) struct $name { $(pub $field: $ty,)* }

        impl Columns for $name {
            const COLUMNS: &'static [Column] = &[
                $(Column::of::<$ty>(stringify!($field)) $(.since($minor, $default))?),*
            ];
            const SCHEMA: Option<Version> = Some(TABLES);
        }
    };
}

record! {
    /// `NAME.csv`. What a reviewer reads comes first, what makes it repeatable after.
    ResultRecord {
        key: String,
        status: String,
        ppl: Option<f64>,
        ppl_err: Option<f64>,
        ref_ppl: Option<f64>,
        ref_err: Option<f64>,
        delta: Option<f64>,
        delta_pct: Option<f64>,
        sigma: Option<f64>,
        ref_note: String,
        note: String,
        mean_nll: Option<f64>,
        ppl_err_clustered: Option<f64>,
        bits_per_byte: Option<f64>,
        windows: Option<usize>,
        scored_tokens: Option<usize>,
        model: String,
        model_type: String,
        architecture: String,
        corpus: String,
        n_ctx: usize,
        mode: String,
        stride: Option<usize>,
        unscored_prefix: Option<usize>,
        bos: Option<bool>,
        parse_special: bool,
        tokens: Option<usize>,
        placement: String,
        layer_placement: String,
        numerics: String,
        engine: String,
        ref_engine: String,
        model_sha256: String,
        corpus_sha256: String,
        tokens_sha256: String,
        model_bytes: Option<u64> = since 2, "",
        bits_per_weight: Option<f64> = since 2, "",
        quantization: String = since 2, "",
    }
}

record! {
    /// `NAME.kld.csv`.
    KldRecord {
        key: String,
        status: String,
        base: String,
        kld: Option<f64>,
        kld_err: Option<f64>,
        kld_max: Option<f64>,
        kld_p99_9: Option<f64>,
        kld_p99: Option<f64>,
        kld_p95: Option<f64>,
        kld_p90: Option<f64>,
        kld_median: Option<f64>,
        kld_p10: Option<f64>,
        kld_p5: Option<f64>,
        kld_p1: Option<f64>,
        kld_p0_1: Option<f64>,
        kld_min: Option<f64>,
        ppl: Option<f64>,
        ppl_err: Option<f64>,
        ppl_base: Option<f64>,
        ppl_base_err: Option<f64>,
        correlation: Option<f64>,
        ln_ppl_ratio: Option<f64>,
        ln_ppl_ratio_err: Option<f64>,
        ppl_ratio: Option<f64>,
        ppl_ratio_err: Option<f64>,
        ppl_difference: Option<f64>,
        ppl_difference_err: Option<f64>,
        delta_p: Option<f64>,
        delta_p_err: Option<f64>,
        delta_p_max: Option<f64>,
        delta_p_p99_9: Option<f64>,
        delta_p_p99: Option<f64>,
        delta_p_p95: Option<f64>,
        delta_p_p90: Option<f64>,
        delta_p_p75: Option<f64>,
        delta_p_median: Option<f64>,
        delta_p_p25: Option<f64>,
        delta_p_p10: Option<f64>,
        delta_p_p5: Option<f64>,
        delta_p_p1: Option<f64>,
        delta_p_p0_1: Option<f64>,
        delta_p_min: Option<f64>,
        rms_delta_p: Option<f64>,
        rms_delta_p_err: Option<f64>,
        same_top: Option<f64>,
        same_top_err: Option<f64>,
        scored_tokens: Option<usize>,
        engine: String,
        model_sha256: String,
        base_sha256: String,
        tokens_sha256: String,
    }
}

record! {
    /// `NAME.windows.csv`.
    WindowRecord {
        key: String,
        window: usize,
        scored: usize,
        nll_sum: f64,
        target_bytes: u64,
    }
}

record! {
    /// `NAME.timing.csv`.
    TimingRecord {
        key: String,
        wall_s: f64,
        tokens_per_s: f64,
        peak_rss_mib: Option<f64>,
        threads: usize,
        host: String,
        started_at: String,
    }
}

record! {
    /// `NAME.noise.csv`.
    NoiseRecord {
        key: String,
        component: String,
        seed: Option<u64>,
        in_floor: bool,
        delta_ln_ppl: f64,
        se: Option<f64>,
        rms_delta_nll: f64,
        max_delta_nll: f64,
        windows: usize,
        scored_tokens: usize,
        bos: bool,
        engine: String,
        model_sha256: String,
        tokens_sha256: String,
        rows: Option<usize> = since 1, "",
    }
}

pub(super) const OK: &str = "ok";
pub(super) const NOT_RUN: &str = "not run";
pub(super) const FAILED: &str = "failed: ";

impl From<&ResultRow> for ResultRecord {
    fn from(row: &ResultRow) -> Self {
        let p = row.provenance.clone();
        let (stride, unscored_prefix) = p.geometry.mode.parameters();
        let figures = row.figures();
        let reference = figures.and_then(|f| f.reference.as_ref());
        ResultRecord {
            key: row.key.clone(),
            status: status_text(&row.outcome),
            ppl: figures.map(|f| f.ppl),
            ppl_err: figures.and_then(|f| f.ppl_err),
            ref_ppl: reference.map(|r| r.ppl),
            ref_err: reference.and_then(|r| r.err),
            delta: reference.map(|r| r.delta),
            delta_pct: reference.map(|r| r.delta_pct),
            sigma: reference.and_then(|r| r.sigma),
            ref_note: row.ref_note.clone(),
            note: row.note.clone(),
            mean_nll: figures.map(|f| f.mean_nll),
            ppl_err_clustered: figures.and_then(|f| f.ppl_err_clustered),
            bits_per_byte: figures.and_then(|f| f.bits_per_byte),
            windows: p.windows,
            scored_tokens: p.scored_tokens,
            model: p.model,
            model_type: p.model_type,
            architecture: p.architecture,
            corpus: p.corpus,
            n_ctx: p.geometry.n_ctx,
            mode: p.geometry.mode.name().to_owned(),
            stride,
            unscored_prefix,
            bos: p.bos,
            parse_special: p.parse_special,
            tokens: p.tokens,
            placement: p.placement,
            layer_placement: p.layer_placement,
            numerics: p.numerics,
            engine: p.engine,
            ref_engine: reference.map_or_else(String::new, |r| r.engine.clone()),
            model_sha256: p.model_sha256,
            corpus_sha256: p.corpus_sha256,
            tokens_sha256: p.tokens_sha256,
            model_bytes: p.size.bytes,
            bits_per_weight: p.size.bits_per_weight,
            quantization: p.size.quantization,
        }
    }
}

/// The mode that the columns `mode`, `stride` and `unscored_prefix` give.
pub(crate) fn mode(
    name: &str,
    stride: Option<usize>,
    unscored_prefix: Option<usize>,
) -> Result<Mode, String> {
    Mode::from_parts(name, stride, unscored_prefix).ok_or_else(|| {
        format!("the mode '{name}' is unknown, or 'stride' and 'unscored_prefix' do not fit it")
    })
}

/// How an outcome is written in the `status` column.
pub(crate) fn status_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ok(_) => OK.to_owned(),
        Outcome::Failed(reason) => format!("{FAILED}{reason}"),
        Outcome::NotRun => NOT_RUN.to_owned(),
    }
}

impl ResultRecord {
    /// Gives the row its types back.
    ///
    /// The figures of an `ok` row that are empty read as NaN, which no check and
    /// no gate lets pass: `pplx diff` calls such a row not measured.
    pub(super) fn into_row(self) -> Result<ResultRow, String> {
        let outcome = if self.status == OK {
            Outcome::Ok(self.figures()?)
        } else {
            if let Some(column) = self.first_number() {
                return Err(format!(
                    "column '{column}' holds a number, but the status is '{}'",
                    self.status
                ));
            }
            match self.status.strip_prefix(FAILED) {
                Some(reason) => Outcome::Failed(reason.to_owned()),
                None if self.status == NOT_RUN => Outcome::NotRun,
                None => {
                    return Err(format!(
                        "the status '{}' is unknown; it is '{OK}', '{NOT_RUN}' or '{FAILED}REASON'",
                        self.status
                    ));
                }
            }
        };
        let mode = mode(&self.mode, self.stride, self.unscored_prefix)?;
        Ok(ResultRow {
            key: self.key,
            outcome,
            ref_note: self.ref_note,
            note: self.note,
            provenance: Provenance {
                model: self.model,
                model_sha256: self.model_sha256,
                model_type: self.model_type,
                size: ModelSize {
                    bytes: self.model_bytes,
                    bits_per_weight: self.bits_per_weight,
                    quantization: self.quantization,
                },
                architecture: self.architecture,
                corpus: self.corpus,
                corpus_sha256: self.corpus_sha256,
                tokens: self.tokens,
                tokens_sha256: self.tokens_sha256,
                geometry: Geometry {
                    n_ctx: self.n_ctx,
                    mode,
                },
                bos: self.bos,
                parse_special: self.parse_special,
                windows: self.windows,
                scored_tokens: self.scored_tokens,
                placement: self.placement,
                layer_placement: self.layer_placement,
                numerics: self.numerics,
                engine: self.engine,
            },
        })
    }

    fn figures(&self) -> Result<Figures, String> {
        let reference = match (self.ref_ppl, self.delta, self.delta_pct) {
            (Some(ppl), Some(delta), Some(delta_pct)) if !self.ref_engine.is_empty() => {
                Some(Comparison {
                    engine: self.ref_engine.clone(),
                    ppl,
                    err: self.ref_err,
                    delta,
                    delta_pct,
                    sigma: self.sigma,
                })
            }
            (None, None, None)
                if self.ref_err.is_none() && self.sigma.is_none() && self.ref_engine.is_empty() =>
            {
                None
            }
            _ => {
                return Err(
                    "the columns 'ref_engine', 'ref_ppl', 'delta' and 'delta_pct' are all filled or \
                     all empty; without them 'ref_err' and 'sigma' are empty"
                        .to_owned(),
                );
            }
        };
        Ok(Figures {
            mean_nll: self.mean_nll.unwrap_or(f64::NAN),
            ppl: self.ppl.unwrap_or(f64::NAN),
            ppl_err: self.ppl_err,
            ppl_err_clustered: self.ppl_err_clustered,
            bits_per_byte: self.bits_per_byte,
            reference,
        })
    }

    /// The first column of measured or compared figures that is not empty.
    fn first_number(&self) -> Option<&'static str> {
        [
            ("ppl", self.ppl),
            ("ppl_err", self.ppl_err),
            ("ref_ppl", self.ref_ppl),
            ("ref_err", self.ref_err),
            ("delta", self.delta),
            ("delta_pct", self.delta_pct),
            ("sigma", self.sigma),
            ("mean_nll", self.mean_nll),
            ("ppl_err_clustered", self.ppl_err_clustered),
            ("bits_per_byte", self.bits_per_byte),
        ]
        .into_iter()
        .find_map(|(name, value)| value.map(|_| name))
    }
}

impl WindowRecord {
    pub(super) fn new(key: &str, w: &WindowRow) -> Self {
        WindowRecord {
            key: key.to_owned(),
            window: w.window,
            scored: w.scored,
            nll_sum: w.nll_sum,
            target_bytes: w.target_bytes,
        }
    }

    pub(super) fn into_row(self) -> (String, WindowRow) {
        let row = WindowRow {
            window: self.window,
            scored: self.scored,
            nll_sum: self.nll_sum,
            target_bytes: self.target_bytes,
        };
        (self.key, row)
    }
}

impl TimingRecord {
    pub(super) fn new(key: &str, t: &TimingRow) -> Self {
        TimingRecord {
            key: key.to_owned(),
            wall_s: t.wall_s,
            tokens_per_s: t.tokens_per_s,
            peak_rss_mib: t.peak_rss_mib,
            threads: t.threads,
            host: t.host.clone(),
            started_at: t.started_at.clone(),
        }
    }

    pub(super) fn into_row(self) -> (String, TimingRow) {
        let row = TimingRow {
            wall_s: self.wall_s,
            tokens_per_s: self.tokens_per_s,
            peak_rss_mib: self.peak_rss_mib,
            threads: self.threads,
            host: self.host,
            started_at: self.started_at,
        };
        (self.key, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::csv_file::names;

    /// `docs/results.md` explains every column and no other.
    #[test]
    fn every_column_is_documented() {
        let docs = include_str!("../../docs/results.md");
        for (file, columns) in [
            ("## `NAME.csv`", names::<ResultRecord>()),
            ("## `NAME.kld.csv`", names::<KldRecord>()),
            ("## `NAME.windows.csv`", names::<WindowRecord>()),
            ("## `NAME.timing.csv`", names::<TimingRecord>()),
            ("## `NAME.noise.csv`", names::<NoiseRecord>()),
        ] {
            let section = docs.split(file).nth(1).unwrap();
            let section = section.split("\n## ").next().unwrap();
            // Backquoted names in the first cell of each row of the table.
            let listed: Vec<&str> = section
                .lines()
                .filter(|l| l.starts_with("| `"))
                .flat_map(|l| l.split(" | ").next().unwrap().split('`').skip(1).step_by(2))
                .collect();
            let mut want = columns;
            want.sort_unstable();
            let mut got = listed.clone();
            got.sort_unstable();
            assert_eq!(got, want, "{file}");
        }
    }
}
