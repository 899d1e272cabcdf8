use std::fs;
use std::path::Path;

use pplx::eval::{Geometry, Mode};
use pplx::results::{Comparison, Outcome, ResultRow, Tables, WindowRow};
use proptest::prelude::*;

use super::support::{finished, nll, provenance, timing, write, write_with};

fn files(t: &Tables) -> Vec<Vec<u8>> {
    let p = t.paths();
    [&p.table, &p.windows, &p.timing]
        .map(|f| fs::read(f).unwrap())
        .to_vec()
}

/// Text with all that CSV can stumble over.
fn odd_text() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            ",", "\"", "\"\"", "\n", "\r\n", "\r", " ", "\t", "#", ";", "a", "Δ", "🙂", "'", "\\",
            "0", "\0",
        ]),
        0..8,
    )
    .prop_map(|parts| parts.concat())
}

/// A geometry whose windows have `targets` scored tokens each.
fn geometry(targets: usize) -> impl Strategy<Value = Geometry> {
    let context = targets + 1..=targets + 500;
    prop_oneof![
        Just(Geometry::teacher_forced(targets + 1)),
        context.clone().prop_map(move |n_ctx| Geometry {
            n_ctx,
            mode: Mode::LlamaCppStrided { stride: targets }
        }),
        (context, any::<prop::sample::Index>()).prop_map(move |(n_ctx, i)| {
            Geometry::sliding_window(n_ctx, Some(1 + i.index(n_ctx)), Some(n_ctx - targets))
        }),
    ]
}

/// NLLs of windows of one size, and a geometry that has such windows.
fn any_windows() -> impl Strategy<Value = (Vec<Vec<f64>>, Geometry)> {
    (1usize..5).prop_flat_map(|targets| {
        let window = prop::collection::vec(0.0f64..30.0, targets);
        (prop::collection::vec(window, 1..5), geometry(targets))
    })
}

fn any_row() -> impl Strategy<Value = (ResultRow, Vec<WindowRow>)> {
    let text = prop::collection::vec(odd_text(), 8);
    let err = prop::option::of(0.0f64..1e3);
    let reference = prop::option::of((odd_text(), 1e-3f64..1e6, err));
    let flags = (prop::option::of(any::<bool>()), any::<bool>(), 0..4u8);
    (any_windows(), text, reference, flags).prop_map(
        |((nll, geometry), text, reference, (bos, parse_special, kind))| {
            // Keys are never empty.
            let (mut row, mut windows) = finished(&format!("k{}", text[0]), &nll);
            let p = &mut row.provenance;
            p.model = text[1].clone();
            p.model_type = text[2].clone();
            p.architecture = text[3].clone();
            p.corpus = text[4].clone();
            p.placement = text[5].clone();
            row.note = text[6].clone();
            row.ref_note = text[1].clone();
            p.parse_special = parse_special;
            p.geometry = geometry;
            p.tokens = Some(10_000);
            match kind {
                0 => row.outcome = Outcome::NotRun,
                1 => row.outcome = Outcome::Failed(text[7].clone()),
                _ => {}
            }
            match &mut row.outcome {
                Outcome::Ok(f) => {
                    f.reference = reference.map(|(engine, ppl, err)| {
                        Comparison::new(f, format!("e{engine}"), ppl, err)
                    });
                }
                _ => {
                    windows.clear();
                    row.provenance.bos = bos;
                    row.provenance.tokens_sha256.clear();
                    (row.provenance.tokens, row.provenance.windows) = (None, None);
                }
            }
            (row, windows)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is written reads back equal to the last bit, and is written again as
    /// the same bytes, in whatever order the runs finished.
    #[test]
    fn tables_round_trip(runs in prop::collection::vec(any_row(), 0..6)) {
        let dir = tempfile::tempdir().unwrap();
        let mut t = Tables::new(dir.path(), "t");
        for (row, windows) in &runs {
            t.put(row.clone(), windows.clone(), Some(timing())).unwrap();
        }
        t.save().unwrap();
        let bytes = files(&t);
        let loaded = Tables::load(dir.path(), "t").unwrap();
        prop_assert_eq!(&loaded, &t);
        loaded.save().unwrap();
        prop_assert_eq!(&files(&loaded), &bytes);

        // Later rows replace earlier ones of the same key: keep those.
        let mut backwards = Tables::new(dir.path(), "t");
        for row in t.rows() {
            backwards.put(row.clone(), t.windows(&row.key).to_vec(), Some(timing())).unwrap();
        }
        backwards.save().unwrap();
        prop_assert_eq!(&files(&backwards), &bytes);
    }
}

proptest! {
    /// A damaged table is read as it was, or is an error; it never panics, and no
    /// damage makes another perplexity of a row pass for its own.
    #[test]
    fn damage_is_noticed(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..4),
        cut in 0usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let runs = [("a", nll(2.0, 0.1)), ("b", nll(3.0, 0.2))];
        let path = write(dir.path(), "t", &runs);
        let before = Tables::load(dir.path(), "t").unwrap();
        let mut text = fs::read(&path).unwrap();
        let i = at.index(text.len());
        let end = (i + cut).min(text.len());
        text.splice(i..end, bytes);
        fs::write(&path, text).unwrap();
        if let Ok(after) = Tables::load(dir.path(), "t") {
            for row in after.rows() {
                let (Some(f), Some(old)) = (row.figures(), before.get(&row.key)) else { continue };
                let old = old.figures().unwrap();
                prop_assert!((f.ppl / old.ppl - 1.0).abs() < 1e-7);
                prop_assert!((f.mean_nll - old.mean_nll).abs() < 1e-7);
            }
        }
    }
}

#[test]
fn rows_are_sorted_and_floats_are_the_shortest() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(
        dir.path(),
        "t",
        &[("b", nll(2.0, 0.0)), ("a", nll(3.0, 0.0))],
    );
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(
        "key,status,ppl,ppl_err,ref_ppl,ref_err,delta,delta_pct,sigma,ref_note,note,mean_nll,"
    ));
    assert!(lines[1].starts_with("a,ok,") && lines[2].starts_with("b,ok,"));
    let windows = fs::read_to_string(dir.path().join("t.windows.csv")).unwrap();
    assert!(
        windows.starts_with("key,window,scored,nll_sum,target_bytes,schema\na,0,3,9.75,12,v1.2\n")
    );
}

