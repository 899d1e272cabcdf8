//! Tables of other versions of the schema.

use std::fs;
use std::path::{Path, PathBuf};

use super::project::{Project, number};

const EXPERIMENT: &str = r#"name = "x"
[sweep]
corpora = ["c/t.txt"]
contexts = [32]
[limits]
windows = 6
[[models]]
path = "m/llama.gguf"
[[models]]
path = "m/gemma3.gguf"
[kld]
base = "llama"
"#;

const FILE: &str = "experiments/x.toml";
const TABLE: &str = "results/x.csv";

fn project() -> Project {
    let project = Project::new();
    project.write(FILE, EXPERIMENT);
    project
}

/// The directories of tables of earlier versions.
fn versions() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tables");
    let entries = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

fn copy(from: &Path, project: &Project, to: &str) {
    fs::create_dir_all(project.path(to)).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), project.path(to).join(file.file_name())).unwrap();
    }
}

/// A workflow compares the table of the target branch, which is older, with that of
/// the pull request.
#[test]
fn tables_of_every_version_read_compare_and_resume() {
    let versions = versions();
    assert!(!versions.is_empty());
    for version in versions {
        let project = project();
        copy(&version, &project, "old");
        project.pplx(&["run", FILE]).good();
        let gate = ["--max-delta-pct", "0.1", "--max-sigma", "3"];
        for pair in [["old/x.csv", TABLE], [TABLE, "old/x.csv"]] {
            let diff = project.pplx(&[&["diff"], &pair[..], &gate].concat());
            assert!(!diff.stderr.contains("note"), "{}", diff.stderr);
            diff.good();
        }
        let noise = ["--max-delta", "noise*3"];
        let diff = project.pplx(&[&["diff", "old/x.csv", TABLE], &noise[..]].concat());
        diff.good();
        let page = ["--output", "r.html", "--markdown", "r.md"];
        for name in ["x", "quickstart", "wikitext"] {
            let table = format!("old/{name}.csv");
            let itself = project.pplx(&[&["diff", &table, &table], &gate[..]].concat());
            itself.good();
            let report = ["report", &table, "--base", &table];
            project.pplx(&[&report[..], &page].concat()).good();
        }

        // Columns that came later are added; rows of another engine are measured
        // again.
        copy(&version, &project, "results");
        project.pplx(&["run", FILE, "--resume"]).good();
        let (old, new) = (project.lines("old/x.csv"), project.lines(TABLE));
        assert_eq!(old.len(), new.len());
        for (old, new) in old.iter().zip(&new) {
            assert_eq!((&old["key"], new["schema"].as_str()), (&new["key"], "v1.2"));
            let (old, new) = (number(old, "ppl"), number(new, "ppl"));
            assert!((old / new - 1.0).abs() < 1e-3, "{old} {new}");
        }
        for part in ["windows", "timing", "kld"] {
            let lines = project.lines(&format!("results/x.{part}.csv"));
            assert!(lines.iter().all(|l| l["schema"] == "v1.2") && !lines.is_empty());
        }
    }
}

/// Gives a table another version and columns.
fn as_version(project: &Project, path: &str, version: &str, column: Option<&str>) {
    let text = project.read(path).replace("v1.2", version);
    let text = match column {
        None => text,
        Some(column) => text
            .lines()
            .enumerate()
            .map(|(i, line)| format!("{},{line}\n", if i == 0 { column } else { "blue" }))
            .collect(),
    };
    project.write(path, &text);
}

#[test]
fn tables_of_a_later_minor_version_read_with_a_note() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    fs::create_dir(project.path("newer")).unwrap();
    for part in ["", ".windows"] {
        let file = format!("newer/x{part}.csv");
        project.write(&file, &project.read(&format!("results/x{part}.csv")));
        as_version(&project, &file, "v1.3", Some("colour"));
    }
    for pair in [["newer/x.csv", TABLE], [TABLE, "newer/x.csv"]] {
        let diff = project.pplx(&[&["diff"], &pair[..], &["--max-sigma", "3"]].concat());
        for file in ["newer/x.csv", "newer/x.windows.csv"] {
            let note = format!(
                "{file}: ignored columns: 'colour'; they came with schema v1.3, this build knows v1.2"
            );
            assert_eq!(diff.stderr.matches(&note).count(), 1, "{}", diff.stderr);
        }
        diff.good();
    }
    let report = [
        "report",
        "newer/x.csv",
        "--base",
        TABLE,
        "--markdown",
        "r.md",
    ];
    let report = project.pplx(&report);
    assert_eq!(
        report.stderr.matches("note: ").count(),
        2,
        "{}",
        report.stderr
    );
    report.good();

    // To extend it would lose the column.
    as_version(&project, TABLE, "v1.3", Some("colour"));
    let before = project.read(TABLE);
    let refused = project.pplx(&["run", FILE, "--resume"]).bad(2);
    let want = "results/x.csv: ignored columns: 'colour'";
    assert!(
        refused.contains(want) && refused.contains("would lose"),
        "{refused}"
    );
    assert_eq!(project.read(TABLE), before);
}

