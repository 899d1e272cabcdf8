//! Figures for people: rounding, and the table that `pplx run` prints.

use super::row::{Outcome, ResultRow};
use super::schema::status_text;
use crate::stats::Estimate;

/// A perplexity the way llama-perplexity prints it: `17.5876 +/- 0.57002`.
pub fn ppl(ppl: f64, err: Option<f64>) -> String {
    match err {
        Some(e) => format!("{ppl:.4} +/- {e:.5}"),
        None => format!("{ppl:.4}"),
    }
}

/// A difference with its sign. Only exact equality is `0`: a difference that
/// `decimals` would round away is printed in exponent form, and so is one of many
/// digits.
pub fn signed(x: f64, decimals: usize) -> String {
    if x == 0.0 {
        "0".to_owned()
    } else if x.abs() < 0.5 * 10f64.powi(-(decimals.min(300) as i32))
        || (x.abs() >= 1e6 && x.is_finite())
    {
        format!("{x:+.1e}")
    } else {
        format!("{x:+.decimals$}")
    }
}

/// A size, such as an error's or a bound's: two digits.
pub fn small(x: f64) -> String {
    if x == 0.0 {
        "0".to_owned()
    } else {
        format!("{x:.1e}")
    }
}

/// Δ ln PPL to the two digits that its standard error has, at least 6 decimals.
pub fn delta_ln_ppl(mean: f64, se: f64) -> String {
    // 0 and infinity have no digits.
    let digits = 1.0 - se.log10().floor();
    let decimals = if digits.is_finite() {
        digits.clamp(6.0, 15.0) as usize
    } else {
        6
    };
    signed(mean, decimals)
}

/// A share with its error, in percent.
pub fn percent(e: Estimate, decimals: usize) -> String {
    match e.se {
        Some(se) => format!(
            "{:.decimals$} ± {:.decimals$} %",
            100.0 * e.value,
            100.0 * se
        ),
        None => format!("{:.decimals$} %", 100.0 * e.value),
    }
}

/// A probability: small ones in exponent form, so that only 0 is `0`.
pub fn probability(p: f64) -> String {
    if p == 0.0 {
        "0".to_owned()
    } else if p < 1e-3 {
        format!("{p:.1e}")
    } else {
        format!("{p:.4}")
    }
}

/// The key figures of `rows`, one run a line and notes below their run.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a ResultRow>) -> String {
    let header = ["run", "PPL", "reference", "Δ", "Δ %", "σ"].map(str::to_owned);
    let mut lines = vec![(header, None)];
    for row in rows {
        let mut cells = [const { String::new() }; 6];
        cells[0].clone_from(&row.key);
        match &row.outcome {
            Outcome::Ok(f) => {
                cells[1] = ppl(f.ppl, f.ppl_err);
                if let Some(r) = &f.reference {
                    cells[2] = ppl(r.ppl, r.err);
                    cells[3] = signed(r.delta, 4);
                    cells[4] = signed(r.delta_pct, 3);
                    cells[5] = r.sigma.map_or_else(|| "-".to_owned(), |s| signed(s, 2));
                }
            }
            other => cells[1] = status_text(other),
        }
        lines.push((cells, Some(row)));
    }
    // A reason of failure is as long as it is: it does not widen the column.
    let figures = |c: &str| !c.starts_with("failed");
    let mut widths = [0; 6];
    for (cells, _) in &lines {
        for (w, c) in widths.iter_mut().zip(cells).filter(|(_, c)| figures(c)) {
            *w = (*w).max(c.chars().count());
        }
    }
    let mut out = String::new();
    for (cells, row) in &lines {
        let mut line = format!("{:<w$}", cells[0], w = widths[0]);
        for (c, w) in cells[1..].iter().zip(&widths[1..]) {
            line += &if figures(c) {
                format!("  {c:>w$}")
            } else {
                format!("  {c}")
            };
        }
        out += line.trim_end();
        out.push('\n');
        for note in row.iter().flat_map(|r| [&r.ref_note, &r.note]) {
            if !note.is_empty() {
                out += &format!("    note: {}\n", one_line(note));
            }
        }
    }
    out
}

/// The text on one line, which line breaks would tear. What is no visible
/// character, and could make a terminal or a page show something else than is
/// there, is escaped: control characters and those that set the direction of text.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        for c in word.chars() {
            let invisible = matches!(
                c,
                '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
            );
            if c.is_control() || invisible {
                out.extend(c.escape_unicode());
            } else {
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_like_llama_perplexity_and_never_to_a_false_zero() {
        assert_eq!(ppl(17.587_61, Some(0.570_02)), "17.5876 +/- 0.57002");
        assert_eq!(ppl(17.587_61, None), "17.5876");
        assert_eq!(signed(0.0, 4), "0");
        assert_eq!(signed(-0.0, 4), "0");
        assert_eq!(signed(0.000_049, 4), "+4.9e-5");
        assert_eq!(signed(0.000_051, 4), "+0.0001");
        assert_eq!(signed(-3.2, 2), "-3.20");
        assert_eq!(signed(-123_456_789.0, 2), "-1.2e8");
        assert_eq!(signed(f64::INFINITY, 2), "+inf");
        assert_eq!(signed(f64::NAN, 2), "NaN");
        assert_eq!(delta_ln_ppl(0.007_758_4, 1.8e-3), "+0.007758");
        assert_eq!(delta_ln_ppl(-1.84e-6, 1.8e-6), "-0.0000018");
        assert_eq!(delta_ln_ppl(0.25, 0.0), "+0.250000");
    }
}
