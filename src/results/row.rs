//! What is known of one run: where its figures come from, and the figures.

use crate::eval::{Cluster, Geometry, Moments, clustered_mean};

/// How large a model is. It follows from the model's bytes, so it is no part of what a
/// row is known by: tables before v1.2 do not have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSize {
    /// Bytes of its file, of all parts.
    pub bytes: Option<u64>,
    /// `8 · bytes of all tensors / weights`, as llama.cpp prints it (BPW).
    pub bits_per_weight: Option<f64>,
    /// What its file says that it is (`general.file_type`), as llama.cpp spells it:
    /// `Q4_K_M`; empty where it says nothing.
    pub quantization: String,
}

/// Everything that can move a number. Text that is not known yet, because a run
/// failed early or has not begun, is empty; numbers are `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Provenance {
    /// Name of the model, as the experiment has it.
    pub model: String,
    /// The model file's hash.
    pub model_sha256: String,
    /// The block type that holds most of the weights.
    pub model_type: String,
    /// How large it is.
    pub size: ModelSize,
    /// `general.architecture` of the file.
    pub architecture: String,
    /// Name of the corpus.
    pub corpus: String,
    /// Its hash.
    pub corpus_sha256: String,
    /// Token ids of the whole corpus, before any limit.
    pub tokens: Option<usize>,
    /// SHA-256 of the id stream.
    pub tokens_sha256: String,
    /// Context length and mode.
    pub geometry: Geometry,
    /// Whether BOS replaces the first token of each window.
    pub bos: Option<bool>,
    /// Whether special tokens in the corpus were parsed.
    pub parse_special: bool,
    /// Windows that were scored.
    pub windows: Option<usize>,
    /// Tokens that were scored.
    pub scored_tokens: Option<usize>,
    /// As the experiment asks for it.
    pub placement: String,
    /// As it was resolved, e.g. `cpu[0,30)`.
    pub layer_placement: String,
    /// The arithmetic, by name.
    pub numerics: String,
    /// Name and version, e.g. `pplx 0.1.0`.
    pub engine: String,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    /// Identifies the run in its experiment; rows are joined and sorted by it.
    pub key: String,
    /// What was measured.
    pub provenance: Provenance,
    /// The figures, or why there are none.
    pub outcome: Outcome,
    /// What a reader must know of the reference: why a row that nearly matches was
    /// not compared, or which of several was. Empty if nothing.
    pub ref_note: String,
    /// What a reader must know besides; empty if nothing.
    pub note: String,
}

/// How a run ended. Only a run that ended well has numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It has figures.
    Ok(Figures),
    /// A short reason.
    Failed(String),
    /// It has not been measured yet.
    NotRun,
}

/// Why scores make no figures.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum NoFigures {
    #[error("nothing was scored")]
    Empty,
    #[error(
        "perplexity overflows: with a mean NLL of {mean_nll:.5e} nats, {column} is beyond the range of \
         f64; the model is broken or its file damaged"
    )]
    Overflow { column: &'static str, mean_nll: f64 },
}

/// The figures of a finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Nats per scored token.
    pub mean_nll: f64,
    /// `exp(mean_nll)`.
    pub ppl: f64,
    /// llama-perplexity's standard error, which takes tokens as independent;
    /// `None` with one token.
    pub ppl_err: Option<f64>,
    /// Standard error with tokens correlated within windows; `None` with one window.
    pub ppl_err_clustered: Option<f64>,
    /// `Σ nll / (ln 2 · bytes of the scored targets)`; `None` if they have no bytes.
    pub bits_per_byte: Option<f64>,
    /// The figure of another engine, where one belongs to the run.
    pub reference: Option<Comparison>,
}

impl Figures {
    /// The figures of a run, from its per-token moments and its windows.
    ///
    /// # Errors
    /// Nothing was scored; a figure is beyond the range of f64.
    pub fn new(tokens: &Moments, windows: &[WindowRow]) -> Result<Self, NoFigures> {
        let ppl = tokens.ppl().ok_or(NoFigures::Empty)?;
        let clusters: Vec<Cluster> = windows.iter().map(WindowRow::cluster).collect();
        let nll: f64 = windows.iter().map(|w| w.nll_sum).sum();
        let bytes: u64 = windows.iter().map(|w| w.target_bytes).sum();
        let figures = Figures {
            mean_nll: tokens.mean,
            ppl,
            ppl_err: tokens.ppl_err(),
            // d exp(x) = exp(x) dx
            ppl_err_clustered: clustered_mean(&clusters).map(|c| ppl * c.se),
            bits_per_byte: (bytes > 0).then(|| nll / (std::f64::consts::LN_2 * bytes as f64)),
            reference: None,
        };
        match figures.not_finite() {
            None => Ok(figures),
            Some(column) => Err(NoFigures::Overflow {
                column,
                mean_nll: tokens.mean,
            }),
        }
    }

