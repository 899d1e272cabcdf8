//! What follows from other columns of a row, or from its windows, is what the row
//! says. Tables are edited by hand, merged and cut; a figure that does not fit the
//! others was not measured.

use super::row::{Comparison, Figures, Outcome, Provenance, ResultRow, WindowRow};
use crate::eval::{Limits, clustered_mean};

/// Room for the rounding of a figure, by its size: tables hold every digit, and a
/// spreadsheet keeps 15.
const ROUNDING: f64 = 1e-9;

/// Whether two figures are the same but for rounding. `size` is that of the numbers
/// whose difference they are.
pub(super) fn close(a: f64, b: f64, size: f64) -> bool {
    (a - b).abs() <= ROUNDING * b.abs() + 1e-3 * ROUNDING * size.abs()
}

/// A hash as tables have it, if there is one.
pub(crate) fn check_sha256(column: &str, text: &str) -> Result<(), String> {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match text.is_empty() || (text.len() == 64 && digits) {
        true => Ok(()),
        false => Err(format!(
            "column '{column}' holds '{text}', not 64 lower-case hexadecimal digits"
        )),
    }
}

impl ResultRow {
    /// Whether the row may stand in a table: an `ok` row has its provenance and
    /// finite figures that fit each other.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        let Outcome::Ok(figures) = &self.outcome else {
            return check_columns(self);
        };
        if let Some(column) = figures.not_finite() {
            return Err(format!(
                "the status is ok, but '{column}' is empty or not a finite number"
            ));
        }
        let expected = figures.mean_nll.exp();
        if (figures.ppl - expected).abs() > 1e-9 * expected {
            return Err(format!(
                "'ppl' is {}, but exp(mean_nll) is {expected}",
                figures.ppl
            ));
        }
        let p = &self.provenance;
        for (column, text) in [
            ("model_sha256", &p.model_sha256),
            ("corpus_sha256", &p.corpus_sha256),
            ("tokens_sha256", &p.tokens_sha256),
        ] {
            if text.is_empty() {
                return Err(format!("the status is ok, but '{column}' is empty"));
            }
        }
        for (column, count) in [
            ("tokens", p.tokens),
            ("windows", p.windows),
            ("scored_tokens", p.scored_tokens),
        ] {
            if count.unwrap_or(0) == 0 {
                return Err(format!("the status is ok, but '{column}' is empty or 0"));
            }
        }
        if p.bos.is_none() {
            return Err("the status is ok, but 'bos' is empty".to_owned());
        }
        if let Some(bits) = p
            .size
            .bits_per_weight
            .filter(|b| !(b.is_finite() && *b > 0.0))
        {
            return Err(format!("column 'bits_per_weight' holds {bits}"));
        }
        if p.size.bytes == Some(0) {
            return Err("column 'model_bytes' holds 0".to_owned());
        }
        check_columns(self)?;
        check_figures(self, figures)
    }

    /// Whether `windows` are the windows that this row sums up.
    pub(super) fn check_windows(&self, windows: &[WindowRow]) -> Result<(), String> {
        let Outcome::Ok(figures) = &self.outcome else {
            return Err("a run without a number has windows".to_owned());
        };
        let p = &self.provenance;
        if p.windows != Some(windows.len()) {
            return Err(format!(
                "the row counts {} windows, {} are listed",
                p.windows.unwrap_or(0),
                windows.len()
            ));
        }
        if let Some((i, w)) = windows.iter().enumerate().find(|(i, w)| w.window != *i) {
            return Err(format!(
                "window {i} is missing or out of order: found {}",
                w.window
            ));
        }
        let scored: usize = windows.iter().map(|w| w.scored).sum();
        if p.scored_tokens != Some(scored) || windows.iter().any(|w| w.scored == 0) {
            return Err(format!(
                "the row counts {} scored tokens, its windows {scored}, or one has none",
                p.scored_tokens.unwrap_or(0)
            ));
        }
        let mean = windows.iter().map(|w| w.nll_sum).sum::<f64>() / scored as f64;
        // Far above the rounding of a sum of NLLs, far below any change of one.
        let tolerance = 1e-8 * figures.mean_nll.abs().max(1.0);
        let same = (mean - figures.mean_nll).abs() <= tolerance;
        if !same {
            return Err(format!(
                "the windows sum to a mean NLL of {mean}, the row says {}",
                figures.mean_nll
            ));
        }
        Ok(())
    }

    /// The same, and whether all figures that follow from windows do so. `windows` know
    /// the bytes of their targets.
    pub(super) fn check_all_of_windows(&self, windows: &[WindowRow]) -> Result<(), String> {
        self.check_windows(windows)?;
        let geometry = &self.provenance.geometry;
        let fits = |w: &&WindowRow| geometry.is_window(w.window, windows.len(), w.scored);
        if let Some(w) = windows.iter().find(|w| !fits(w)) {
            return Err(format!(
                "window {} has {} scored tokens, which its geometry does not make",
                w.window, w.scored
            ));
        }
        match &self.outcome {
            Outcome::Ok(figures) => check_window_figures(figures, windows),
            Outcome::Failed(_) | Outcome::NotRun => Ok(()),
        }
    }
}

