use std::fs;
use std::path::Path;
use std::process::Command;

use pplx::eval::Geometry;
use pplx::results::{Outcome, ResultRow, Tables};

use super::support::{finished, nll, write, write_with};

/// Runs `pplx diff A B FLAGS`: exit code, stdout, stderr.
pub fn diff(a: &Path, b: &Path, flags: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_pplx"))
        .arg("diff")
        .args([a, b])
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

const STRICT: [&str; 4] = ["--max-delta-pct", "0", "--max-sigma", "0"];

/// The JSON of a comparison; it must have ended with `code`.
pub fn json(a: &Path, b: &Path, flags: &[&str], code: i32) -> serde_json::Value {
    let (got, out, err) = diff(a, b, &[flags, &["--format", "json"]].concat());
    assert_eq!(got, code, "{out}{err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_rerun_passes_the_strictest_gate_and_differs_by_exactly_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let runs = [("a", nll(2.1, 0.013)), ("b", nll(3.3, 0.1))];
    let a = write(dir.path(), "a", &runs);
    let b = write(dir.path(), "b", &runs);
    let d = json(&a, &b, &STRICT, 0);
    assert_eq!(d["pass"], true);
    assert_eq!(
        (&d["passed"], &d["failed"], &d["not_measured"]),
        (&2.into(), &0.into(), &0.into())
    );
    for row in d["rows"].as_array().unwrap() {
        for field in [
            "delta",
            "delta_pct",
            "sigma",
            "paired_delta_ln_ppl",
            "paired_se",
            "paired_t",
        ] {
            assert_eq!(row[field], 0.0, "{field}");
        }
        assert_eq!(
            (&row["verdict"], &row["paired_windows"]),
            (&"pass".into(), &4.into())
        );
    }
    let (code, out, err) = diff(&a, &b, &STRICT);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.contains("unchanged     2 runs: every figure has the same bits")
            && out.contains("PASS: 2 rows: 2 pass, 0 fail (2 unchanged); gate Δ ±0 %, σ ±0"),
        "{out}"
    );
    let (_, out, _) = diff(&a, &b, &["--details"]);
    assert!(out.contains("compared      a\n") && out.contains("compared, no gate: 2 rows"));
}

#[test]
fn without_a_gate_differences_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    let b = write(dir.path(), "b", &[("a", nll(3.0, 0.0))]);
    let d = json(&a, &b, &[], 0);
    assert_eq!((&d["compared"], &d["passed"]), (&1.into(), &0.into()));
    let row = &d["rows"][0];
    assert_eq!(row["verdict"], "compared");
    // All NLLs are 1 nat higher.
    let pct = row["delta_pct"].as_f64().unwrap();
    assert!((pct - 100.0 * (1f64.exp() - 1.0)).abs() < 1e-9);
    assert!((row["paired_delta_ln_ppl"].as_f64().unwrap() - 1.0).abs() < 1e-12);
}

