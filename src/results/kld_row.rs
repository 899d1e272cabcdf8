//! `NAME.kld.csv`: how far each run is from its base.

use super::consistency::{check_sha256, close};
use super::kld::KldFigures;
use super::row::{Figures, ResultRow};
use super::schema::{FAILED, KldRecord, NOT_RUN, OK};
use crate::stats::Estimate;

/// A run's comparison with its base.
#[derive(Clone, Debug, PartialEq)]
pub struct KldRow {
    /// The run's key.
    pub key: String,
    /// The base's key.
    pub base: String,
    /// What measured it.
    pub engine: String,
    /// The model file's hash.
    pub model_sha256: String,
    /// The hash of the base's file.
    pub base_sha256: String,
    /// SHA-256 of the id stream that both read.
    pub tokens_sha256: String,
    /// The figures, or why there are none.
    pub outcome: KldOutcome,
}

/// How a comparison ended.
#[derive(Clone, Debug, PartialEq)]
pub enum KldOutcome {
    /// It was compared.
    Ok(Box<KldSummary>),
    /// A short reason.
    Failed(String),
    /// It has not been compared yet.
    NotRun,
}

/// Declares the numbers of a finished comparison, and where they come from.
macro_rules! summary {
    ($f:ident; $($column:ident: $value:expr,)*) => {
        /// The figures of a finished comparison; `docs/results.md` explains each.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct KldSummary {
            $(#[allow(missing_docs)] pub $column: f64,)*
            /// `None` where the NLLs of one side do not vary.
            pub correlation: Option<f64>,
            /// Tokens that were compared.
            pub scored_tokens: usize,
        }

        impl From<&KldFigures> for KldSummary {
            fn from($f: &KldFigures) -> Self {
                Self {
                    $($column: $value,)*
                    correlation: $f.correlation,
                    scored_tokens: $f.n(),
                }
            }
        }

        impl KldSummary {
            fn fill(&self, record: &mut KldRecord) {
                $(record.$column = Some(self.$column);)*
                record.correlation = self.correlation;
                record.scored_tokens = Some(self.scored_tokens);
            }

            fn from_record(record: &KldRecord) -> Result<Self, String> {
                let figure = |name: &str, x: Option<f64>| {
                    x.filter(|x| x.is_finite()).ok_or_else(|| {
                        format!("the status is ok, but '{name}' is empty or not a finite number")
                    })
                };
                Ok(Self {
                    $($column: figure(stringify!($column), record.$column)?,)*
                    correlation: record.correlation,
                    scored_tokens: record.scored_tokens.filter(|n| *n > 0).ok_or(
                        "the status is ok, but 'scored_tokens' is empty or 0",
                    )?,
                })
            }

            fn first_number(record: &KldRecord) -> Option<&'static str> {
                $(if record.$column.is_some() {
                    return Some(stringify!($column));
                })*
                match (record.correlation, record.scored_tokens) {
                    (Some(_), _) => Some("correlation"),
                    (_, Some(_)) => Some("scored_tokens"),
                    _ => None,
                }
            }

            fn first_not_finite(&self) -> Option<&'static str> {
                $(if !self.$column.is_finite() {
                    return Some(stringify!($column));
                })*
                None
            }
        }
    };
}

/// A standard error; figures of two tokens and more have one.
pub(crate) fn err(e: Estimate) -> f64 {
    e.se.unwrap_or(f64::NAN)
}

summary! {
    f;
    kld: f.kld.mean.value,
    kld_err: err(f.kld.mean),
    kld_max: f.kld.at(1.0),
    kld_p99_9: f.kld.at(0.999),
    kld_p99: f.kld.at(0.99),
    kld_p95: f.kld.at(0.95),
    kld_p90: f.kld.at(0.9),
    kld_median: f.kld.at(0.5),
    kld_p10: f.kld.at(0.1),
    kld_p5: f.kld.at(0.05),
    kld_p1: f.kld.at(0.01),
    kld_p0_1: f.kld.at(0.001),
    kld_min: f.kld.at(0.0),
    ppl: f.ppl.value,
    ppl_err: err(f.ppl),
    ppl_base: f.ppl_base.value,
    ppl_base_err: err(f.ppl_base),
    ln_ppl_ratio: f.ln_ratio.value,
    ln_ppl_ratio_err: err(f.ln_ratio),
    ppl_ratio: f.ratio.value,
    ppl_ratio_err: err(f.ratio),
    ppl_difference: f.difference.value,
    ppl_difference_err: err(f.difference),
    delta_p: f.delta_p.mean.value,
    delta_p_err: err(f.delta_p.mean),
    delta_p_max: f.delta_p.at(1.0),
    delta_p_p99_9: f.delta_p.at(0.999),
    delta_p_p99: f.delta_p.at(0.99),
    delta_p_p95: f.delta_p.at(0.95),
    delta_p_p90: f.delta_p.at(0.9),
    delta_p_p75: f.delta_p.at(0.75),
    delta_p_median: f.delta_p.at(0.5),
    delta_p_p25: f.delta_p.at(0.25),
    delta_p_p10: f.delta_p.at(0.1),
    delta_p_p5: f.delta_p.at(0.05),
    delta_p_p1: f.delta_p.at(0.01),
    delta_p_p0_1: f.delta_p.at(0.001),
    delta_p_min: f.delta_p.at(0.0),
    rms_delta_p: f.delta_p.rms.value,
    rms_delta_p_err: err(f.delta_p.rms),
    same_top: f.same_top.value,
    same_top_err: err(f.same_top),
}

