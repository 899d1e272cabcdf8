//! The figures of a comparison with a base, as text and JSON. Names, order and
//! digits of the text are llama-perplexity's.

use serde_json::{Value, json};

use super::kld::{Distribution, Estimate, KldFigures};
use super::kld_row::{KldOutcome, KldRow};
use super::render::one_line;

/// Labels of quantiles, and the part of the values below them.
type Quantiles = &'static [(&'static str, f64)];

const KLD: Quantiles = &[
    ("Maximum", 1.0),
    ("99.9%  ", 0.999),
    ("99.0%  ", 0.99),
    ("95.0%  ", 0.95),
    ("90.0%  ", 0.9),
    ("Median ", 0.5),
    ("10.0%  ", 0.1),
    (" 5.0%  ", 0.05),
    (" 1.0%  ", 0.01),
    (" 0.1%  ", 0.001),
    ("Minimum", 0.0),
];

const DELTA_P: Quantiles = &[
    ("Maximum", 1.0),
    ("99.9%  ", 0.999),
    ("99.0%  ", 0.99),
    ("95.0%  ", 0.95),
    ("90.0%  ", 0.9),
    ("75.0%  ", 0.75),
    ("Median ", 0.5),
    ("25.0%  ", 0.25),
    ("10.0%  ", 0.1),
    (" 5.0%  ", 0.05),
    (" 1.0%  ", 0.01),
    (" 0.1%  ", 0.001),
    ("Minimum", 0.0),
];

pub fn text(f: &KldFigures) -> String {
    let estimate =
        |name: &str, e: Estimate| format!("{name:30}: {:10.6} ± {:10.6}\n", e.value, e.err);
    let mut out = "====== Perplexity statistics ======\n".to_owned();
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
        f.kld.mean.value, f.kld.mean.err
    );
    for (label, part) in KLD {
        out += &format!("{label} KLD: {:10.6}\n", f.kld.quantile(*part));
    }
    if let Some(sampling) = f.sampling {
        out += &format!(
            "(the base's tail is sampled: Mean KLD ± {:.6} by that, and at least {:.6})\n",
            sampling.err, sampling.least
        );
    }

    out += "\n====== Token probability statistics ======\n";
    let percent = |e: Estimate| format!("{:6.3} ± {:5.3} %\n", 100.0 * e.value, 100.0 * e.err);
    out += &format!("Mean    Δp: {}", percent(f.delta_p.mean));
    for (label, part) in DELTA_P {
        out += &format!("{label} Δp: {:6.3}%\n", 100.0 * f.delta_p.quantile(*part));
    }
    out += &format!("RMS Δp    : {}", percent(f.rms_delta_p));
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

/// All figures in full precision; quantiles by what lies below them.
pub fn json(f: &KldFigures) -> Value {
    let estimate = |e: Estimate| json!({ "value": e.value, "err": e.err });
    json!({
        "scored_tokens": f.tokens,
        "ppl": estimate(f.ppl),
        "ppl_base": estimate(f.ppl_base),
        "correlation": f.correlation,
        "ln_ppl_ratio": estimate(f.ln_ratio),
        "ppl_ratio": estimate(f.ratio),
        "ppl_difference": estimate(f.difference),
        "kld": distribution(&f.kld, KLD),
        "sampling": f.sampling.map(|s| json!({ "err": s.err, "least": s.least })),
        "delta_p": distribution(&f.delta_p, DELTA_P),
        "rms_delta_p": estimate(f.rms_delta_p),
        "same_top": estimate(f.same_top),
    })
}

fn distribution(d: &Distribution, quantiles: Quantiles) -> Value {
    let mut value = json!({ "mean": { "value": d.mean.value, "err": d.mean.err } });
    for (label, part) in quantiles {
        value[label.trim().to_lowercase()] = d.quantile(*part).into();
    }
    value
}
