//! Verdicts that more than one figure or one row decides.

use super::diff::{diff, json};
use super::support::{nll, write};

/// A significance level bounds the adjusted p: what one row would show alone may
/// be chance among many.
#[test]
fn significance_counts_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    // t = 2/0.48^½ or so with 3 degrees of freedom: p of 0.04 alone.
    let moved = |by: [f64; 4]| {
        let mut windows = nll(2.0, 0.0);
        for (window, by) in windows.iter_mut().zip(by) {
            window.iter_mut().for_each(|x| *x += by);
        }
        windows
    };
    let one = ("a", moved([0.004, 0.002, 0.005, 0.001]));
    let others = ["b", "c", "d"].map(|key| (key, moved([0.001, -0.001, 0.001, -0.001])));
    let plain = ["a", "b", "c", "d"].map(|key| (key, nll(2.0, 0.0)));
    let a = write(dir.path(), "a", &plain[..1]);
    let b = write(dir.path(), "b", std::slice::from_ref(&one));
    let flags = ["--significance", "0.06"];
    let d = json(&a, &b, &flags, 1);
    let row = &d["rows"][0];
    let p = row["paired_p"].as_f64().unwrap();
    assert!((0.01..0.06).contains(&p), "{p}");
    assert_eq!(
        (&row["verdict"], &row["adjusted_p"]),
        (&"fail".into(), &p.into())
    );
    // Two flips of 2⁴: all of one sign.
    assert_eq!(row["permutation_p"], 0.125);
    let reason = row["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("adjusted p 0.0") && reason.ends_with(" below 0.06"),
        "{reason}"
    );

    let a = write(dir.path(), "a", &plain);
    let all: Vec<_> = std::iter::once(one).chain(others).collect();
    let b = write(dir.path(), "b", &all);
    let d = json(&a, &b, &flags, 0);
    let adjusted = d["rows"][0]["adjusted_p"].as_f64().unwrap();
    assert!((adjusted - 4.0 * p).abs() < 1e-12, "{adjusted} {p}");
    assert_eq!(d["rows"][1]["adjusted_p"], 1.0);
}

#[test]
fn changes_below_the_noise_floor_are_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    let b = write(dir.path(), "b", &[("a", nll(2.001, 0.0001))]);
    // Significant, but no larger than what should not matter does.
    let strict = |floor| {
        [
            "--max-sigma",
            "3",
            "--max-delta-pct",
            "0.01",
            "--noise-floor",
            floor,
        ]
    };
    let d = json(&a, &b, &strict("0.0011"), 0);
    let row = &d["rows"][0];
    assert_eq!(row["verdict"], "below-noise-floor");
    assert_eq!(
        (&d["below_noise_floor"], &d["passed"]),
        (&1.into(), &0.into())
    );
    assert_eq!(
        (&d["pass"], &row["noise_floor"]),
        (&true.into(), &0.0011.into())
    );
    json(&a, &b, &strict("0.0009"), 1);
    let (code, out, _) = diff(&a, &b, &["--noise-floor", "0.0011"]);
    assert_eq!(code, 0);
    assert!(out.contains("below noise floor  a\n"), "{out}");
    assert!(
        out.contains("noise floor: |Δ ln PPL| 1.1e-3, here +0.001000"),
        "{out}"
    );
    assert!(
        out.contains("PASS: 1 row: 0 compared (no gate set), 1 below noise floor"),
        "{out}"
    );
}
