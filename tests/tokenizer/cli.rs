//! `pplx tokenize`.

use std::process::{Command, Output, Stdio};

use super::support::fixture;

fn pplx(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
    command.arg("tokenize").args(arguments);
    command
}

fn run(text: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    std::fs::write(&corpus, text).unwrap();
    let mut command = pplx(&[fixture("rwkv.gguf").to_str().unwrap(), "-f"]);
    command.arg(corpus).args(arguments).output().unwrap()
}

#[test]
fn ids_come_with_their_text_or_alone() {
    let output = run("a\n\u{e9}", &[]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<(&str, &str)> = lines.lines().map(|l| l.split_once('\t').unwrap()).collect();
    let pieces: Vec<_> = lines.iter().map(|(_, piece)| *piece).collect();
    assert_eq!(pieces, ["a", "\\n", "\\xc3\\xa9"]);

    let output = run("a\n\u{e9}", &["--ids", "--chunk-bytes", "1"]);
    let ids = String::from_utf8(output.stdout).unwrap();
    let expected: Vec<_> = lines.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn bad_input_is_a_usage_error_and_no_panic() {
    let output = pplx(&["no-such.gguf", "-f", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such.gguf"));
    let output = run("a", &["--pre", "qwen2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'rwkv'"));
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    std::fs::write(&corpus, "a b c ".repeat(100_000)).unwrap();
    let mut command = pplx(&[fixture("rwkv.gguf").to_str().unwrap(), "-f"]);
    let mut child = command
        .arg(corpus)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
