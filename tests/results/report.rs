//! `pplx report`: what must be in its page and its Markdown, for any tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pplx::eval::TokenKld;
use pplx::results::{KldFigures, KldOutcome, KldRow, KldSummary, Outcome, ResultRow, Tables};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::support::{finished, nll, write, write_with};

/// A name that tries to be markup wherever it is put.
const HOSTILE: &str =
    "<script>alert(1)</script>/\"'&|`\\|/\u{202e}x/@me/[a](http://b.c)/![i](//j)\n| x |";

/// Runs `pplx report ARGS` with outputs in `dir`: exit code, page, Markdown, stderr.
fn report(dir: &Path, args: &[&str]) -> (i32, String, String, String) {
    let (html, md) = (dir.join("report.html"), dir.join("report.md"));
    let out = Command::new(env!("CARGO_BIN_EXE_pplx"))
        .arg("report")
        .args(args)
        .arg("--output")
        .arg(&html)
        .arg("--markdown")
        .arg(&md)
        .output()
        .unwrap();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let err = String::from_utf8(out.stderr).unwrap();
    (out.status.code().unwrap(), read(&html), read(&md), err)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A base, and a table in which one run has moved, one is the same, one failed and
/// one was not run. `rename` gives the runs their names.
pub fn two_tables(dir: &Path, rename: impl Fn(&str) -> String) -> (PathBuf, PathBuf) {
    let names: Vec<String> = ["a-moved", "b-same", "c-failed", "d-not-run"]
        .into_iter()
        .map(rename)
        .collect();
    let runs = |moved, wobble| -> Vec<(&str, Vec<Vec<f64>>)> {
        let first = std::iter::once((names[0].as_str(), nll(moved, wobble)));
        let others = names[1..].iter().map(|n| (n.as_str(), nll(2.0, 0.0)));
        first.chain(others).collect()
    };
    let edit = |row: &mut ResultRow| {
        if row.key == names[2] {
            row.outcome = Outcome::Failed(format!("window 3: NaN {}", names[2]));
        } else if row.key == names[3] {
            row.outcome = Outcome::NotRun;
        }
    };
    let a = write(&dir.join("a"), "results", &runs(2.0, 0.01));
    let b = write_with(&dir.join("b"), "results", &runs(2.001, 0.0101), edit);
    (a, b)
}

/// The text of the table rows that mention `key`: cells joined by `|`.
fn html_rows(html: &str, key: &str) -> Vec<String> {
    let rows = html.split("<tr>").skip(1);
    let rows = rows.map(|r| r.split("</tr>").next().unwrap().replace("<wbr>", ""));
    rows.filter(|r| r.contains(key))
        .map(|r| {
            let mut out = String::new();
            for piece in r.replace("</td>", "|").replace("</th>", "|").split('<') {
                out += piece.split_once('>').map_or(piece, |(_, text)| text);
            }
            out
        })
        .collect()
}

/// The tables of a Markdown text: rows of cells. Fails on markup that no report has.
fn markdown_tables(md: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = Vec::new();
    let mut cell = None;
    for event in Parser::new_ext(md, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Table(_)) => tables.push(Vec::new()),
            Event::Start(Tag::TableHead | Tag::TableRow) => {
                tables.last_mut().unwrap().push(Vec::new());
            }
            Event::Start(Tag::TableCell) => cell = Some(String::new()),
            Event::End(TagEnd::TableCell) => {
                let row = tables.last_mut().unwrap().last_mut().unwrap();
                row.push(cell.take().unwrap());
            }
            Event::Text(t) | Event::Code(t) => {
                if let Some(cell) = &mut cell {
                    *cell += &t;
                }
            }
            Event::Html(tag) | Event::InlineHtml(tag) => {
                let mut left = tag.to_string();
                for ours in ["details", "summary", "code"] {
                    left = left.replace(&format!("<{ours}>"), "");
                    left = left.replace(&format!("</{ours}>"), "");
                }
                assert!(!left.contains('<'), "{tag}");
            }
            Event::Start(Tag::Link { .. } | Tag::Image { .. }) => panic!("a link: {md}"),
            _ => {}
        }
    }
    tables
}