#[test]
fn the_paired_test_sees_what_the_unpaired_one_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    // Differences by window 0.005, 0.003, 0.005, 0.003: mean 0.004, se² = 4/3 · 9 ·
    // 4·10⁻⁶ / 144 = (0.001/√3)², t = 4√3.
    let mut moved = nll(2.004, 0.0);
    for (w, window) in moved.iter_mut().enumerate() {
        window
            .iter_mut()
            .for_each(|x| *x += if w % 2 == 0 { 0.001 } else { -0.001 });
    }
    let b = write(dir.path(), "b", &[("a", moved)]);
    let d = json(&a, &b, &["--max-sigma", "3"], 1);
    let row = &d["rows"][0];
    assert_eq!(row["verdict"], "fail");
    assert_eq!(row["reason"], "paired t +6.928203 outside ±3");
    assert!((row["paired_t"].as_f64().unwrap() - 4.0 * 3f64.sqrt()).abs() < 1e-6);
    assert!(row["sigma"].as_f64().unwrap() < 0.1);
    json(&a, &b, &["--max-sigma", "7"], 0);

    // Without the windows of one side the same change hides below the unpaired σ: a
    // bound on it is not judged by that.
    let windows = dir.path().join("b.windows.csv");
    let text = fs::read_to_string(&windows).unwrap();
    fs::remove_file(&windows).unwrap();
    let not_measured = |a: &Path, b: &Path, why: &str| {
        for bound in [["--max-sigma", "3"], ["--significance", "0.01"]] {
            let d = json(a, b, &bound, 1);
            let row = &d["rows"][0];
            assert_eq!(row["verdict"], "not-measured");
            let reason = row["reason"].as_str().unwrap();
            assert!(
                reason.starts_with("a bound on σ or p is for the paired test")
                    && reason.contains(why),
                "{reason} / {why}"
            );
            assert!(row["unpaired_because"].as_str().unwrap().contains(why));
            assert!(row["paired_t"].is_null() && row["adjusted_p"].is_null());
        }
    };
    not_measured(&a, &b, "no windows in B: there is no ");
    not_measured(&b, &a, "no windows in A: there is no ");
    // Nor where the file is there, without rows, or without a byte.
    let header = text.lines().next().unwrap().to_owned() + "\n";
    for rest in [header.as_str(), ""] {
        fs::write(&windows, rest).unwrap();
        not_measured(&a, &b, "b.windows.csv has none of this run");
    }
    // Points, and no bound, are judged, and the basis is said.
    json(&a, &b, &["--max-delta-pct", "1", "--judge", "point"], 0);
    let (code, out, _) = diff(&a, &b, &[]);
    assert!(
        code == 0 && out.contains("(no paired test: no windows in B"),
        "{out}"
    );
    assert_eq!(json(&a, &b, &[], 0)["rows"][0]["basis"], "unpaired");

    // Another engine's row never had windows here.
    let text = fs::read_to_string(&b).unwrap();
    fs::write(&b, text.replace("pplx 0.1.0", "llama.cpp b1")).unwrap();
    not_measured(&a, &b, "those of llama.cpp b1 are not known");
}

#[test]
fn one_window_and_windows_that_move_alike() {
    let dir = tempfile::tempdir().unwrap();
    let one = |base: f64| [("a", vec![vec![base, base + 0.5]])];
    let a = write(dir.path(), "a", &one(2.0));
    let b = write(dir.path(), "b", &one(2.001));
    for bound in [["--max-sigma", "1e9"], ["--significance", "0.01"]] {
        let d = json(&a, &b, &bound, 1);
        let reason = d["rows"][0]["reason"].as_str().unwrap();
        assert!(
            reason.contains("1 window is too few for a paired test"),
            "{reason}"
        );
    }
    // No scatter: t is infinite, and no bound holds.
    let same = |x: f64| [("a", vec![vec![x; 4]; 4])];
    let a = write(dir.path(), "a", &same(2.0));
    let b = write(dir.path(), "b", &same(2.25));
    let d = json(&a, &b, &["--max-sigma", "1e9"], 1);
    assert_eq!(d["rows"][0]["verdict"], "fail");
    json(&a, &a, &["--max-sigma", "0", "--significance", "0.01"], 0);
}

/// Runs that lost their windows do not make others pass by their number.
#[test]
fn what_is_not_tested_does_not_count_in_adjusted_p() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["a", "b", "c", "d", "e", "f"];
    let a = write(dir.path(), "a", &keys.map(|k| (k, nll(2.0, 0.0))));
    let mut moved = keys.map(|k| (k, nll(2.0, 0.0)));
    for (window, by) in moved[0].1.iter_mut().zip([0.004, 0.002, 0.005, 0.001]) {
        window.iter_mut().for_each(|x| *x += by);
    }
    let b = write(dir.path(), "b", &moved);
    let windows = dir.path().join("b.windows.csv");
    let text = fs::read_to_string(&windows).unwrap();
    let first = text
        .lines()
        .filter(|l| l.starts_with("a,") || l.starts_with("key"));
    fs::write(
        &windows,
        first.map(|l| format!("{l}\n")).collect::<String>(),
    )
    .unwrap();
    let d = json(&a, &b, &["--significance", "0.06"], 1);
    let row = &d["rows"][0];
    assert_eq!(row["verdict"], "fail");
    assert_eq!(row["adjusted_p"], row["paired_p"]);
    assert_eq!(d["not_measured"], 5);
}

