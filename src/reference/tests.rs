use super::*;
use crate::eval::Mode;
use crate::results::{Figures, Provenance};

const MODEL: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const CORPUS: &str = "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08";

/// The run that the committed row of SmolLM2 at context 2048 belongs to.
fn run() -> ResultRow {
    ResultRow {
        key: "k".into(),
        provenance: Provenance {
            model: "smollm2-135m-instruct-q4_1".into(),
            model_sha256: MODEL.into(),
            model_type: "Q4_1".into(),
            size: Default::default(),
            architecture: "llama".into(),
            corpus: "corpora/wikitext-2-raw/wiki.test.raw".into(),
            corpus_sha256: CORPUS.into(),
            tokens: Some(303_415),
            tokens_sha256: "00".into(),
            geometry: Geometry::llama_cpp(2048),
            bos: Some(false),
            parse_special: false,
            windows: Some(8),
            scored_tokens: Some(8184),
            placement: "cpu".into(),
            layer_placement: "cpu[0,30)".into(),
            numerics: "exact".into(),
            engine: "pplx 0.1.0".into(),
        },
        outcome: Outcome::Ok(Figures {
            mean_nll: 17.6f64.ln(),
            ppl: 17.6,
            ppl_err: Some(0.57),
            ppl_err_clustered: None,
            bits_per_byte: None,
            reference: None,
        }),
        ref_note: String::new(),
        note: String::new(),
    }
}

fn committed() -> References {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/references/llama.cpp.csv");
    References::load(&[path]).unwrap()
}

fn annotated(references: &References, mut run: ResultRow) -> ResultRow {
    references.annotate(&mut run);
    run
}

