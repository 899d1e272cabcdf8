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
    let d = json(&a, &b, &strict("0.0012"), 0);
    let row = &d["rows"][0];
    assert_eq!(row["verdict"], "below-noise-floor");
    assert_eq!(
        (&d["below_noise_floor"], &d["passed"]),
        (&1.into(), &0.into())
    );
    assert_eq!(
        (&d["pass"], &row["noise_floor"]),
        (&true.into(), &0.0012.into())
    );
    // The interval is ±0.00018: not within a floor that the difference itself is within.
    for floor in ["0.0011", "0.0009"] {
        json(&a, &b, &strict(floor), 1);
    }
    let (code, out, _) = diff(&a, &b, &["--noise-floor", "0.0011"]);
    assert_eq!(code, 0);
    assert!(out.contains("below noise floor  a\n"), "{out}");
    assert!(
        out.contains("noise floor: |Δ ln PPL| 1.1e-3, here +0.001000"),
        "{out}"
    );
    assert!(
        out.contains("compared, no gate: 1 row: 1 below noise floor"),
        "{out}"
    );
}

/// Four windows of nll 2 against ones moved by `by` ± `wobble`: an interval of
/// `by ± 3.18 · wobble/√3`.
fn moved(dir: &std::path::Path, by: f64, wobble: f64) -> [std::path::PathBuf; 2] {
    let mut windows = nll(2.0, 0.0);
    for (w, window) in windows.iter_mut().enumerate() {
        let by = by + if w % 2 == 0 { wobble } else { -wobble };
        window.iter_mut().for_each(|x| *x += by);
    }
    [
        write(dir, "a", &[("a", nll(2.0, 0.0))]),
        write(dir, "b", &[("a", windows)]),
    ]
}

/// The verdicts of issue 15: a pass at ±0.1 % where the interval was ±1 %, a FAIL where
/// t was 0.38.
#[test]
fn what_was_not_shown_is_inconclusive() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = moved(dir.path(), 0.0005, 0.005);
    for bound in ["0.1", "0.03"] {
        let d = json(&a, &b, &["--max-delta-pct", bound], 1);
        let row = &d["rows"][0];
        assert_eq!(row["verdict"], "inconclusive", "{bound}");
        assert_eq!((&d["inconclusive"], &d["pass"]), (&1.into(), &false.into()));
        let reason = row["reason"].as_str().unwrap();
        // A corpus of 5000 tokens has 78 windows of 64.
        assert!(
            reason.contains(" windows would decide it; the corpus has 78"),
            "{reason}"
        );
        json(
            &a,
            &b,
            &["--max-delta-pct", bound, "--allow-inconclusive"],
            0,
        );
    }
    let (code, out, err) = diff(&a, &b, &["--max-delta-pct", "0.1"]);
    assert_eq!((code, err.as_str()), (1, ""));
    assert!(out.contains("INCONCLUSIVE  a\n"), "{out}");
    assert!(
        out.contains("\nINCONCLUSIVE: 1 row: 0 pass, 0 fail, 1 inconclusive; gate Δ ±0.1 %\n"),
        "{out}"
    );
    // As before, the points: one is within, the other beyond.
    json(&a, &b, &["--max-delta-pct", "0.1", "--judge", "point"], 0);
    json(&a, &b, &["--max-delta-pct", "0.03", "--judge", "point"], 1);
    // With 10 % it is within, and what truly moved is beyond.
    json(&a, &b, &["--max-delta-pct", "10"], 0);
    let [a, b] = moved(dir.path(), 0.05, 0.005);
    let d = json(&a, &b, &["--max-delta-pct", "3"], 1);
    assert_eq!(d["rows"][0]["verdict"], "fail");
    let reason = d["rows"][0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("(95 %), outside ±3 %"), "{reason}");
    json(&b, &a, &["--max-increase-pct", "3"], 0);
}

#[test]
fn no_gate_is_no_pass() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = moved(dir.path(), 0.1, 0.0);
    let (code, out, _) = diff(&a, &b, &[]);
    assert_eq!(code, 0);
    assert!(
        out.ends_with("\ncompared, no gate: 1 row: 1 compared\n"),
        "{out}"
    );
    let (code, _, err) = diff(&a, &b, &["--require-gate"]);
    assert_eq!(code, 2);
    assert!(err.contains("no bound is set"), "{err}");
    let (code, ..) = diff(&a, &b, &["--require-gate", "--max-delta", "0.2"]);
    assert_eq!(code, 0);
}

/// What needs a look comes first, and what has not changed is one line.
#[test]
fn failures_come_first_in_colour() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |by: f64| {
        [
            ("a", nll(2.0, 0.0)),
            ("b", nll(2.0, 0.0)),
            ("c", nll(2.0 + by, 0.0)),
        ]
    };
    let a = write(dir.path(), "a", &rows(0.0));
    let b = write(dir.path(), "b", &rows(0.5));
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_pplx"))
        .args(["diff".as_ref(), a.as_os_str(), b.as_os_str()])
        .args(["--max-delta", "0.1"])
        .env("CLICOLOR_FORCE", "1")
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("\u{1b}[31m\u{1b}[1mFAIL        \u{1b}[0m  c\n") < at("unchanged     2 runs"));
    let (_, plain, _) = diff(&a, &b, &["--max-delta", "0.1"]);
    assert!(!plain.contains('\u{1b}') && plain.contains("\nFAIL          c\n"));
}
