//! Numbers as text for people: rounded, but never to a false zero.

use super::spread::Estimate;

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
