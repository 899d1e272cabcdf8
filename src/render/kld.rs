//! The figures of a comparison with a base, as text and JSON. Names, order and
//! digits of the text are llama-perplexity's.

use serde_json::{Value, json};

use super::one_line;
use crate::results::kld_row::err;
use crate::results::{KldFigures, KldOutcome, KldRow};
use crate::stats::{Estimate, PERCENTILES, Summary};

/// llama-perplexity's labels of [`PERCENTILES`].
const LABELS: [&str; PERCENTILES.len()] = [
    "Maximum", "99.9%  ", "99.0%  ", "95.0%  ", "90.0%  ", "75.0%  ", "Median ", "25.0%  ",
    "10.0%  ", " 5.0%  ", " 1.0%  ", " 0.1%  ", "Minimum",
];

/// The percentiles of a summary with their labels.
fn percentiles(s: &Summary) -> impl Iterator<Item = (&'static str, f64)> {
    LABELS.into_iter().zip(s.percentiles)
}

/// Those that llama-perplexity prints of divergences: all but the quartiles.
fn kld_percentiles(s: &Summary) -> impl Iterator<Item = (&'static str, f64)> {
    let quartile = |p: f64| p == 0.25 || p == 0.75;
    let each = PERCENTILES.into_iter().zip(percentiles(s));
    each.filter_map(move |((_, p), labelled)| (!quartile(p)).then_some(labelled))
}

/// The figures for people; `note` is what is to be known of the base.
pub fn text(f: &KldFigures, note: Option<&str>) -> String {
    let estimate =
        |name: &str, e: Estimate| format!("{name:30}: {:10.6} ± {:10.6}\n", e.value, err(e));
    let mut out = String::new();
    if let Some(note) = note {
        out += &format!("note: {note}\n\n");
    }
    out += "====== Perplexity statistics ======\n";
    out += &estimate("Mean PPL(Q)", f.ppl);
    out += &estimate("Mean PPL(base)", f.ppl_base);
    out += &match f.correlation {
        Some(r) => format!("Cor(ln(PPL(Q)), ln(PPL(base))): {:6.2}%\n", 100.0 * r),
        None => "Cor(ln(PPL(Q)), ln(PPL(base))): none, one does not vary\n".to_owned(),
    };
    out += &estimate("Mean ln(PPL(Q)/PPL(base))", f.ln_ratio);
    out += &estimate("Mean PPL(Q)/PPL(base)", f.ratio);
    out += &estimate("Mean PPL(Q)-PPL(base)", f.difference);

    out += "\n====== KL divergence statistics ======\n";
    out += &format!(
        "Mean    KLD: {:10.6} ± {:10.6}\n",
        f.kld.mean.value,
        err(f.kld.mean)
    );
    for (label, kld) in kld_percentiles(&f.kld) {
        out += &format!("{label} KLD: {kld:10.6}\n");
    }
    if let Some(sampling) = f.sampling {
        out += &format!(
            "(the base's tail is sampled: Mean KLD ± {:.6} by that, and at least {:.6})\n",
            sampling.err, sampling.least
        );
    }

    out += "\n====== Token probability statistics ======\n";
    let percent = |e: Estimate| format!("{:6.3} ± {:5.3} %\n", 100.0 * e.value, 100.0 * err(e));
    out += &format!("Mean    Δp: {}", percent(f.delta_p.mean));
    for (label, delta_p) in percentiles(&f.delta_p) {
        out += &format!("{label} Δp: {:6.3}%\n", 100.0 * delta_p);
    }
    out += &format!("RMS Δp    : {}", percent(f.delta_p.rms));
    out += &format!("Same top p: {}", percent(f.same_top));
    out
}

/// The key figures of comparisons, one run a line.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a KldRow>) -> String {
    let rows: Vec<&KldRow> = rows.into_iter().collect();
    let width = rows.iter().map(|r| r.key.chars().count()).max();
    let width = width.unwrap_or(0).max("run".len());
    let mut out = format!(
        "{:width$}  {:>23}  {:>10}  {:>10}  {:>9}  {:>8}\n",
        "run", "mean KLD", "median", "99.9%", "RMS Δp %", "top %"
    );
    for row in rows {
        out += &match &row.outcome {
            KldOutcome::Ok(s) => format!(
                "{:width$}  {:10.6} ± {:10.6}  {:10.6}  {:10.6}  {:9.3}  {:8.3}\n",
                row.key,
                s.kld,
                s.kld_err,
                s.kld_median,
                s.kld_p99_9,
                100.0 * s.rms_delta_p,
                100.0 * s.same_top
            ),
            KldOutcome::Failed(reason) => {
                format!("{:width$}  not compared: {}\n", row.key, one_line(reason))
            }
            KldOutcome::NotRun => format!("{:width$}  not run\n", row.key),
        };
    }
    out
}

/// All figures in full precision; percentiles by what lies below them. `note` is what
/// is to be known of the base.
pub fn json(f: &KldFigures, note: Option<&str>) -> Value {
    let estimate = |e: Estimate| json!({ "value": e.value, "err": e.se });
    json!({
        "scored_tokens": f.n(),
        "note": note,
        "ppl": estimate(f.ppl),
        "ppl_base": estimate(f.ppl_base),
        "correlation": f.correlation,
        "ln_ppl_ratio": estimate(f.ln_ratio),
        "ppl_ratio": estimate(f.ratio),
        "ppl_difference": estimate(f.difference),
        "kld": distribution(f.kld.mean, kld_percentiles(&f.kld)),
        "sampling": f.sampling.map(|s| json!({ "err": s.err, "least": s.least })),
        "delta_p": distribution(f.delta_p.mean, percentiles(&f.delta_p)),
        "rms_delta_p": estimate(f.delta_p.rms),
        "same_top": estimate(f.same_top),
    })
}

fn distribution(mean: Estimate, percentiles: impl Iterator<Item = (&'static str, f64)>) -> Value {
    let mut value = json!({ "mean": { "value": mean.value, "err": mean.se } });
    for (label, x) in percentiles {
        value[label.trim().to_lowercase()] = x.into();
    }
    value
}