#[test]
fn what_no_rule_allows_is_an_error() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    project.pplx(&["noise", FILE, "--seeds", "2"]).good();
    let good = project.read(TABLE);
    let refused = |path: &str, text: &str, want: &str| {
        let before = project.read(path);
        project.write(path, text);
        for verb in [
            &["diff", TABLE, TABLE][..],
            &["report", TABLE, "--base", TABLE, "--markdown", "r.md"],
        ] {
            let message = project.pplx(verb).bad(2);
            assert!(message.contains(want), "{verb:?}: {message} / {want}");
        }
        project.write(path, &before);
    };
    refused(
        TABLE,
        &good.replace("v1.2", "v2.0"),
        "results/x.csv:2: was written by a newer pplx: schema v2.0; this build reads v1.x",
    );
    refused(
        TABLE,
        &good.replace("v1.2", "v0.9"),
        "results/x.csv:2: has schema v0.9, which is unknown; this build reads v1.x",
    );
    refused(
        TABLE,
        &good.replace("v1.2", "1.2"),
        "results/x.csv:2: column 'schema' holds '1.2', no version such as v1.2",
    );
    refused(
        TABLE,
        &good.replacen("v1.2", "v1.3", 1),
        "results/x.csv:3: column 'schema' holds 'v1.2', but rows above are of v1.3",
    );
    refused(
        TABLE,
        &good.replacen("ref_note", "colour", 1),
        "results/x.csv:1: the column 'colour' is unknown",
    );
    refused(
        TABLE,
        &good
            .replacen("ref_note", "colour", 1)
            .replace("v1.2", "v1.3"),
        "results/x.csv:1: the column 'ref_note' is missing",
    );

    let noise = "results/x.noise.csv";
    let good = project.read(noise);
    refused(
        noise,
        &good.replace("v1.2", "v1.0"),
        "x.noise.csv:1: the column 'rows' came with schema v1.1, but the table's is v1.0",
    );
    refused(
        noise,
        &good.replacen("rows", "row", 1),
        "x.noise.csv:1: the column 'row' is unknown",
    );
    // One row less: another floor.
    let lines: Vec<&str> = good.lines().collect();
    let lost = [&lines[..2], &lines[3..]].concat().join("\n");
    refused(
        noise,
        &lost,
        "run 'gemma3/t.txt/32/sw-s32-p17/cpu/exact/w6' has 7 rows, 6 are here",
    );
}