#[test]
fn gates_are_two_sided_and_independent() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    let b = write(dir.path(), "b", &[("a", nll(2.001, 0.001))]);
    for (x, y) in [(&a, &b), (&b, &a)] {
        let json = |flags: &[&str], code| {
            json(x, y, &[flags, &["--judge", "point"]].concat(), code);
        };
        json(&["--max-delta-pct", "0.11"], 0);
        json(&["--max-delta-pct", "0.09"], 1);
        json(&["--max-delta-pct", "0.11", "--max-sigma", "0.5"], 1);
        json(&["--max-delta-pct", "0.09", "--max-sigma", "9"], 1);
    }
    // One-sided bounds let B be better.
    for bound in ["--max-increase-pct", "--max-increase"] {
        json(&a, &b, &[bound, "0.0009", "--judge", "point"], 1);
        json(&b, &a, &[bound, "0.0009", "--judge", "point"], 0);
    }
    let (_, out, err) = diff(&a, &b, &["--max-delta-pct", "0.09", "--judge", "point"]);
    assert!(
        out.contains("FAIL  ") && out.contains("Δ +0.100050 % outside ±0.09 %"),
        "{out}"
    );
    // The closing line stands once.
    assert!(out.contains("\nFAIL: 1 row: 0 pass, 1 fail; gate Δ ±0.09 %, judged by the point\n"));
    assert_eq!(err, "");
}

/// Whatever makes two rows incomparable: never green, with or without a gate.
#[test]
fn what_cannot_be_compared_is_not_measured() {
    type Edit = fn(&mut ResultRow);
    let cases: &[(Edit, &str)] = &[
        (|r| r.key = "b".into(), "B has no such row"),
        (
            |r| r.outcome = Outcome::Failed("out of memory".into()),
            "B: failed: out of memory",
        ),
        (|r| r.outcome = Outcome::NotRun, "B: not run"),
        (
            |r| r.provenance.corpus_sha256 = "d".repeat(64),
            "different corpora: bbbb",
        ),
        (
            |r| r.provenance.tokens_sha256 = "d".repeat(64),
            "different tokens: cccc",
        ),
        (
            |r| r.provenance.geometry = Geometry::sliding_window(32, Some(32), Some(29)),
            "different geometries: context 64",
        ),
        (|r| r.provenance.geometry = Geometry::teacher_forced(4), "B"),
        (
            |r| r.provenance.bos = Some(true),
            "different first tokens: no BOS in A, BOS in B",
        ),
    ];
    for (edit, reason) in cases {
        let dir = tempfile::tempdir().unwrap();
        let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
        let b = write_with(dir.path(), "b", &[("a", nll(2.0, 0.0))], edit);
        for flags in [&[][..], &["--max-delta-pct", "99"]] {
            let d = json(&a, &b, flags, 1);
            let row = &d["rows"][0];
            assert_eq!(
                (&row["verdict"], &d["pass"]),
                (&"not-measured".into(), &false.into())
            );
            assert!(
                row["reason"].as_str().unwrap().contains(reason),
                "{row} / {reason}"
            );
            assert!(row["delta"].is_null());
        }
        // Both ways round.
        json(&b, &a, &["--max-delta-pct", "99"], 1);
    }
}

#[test]
fn other_counts_are_compared_where_both_have_them() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    let b = write(dir.path(), "b", &[("a", nll(2.0, 0.0)[..3].to_vec())]);
    let same = json(&a, &b, &["--max-delta-pct", "0"], 0);
    let row = &same["rows"][0];
    assert_eq!(
        (&row["verdict"], &row["paired_windows"]),
        (&"pass".into(), &3.into())
    );
    assert_eq!(
        row["changed"],
        "windows 4 → 3, compared on the 3 that both have"
    );
    // The figures are those of these windows: equal bits on both sides.
    assert_eq!(row["a_ppl"], row["b_ppl"]);
    let three: f64 = nll(2.0, 0.0)[..3].iter().flatten().sum();
    let ppl = row["a_ppl"].as_f64().unwrap();
    assert!((ppl / (three / 9.0).exp() - 1.0).abs() < 1e-14);
    // Where the windows are not known, neither are those that both have.
    fs::remove_file(dir.path().join("b.windows.csv")).unwrap();
    let d = json(&a, &b, &[], 1);
    let reason = d["rows"][0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with(
            "4 windows in A and 3 in B, and those that both have are not known: no windows in B"
        ),
        "{reason}"
    );
    // Blocks, the last of which is shorter on one side.
    let blocks = |r: &mut ResultRow| r.provenance.geometry = Geometry::teacher_forced(4);
    let mut shorter = nll(2.0, 0.0);
    shorter[3].pop();
    let c = write(dir.path(), "c", &[("a", shorter)]);
    let a = write_with(dir.path(), "a", &[("a", nll(2.0, 0.0))], blocks);
    let d = json(&a, &c, &[], 0);
    assert_eq!(d["rows"][0]["paired_windows"], 3);
    assert_eq!(
        d["rows"][0]["changed"],
        "windows 4 → 4, compared on the 3 that both have"
    );
}