#[test]
fn figures_are_those_of_an_independent_computation() {
    let (row, _) = finished("k", &[vec![1.0, 2.0], vec![3.0], vec![6.0]]);
    let f = row.figures().unwrap();
    assert!((f.mean_nll - 3.0).abs() < 1e-15);
    // Residuals of the windows: 3 − 6, 3 − 3, 6 − 3; se² = 3/2 · 18 / 16.
    let se = (1.5f64 * 18.0 / 16.0).sqrt();
    assert!((f.ppl_err_clustered.unwrap() - 3f64.exp() * se).abs() < 1e-12);
    // 12 nats over 16 bytes.
    assert!((f.bits_per_byte.unwrap() - 12.0 / (16.0 * 2f64.ln())).abs() < 1e-15);
}

#[test]
fn a_later_save_keeps_earlier_runs_and_leaves_no_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results/deep");
    let mut t = Tables::load_or_new(&results, "t").unwrap();
    let (row, windows) = finished("a", &nll(2.0, 0.0));
    t.put(row, windows, None).unwrap();
    t.save().unwrap();

    let mut t = Tables::load_or_new(&results, "t").unwrap();
    let (mut row, _) = finished("b", &nll(2.0, 0.0));
    row.outcome = Outcome::Failed("out of memory".into());
    t.put(row, Vec::new(), None).unwrap();
    t.save().unwrap();

    let mut t = Tables::load(&results, "t").unwrap();
    assert_eq!(
        t.rows().map(|r| r.key.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!((t.windows("a").len(), t.windows("b").len()), (4, 0));
    assert_eq!(
        t.get("b").unwrap().outcome,
        Outcome::Failed("out of memory".into())
    );
    t.retain(|k| k == "b");
    assert_eq!((t.rows().len(), t.windows("a").len()), (1, 0));

    let mut names: Vec<String> = fs::read_dir(&results)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["t.csv", "t.timing.csv", "t.windows.csv"]);
}