/// What follows from other columns, or from other files, and is not so.
#[test]
fn contradictions_are_errors_with_file_and_line_wherever_tables_are_read() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    project.pplx(&["noise", FILE, "--seeds", "2"]).good();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tables/v1.0");
    copy(&fixtures, &project, "old");
    // Of the table, its windows, timings and divergences: (file, line, column, value).
    let cases = [
        (
            "old/wikitext.csv",
            6,
            "delta",
            "999",
            "'delta' is 999, but of",
        ),
        (
            "old/wikitext.csv",
            6,
            "delta_pct",
            "0.1",
            "'delta_pct' is 0.1, but of",
        ),
        ("old/wikitext.csv", 6, "ref_ppl", "1", "'delta' is "),
        (
            "old/wikitext.csv",
            6,
            "ref_ppl",
            "-1",
            "'ref_ppl' is -1, no perplexity",
        ),
        ("old/wikitext.csv", 6, "ref_err", "-1", "'ref_err' is -1"),
        ("old/wikitext.csv", 6, "ref_err", "9", "'sigma' is "),
        (
            "old/wikitext.csv",
            6,
            "sigma",
            "0.0001",
            "'sigma' is 0.0001, but of",
        ),
        (
            "old/wikitext.csv",
            6,
            "sigma",
            "",
            "'sigma' is empty, but of",
        ),
        ("old/wikitext.csv", 6, "ppl_err", "1e-9", "'sigma' is "),
        (
            "old/x.csv",
            2,
            "ppl_err",
            "1e-9",
            "'ppl_err' is 0.000000001, but with these NLLs",
        ),
        (
            "old/x.csv",
            2,
            "ppl_err",
            "1e9",
            "'ppl_err' is 1000000000, but with these NLLs",
        ),
        ("old/x.csv", 2, "ppl_err", "-1", "'ppl_err' is negative"),
        (
            "old/x.csv",
            2,
            "ppl_err",
            "",
            "'ppl_err' is empty with 90 scored tokens",
        ),
        (
            "old/x.csv",
            2,
            "ppl_err_clustered",
            "",
            "'ppl_err_clustered' is empty with",
        ),
        (
            TABLE,
            2,
            "ppl_err_clustered",
            "1e-9",
            "'ppl_err_clustered' is 0.000000001, but",
        ),
        (
            TABLE,
            2,
            "bits_per_byte",
            "77",
            "'bits_per_byte' is 77, but of the windows",
        ),
        (
            TABLE,
            2,
            "bits_per_byte",
            "",
            "'bits_per_byte' is empty, but of the windows",
        ),
        (
            TABLE,
            2,
            "model_sha256",
            "zz",
            "'zz', not 64 lower-case hexadecimal digits",
        ),
        (
            TABLE,
            2,
            "corpus_sha256",
            &"A".repeat(64),
            "not 64 lower-case",
        ),
        (
            TABLE,
            2,
            "tokens_sha256",
            &"0".repeat(63),
            "not 64 lower-case",
        ),
        (
            TABLE,
            2,
            "model",
            "other",
            "is of another run than the columns",
        ),
        (
            TABLE,
            2,
            "corpus",
            "other",
            "is of another run than the columns",
        ),
        (
            TABLE,
            2,
            "numerics",
            "q8",
            "is of another run than the columns",
        ),
        (
            TABLE,
            2,
            "placement",
            "gpu",
            "is of another run than the columns",
        ),
        (
            TABLE,
            2,
            "n_ctx",
            "2048",
            "is of another run than the columns",
        ),
        (
            TABLE,
            2,
            "stride",
            "16",
            "is of another run than the columns",
        ),
        (
            TABLE,
            2,
            "unscored_prefix",
            "16",
            "is of another run than the columns",
        ),
        (
            TABLE,
            2,
            "tokens",
            "1",
            "contradict each other: the corpus has 1 tokens",
        ),
        (
            TABLE,
            2,
            "tokens",
            "64",
            "64 tokens have 2 windows of this geometry",
        ),
        (
            TABLE,
            2,
            "windows",
            "5",
            "6 windows of this geometry and these limits, not 5",
        ),
        (
            TABLE,
            2,
            "scored_tokens",
            "91",
            "score 15 targets each, not 91 in all",
        ),
        (
            "results/x.windows.csv",
            2,
            "target_bytes",
            "1",
            "'bits_per_byte' is ",
        ),
        (
            "results/x.windows.csv",
            2,
            "nll_sum",
            "-1",
            "sum to a mean NLL of",
        ),
        (
            "results/x.windows.csv",
            3,
            "window",
            "7",
            "window 1 is missing",
        ),
        (
            "results/x.windows.csv",
            2,
            "scored",
            "14",
            "counts 90 scored tokens",
        ),
        (
            "results/x.windows.csv",
            2,
            "key",
            "none",
            "the table has no run 'none'",
        ),
        (
            "results/x.timing.csv",
            2,
            "wall_s",
            "-1",
            "column 'wall_s' holds -1",
        ),
        (
            "results/x.timing.csv",
            2,
            "threads",
            "0",
            "column 'threads' holds 0",
        ),
        (
            "results/x.kld.csv",
            2,
            "key",
            "none",
            "the table has no run 'none'",
        ),
        (
            "results/x.kld.csv",
            2,
            "ppl",
            "20",
            "'ppl_ratio' does not fit",
        ),
        (
            "results/x.kld.csv",
            2,
            "ppl_err",
            "20",
            "'ppl_err' is 20, in the run's row",
        ),
        (
            "results/x.kld.csv",
            2,
            "ppl_base",
            "20",
            "'ppl_ratio' does not fit",
        ),
        (
            "results/x.kld.csv",
            2,
            "ln_ppl_ratio",
            "2",
            "'ppl_ratio' does not fit",
        ),
        (
            "results/x.kld.csv",
            2,
            "ppl_ratio_err",
            "2",
            "'ppl_ratio_err' does not fit",
        ),
        (
            "results/x.kld.csv",
            2,
            "ppl_difference",
            "2",
            "'ppl_difference' does not fit",
        ),
        (
            "results/x.kld.csv",
            2,
            "kld_p95",
            "9e9",
            "the percentiles of 'kld'",
        ),
        (
            "results/x.kld.csv",
            2,
            "kld",
            "9e9",
            "the percentiles of 'kld'",
        ),
        (
            "results/x.kld.csv",
            2,
            "kld_err",
            "-1",
            "'kld_err' is beyond",
        ),
        (
            "results/x.kld.csv",
            2,
            "delta_p",
            "0.5",
            "'rms_delta_p' does not fit",
        ),
        ("results/x.kld.csv", 2, "same_top", "1.5", "does not fit"),
        (
            "results/x.kld.csv",
            2,
            "correlation",
            "1.5",
            "'correlation' is beyond",
        ),
        (
            "results/x.kld.csv",
            2,
            "scored_tokens",
            "91",
            "does not fit",
        ),
        (
            "results/x.kld.csv",
            2,
            "base_sha256",
            "zz",
            "not 64 lower-case",
        ),
        (
            "results/x.kld.csv",
            2,
            "base",
            "",
            "the key or the base is empty",
        ),
        (
            "results/x.kld.csv",
            2,
            "tokens_sha256",
            &"0".repeat(64),
            "in the run's row",
        ),
        (
            "results/x.noise.csv",
            2,
            "model_sha256",
            "zz",
            "not 64 lower-case",
        ),
        ("results/x.noise.csv", 2, "windows", "0", "0 windows have"),
        ("results/x.noise.csv", 2, "se", "", "'se' is empty"),
    ];
    for (path, line, column, value, want) in cases {
        let before = project.read(path);
        let mut at = 1;
        project.edit(path, |record| {
            at += 1;
            if at == line {
                assert!(record.contains_key(column), "{column}");
                record.insert(column.to_owned(), value.to_owned());
            }
            true
        });
        let table = match path.split_once('.') {
            Some((name, _)) => format!("{name}.csv"),
            None => unreachable!(),
        };
        // Windows contradict a run from their first line on, or one of them.
        let place = format!("{path}:");
        let mut verbs = vec![vec!["diff", &table, &table]];
        verbs.push(vec![
            "report",
            &table,
            "--base",
            &table,
            "--markdown",
            "r.md",
        ]);
        if path.starts_with("results/") {
            match path.contains("noise") {
                true => verbs.push(vec!["noise", FILE, "--resume"]),
                false => verbs.push(vec!["run", FILE, "--resume"]),
            }
        }
        for verb in verbs {
            let message = project.pplx(&verb).bad(2);
            let named = message.contains(&place) || message.contains("x.windows.csv:2: run");
            assert!(
                named && message.contains(want),
                "{verb:?} {column}: {message} / {want}"
            );
        }
        project.write(path, &before);
    }
    // All is as it was.
    project.pplx(&["diff", TABLE, TABLE]).good();
}