#[test]
fn every_run_is_in_both_and_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = two_tables(dir.path(), str::to_owned);
    let gate = ["--max-delta-pct", "0.05", "--max-sigma", "3"];
    let (code, html, md, err) = report(
        dir.path(),
        &[&[text(&b), "--base", text(&a)], gate.as_slice()].concat(),
    );
    assert_eq!((code, err.as_str()), (0, ""));

    // Those without a figure come first.
    for (number, key, verdict, status) in [
        (3, "a-moved", "FAIL", "ok"),
        (4, "b-same", "pass", "ok"),
        (1, "c-failed", "NOT MEASURED", "failed"),
        (2, "d-not-run", "NOT MEASURED", "not run"),
    ] {
        let id = format!("id=\"run-{number}\"");
        assert_eq!(html.matches(&id).count(), 1, "{key}");
        assert!(html.contains(&format!("href=\"#run-{number}\"")), "{key}");
        let rows = html_rows(&html, key);
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(
            rows[0].starts_with(&format!("{number} · {key}"))
                && rows[0].contains(&format!("|{verdict}|")),
            "{rows:?}"
        );
        assert!(
            rows[1].starts_with(&format!("{number} · {key}|{status}|")),
            "{rows:?}"
        );
    }
    // A figure of each kind for the run that moved, and words for the one that did not.
    for id in [
        "run-3-running",
        "run-3-1-paired",
        "run-4-running",
        "comparison-1-1-paired",
    ] {
        assert_eq!(
            html.matches(&format!("id=\"{id}-title\"")).count(),
            1,
            "{id}"
        );
        assert_eq!(
            html.matches(&format!("id=\"{id}-desc\"")).count(),
            1,
            "{id}"
        );
    }
    assert!(!html.contains("run-4-1-paired") && !html.contains("run-1-running"));
    assert!(html.contains("Identical to the base in all 4 windows"));
    let row = &html_rows(&html, "a-moved")[0];
    assert!(
        row.contains("|+0.001000 ± ") && row.contains(" 4 windows|"),
        "{row}"
    );

    let tables = markdown_tables(&md);
    assert_eq!(tables.len(), 2);
    for table in &tables {
        assert_eq!(table.len(), 5, "{md}");
        assert!(table.iter().all(|row| row.len() == table[0].len()), "{md}");
    }
    // The verdict comes before any figure.
    let at = |what: &str| md.find(what).unwrap_or_else(|| panic!("{what}: {md}"));
    assert!(at("**FAIL: 4 rows: 1 pass, 1 fail, 2 not measured") < at("| run |"));
    assert!(at("- **failed** `c-failed`: ") < at("<details>"));
}

#[test]
fn a_run_without_a_figure_has_no_number() {
    let dir = tempfile::tempdir().unwrap();
    let (_, b) = two_tables(dir.path(), str::to_owned);
    let (code, html, md, _) = report(dir.path(), &[text(&b)]);
    assert_eq!(code, 0);
    assert_eq!(
        html_rows(&html, "c-failed"),
        ["1 · c-failed|failed|window 3: NaN c-failed|"]
    );
    assert_eq!(
        html_rows(&html, "d-not-run"),
        ["2 · d-not-run|not run|no figure|"]
    );
    let table = &markdown_tables(&md)[0];
    for (row, key, status) in [(1, "c-failed", "failed: "), (2, "d-not-run", "not run")] {
        assert_eq!(table[row][0], key, "{md}");
        assert!(table[row][1].starts_with(status), "{md}");
        assert!(table[row][2..].iter().all(String::is_empty), "{md}");
    }
    assert_eq!(
        html.matches("<svg class=\"plot\"").count(),
        2,
        "the curves of two runs"
    );
}

