//! `pplx diff` along axes and by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::diff::json;
use super::support::{nll, write_with};

/// Runs `pplx diff TABLE FLAGS`: exit code, stdout, stderr.
fn within(table: &Path, flags: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_pplx"))
        .arg("diff")
        .arg(table)
        .args(flags)
        .output()
        .unwrap();
    let text = |b| String::from_utf8(b).unwrap();
    (
        out.status.code().unwrap(),
        text(out.stdout),
        text(out.stderr),
    )
}

/// Two models in two numerics, each a little worse than the one before, with keys as
/// plans make them.
fn table(dir: &Path, name: &str) -> PathBuf {
    let run = |model: &str, numerics: &str, base: f64, wobble: f64| {
        let key = format!("{model}/wiki.test.raw/64/sw/cpu/{numerics}");
        (key, nll(base, wobble))
    };
    let runs = [
        run("m-q8_0", "exact", 2.0, 0.0001),
        run("m-q8_0", "q8", 2.001, 0.0002),
        run("m-q4_0", "exact", 2.01, 0.0003),
        run("m-q4_0", "q8", 2.011, 0.0004),
    ];
    let runs = runs
        .each_ref()
        .map(|(key, nll)| (key.as_str(), nll.clone()));
    write_with(dir, name, &runs, |row| {
        let parts: Vec<&str> = row.key.split('/').collect();
        row.provenance.model = parts[0].to_owned();
        row.provenance.numerics = parts[5].to_owned();
    })
}

#[test]
fn one_table_answers_what_its_axes_cost() {
    let dir = tempfile::tempdir().unwrap();
    let t = table(dir.path(), "t");
    let rows = |flags: &[&str]| {
        let (code, out, err) = within(&t, &[flags, &["--format", "json"]].concat());
        assert_eq!(code, 0, "{err}");
        let d: serde_json::Value = serde_json::from_str(&out).unwrap();
        d["rows"].as_array().unwrap().clone()
    };
    let q8 = rows(&["--between", "numerics=exact,q8"]);
    assert_eq!(q8.len(), 2);
    assert_eq!(q8[0]["key"], "m-q4_0/wiki.test.raw/64/sw/cpu/exact→q8");
    assert_eq!(q8[0]["a_key"], "m-q4_0/wiki.test.raw/64/sw/cpu/exact");
    assert_eq!(q8[0]["b_key"], "m-q4_0/wiki.test.raw/64/sw/cpu/q8");
    for row in &q8 {
        let moved = row["paired_delta_ln_ppl"].as_f64().unwrap();
        assert!((moved - 0.001).abs() < 1e-12, "{moved}");
        assert_eq!(row["changed"], "numerics exact → q8");
    }
    let q4 = rows(&["--between", "model=*q8_0,*q4_0"]);
    assert_eq!(q4[0]["key"], "m-q8_0→m-q4_0/wiki.test.raw/64/sw/cpu/exact");
    for row in &q4 {
        let moved = row["paired_delta_ln_ppl"].as_f64().unwrap();
        assert!((moved - 0.01).abs() < 1e-12, "{moved}");
    }
    // Together, and by hand.
    let both = [
        "--between",
        "model=*q8_0,*q4_0",
        "--between",
        "numerics=exact,q8",
    ];
    let by_hand = ["--pair", "m-q8_0/*/exact=m-q4_0/*/q8"];
    assert_eq!(rows(&both), rows(&by_hand));
    // Between two tables: the same, and A's rows are the first one's.
    let other = table(dir.path(), "u");
    let d = json(&t, &other, &["--between", "numerics=exact,q8"], 0);
    assert_eq!(d["rows"].as_array().unwrap(), &q8);
}

#[test]
fn what_cannot_be_asked_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let t = table(dir.path(), "t");
    for (flags, problem) in [
        (vec![], "nothing says which of its runs to compare"),
        (
            vec!["--between", "numerics=exact,f16"],
            "no row of B has numerics 'f16'; there is exact, q8",
        ),
        (
            vec!["--between", "colour=a,b"],
            "'colour' is no axis; the axes are model, corpus,",
        ),
        (vec!["--pair", "*/exact"], "KEYGLOB=KEYGLOB"),
    ] {
        let (code, out, err) = within(&t, &flags);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(problem), "{err}");
    }
    // Other tokens: paired, and not measured.
    let text = fs::read_to_string(&t).unwrap();
    let changed: Vec<String> = text
        .lines()
        .map(|l| match l.starts_with("m-q4_0") {
            true => l.replace(&"c".repeat(64), &"d".repeat(64)),
            false => l.to_owned(),
        })
        .collect();
    fs::write(&t, changed.join("\n") + "\n").unwrap();
    let (code, out, _) = within(&t, &["--between", "model=*q8_0,*q4_0"]);
    assert_eq!(code, 1);
    assert!(out.contains("different tokens: cccc"), "{out}");
}

/// A report shows the runs of its table against each other, too.
#[test]
fn reports_show_pairs() {
    let dir = tempfile::tempdir().unwrap();
    let t = table(dir.path(), "t");
    let page = dir.path().join("r.html");
    let markdown = dir.path().join("r.md");
    let report = |flags: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_pplx"))
            .arg("report")
            .arg(&t)
            .args(flags)
            .arg("-o")
            .arg(&page)
            .arg("--markdown")
            .arg(&markdown)
            .output()
            .unwrap();
        (
            out.status.code().unwrap(),
            String::from_utf8(out.stderr).unwrap(),
        )
    };
    let (code, err) = report(&["--between", "numerics=exact,q8", "--max-delta-pct", "5"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for file in [&page, &markdown] {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("exact→q8"), "{text}");
        assert!(text.contains("PASS: 2 rows: 2 pass, 0 fail; gate Δ ±5 %"));
    }
    let (code, err) = report(&["--max-delta-pct", "5"]);
    assert_eq!(code, 2);
    assert!(
        err.contains("bounds need something to compare with"),
        "{err}"
    );
}