/// pandas and spreadsheets write the same table otherwise.
#[test]
fn tables_that_went_through_a_spreadsheet_are_the_same() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    fs::create_dir(project.path("sheet")).unwrap();
    for part in ["", ".windows"] {
        let text = project.read(&format!("results/x{part}.csv"));
        project.write(&format!("sheet/x{part}.csv"), &text);
        project.edit(&format!("sheet/x{part}.csv"), |line| {
            for (column, value) in line.iter_mut() {
                match column.as_str() {
                    "bos" | "parse_special" => *value = value.to_uppercase(),
                    "windows" | "scored_tokens" | "n_ctx" | "tokens" | "scored" => *value += ".0",
                    _ => {}
                }
            }
            true
        });
        let text = project.read(&format!("sheet/x{part}.csv"));
        assert!(text.contains(".0,"), "{text}");
        let text = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        project.write(&format!("sheet/x{part}.csv"), &text);
    }
    let strict = ["--max-delta", "0", "--max-sigma", "0"];
    let diff = ["diff", TABLE, "sheet/x.csv"];
    project.pplx(&[&diff[..], &strict].concat()).good();

    let text = project.read(TABLE).replace(',', ";");
    project.write("sheet/x.csv", &text);
    let message = project.pplx(&diff).bad(2);
    let want = "sheet/x.csv:1: the columns are separated by semicolons";
    assert!(message.contains(want), "{message}");
}