    /// The first column that is not finite.
    pub(super) fn not_finite(&self) -> Option<&'static str> {
        let r = self.reference.as_ref();
        [
            ("mean_nll", Some(self.mean_nll)),
            ("ppl", Some(self.ppl)),
            ("ppl_err", self.ppl_err),
            ("ppl_err_clustered", self.ppl_err_clustered),
            ("bits_per_byte", self.bits_per_byte),
            ("ref_ppl", r.map(|r| r.ppl)),
            ("ref_err", r.and_then(|r| r.err)),
            ("delta", r.map(|r| r.delta)),
            ("delta_pct", r.map(|r| r.delta_pct)),
            ("sigma", r.and_then(|r| r.sigma)),
        ]
        .into_iter()
        .find_map(|(name, x)| x.filter(|x| !x.is_finite()).map(|_| name))
    }
}

/// A run beside a reference row.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Engine, build and backend of the reference.
    pub engine: String,
    /// The reference's perplexity.
    pub ppl: f64,
    /// Its standard error, if stated.
    pub err: Option<f64>,
    /// `ppl − ref`
    pub delta: f64,
    /// `100 · delta / ref`
    pub delta_pct: f64,
    /// `delta / sqrt(err² + ref_err²)`; `None` where an error is missing or both are 0.
    pub sigma: Option<f64>,
}

impl Comparison {
    /// Compares figures with a reference.
    pub fn new(figures: &Figures, engine: String, ppl: f64, err: Option<f64>) -> Self {
        let delta = figures.ppl - ppl;
        Comparison {
            engine,
            ppl,
            err,
            delta,
            delta_pct: 100.0 * delta / ppl,
            sigma: unpaired_sigma(delta, figures.ppl_err, err),
        }
    }
}

/// A difference in units of the error that two independent figures have
/// together. `None` where an error is missing, or both are 0 and say nothing.
pub(crate) fn unpaired_sigma(delta: f64, a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let sigma = delta / a?.hypot(b?);
    sigma.is_finite().then_some(sigma)
}

/// One window of a finished run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRow {
    /// Its number, from 0.
    pub window: usize,
    /// Scored targets.
    pub scored: usize,
    /// Sum of their NLL in nats.
    pub nll_sum: f64,
    /// Bytes of text that they stand for.
    pub target_bytes: u64,
}

impl WindowRow {
    /// What it contributes to a mean over tokens.
    pub fn cluster(&self) -> Cluster {
        Cluster {
            n: self.scored,
            sum: self.nll_sum,
        }
    }
}

/// What a run took. Not comparable between machines and not committed.
#[derive(Clone, Debug, PartialEq)]
pub struct TimingRow {
    /// Seconds from its start to its end.
    pub wall_s: f64,
    /// Evaluated tokens (unscored prefixes included) a second.
    pub tokens_per_s: f64,
    /// Peak resident memory of the process; `None` where it cannot be told.
    pub peak_rss_mib: Option<f64>,
    /// Threads of the CPU.
    pub threads: usize,
    /// Name of the machine.
    pub host: String,
    /// RFC 3339.
    pub started_at: String,
}

impl TimingRow {
    /// Whether it can have been measured.
    pub(super) fn check(&self) -> Result<(), String> {
        for (column, x) in [
            ("wall_s", Some(self.wall_s)),
            ("tokens_per_s", Some(self.tokens_per_s)),
            ("peak_rss_mib", self.peak_rss_mib),
        ] {
            if let Some(x) = x.filter(|x| !(x.is_finite() && *x >= 0.0)) {
                return Err(format!("column '{column}' holds {x}"));
            }
        }
        match self.threads {
            0 => Err("column 'threads' holds 0".to_owned()),
            _ => Ok(()),
        }
    }
}

impl ResultRow {
    /// How many windows its corpus has in its geometry, limits aside; `None` where that
    /// is not known.
    pub fn windows_of_corpus(&self) -> Option<usize> {
        let p = &self.provenance;
        p.geometry.most_windows(p.tokens?).ok()
    }

    /// The figures of a run that has some.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Ok(f) => Some(f),
            Outcome::Failed(_) | Outcome::NotRun => None,
        }
    }
}