/// One bad row spoils a comparison in which all others pass.
#[test]
fn one_missing_row_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(
        dir.path(),
        "a",
        &[("a", nll(2.0, 0.0)), ("b", nll(2.0, 0.0))],
    );
    let b = write(dir.path(), "b", &[("a", nll(2.0, 0.0))]);
    let d = json(&a, &b, &STRICT, 1);
    assert_eq!((&d["passed"], &d["not_measured"]), (&1.into(), &1.into()));
}

/// Tables that another program wrote, or an editor: no verdict.
#[test]
fn damaged_numbers_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    let good = fs::read_to_string(&a).unwrap();
    let row = good.lines().nth(1).unwrap();
    let ppl = row.split(',').nth(2).unwrap();
    let b = dir.path().join("b.csv");
    let cases = [
        (
            good.replace(ppl, "NaN"),
            "b.csv:2: the status is ok, but 'ppl' is empty or not a finite number",
        ),
        (
            good.replace(ppl, "inf"),
            "b.csv:2: the status is ok, but 'ppl' is empty or not a finite number",
        ),
        (
            good.replace(ppl, ""),
            "b.csv:2: the status is ok, but 'ppl' is empty or not a finite number",
        ),
        (
            good.replace(ppl, "11.5"),
            "b.csv:2: 'ppl' is 11.5, but exp(mean_nll) is",
        ),
        (
            format!("{good}{row}\n"),
            "b.csv:3: the key 'a' occurs twice",
        ),
    ];
    for (text, problem) in cases {
        fs::write(&b, text).unwrap();
        for sides in [[&a, &b], [&b, &a]] {
            let (code, out, err) = diff(sides[0], sides[1], &["--max-delta-pct", "1e9"]);
            assert_eq!((code, out.as_str()), (2, ""), "{err}");
            assert!(err.contains(problem), "{err} / {problem}");
        }
    }
    fs::write(&b, "").unwrap();
    let d = json(&a, &b, &[], 1);
    assert_eq!(d["rows"][0]["reason"], "B has no such row");
    // Windows that belong to another table.
    fs::write(&b, &good).unwrap();
    write(dir.path(), "c", &[("a", nll(2.01, 0.0))]);
    fs::copy(
        dir.path().join("c.windows.csv"),
        dir.path().join("b.windows.csv"),
    )
    .unwrap();
    let (code, _, err) = diff(&a, &b, &[]);
    assert!(
        code == 2 && err.contains("b.windows.csv:2: run 'a' does not agree with"),
        "{err}"
    );
}

#[test]
fn nothing_compared_is_not_a_pass() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[]);
    let b = dir.path().join("b.csv");
    fs::write(&b, "").unwrap();
    for flags in [&[][..], &STRICT] {
        let (code, out, err) = diff(&a, &b, flags);
        assert_eq!(code, 1);
        assert!(out.contains("nothing was compared") && err.is_empty());
    }
}

#[test]
fn a_single_token_has_no_error_to_judge_by() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", vec![vec![2.0]])]);
    let b = write(dir.path(), "b", &[("a", vec![vec![2.1]])]);
    let d = json(&a, &b, &["--max-sigma", "1e9"], 1);
    assert_eq!(d["rows"][0]["verdict"], "not-measured");
    // A bound on the size has a point, and no interval to judge.
    let d = json(&a, &b, &["--max-delta-pct", "11"], 1);
    assert_eq!(d["rows"][0]["verdict"], "inconclusive");
    let reason = d["rows"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("no error to make one of"), "{reason}");
    json(&a, &b, &["--max-delta-pct", "11", "--judge", "point"], 0);
    // What is the same needs none.
    json(&a, &a, &["--max-delta-pct", "0"], 0);
}

