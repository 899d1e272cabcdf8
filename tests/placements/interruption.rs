//! Ctrl-C in the middle of a sweep.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::tiny::{Tiny, text};

/// Two runs: one of four windows, and one that takes a while.
const EXPERIMENT: &str = r#"name = "x"
[sweep]
corpora = ["t.txt"]
contexts = [{ n_ctx = 32, windows = 4 }, 48]
placements = [{ device = "cpu", layers_per_window = 1, cycle = true }]
[[models]]
path = "llama.gguf"
"#;

fn pplx(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
    command
        .current_dir(dir)
        .args(["run", "x.toml", "-t", "1", "--batch", "1"])
        .args(["--checkpoint-memory", "0", "--checkpoint-dir", "kept"])
        .args(arguments)
        .env_remove("PPLX_TEST_MODELS")
        .env_remove("PPLX_SHARED")
        .env("PPLX_CACHE", dir.join("cache"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Status by context.
fn statuses(dir: &Path) -> HashMap<String, String> {
    let Ok(mut reader) = csv::Reader::from_path(dir.join("results/x.csv")) else {
        return HashMap::new();
    };
    let rows = reader.deserialize::<HashMap<String, String>>();
    rows.map(|row| row.unwrap())
        .map(|row| (row["n_ctx"].clone(), row["status"].clone()))
        .collect()
}

fn has_files(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_some()
}

fn wait(child: &mut Child, limit: Duration) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("still running after {limit:?}");
}

#[test]
fn ctrl_c_keeps_what_is_finished_and_leaves_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    Tiny::llama().write(dir.join("llama.gguf"));
    std::fs::write(dir.join("t.txt"), text(60_000)).unwrap();
    std::fs::write(dir.join("x.toml"), EXPERIMENT).unwrap();
    std::fs::create_dir(dir.join("kept")).unwrap();

    let mut child = pplx(dir, &[]).spawn().unwrap();
    let start = Instant::now();
    while statuses(dir).get("32").map(String::as_str) != Some("ok") {
        assert!(start.elapsed() < Duration::from_secs(120), "no row came");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let signalled = Instant::now();
    assert_eq!(wait(&mut child, Duration::from_secs(20)), Some(130));
    println!("ended {:?} after the signal", signalled.elapsed());
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    assert!(
        stderr.ends_with(
            "pplx: interrupted with 1 of 2 runs finished; the other rows are as they were; --resume \
             measures what is missing\n"
        ),
        "{stderr}"
    );
    let rows = statuses(dir);
    assert_eq!(
        (rows["32"].as_str(), rows["48"].as_str()),
        ("ok", "not run")
    );
    assert!(!has_files(&dir.join("kept")), "a temporary file is left");

    let mut child = pplx(dir, &["--resume"]).spawn().unwrap();
    assert_eq!(wait(&mut child, Duration::from_secs(300)), Some(0));
    let rows = statuses(dir);
    assert_eq!((rows["32"].as_str(), rows["48"].as_str()), ("ok", "ok"));
    assert!(!has_files(&dir.join("kept")));
}
