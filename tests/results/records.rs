//! What `pplx diff` makes of records, and what others can.

use std::fs;
use std::path::Path;
use std::process::Command;

use pplx::results::{Record, TablePaths};

use super::diff::{diff, json};
use super::support::{nll, write, write_record};
use crate::support::skip;

const KEY: &str = "m/c/64";

/// Tables `a` and `b` of one run with these NLLs, and their records.
fn pair(dir: &Path, a: &[Vec<f64>], b: &[Vec<f64>]) -> [std::path::PathBuf; 2] {
    [("a", a, 1), ("b", b, 0)].map(|(name, nll, top)| {
        let path = write(dir, name, &[(KEY, nll.to_vec())]);
        write_record(&path, KEY, nll, top);
        path
    })
}

#[test]
fn token_by_token_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let a = nll(2.0, 0.0);
    let mut b = a.clone();
    // ln 2 less: twice as likely. NLL 2.25 at [1][0], 2 at [0][0].
    b[1][0] -= 2f64.ln();
    b[0][0] += 0.5;
    let [a, b] = pair(dir.path(), &a, &b);
    let d = json(&a, &b, &[], 0);
    let row = &d["rows"][0];
    let close = |field: &str, want: f64| {
        let got = row[field].as_f64().unwrap_or(f64::NAN);
        assert!((got - want).abs() < 1e-6, "{field}: {got}, not {want}");
    };
    assert_eq!(
        (&row["basis"], &row["tokens"]),
        (&"tokens".into(), &12.into())
    );
    let moves = [0.5, -(2f64.ln())];
    let mean = moves.iter().sum::<f64>() / 12.0;
    let var = moves.iter().map(|x| x * x).sum::<f64>() / 12.0 - mean * mean;
    close("paired_delta_ln_ppl", mean);
    close("independent_se", (var / 11.0).sqrt());
    // 12 targets; the base at window 1, token 0 has (3 % 5) quarters.
    let p = [(-2.5f64).exp() - (-2f64).exp(), (-2.75f64).exp()];
    close("delta_p_mean", p.iter().sum::<f64>() / 12.0);
    close("delta_p_rms", ((p[0] * p[0] + p[1] * p[1]) / 12.0).sqrt());
    close("delta_p_min", p[0]);
    close("delta_p_max", p[1]);
    close("delta_p_median", 0.0);
    // Place 0.99 · 11 = 10.89 between 0 and the maximum.
    close("delta_p_99", 0.89 * p[1]);
    close("same_top", 0.0);
    let tokens = row["moved_tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 2);
    assert_eq!(
        (&tokens[0]["window"], &tokens[0]["index"]),
        (&1.into(), &5.into())
    );
    assert_eq!(tokens[0]["text"]["token"], " w10");
    assert_eq!(tokens[0]["text"]["after"], " w11 w12");
    assert_eq!(
        (&tokens[1]["a"]["rank"], &tokens[1]["b"]["rank"]),
        (&1.into(), &0.into())
    );
    assert_eq!(tokens[1]["b"]["top"], " w0");
    let windows = row["moved_windows"].as_array().unwrap();
    assert_eq!((windows.len(), &windows[0]["window"]), (2, &1.into()));

    let (_, text, _) = diff(&a, &b, &["--details"]);
    for part in [
        "12 tokens: same top 0.00 ± 0.00 %",
        "« w10» w11 w12",
        "median 0",
        "rank 1 → 0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for line in text.lines().skip(2) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(!diff(&a, &b, &[]).1.contains("w10"));
}

#[test]
fn what_the_comparison_stands_on_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = pair(dir.path(), &nll(2.0, 0.0), &nll(2.001, 0.001));
    let basis = |basis: &str, why: &str| {
        let d = json(&a, &b, &[], 0);
        let row = &d["rows"][0];
        assert_eq!(row["basis"], basis);
        let said = row["not_by_token_because"].as_str().unwrap();
        assert!(
            said.contains(why) && said.is_empty() == why.is_empty(),
            "{said}"
        );
        row["paired_delta_ln_ppl"].clone()
    };
    let exact = basis("tokens", "");
    // Records have the sums of their windows.
    let windows = fs::read(dir.path().join("b.windows.csv")).unwrap();
    fs::remove_file(dir.path().join("b.windows.csv")).unwrap();
    assert_eq!(basis("tokens", ""), exact);
    // A record of a run before this one.
    write_record(&a, KEY, &nll(2.5, 0.0), 1);
    fs::write(dir.path().join("b.windows.csv"), windows).unwrap();
    let stale = basis("windows", "the record in A is not used: ");
    assert_eq!(stale, exact);
    basis(
        "windows",
        "it belongs to another run: its mean_nll is 2.9375",
    );
    let (_, text, _) = diff(&a, &b, &[]);
    assert!(
        text.contains("not by token: the record in A is not used: "),
        "{text}"
    );
    // A damaged one.
    let path = TablePaths::beside(&a).records.path(KEY);
    write_record(&a, KEY, &nll(2.0, 0.0), 1);
    basis("tokens", "");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    basis("windows", "its checksum does not fit: the file is damaged");
    fs::remove_file(&path).unwrap();
    basis("windows", "no record in A");
    fs::remove_dir_all(dir.path().join(".records")).unwrap();
    basis("windows", "no records in A and B");
    fs::remove_file(dir.path().join("a.windows.csv")).unwrap();
    fs::remove_file(dir.path().join("b.windows.csv")).unwrap();
    let d = json(&a, &b, &[], 0);
    assert_eq!(d["rows"][0]["basis"], "unpaired");
    // The p of the unpaired σ is no test.
    assert!(d["rows"][0]["adjusted_p"].is_null());
}

/// The reader that `docs/results.md` shows, as it stands there.
#[test]
fn the_documented_reader_reads_it() {
    let python = std::env::var("PPLX_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let numpy = Command::new(&python).args(["-c", "import numpy"]).output();
    if !numpy.is_ok_and(|out| out.status.success()) {
        skip("python", format_args!("{python} has no numpy"));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [a, _] = pair(dir.path(), &nll(2.0, 0.0), &nll(2.0, 0.0));
    let path = TablePaths::beside(&a).records.path(KEY);
    let docs = include_str!("../../docs/results.md");
    let reader = docs.split("```python\n").nth(1).unwrap();
    let reader = reader.split("```").next().unwrap();
    let lines = reader
        .lines()
        .filter(|l| !l.is_empty() && !l.contains("import"));
    assert!(lines.count() <= 10, "ten lines are promised");
    let script = format!(
        "{reader}\nimport sys\nrun, columns = read_record(sys.argv[1])\n\
         print(run['key'], columns['target'].tolist(), columns['nll'].astype('f8').sum(),\n\
         columns['window_scored'].tolist(), bytes(columns['piece_text'][:3]).decode())\n"
    );
    let script_path = dir.path().join("read.py");
    fs::write(&script_path, script).unwrap();
    let read = || {
        let out = Command::new(&python).arg(&script_path).arg(&path).output();
        out.unwrap()
    };
    let out = read();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let record = Record::read(&path).unwrap();
    let sum: f64 = record.tokens().nll.iter().map(|&x| f64::from(x)).sum();
    let want = format!(
        "{KEY} {:?} {sum} [3, 3, 3, 3]  w0\n",
        record.tokens().target
    );
    assert_eq!(String::from_utf8_lossy(&out.stdout), want);
    // Its checksum is one.
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let out = read();
    assert!(String::from_utf8_lossy(&out.stderr).contains("AssertionError"));
}