#[test]
fn usage_errors_exit_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    let bad = dir.path().join("bad.csv");
    let cases: [(&str, &[&str], &str); 6] = [
        (
            "key,status\na,ok\n",
            &[],
            "bad.csv:1: the column 'ppl' is missing",
        ),
        ("{}", &[], "bad.csv:1: the column '{}' is unknown"),
        ("", &["--max-sigma", "NaN"], "max_sigma is NaN"),
        ("", &["--max-delta-pct", "-1"], "max_delta_pct is -1"),
        ("", &["--max-sigma", "three"], "invalid value 'three'"),
        ("", &["--format", "xml"], "invalid value 'xml'"),
    ];
    for (text, flags, problem) in cases {
        fs::write(&bad, text).unwrap();
        let (code, out, err) = diff(&a, &bad, flags);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(problem), "{err} / {problem}");
    }
    let good = fs::read_to_string(&a).unwrap();
    fs::write(&bad, good.replace("sliding-window,64", "sliding-window,x")).unwrap();
    let (code, _, err) = diff(&a, &bad, &[]);
    assert_eq!(code, 2);
    assert!(
        err.contains("bad.csv:2: column 'stride' holds 'x'"),
        "{err}"
    );
    let (code, _, err) = diff(&a, &dir.path().join("none.csv"), &[]);
    assert_eq!(code, 2);
    assert!(
        err.contains("cannot read") && err.contains("none.csv"),
        "{err}"
    );
    // A malformed windows file is not ignored.
    fs::write(dir.path().join("a.windows.csv"), "key,window\n").unwrap();
    let (code, _, err) = diff(&a, &a, &[]);
    assert_eq!(code, 2);
    assert!(
        err.contains("a.windows.csv:1: the column 'scored' is missing"),
        "{err}"
    );
}

#[test]
fn what_changed_besides_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a", &[("a", nll(2.0, 0.0))]);
    let b = write_with(dir.path(), "b", &[("a", nll(2.0, 0.0))], |r| {
        r.provenance.engine = "pplx 0.2.0".into();
        r.provenance.model_sha256 = "e".repeat(64);
    });
    let d = json(&a, &b, &STRICT, 0);
    assert_eq!(
        d["rows"][0]["changed"],
        "model file; engine pplx 0.1.0 → pplx 0.2.0"
    );
}

#[test]
fn formats_agree() {
    let dir = tempfile::tempdir().unwrap();
    let key = "smollm2-135m-instruct-q4_1/wiki.test.raw/512|sliding-window/cpu";
    let mut runs = [(key, nll(2.0, 0.0)), ("z", nll(2.0, 0.0))];
    let a = write(dir.path(), "a", &runs);
    runs[0].1 = nll(2.01, 0.002);
    let b = write(dir.path(), "b", &runs[..1]);

    let (code, text, _) = diff(&a, &b, &["--max-sigma", "3"]);
    assert_eq!(code, 1);
    // The first lines name the files, wherever they lie.
    for line in text.lines().skip(2) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let (code, markdown, _) = diff(&a, &b, &["--max-sigma", "3", "--format", "markdown"]);
    assert_eq!(code, 1);
    let table: Vec<&str> = markdown.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(table.len(), 4, "{markdown}");
    for line in &table {
        let cells = line.replace("\\|", "").matches('|').count();
        assert_eq!(cells, 11, "{line}");
    }
    let (code, csv, _) = diff(&a, &b, &["--max-sigma", "3", "--format", "csv"]);
    assert_eq!(code, 1);
    let d = json(&a, &b, &["--max-sigma", "3"], 1);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let fields = d["rows"][0].as_object().unwrap();
    // JSON names the schema once, and has two lists more.
    let headers: Vec<&str> = headers.iter().filter(|h| *h != "schema").collect();
    assert_eq!(headers.len() + 2, fields.len(), "and two lists");
    for (record, row) in reader.records().zip(d["rows"].as_array().unwrap()) {
        for (&name, value) in headers.iter().zip(&record.unwrap()) {
            match &row[name] {
                serde_json::Value::Null => assert_eq!(value, "", "{name}"),
                serde_json::Value::String(s) => assert_eq!(value, s, "{name}"),
                number => {
                    let (x, y): (f64, f64) = (value.parse().unwrap(), number.as_f64().unwrap());
                    // serde_json reads floats to the last place but one.
                    assert!((x - y).abs() <= 1e-15 * y.abs(), "{name}: {x} {y}");
                }
            }
        }
    }
}

/// `run --resume` and `diff` read the same files the same way.
#[test]
fn diff_reads_what_tables_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let (mut row, windows) = finished("a,\"b\"\nc", &nll(2.0, 0.0));
    row.note = "x\n\"y\"".into();
    let mut t = Tables::new(dir.path(), "t");
    t.put(row, windows, None).unwrap();
    t.save().unwrap();
    let d = json(&t.paths().table, &t.paths().table, &STRICT, 0);
    assert_eq!(d["rows"][0]["key"], "a,\"b\"\nc");
}