#[test]
fn names_are_text_wherever_they_stand() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = two_tables(dir.path(), |n| format!("{n} {HOSTILE}"));
    let (code, html, md, _) = report(dir.path(), &[text(&b), "--base", text(&a)]);
    assert_eq!(code, 0);
    for markup in ["<script", "</script", "<img", "\u{202e}"] {
        assert!(!html.contains(markup), "{markup}");
    }
    // The name itself, in the heading of its run.
    let heading = html
        .split("<h4>")
        .find(|h| h.contains("a-moved"))
        .unwrap()
        .split("</h4>")
        .next()
        .unwrap();
    assert!(
        heading.contains("a-moved &lt;script&gt;alert(1)&lt;"),
        "{heading}"
    );
    // What all names share is said once.
    assert!(
        html.replace("<wbr>", "")
            .contains("…/script&gt;/&quot;'&amp;|`\\|/\\u{202e}x/@me/[a](http://b.c)")
    );
    let tables = markdown_tables(&md);
    assert_eq!(tables.len(), 2);
    for table in &tables {
        assert_eq!(table.len(), 5, "{md}");
        for row in &table[1..] {
            assert_eq!(row.len(), table[0].len(), "{md}");
            assert!(row[0].ends_with("<script>alert(1)<"), "{}", row[0]);
        }
    }
    // GitHub would make mentions of these outside of code.
    let outside: String = Parser::new_ext(
        &md.replace("<code>", "`").replace("</code>", "`"),
        Options::ENABLE_TABLES,
    )
    .filter_map(|e| match e {
        Event::Text(t) => Some(t.to_string()),
        _ => None,
    })
    .collect();
    assert!(!outside.contains('@'), "{outside}");
}

#[test]
fn the_page_loads_nothing_and_is_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = two_tables(dir.path(), str::to_owned);
    let args = [text(&b), text(&a), "--base", text(&a)];
    let (_, html, md, _) = report(dir.path(), &args);
    let (_, again, md_again, _) = report(dir.path(), &args);
    assert_eq!((&html, &md), (&again, &md_again));

    let own = html.replace("http://www.w3.org/2000/svg", "");
    for loads in [
        "http:", "https:", "src=", "url(", "@import", "<link", "<script",
    ] {
        assert!(!own.contains(loads), "{loads}");
    }
    for href in html.split("href=\"").skip(1) {
        let target = href.split('"').next().unwrap();
        let id = target.strip_prefix('#').unwrap();
        assert_eq!(html.matches(&format!("id=\"{id}\"")).count(), 1, "{target}");
    }
    // Ids are unique.
    let mut ids: Vec<&str> = html
        .split(" id=\"")
        .skip(1)
        .map(|s| s.split('"').next().unwrap())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    // Numbers go on through the second table.
    assert!(html.contains("id=\"run-8\"") && html.contains("id=\"table-2\""));
}

#[test]
fn without_windows_there_are_no_curves_and_the_test_is_unpaired() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = two_tables(dir.path(), str::to_owned);
    fs::remove_file(b.with_extension("windows.csv")).unwrap();
    let (code, html, md, _) = report(dir.path(), &[text(&b), "--base", text(&a)]);
    assert_eq!(code, 0);
    assert!(html.contains("no paired test: no windows in B"));
    assert!(html.contains("No curves: "));
    assert!(html.contains("comparison-1-1-unpaired-title"));
    assert!(!html.contains("comparison-1-1-paired-title"));
    assert!(md.contains(" unpaired |"), "{md}");
}

#[test]
fn what_cannot_be_reported_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = two_tables(dir.path(), str::to_owned);
    let (code, html, _, err) = report(dir.path(), &[text(&b), "--base", "missing.csv"]);
    assert_eq!((code, html.as_str()), (2, ""));
    assert!(err.contains("missing.csv"), "{err}");
    let (code, .., err) = report(dir.path(), &[text(&b), "--max-sigma", "3"]);
    assert_eq!(code, 2);
    assert!(err.contains("--base"), "{err}");

    let out = Command::new(env!("CARGO_BIN_EXE_pplx"))
        .args(["report", text(&b)])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2), "neither output was asked for");

    // Windows of other runs.
    fs::copy(
        a.with_extension("windows.csv"),
        b.with_extension("windows.csv"),
    )
    .unwrap();
    let (code, .., err) = report(dir.path(), &[text(&b)]);
    assert_eq!(code, 2);
    assert!(err.contains("does not agree"), "{err}");
}

#[test]
fn many_rows_are_folded_in_markdown_except_those_to_look_at() {
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..30).map(|i| format!("run-{i:02}")).collect();
    let table = |name, moved: f64| {
        let mut t = Tables::new(dir.path(), name);
        for (i, key) in keys.iter().enumerate() {
            let (row, windows) = finished(key, &nll(if i == 17 { moved } else { 2.0 }, 0.01));
            t.put(row, windows, None).unwrap();
        }
        t.save().unwrap();
        t.paths().table.clone()
    };
    let (a, b) = (table("a", 2.0), table("b", 2.1));
    let (_, _, md, _) = report(
        dir.path(),
        &[text(&b), "--base", text(&a), "--max-delta-pct", "0.1"],
    );
    let tables = markdown_tables(&md);
    let rows: Vec<usize> = tables.iter().map(|t| t.len() - 1).collect();
    assert_eq!(rows, [1, 29, 30], "{md}");
    assert_eq!(tables[0][1][0], "run-17");
}

