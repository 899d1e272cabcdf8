//! The page in a real browser, where there is one: `PPLX_CHROMIUM`, or
//! `/usr/bin/chromium`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::report::two_tables;
use crate::support::skip;

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PPLX_CHROMIUM").map_or("/usr/bin/chromium".into(), PathBuf::from);
    if path.exists() {
        return Some(path);
    }
    skip("chromium", format_args!("{} is missing", path.display()));
    None
}

/// Opens a page: the document as the browser understood it, and what it wrote to
/// the console.
fn open(chromium: &Path, page: &Path) -> (String, Vec<String>) {
    let profile = tempfile::tempdir().unwrap();
    let out = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{log}");
    let console = log.lines().filter(|l| l.contains(":CONSOLE"));
    let console = console.map(str::to_owned).collect();
    (String::from_utf8(out.stdout).unwrap(), console)
}

#[test]
fn a_browser_has_nothing_to_say_about_the_page() {
    let Some(chromium) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = two_tables(dir.path(), |n| format!("{n} <script>alert(1)</script>\"&|"));
    let page = dir.path().join("report.html");
    let status = Command::new(env!("CARGO_BIN_EXE_pplx"))
        .arg("report")
        .args([&b, Path::new("--base"), &a, Path::new("-o"), &page])
        .status()
        .unwrap();
    assert!(status.success());
    let (document, console) = open(&chromium, &page);
    assert_eq!(console, Vec::<String>::new());
    assert!(!document.contains("<script"), "a name became a script");
    // The browser found the elements that were written: nothing was misplaced,
    // left open, or made of a name.
    let written = fs::read_to_string(&page).unwrap();
    for tag in [
        "<section",
        "<article",
        "<table",
        "<tr",
        "<td",
        "<th",
        "<figure",
        "<svg",
        "<text",
        "<polyline",
        "<circle",
        "<script",
        "<bdi",
        "<p",
        "<dd",
    ] {
        let count = |html: &str| {
            html.matches(&format!("{tag}>")).count() + html.matches(&format!("{tag} ")).count()
        };
        assert_eq!(count(&document), count(&written), "{tag}");
    }

    // The check can fail: a page that its policy forbids to load something.
    let bad = dir.path().join("bad.html");
    let head = written.split("<style>").next().unwrap();
    fs::write(
        &bad,
        format!("{head}</head><body><img src='x.png'></body></html>"),
    )
    .unwrap();
    let (_, console) = open(&chromium, &bad);
    assert!(
        console
            .iter()
            .any(|l| l.contains("Content Security Policy")),
        "{console:?}"
    );
}
