//! Tables of other versions of the schema.

use std::fs;
use std::path::{Path, PathBuf};

use crate::project::{Project, number};

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

/// The folders of tables of earlier versions.
fn versions() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tables");
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
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
            assert_eq!((&old["key"], new["schema"].as_str()), (&new["key"], "v1.1"));
            let (old, new) = (number(old, "ppl"), number(new, "ppl"));
            assert!((old / new - 1.0).abs() < 1e-3, "{old} {new}");
        }
        for part in ["windows", "timing", "kld"] {
            let lines = project.lines(&format!("results/x.{part}.csv"));
            assert!(lines.iter().all(|l| l["schema"] == "v1.1") && !lines.is_empty());
        }
    }
}

/// Gives a table another version and columns.
fn as_version(project: &Project, path: &str, version: &str, column: Option<&str>) {
    let text = project.read(path).replace("v1.1", version);
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
        as_version(&project, &file, "v1.2", Some("colour"));
    }
    for pair in [["newer/x.csv", TABLE], [TABLE, "newer/x.csv"]] {
        let diff = project.pplx(&[&["diff"], &pair[..], &["--max-sigma", "3"]].concat());
        for file in ["newer/x.csv", "newer/x.windows.csv"] {
            let note = format!(
                "{file}: ignored columns: 'colour'; they came with schema v1.2, this build knows v1.1"
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
    as_version(&project, TABLE, "v1.2", Some("colour"));
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
        &good.replace("v1.1", "v2.0"),
        "results/x.csv:2: was written by a newer pplx: schema v2.0; this build reads v1.x",
    );
    refused(
        TABLE,
        &good.replace("v1.1", "v0.9"),
        "results/x.csv:2: has schema v0.9, which is unknown; this build reads v1.x",
    );
    refused(
        TABLE,
        &good.replace("v1.1", "1.1"),
        "results/x.csv:2: column 'schema' holds '1.1', no version such as v1.1",
    );
    refused(
        TABLE,
        &good.replacen("v1.1", "v1.0", 1),
        "results/x.csv:3: column 'schema' holds 'v1.1', but rows above are of v1.0",
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
            .replace("v1.1", "v1.2"),
        "results/x.csv:1: the column 'ref_note' is missing",
    );

    let noise = "results/x.noise.csv";
    let good = project.read(noise);
    refused(
        noise,
        &good.replace("v1.1", "v1.0"),
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