#[cfg(unix)]
#[test]
fn files_are_as_readable_as_any_other() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t", &[("a", nll(2.0, 0.0))]);
    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn what_was_not_measured_is_not_recorded() {
    let mut t = Tables::new(Path::new("unused"), "t");
    let mut refuse = |edit: &dyn Fn(&mut ResultRow, &mut Vec<WindowRow>), problem: &str| {
        let (mut row, mut windows) = finished("a", &nll(2.0, 0.0));
        edit(&mut row, &mut windows);
        let e = t.put(row, windows, None).unwrap_err().to_string();
        assert!(e.contains(problem), "{e} / {problem}");
    };
    fn figures(row: &mut ResultRow) -> &mut pplx::results::Figures {
        match &mut row.outcome {
            Outcome::Ok(f) => f,
            _ => unreachable!(),
        }
    }
    refuse(
        &|r, _| figures(r).ppl = f64::NAN,
        "'ppl' is empty or not a finite number",
    );
    refuse(
        &|r, _| figures(r).mean_nll = f64::INFINITY,
        "'mean_nll' is empty",
    );
    refuse(
        &|r, _| figures(r).ppl_err = Some(f64::NAN),
        "'ppl_err' is empty",
    );
    refuse(&|r, _| figures(r).ppl *= 1.000_001, "but exp(mean_nll) is");
    refuse(&|r, _| r.key.clear(), "the key is empty");
    refuse(
        &|r, _| r.provenance.tokens_sha256.clear(),
        "'tokens_sha256' is empty",
    );
    refuse(&|r, _| r.provenance.tokens = None, "'tokens' is empty or 0");
    refuse(&|r, _| r.provenance.bos = None, "'bos' is empty");
    refuse(&|_, w| w.clear(), "counts 4 windows, 0 are listed");
    refuse(
        &|_, w| w[2].window = 3,
        "window 2 is missing or out of order: found 3",
    );
    refuse(
        &|_, w| w[2].scored = 2,
        "counts 12 scored tokens, its windows 11",
    );
    refuse(&|_, w| w[2].nll_sum += 1e-3, "sum to a mean NLL of");
    refuse(&|_, w| w[2].nll_sum = f64::NAN, "sum to a mean NLL of NaN");
    refuse(
        &|r, _| r.outcome = Outcome::NotRun,
        "without a number has windows",
    );
    assert_eq!(t.rows().len(), 0);
}

/// Edits of a good table, each a named error with its line.
#[test]
fn malformed_tables_are_named_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(
        dir.path(),
        "t",
        &[("a", nll(2.0, 0.0)), ("b", nll(2.5, 0.0))],
    );
    let good = fs::read_to_string(&path).unwrap();
    let columns: Vec<&str> = good.lines().next().unwrap().split(',').collect();
    let set = |line: usize, column: &str, value: &str| {
        let mut lines: Vec<Vec<&str>> = good.lines().map(|l| l.split(',').collect()).collect();
        // No field of these rows but `layer_placement` has a comma; it is quoted.
        let at = columns.iter().position(|c| *c == column).unwrap();
        let shift = usize::from(
            at > columns
                .iter()
                .position(|c| *c == "layer_placement")
                .unwrap(),
        );
        lines[line - 1][at + shift] = value;
        lines
            .iter()
            .map(|l| l.join(","))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let cases = [
        (
            set(2, "ppl", "12,5"),
            "t.csv:2: has 40 fields where the header has 39",
        ),
        (set(3, "ppl", "many"), "t.csv:3: column 'ppl' holds 'many'"),
        (
            set(3, "ppl", "NaN"),
            "t.csv:3: the status is ok, but 'ppl' is empty or not",
        ),
        (
            set(3, "ppl", ""),
            "t.csv:3: the status is ok, but 'ppl' is empty or not",
        ),
        (
            set(3, "ppl", "9.5"),
            "t.csv:3: 'ppl' is 9.5, but exp(mean_nll) is",
        ),
        (
            set(3, "status", "not run"),
            "t.csv:3: column 'ppl' holds a number, but the status is 'not run'",
        ),
        (
            set(3, "status", "failed: x"),
            "t.csv:3: column 'ppl' holds a number",
        ),
        (
            set(3, "status", "fine"),
            "t.csv:3: column 'ppl' holds a number",
        ),
        (set(3, "key", "a"), "t.csv:3: the key 'a' occurs twice"),
        (
            set(3, "mode", "sliding"),
            "t.csv:3: the mode 'sliding' is unknown",
        ),
        (
            set(3, "mode", "teacher-forced"),
            "t.csv:3: the mode 'teacher-forced' is unknown, or 'stride'",
        ),
        (
            set(3, "stride", ""),
            "t.csv:3: the mode 'sliding-window' is unknown, or 'stride'",
        ),
        (
            set(3, "delta", "0.5"),
            "t.csv:3: the columns 'ref_engine', 'ref_ppl'",
        ),
        (
            set(3, "sigma", "0.5"),
            "t.csv:3: the columns 'ref_engine', 'ref_ppl'",
        ),
        (
            set(3, "windows", "-4"),
            "t.csv:3: column 'windows' holds '-4'",
        ),
        (
            set(3, "bos", "maybe"),
            "t.csv:3: column 'bos' holds 'maybe'",
        ),
        (
            set(1, "ppl", "perplexity"),
            "t.csv:1: the column 'perplexity' is unknown",
        ),
        (
            set(1, "ppl", "key"),
            "t.csv:1: the column 'key' occurs twice",
        ),
        (
            "key,status\n".to_owned(),
            "t.csv:1: the column 'ppl' is missing",
        ),
    ];
    for (text, problem) in cases {
        fs::write(&path, text).unwrap();
        let e = Tables::load(dir.path(), "t").unwrap_err().to_string();
        assert!(e.contains(problem), "{e} / {problem}");
    }
    fs::write(&path, b"\xfe").unwrap();
    let e = Tables::load(dir.path(), "t").unwrap_err().to_string();
    assert!(e.contains("t.csv:1: field 1 is not valid UTF-8"), "{e}");
    let e = Tables::load(dir.path(), "none").unwrap_err().to_string();
    assert!(
        e.starts_with("cannot read ") && e.contains("none.csv"),
        "{e}"
    );
}