/// A file with one row per `edits`, each of which replaces fields of a good row.
fn file(edits: &[&[(&str, &str)]]) -> Result<References, CsvError> {
    let columns = csv_file::names::<Record>();
    let good = [
        "llama.cpp",
        "b1",
        "cpu",
        "smollm2",
        MODEL,
        "wiki.test.raw",
        CORPUS,
        "2048",
        "8",
        "8184",
        "17.5876",
        "0.57002",
    ];
    let mut text = columns.join(",");
    for edit in edits {
        let mut row = good.map(str::to_owned).to_vec();
        row.resize(columns.len(), String::new());
        for (column, value) in *edit {
            let i = columns.iter().position(|c| c == column).unwrap();
            row[i] = (*value).to_owned();
        }
        text += &format!("\n{}", row.join(","));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.csv");
    std::fs::write(&path, text).unwrap();
    References::load(&[path])
}

#[test]
fn committed_row_joins_with_its_differences() {
    let references = committed();
    let row = annotated(&references, run());
    let c = row.figures().unwrap().reference.clone().unwrap();
    assert_eq!((c.ppl, c.err), (17.5876, Some(0.57002)));
    assert!((c.delta - 0.0124).abs() < 1e-12);
    assert!((c.delta_pct - 100.0 * 0.0124 / 17.5876).abs() < 1e-12);
    let sigma = 0.0124 / (0.57f64 * 0.57 + 0.57002 * 0.57002).sqrt();
    assert!((c.sigma.unwrap() - sigma).abs() < 1e-12);
    assert_eq!(c.engine, "llama.cpp 0c1e570 (llama-cpp-python 0.3.36) cpu");
    assert_eq!(row.ref_note, "");
}

#[test]
fn committed_rows_have_the_preset_geometry() {
    let references = committed();
    assert!(references.rows().len() >= 9);
    for r in references.rows() {
        assert_eq!(r.geometry, Geometry::llama_cpp(r.geometry.n_ctx));
        let per_window = r.geometry.n_ctx - r.geometry.n_ctx / 2 - 1;
        assert_eq!(r.scored_tokens, r.windows * per_window);
    }
}

#[test]
fn every_near_miss_is_said_and_not_compared() {
    let references = committed();
    type Edit = fn(&mut Provenance);
    let cases: [(Edit, &str); 9] = [
        (
            |p| (p.windows, p.scored_tokens) = (Some(4), Some(4092)),
            "reference row has 8 windows, this run 4",
        ),
        (
            |p| p.scored_tokens = Some(8183),
            "reference row has 8184 scored tokens, this run 8183",
        ),
        (
            |p| {
                p.geometry.mode = Mode::SlidingWindow {
                    stride: 1024,
                    unscored_prefix: 1025,
                }
            },
            "reference row is sliding-window (stride 2048, unscored prefix 1025), this run \
             sliding-window (stride 1024, unscored prefix 1025)",
        ),
        (
            |p| {
                p.geometry.mode = Mode::SlidingWindow {
                    stride: 2048,
                    unscored_prefix: 1024,
                }
            },
            "this run sliding-window (stride 2048, unscored prefix 1024)",
        ),
        (
            |p| p.geometry.mode = Mode::TeacherForced,
            "this run teacher-forced",
        ),
        (
            |p| p.corpus_sha256 = "c".repeat(64),
            "reference row is of a corpus with sha256 173c87a53759…, this run's is cccccccccccc…",
        ),
        (
            |p| (p.model, p.model_sha256) = ("smollm2-q4_1".into(), "d".repeat(64)),
            "reference row is of a model with sha256 b179c9523d0e…, this run's is dddddddddddd…",
        ),
        (
            |p| p.parse_special = true,
            "reference row takes special tokens as text, this run parses them",
        ),
        (
            |p| (p.windows, p.parse_special) = (Some(9), true),
            "reference row has 8 windows, this run 9; takes special tokens as text",
        ),
    ];
    for (edit, note) in cases {
        let mut r = run();
        edit(&mut r.provenance);
        let r = annotated(&references, r);
        assert_eq!(r.figures().unwrap().reference, None, "{note}");
        assert!(r.ref_note.contains(note), "{} / {note}", r.ref_note);
    }
}

#[test]
fn cells_that_spreadsheets_would_compute_are_refused() {
    for (column, value) in [("engine", "=1+1"), ("note", "@x"), ("note", " -1")] {
        let said = file(&[&[(column, value)]]).unwrap_err().to_string();
        let wanted = format!("r.csv:2: column '{column}' begins with ");
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn bos_must_match_where_the_reference_says() {
    for (bos, joins) in [("", true), ("false", true), ("true", false)] {
        let r = annotated(&file(&[&[("bos", bos)]]).unwrap(), run());
        assert_eq!(r.figures().unwrap().reference.is_some(), joins, "{bos}");
        assert_eq!(
            r.ref_note
                .contains("is with BOS in each window, this run without"),
            !joins
        );
    }
}

#[test]
fn other_modes_join_where_the_reference_says_so() {
    type Row<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Row, Geometry); 4] = [
        (
            &[("mode", "teacher-forced")],
            Geometry::teacher_forced(2048),
        ),
        (
            &[("mode", "llama.cpp-strided"), ("stride", "256")],
            Geometry::llama_cpp_strided(1920, 256),
        ),
        // Without a mode: a sliding window with the experiment's defaults.
        (
            &[("stride", "256")],
            Geometry::sliding_window(2048, Some(256), None),
        ),
        (&[("mode", "sliding-window")], Geometry::llama_cpp(2048)),
    ];
    for (row, geometry) in cases {
        let references = file(&[row]).unwrap();
        let mut r = run();
        r.provenance.geometry = geometry;
        assert!(
            annotated(&references, r)
                .figures()
                .unwrap()
                .reference
                .is_some(),
            "{row:?}"
        );
        let mut r = run();
        r.provenance.geometry = Geometry::sliding_window(2048, Some(1024), None);
        let r = annotated(&references, r);
        assert!(r.figures().unwrap().reference.is_none(), "{row:?}");
        assert!(
            r.ref_note
                .starts_with(&format!("reference row is {}", geometry.mode))
        );
    }
}

/// A resumed sweep sees the reference files as they are now.
#[test]
fn a_second_call_replaces_the_first() {
    let near: &[(&str, &str)] = &[("windows", "7")];
    let matching = file(&[&[]]).unwrap();
    let nearly = file(&[near]).unwrap();
    let joined = annotated(&matching, run());
    assert_eq!(annotated(&matching, joined.clone()), joined);
    assert_eq!(
        annotated(&nearly, joined.clone()),
        annotated(&nearly, run())
    );
    assert_eq!(annotated(&References::default(), joined), run());
}

#[test]
fn unrelated_rows_leave_no_trace() {
    let references = committed();
    for edit in [
        (|p| p.geometry = Geometry::llama_cpp(128)) as fn(&mut Provenance),
        |p| (p.model, p.model_sha256) = ("other".into(), "d".repeat(64)),
        |p| (p.corpus, p.corpus_sha256) = ("other.txt".into(), "c".repeat(64)),
    ] {
        let mut r = run();
        edit(&mut r.provenance);
        let r = annotated(&references, r);
        assert_eq!(
            (r.figures().unwrap().reference.clone(), r.ref_note.as_str()),
            (None, "")
        );
    }
}

#[test]
fn the_nearest_row_is_named() {
    let far: &[(&str, &str)] = &[("windows", "9"), ("stride", "1024")];
    let near: &[(&str, &str)] = &[("windows", "7")];
    let r = annotated(&file(&[far, near]).unwrap(), run());
    assert_eq!(r.ref_note, "reference row has 7 windows, this run 8");
}

#[test]
fn of_several_matches_the_first_is_taken_and_the_rest_named() {
    let cuda: &[(&str, &str)] = &[("backend", "cuda"), ("ppl", "17.5")];
    let r = annotated(&file(&[&[("note", "kv f16")], cuda]).unwrap(), run());
    assert_eq!(
        r.figures().unwrap().reference.clone().unwrap().engine,
        "llama.cpp b1 cpu"
    );
    assert_eq!(
        r.ref_note,
        "kv f16; 2 reference rows match, the first is taken; also: llama.cpp b1 cuda 17.5"
    );
}

#[test]
fn runs_without_a_number_are_left_alone() {
    let mut r = run();
    r.outcome = Outcome::Failed("no memory".into());
    assert_eq!(annotated(&committed(), r.clone()), r);
}

#[test]
fn a_reference_without_an_error_has_no_sigma() {
    let r = annotated(&file(&[&[("ppl_err", "")]]).unwrap(), run());
    let c = r.figures().unwrap().reference.clone().unwrap();
    assert_eq!((c.err, c.sigma), (None, None));
    assert!(c.delta > 0.0);
}

#[test]
fn malformed_rows_are_named_with_their_line() {
    for (column, value, problem) in [
        (
            "n_ctx",
            "many",
            "r.csv:3: column 'n_ctx' holds 'many': invalid digit",
        ),
        ("ppl", "NaN", "r.csv:3: column 'ppl' holds NaN"),
        ("ppl", "", "r.csv:3: column 'ppl' holds ''"),
        ("ppl_err", "-1", "r.csv:3: column 'ppl_err' holds -1"),
        (
            "model_sha256",
            "abc",
            "r.csv:3: column 'model_sha256' holds 'abc'",
        ),
        (
            "unscored_prefix",
            "2048",
            "r.csv:3: unscored_prefix 2048 must be",
        ),
        (
            "mode",
            "stride",
            "r.csv:3: the mode 'stride' is unknown, or",
        ),
        (
            "mode",
            "llama.cpp-strided",
            "r.csv:3: the mode 'llama.cpp-strided' is unknown, or",
        ),
        ("bos", "yes", "r.csv:3: column 'bos' holds 'yes'"),
    ] {
        let e = file(&[&[], &[(column, value)]]).unwrap_err().to_string();
        assert!(e.contains(problem), "{e} / {problem}");
    }
    let e = References::load(&["no/such.csv"]).unwrap_err().to_string();
    assert!(e.starts_with("cannot read no/such.csv"), "{e}");
}