#[test]
fn markdown_that_exceeds_a_comment_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..600)
        .map(|i| format!("a-long-name-of-a-run-{i}"))
        .collect();
    let table = |name: &str, n: usize| {
        let runs: Vec<_> = keys[..n]
            .iter()
            .map(|k| (k.as_str(), nll(2.0, 0.0)))
            .collect();
        write(&dir.path().join(name), "results", &runs)
    };
    let (small, large) = (table("a", 30), table("b", 600));
    for (table, is_large) in [(&small, false), (&large, true)] {
        let args = [text(table), "--base", text(table)];
        let (code, _, md, err) = report(dir.path(), &args);
        let (_, diff, noted) = super::diff::diff(table, table, &["--format", "markdown"]);
        assert_eq!(code, 0);
        for (md, err) in [(md, err), (diff, noted)] {
            let says = format!("the Markdown has {} characters", md.chars().count());
            assert_eq!(md.chars().count() > 65_536, is_large);
            assert_eq!(
                md.starts_with("> Cut where it is posted: "),
                is_large,
                "{err}"
            );
            assert_eq!(
                err.contains("and a comment on GitHub holds 65536"),
                is_large,
                "{err}"
            );
            // The number in it is that of the text below it.
            assert!(!md.contains(&says));
        }
    }
}

#[test]
fn divergences_have_a_table_and_a_figure() {
    let dir = tempfile::tempdir().unwrap();
    let tokens: Vec<TokenKld> = (1..=1000)
        .map(|i| TokenKld {
            nll_base: 2.0,
            nll: 2.0 + 1e-4 * f64::from(i),
            kld: 1e-6 * f64::from(i * i),
            kld_least: 1e-6 * f64::from(i * i),
            kld_variance: 0.0,
            same_top: i % 4 != 0,
        })
        .collect();
    let figures = KldFigures::new(&tokens).unwrap();
    let mut t = Tables::new(dir.path(), "results");
    for (key, outcome) in [
        ("a", KldOutcome::Ok(Box::new(KldSummary::from(&figures)))),
        (
            "b",
            KldOutcome::Failed("the base | has no such `window`".into()),
        ),
        ("c", KldOutcome::NotRun),
    ] {
        let scored: Vec<f64> = tokens.iter().map(|t| t.nll).collect();
        let scored: Vec<Vec<f64>> = scored.chunks(250).map(<[f64]>::to_vec).collect();
        let (row, windows) = finished(key, &scored);
        t.put(row, windows, None).unwrap();
        let row = KldRow {
            key: key.into(),
            base: "base".into(),
            engine: "pplx 0.1.0".into(),
            model_sha256: "a".repeat(64),
            base_sha256: "b".repeat(64),
            tokens_sha256: "c".repeat(64),
            outcome,
        };
        t.put_kld(key, Some(row)).unwrap();
    }
    t.save().unwrap();
    let (code, html, md, _) = report(dir.path(), &[text(&t.paths().table)]);
    assert_eq!(code, 0);
    let mean = format!("{:.6} ± ", figures.kld.mean.value);
    let rows = html_rows(&html, "75.000");
    assert!(
        rows[0].contains(&mean) && rows[0].contains("75.000 % ± "),
        "{rows:?}"
    );
    let rows = [html_rows(&html, "no such"), html_rows(&html, "no figure")].concat();
    assert_eq!(rows[0], "2 · b|failed|the base | has no such `window`|");
    assert_eq!(rows[1], "3 · c|not run|no figure|");
    assert_eq!(
        html.matches("-divergence-title\"").count(),
        2,
        "its id and its use"
    );
    let table = &markdown_tables(&md)[1];
    assert!(table[3][2].starts_with(&mean), "{md}");
    for row in &table[1..3] {
        assert_eq!(
            (row.len(), &row[2..]),
            (8, [""; 6].map(str::to_owned).as_slice()),
            "{md}"
        );
    }
}