impl KldSummary {
    /// Whether the figures fit each other; `docs/kld.md` says how they are made.
    fn check(&self) -> Result<(), String> {
        let size = self.ppl.max(self.ppl_base);
        let n = self.scored_tokens as f64;
        let share_err = (self.same_top * (1.0 - self.same_top) / (n - 1.0)).sqrt();
        let squares = self.delta_p.powi(2) + self.delta_p_err.powi(2) * (n - 1.0);
        for (column, found, expected, size) in [
            ("ppl_ratio", self.ppl_ratio, self.ppl / self.ppl_base, 1e3),
            ("ppl_ratio", self.ppl_ratio, self.ln_ppl_ratio.exp(), 1e3),
            (
                "ppl_ratio_err",
                self.ppl_ratio_err,
                self.ppl_ratio * self.ln_ppl_ratio_err,
                1.0,
            ),
            (
                "ppl_difference",
                self.ppl_difference,
                self.ppl - self.ppl_base,
                1e3 * size,
            ),
            ("same_top_err", self.same_top_err, share_err, 1.0),
            ("rms_delta_p", self.rms_delta_p.powi(2), squares, 1e3),
        ] {
            if !close(found, expected, size) {
                return Err(format!("'{column}' does not fit the other figures"));
            }
        }
        let klds = [
            self.kld_max,
            self.kld_p99_9,
            self.kld_p99,
            self.kld_p95,
            self.kld_p90,
            self.kld_median,
            self.kld_p10,
            self.kld_p5,
            self.kld_p1,
            self.kld_p0_1,
            self.kld_min,
        ];
        let delta_ps = [
            self.delta_p_max,
            self.delta_p_p99_9,
            self.delta_p_p99,
            self.delta_p_p95,
            self.delta_p_p90,
            self.delta_p_p75,
            self.delta_p_median,
            self.delta_p_p25,
            self.delta_p_p10,
            self.delta_p_p5,
            self.delta_p_p1,
            self.delta_p_p0_1,
            self.delta_p_min,
        ];
        for (column, mean, percentiles) in [
            ("kld", self.kld, &klds[..]),
            ("delta_p", self.delta_p, &delta_ps),
        ] {
            let falls = |w: &[f64]| w[0] >= w[1];
            let (max, min) = (percentiles[0], percentiles[percentiles.len() - 1]);
            let room = 1e-9 * max.abs().max(min.abs());
            if !percentiles.windows(2).all(falls) || mean > max + room || mean < min - room {
                return Err(format!(
                    "the percentiles of '{column}' are not in order, or its mean is beyond them"
                ));
            }
        }
        let within = |x: f64, least: f64, most: f64| (least..=most).contains(&x);
        for (column, fits) in [
            ("delta_p_max", within(self.delta_p_max, -1.0, 1.0)),
            ("delta_p_min", within(self.delta_p_min, -1.0, 1.0)),
            ("same_top", within(self.same_top, 0.0, 1.0)),
            (
                "correlation",
                self.correlation.is_none_or(|r| within(r, -1.0, 1.0)),
            ),
            ("kld_err", self.kld_err >= 0.0),
            ("ln_ppl_ratio_err", self.ln_ppl_ratio_err >= 0.0),
            ("ppl_difference_err", self.ppl_difference_err >= 0.0),
            ("ppl_err", self.ppl_err >= 0.0),
            ("ppl_base", self.ppl_base > 0.0),
            ("ppl_base_err", self.ppl_base_err >= 0.0),
            ("delta_p_err", self.delta_p_err >= 0.0),
            ("rms_delta_p", self.rms_delta_p >= 0.0),
            ("rms_delta_p_err", self.rms_delta_p_err >= 0.0),
        ] {
            if !fits {
                return Err(format!("'{column}' is beyond what it can be"));
            }
        }
        Ok(())
    }
}