/// Columns of any row, whether it has figures or not.
fn check_columns(row: &ResultRow) -> Result<(), String> {
    let p = &row.provenance;
    for (column, text) in [
        ("model_sha256", &p.model_sha256),
        ("corpus_sha256", &p.corpus_sha256),
        ("tokens_sha256", &p.tokens_sha256),
    ] {
        check_sha256(column, text)?;
    }
    limits(&row.key, p).map(|_| ())
}

/// The limits that the key of a planned run names; `None` for other keys, which say
/// nothing.
///
/// # Errors
/// A planned run's key that is of another run than the columns.
fn limits(key: &str, p: &Provenance) -> Result<Option<Limits>, String> {
    if !is_planned(key) {
        return Ok(None);
    }
    let expected = format!(
        "{}/{}/{}/{}/{}/{}",
        p.model,
        p.corpus,
        p.geometry.n_ctx,
        p.geometry.mode.label(),
        p.placement,
        p.numerics
    );
    let parsed = key.strip_prefix(&expected).and_then(|rest| {
        let mut limits = Limits::default();
        for part in rest.split('/').skip(1) {
            let number = part.get(1..).and_then(|n| n.parse().ok());
            match part.get(..1) {
                Some("w") if limits.max_tokens.is_none() => limits.windows = Some(number?),
                Some("t") => limits.max_tokens = Some(number?),
                _ => return None,
            }
        }
        rest.chars()
            .next()
            .is_none_or(|c| c == '/')
            .then_some(limits)
    });
    parsed.map(Some).ok_or_else(|| {
        format!(
            "the key '{key}' is of another run than the columns 'model', 'corpus', 'n_ctx', 'mode', \
             'stride', 'unscored_prefix', 'placement' and 'numerics', which say '{expected}'"
        )
    })
}

/// Whether a key is made as plans make them: it has a context and a mode.
fn is_planned(key: &str) -> bool {
    let parts: Vec<&str> = key.split('/').collect();
    let is_number = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    let is_mode = |label: &str| {
        let sliding = label.strip_prefix("sw-s").and_then(|l| l.split_once("-p"));
        let strided = label.strip_prefix("llama-strided-s");
        label == "tf"
            || sliding.is_some_and(|(s, p)| is_number(s) && is_number(p))
            || strided.is_some_and(is_number)
    };
    parts.windows(2).any(|w| is_number(w[0]) && is_mode(w[1]))
}

/// The figures of a row, beside its other columns.
fn check_figures(row: &ResultRow, f: &Figures) -> Result<(), String> {
    let p = &row.provenance;
    let (Some(tokens), Some(windows), Some(scored)) = (p.tokens, p.windows, p.scored_tokens) else {
        return Err("the status is ok, but a count is empty".to_owned());
    };
    p.geometry
        .check_counts(tokens, windows, scored, limits(&row.key, p)?)
        .map_err(|why| {
            format!(
                "'tokens', 'windows', 'scored_tokens' and the geometry contradict each other: {why}"
            )
        })?;
    if p.bos == Some(true) && !p.geometry.mode.substitutes_bos() {
        return Err(format!("'bos' is true, but {} has none", p.geometry.mode));
    }
    for (column, value, expected) in [
        ("ppl_err", f.ppl_err, scored > 1),
        ("ppl_err_clustered", f.ppl_err_clustered, windows > 1),
    ] {
        if value.is_some() != expected {
            let state = if expected { "empty" } else { "filled" };
            return Err(format!(
                "'{column}' is {state} with {scored} scored tokens in {windows} windows"
            ));
        }
        if value.is_some_and(|x| x < 0.0) {
            return Err(format!("'{column}' is negative"));
        }
    }
    if f.bits_per_byte.is_some_and(|x| x < 0.0) {
        return Err("'bits_per_byte' is negative".to_owned());
    }
    check_spread(f, 0.0, (scored as f64 - 1.0) * f.mean_nll.powi(2), scored)?;
    match &f.reference {
        Some(reference) => check_reference(f, reference),
        None => Ok(()),
    }
}