#[test]
fn windows_of_another_table_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "t", &[("a", nll(2.0, 0.0))]);
    write(dir.path(), "u", &[("a", nll(2.001, 0.0))]);
    fs::copy(
        dir.path().join("u.windows.csv"),
        dir.path().join("t.windows.csv"),
    )
    .unwrap();
    let e = Tables::load(dir.path(), "t").unwrap_err().to_string();
    assert!(
        e.contains("run 'a' does not agree with") && e.contains("mean NLL"),
        "{e}"
    );
}

/// A crash between the renames leaves windows and more of a run that has no number
/// yet. What is of no run of the table is of another table.
#[test]
fn what_an_interrupted_save_leaves_is_dropped_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "u",
        &[("a", nll(2.0, 0.0)), ("b", nll(2.5, 0.0))],
    );
    let edit = |row: &mut ResultRow| {
        if row.key == "b" {
            row.outcome = Outcome::NotRun;
        }
    };
    let runs = [("a", nll(2.0, 0.0)), ("b", nll(2.5, 0.0))];
    write_with(dir.path(), "t", &runs, edit);
    let copy = |part: &str| {
        let [from, to] = ["u", "t"].map(|name| dir.path().join(format!("{name}.{part}.csv")));
        fs::copy(from, to).unwrap();
    };
    copy("windows");
    copy("timing");
    let t = Tables::load(dir.path(), "t").unwrap();
    assert_eq!(
        (t.rows().len(), t.windows("a").len(), t.windows("b").len()),
        (2, 4, 0)
    );
    write(dir.path(), "t", &runs[..1]);
    copy("windows");
    let e = Tables::load(dir.path(), "t").unwrap_err().to_string();
    assert!(
        e.contains("t.windows.csv:6: the table has no run 'b'"),
        "{e}"
    );
    // Timings are not committed: they may be of another branch.
    write(dir.path(), "t", &runs[..1]);
    copy("timing");
    assert_eq!(Tables::load(dir.path(), "t").unwrap().rows().len(), 1);
}

/// Tables in the repository are what this version would write.
#[test]
fn committed_tables_read_and_write_back_to_the_same_bytes() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let dir = tempfile::tempdir().unwrap();
    for name in ["quickstart"] {
        for file in [format!("{name}.csv"), format!("{name}.windows.csv")] {
            fs::copy(committed.join(&file), dir.path().join(file)).unwrap();
        }
        let before = Tables::load(dir.path(), name).unwrap();
        before.save().unwrap();
        for file in [format!("{name}.csv"), format!("{name}.windows.csv")] {
            let bytes = |d: &Path| fs::read(d.join(&file)).unwrap();
            assert!(bytes(&committed) == bytes(dir.path()), "{file}");
        }
    }
}

/// What a resumed sweep does with kept rows.
#[test]
fn rows_can_be_annotated_again() {
    let (row, windows) = finished("a", &nll(2.0, 0.0));
    let mut t = Tables::new(Path::new("unused"), "t");
    t.put(row, windows, Some(timing())).unwrap();
    t.update(|row| row.ref_note = "none".into());
    assert_eq!(t.get("a").unwrap().ref_note, "none");
    assert_eq!(t.windows("a").len(), 4);
}

#[test]
fn terminal_table_is_aligned_and_says_what_failed() {
    let (mut a, _) = finished("smollm2/wiki/512", &nll(2.0, 0.0));
    let (mut b, _) = finished("b", &nll(2.0, 0.0));
    let Outcome::Ok(f) = &mut a.outcome else {
        unreachable!()
    };
    f.reference = Some(Comparison::new(
        f,
        "llama.cpp".into(),
        f.ppl + 0.5,
        Some(0.1),
    ));
    b.outcome = Outcome::Failed("no memory".into());
    b.note = "two\nlines".into();
    b.ref_note = "none".into();
    b.provenance = provenance();
    let text = pplx::render::table([&a, &b]);
    let f = a.figures().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("run               "));
    assert!(
        lines[1].starts_with(&format!(
            "smollm2/wiki/512  {:.4} +/- {:.5}  {:.4} +/- 0.10000  -0.5000  ",
            f.ppl,
            f.ppl_err.unwrap(),
            f.ppl + 0.5
        )),
        "{text}"
    );
    assert_eq!(
        lines[2..],
        [
            "b                 failed: no memory",
            "    note: none",
            "    note: two lines"
        ]
    );
}