impl From<&KldRow> for KldRecord {
    fn from(row: &KldRow) -> Self {
        let mut record = KldRecord {
            key: row.key.clone(),
            base: row.base.clone(),
            engine: row.engine.clone(),
            model_sha256: row.model_sha256.clone(),
            base_sha256: row.base_sha256.clone(),
            tokens_sha256: row.tokens_sha256.clone(),
            status: match &row.outcome {
                KldOutcome::Ok(_) => OK.to_owned(),
                KldOutcome::Failed(reason) => format!("{FAILED}{reason}"),
                KldOutcome::NotRun => NOT_RUN.to_owned(),
            },
            ..KldRecord::default()
        };
        if let KldOutcome::Ok(summary) = &row.outcome {
            summary.fill(&mut record);
        }
        record
    }
}

impl KldRow {
    /// Whether the row may stand in a table.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.outcome {
            KldOutcome::Ok(s) => {
                if let Some(column) = s.first_not_finite() {
                    return Err(format!("the status is ok, but '{column}' is not finite"));
                }
                for (column, sha) in self.hashes() {
                    if sha.is_empty() {
                        return Err(format!("the status is ok, but '{column}' is empty"));
                    }
                }
                s.check()?;
            }
            KldOutcome::Failed(_) | KldOutcome::NotRun => {}
        }
        if self.key.is_empty() || self.base.is_empty() {
            return Err("the key or the base is empty".to_owned());
        }
        let mut hashes = self.hashes().into_iter();
        hashes.try_for_each(|(column, sha)| check_sha256(column, sha))
    }

    fn hashes(&self) -> [(&'static str, &String); 3] {
        [
            ("model_sha256", &self.model_sha256),
            ("base_sha256", &self.base_sha256),
            ("tokens_sha256", &self.tokens_sha256),
        ]
    }

    /// Whether it is of the run whose row this is: both were measured together.
    pub(super) fn check_with(&self, row: &ResultRow, figures: &Figures) -> Result<(), String> {
        let KldOutcome::Ok(s) = &self.outcome else {
            return Ok(());
        };
        let p = &row.provenance;
        for (column, found, of_row) in [
            ("model_sha256", &self.model_sha256, &p.model_sha256),
            ("tokens_sha256", &self.tokens_sha256, &p.tokens_sha256),
        ] {
            if found != of_row {
                return Err(format!("'{column}' is {found}, in the run's row {of_row}"));
            }
        }
        if Some(s.scored_tokens) != p.scored_tokens {
            return Err(format!(
                "'scored_tokens' is {}, in the run's row {}",
                s.scored_tokens,
                p.scored_tokens.unwrap_or(0)
            ));
        }
        for (column, found, of_row) in [
            ("ppl", s.ppl, figures.ppl),
            ("ppl_err", s.ppl_err, figures.ppl_err.unwrap_or(0.0)),
        ] {
            if !close(found, of_row, 1e3 * figures.ppl) {
                return Err(format!("'{column}' is {found}, in the run's row {of_row}"));
            }
        }
        Ok(())
    }

    /// Gives a record its types back.
    pub(super) fn from_record(record: KldRecord) -> Result<Self, String> {
        let outcome = if record.status == OK {
            KldOutcome::Ok(Box::new(KldSummary::from_record(&record)?))
        } else if let Some(column) = KldSummary::first_number(&record) {
            return Err(format!(
                "column '{column}' holds a number, but the status is '{}'",
                record.status
            ));
        } else if let Some(reason) = record.status.strip_prefix(FAILED) {
            KldOutcome::Failed(reason.to_owned())
        } else if record.status == NOT_RUN {
            KldOutcome::NotRun
        } else {
            return Err(format!(
                "the status '{}' is unknown; it is '{OK}', '{NOT_RUN}' or '{FAILED}REASON'",
                record.status
            ));
        };
        Ok(KldRow {
            key: record.key,
            base: record.base,
            engine: record.engine,
            model_sha256: record.model_sha256,
            base_sha256: record.base_sha256,
            tokens_sha256: record.tokens_sha256,
            outcome,
        })
    }
}
