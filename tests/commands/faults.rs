//! Every write of a sweep fails once: on a full disk, on one that breaks. A run says
//! so and stops or goes on; no row is wrong, and the next run mends everything.
//! `PPLX_CAMPAIGN=1` tries every place in place of a few.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use super::project::Project;
use crate::support::skip;
use crate::support::tiny::Tiny;

const EXPERIMENT: &str = r#"name = "x"

[sweep]
corpora = ["c/t.txt"]
contexts = [32]
placements = ["cpu"]

[limits]
windows = 4

[[models]]
path = "m/llama.gguf"

[[models]]
path = "m/gemma3.gguf"

[kld]
base = "gemma3"
"#;

const FILE: &str = "experiments/x.toml";

/// All files below `results` but timings, by path.
fn files(project: &Project) -> BTreeMap<String, Vec<u8>> {
    fn walk(directory: &Path, root: &Path, out: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => walk(&path, root, out),
                false => {
                    let name = path.strip_prefix(root).unwrap().display().to_string();
                    out.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
    }
    let mut out = BTreeMap::new();
    let root = project.path("results");
    walk(&root, &root, &mut out);
    out.retain(|name, _| !name.ends_with(".timing.csv") && !name.ends_with(".lock"));
    out
}

/// The lines of a table.
fn lines(file: Option<&Vec<u8>>) -> Vec<&str> {
    file.map_or(Vec::new(), |bytes| {
        std::str::from_utf8(bytes).unwrap().lines().collect()
    })
}

/// Runs a verb with the `nth` call of a system call failing.
fn with_fault(project: &Project, verb: &str, call: &str, error: &str, nth: usize) -> Output {
    let inject = format!("inject={call}:error={error}:when={nth}");
    let mut command = Command::new("strace");
    command
        .current_dir(project.path(""))
        .args(["-f", "-qq", "-o", "trace"])
        .args(["-e", &format!("trace={call}"), "-e", &inject])
        .args([env!("CARGO_BIN_EXE_pplx"), verb, FILE, "-t", "1"])
        .env("PPLX_CACHE", project.path("cache"))
        .env_remove("PPLX_TEST_MODELS")
        .env_remove("PPLX_SHARED");
    if verb == "noise" {
        command.args(["--seeds", "1"]);
    }
    command.output().unwrap()
}

fn restore(project: &Project, files: &BTreeMap<String, Vec<u8>>) {
    let _ = std::fs::remove_dir_all(project.path("results"));
    for (name, bytes) in files {
        let path = project.path("results").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Every run begins with nothing, or with the results of another model file.
fn campaign(verb: &str, tables: &[&str], over_old: bool) {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("strace", "strace is not installed: no faults are injected");
    }
    let more: &[&str] = match verb {
        "noise" => &["--seeds", "1"],
        _ => &[],
    };
    let all = std::env::var_os("PPLX_CAMPAIGN").is_some();
    let project = Project::new();
    project.write(FILE, EXPERIMENT);
    let whole = || {
        project.pplx(&[&[verb, FILE], more].concat()).good();
        files(&project)
    };
    let mut old = BTreeMap::new();
    if over_old {
        let other = Tiny::llama().edit("output_norm.weight", |w| w[0] *= 2.0);
        other.write(project.path("m/llama.gguf"));
        old = whole();
        Tiny::llama().write(project.path("m/llama.gguf"));
    }
    let want = whole();
    let mut tried = 0;
    for (call, error) in [
        ("write", "ENOSPC"),
        ("write", "EIO"),
        ("fsync", "EIO"),
        ("rename,renameat,renameat2", "ENOSPC"),
        ("mkdir", "EACCES"),
        ("flock", "ENOLCK"),
    ] {
        for nth in 1.. {
            // Here and there: another fault takes another place.
            if !all && nth % 7 != tried % 7 && nth < 40 {
                continue;
            }
            restore(&project, &old);
            let _ = std::fs::remove_dir_all(project.path("cache"));
            let ended = with_fault(&project, verb, call, error, nth);
            tried += 1;
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            let place = format!("{verb}: {error} at {call} {nth}: {said}");
            let code = ended.status.code();
            assert!(matches!(code, Some(0..=2)), "{code:?}, {place}");
            assert!(
                !said.contains("panicked") && !said.contains("internal error"),
                "{place}"
            );
            let found = files(&project);
            // A row that says ok is a right one.
            for table in tables {
                let mut right = lines(want.get(*table));
                right.extend(lines(old.get(*table)));
                for line in lines(found.get(*table)) {
                    let is_figure = !line.contains(",not run,") && !line.contains("failed: ");
                    assert!(!is_figure || right.contains(&line), "{place}: {line}");
                }
            }
            let injected = std::fs::read_to_string(project.path("trace")).unwrap();
            let resumed = project.pplx(&[&[verb, FILE, "--resume"], more].concat());
            assert_eq!(resumed.code, Some(0), "{place}\nthen {}", resumed.stderr);
            let again = files(&project);
            assert_eq!(
                again.keys().collect::<Vec<_>>(),
                want.keys().collect::<Vec<_>>(),
                "{place}"
            );
            assert!(again == want, "{place}");
            if !injected.contains("(INJECTED)") {
                // There is no such call.
                break;
            }
            if !all && nth >= 40 {
                break;
            }
        }
    }
    println!("{verb}: {tried} faults");
}

#[test]
fn a_sweep_survives_every_write_that_fails() {
    campaign("run", &["x.csv", "x.windows.csv", "x.kld.csv"], false);
}

#[test]
fn a_table_that_is_measured_anew_survives_every_write_that_fails() {
    campaign("run", &["x.csv", "x.windows.csv", "x.kld.csv"], true);
}

#[test]
fn a_calibration_survives_every_write_that_fails() {
    campaign("noise", &["x.noise.csv"], true);
}