fn check_reference(f: &Figures, r: &Comparison) -> Result<(), String> {
    if r.ppl <= 0.0 {
        return Err(format!("'ref_ppl' is {}, no perplexity", r.ppl));
    }
    if let Some(err) = r.err.filter(|e| *e < 0.0) {
        return Err(format!("'ref_err' is {err}, no standard error"));
    }
    let expected = Comparison::new(f, r.engine.clone(), r.ppl, r.err);
    let size = f.ppl.max(r.ppl);
    let err = f.ppl_err.unwrap_or(0.0).hypot(r.err.unwrap_or(0.0));
    for (column, found, expected, size) in [
        ("delta", r.delta, expected.delta, size),
        (
            "delta_pct",
            r.delta_pct,
            expected.delta_pct,
            100.0 * size / r.ppl,
        ),
    ] {
        if !close(found, expected, size) {
            return Err(format!(
                "'{column}' is {found}, but of 'ppl' and 'ref_ppl' it is {expected}"
            ));
        }
    }
    let same = match (r.sigma, expected.sigma) {
        (None, None) => true,
        (Some(found), Some(expected)) => close(found, expected, size / err),
        _ => false,
    };
    let text = |x: Option<f64>| x.map_or_else(|| "empty".to_owned(), |x| x.to_string());
    match same {
        true => Ok(()),
        false => Err(format!(
            "'sigma' is {}, but of 'delta', 'ppl_err' and 'ref_err' it is {}",
            text(r.sigma),
            text(expected.sigma)
        )),
    }
}

/// Whether `ppl_err` is that of NLLs whose population variance is between these.
fn check_spread(f: &Figures, least: f64, most: f64, scored: usize) -> Result<(), String> {
    let Some(err) = f.ppl_err else {
        return Ok(());
    };
    let of_variance = |v: f64| f.ppl * (v.max(0.0) / (scored as f64 - 1.0)).sqrt();
    let (least, most) = (of_variance(least), of_variance(most));
    // Sums of squares lose half of the digits.
    let room = 1e-6 * (most + f.ppl);
    match (least - room..=most + room).contains(&err) {
        true => Ok(()),
        false => Err(format!(
            "'ppl_err' is {err}, but with these NLLs it is between {least} and {most}"
        )),
    }
}

/// The figures of a row, beside its windows, which add up to it.
fn check_window_figures(f: &Figures, windows: &[WindowRow]) -> Result<(), String> {
    if let Some(w) = windows.iter().find(|w| w.nll_sum < -1e-6 * w.scored as f64) {
        return Err(format!(
            "window {} has an NLL sum of {}, and no NLL is negative",
            w.window, w.nll_sum
        ));
    }
    let clusters: Vec<_> = windows.iter().map(WindowRow::cluster).collect();
    let clustered = clustered_mean(&clusters).map(|c| f.ppl * c.se);
    if let (Some(found), Some(expected)) = (f.ppl_err_clustered, clustered)
        && !close(found, expected, f.ppl)
    {
        return Err(format!(
            "'ppl_err_clustered' is {found}, but of the windows it is {expected}"
        ));
    }
    let bytes: f64 = windows.iter().map(|w| w.target_bytes as f64).sum();
    let nll: f64 = windows.iter().map(|w| w.nll_sum).sum();
    let bits = (bytes > 0.0).then(|| nll / (std::f64::consts::LN_2 * bytes));
    let same = match (f.bits_per_byte, bits) {
        (None, None) => true,
        (Some(found), Some(expected)) => close(found, expected, 1.0),
        _ => false,
    };
    if !same {
        let text = |x: Option<f64>| x.map_or_else(|| "empty".to_owned(), |x| x.to_string());
        return Err(format!(
            "'bits_per_byte' is {}, but of the windows and their 'target_bytes' it is {}",
            text(f.bits_per_byte),
            text(bits)
        ));
    }
    // All tokens of a window alike, or one of them with all of its NLL.
    let scored: usize = windows.iter().map(|w| w.scored).sum();
    let n = scored as f64;
    let mean = nll / n;
    let of_window = |w: &WindowRow| (w.nll_sum / w.scored as f64 - mean).powi(2) * w.scored as f64;
    let least = windows.iter().map(of_window).sum::<f64>() / n;
    let most = windows.iter().map(|w| w.nll_sum.powi(2)).sum::<f64>() / n - mean.powi(2);
    check_spread(f, least, most, scored)
}
