//! How commands end when nobody reads them, when the clock is wrong, when they are
//! asked to stop and when they are killed.

use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pplx::gguf::Value;

use super::project::Project;
use crate::support::tiny::{Tiny, text};

const FILE: &str = "experiments/x.toml";
const TABLE: &str = "results/x.csv";
const TABLES: [&str; 2] = [TABLE, "results/x.windows.csv"];
const EXPERIMENT: &str = r#"name = "x"
[sweep]
corpora = ["c/t.txt"]
contexts = [32, 48]
[[models]]
path = "m/llama.gguf"
[[models]]
path = "m/gemma3.gguf"
"#;

fn project() -> Project {
    let project = Project::new();
    project.write(FILE, EXPERIMENT);
    project
}

/// Every verb with what makes it print.
const VERBS: [&[&str]; 11] = [
    &["run", FILE],
    &["noise", FILE, "--seeds", "1", "--set", "limits.windows=2"],
    &["attribute", FILE, "--set", "limits.windows=2"],
    &["plan", FILE],
    &["diff", TABLE, TABLE],
    &["score", "m/llama.gguf", "-f", "c/t.txt", "-c", "32"],
    &[
        "kld",
        "-m",
        "m/llama.gguf",
        "--base",
        "m/llama.gguf",
        "-f",
        "c/t.txt",
        "-c",
        "32",
    ],
    &["tokenize", "m/llama.gguf", "-f", "c/t.txt", "--ids"],
    &["inspect", "m/llama.gguf"],
    &["fetch", FILE],
    &["--help"],
];

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

#[test]
fn nothing_depends_on_who_reads_along() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let tables = TABLES.map(|path| project.read(path));
    for arguments in VERBS {
        let end = |stdout: Stdio, stderr: Stdio| {
            let mut command = project.command(arguments);
            command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
            let output = command.spawn().unwrap().wait_with_output().unwrap();
            (
                output.status.code(),
                String::from_utf8(output.stderr).unwrap(),
            )
        };
        assert_eq!(end(Stdio::null(), closed()).0, Some(0), "{arguments:?}");
        assert_eq!(end(Stdio::null(), full()).0, Some(0), "{arguments:?}");
        let (code, stderr) = end(closed(), Stdio::piped());
        assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
        // Somebody wanted to have it.
        let (code, stderr) = end(full(), Stdio::piped());
        assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        let says = stderr.contains("pplx: cannot write to stdout: No space left on device");
        assert!(says, "{arguments:?}: {stderr}");
        assert_eq!(end(full(), full()).0, Some(1), "{arguments:?}");
    }
    assert_eq!(TABLES.map(|path| project.read(path)), tables);
}

#[test]
fn clocks_may_be_wrong() {
    const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_REALTIME) t->tv_sec = atoll(getenv("NOW"));
    return result;
}
"#;
    let project = project();
    project.write("clock.c", SHIM);
    let (source, shim) = (project.path("clock.c"), project.path("clock.so"));
    // What links the tests compiles it.
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).args([&shim, &source]);
    assert!(cc.status().unwrap().success());
    project.pplx(&["run", FILE]).good();
    let tables = TABLES.map(|path| project.read(path));
    let started = |project: &Project| {
        let lines = project.lines("results/x.timing.csv");
        lines[0]["started_at"].clone()
    };
    assert!(started(&project).ends_with('Z'));
    for (now, begins) in [
        ("-5000000000", ""),
        ("-1", ""),
        ("0", "1970-01-01T"),
        ("253402300800", ""),
        ("9223372036854775807", ""),
        ("-9223372036854775808", ""),
    ] {
        let clock = [("LD_PRELOAD", shim.to_str().unwrap()), ("NOW", now)];
        project.pplx_with(&["run", FILE], &clock).good();
        let at = started(&project);
        assert!(
            at.starts_with(begins) && at.is_empty() == begins.is_empty(),
            "{now}: {at}"
        );
        assert_eq!(TABLES.map(|path| project.read(path)), tables);
        // What was written then can be read.
        project.pplx(&["diff", TABLE, TABLE]).good();
        project.pplx_with(&["run", FILE, "--resume"], &clock).good();
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let kill = Command::new("kill")
        .args([&format!("-{name}"), &id])
        .status();
    assert!(kill.unwrap().success());
}

/// How a child ends, which it has to within a time.
fn wait(child: &mut Child, limit: Duration) -> ExitStatus {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("still running after {limit:?}");
}

/// For a process that has a second, on a machine that is busy.
const A_SECOND_OR_SO: Duration = Duration::from_secs(4);

#[test]
fn every_verb_can_be_stopped_at_any_moment_by_any_signal() {
    let project = project();
    // Some seconds of hashing and tokenizing, and more of scoring.
    project.write("c/t.txt", &text(1000).repeat(10_000));
    let verbs: [&[&str]; 6] = [
        &["run", FILE],
        &["noise", FILE],
        &["attribute", FILE],
        &["score", "m/llama.gguf", "-f", "c/t.txt", "-c", "32"],
        &[
            "kld",
            "-m",
            "m/llama.gguf",
            "--save-base",
            "b.bin",
            "-f",
            "c/t.txt",
            "-c",
            "32",
        ],
        &["tokenize", "m/llama.gguf", "-f", "c/t.txt"],
    ];
    let signals = [("INT", 130), ("TERM", 143), ("HUP", 129)];
    for (i, arguments) in verbs.into_iter().enumerate() {
        let (name, code) = signals[i % 3];
        for after in [50, 500] {
            let mut command = project.command(arguments);
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            std::thread::sleep(Duration::from_millis(after));
            signal(&child, name);
            let status = wait(&mut child, A_SECOND_OR_SO);
            let stderr = child.wait_with_output().unwrap().stderr;
            let stderr = String::from_utf8(stderr).unwrap();
            let what = format!("{arguments:?}, {name} after {after} ms: {status}, {stderr}");
            assert_eq!(status.code(), Some(code), "{what}");
            assert!(stderr.contains("pplx: interrupted"), "{what}");
            assert_eq!(
                project.temporaries(),
                [] as [std::path::PathBuf; 0],
                "{what}"
            );
        }
    }
    assert!(!project.path("b.bin").exists());
}

#[test]
fn a_signal_ends_what_cannot_look_at_it() {
    let project = project();
    // One window in one layer of which takes longer than anybody waits.
    let model = Tiny::llama().set("context_length", Value::U32(1 << 20));
    model.write(project.path("m/llama.gguf"));
    project.write("c/t.txt", &text(1000).repeat(200));
    let score = [
        "score",
        "m/llama.gguf",
        "-f",
        "c/t.txt",
        "-c",
        "200000",
        "--mode",
        "teacher-forced",
    ];
    let mut child = project.command(&score).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    signal(&child, "TERM");
    assert_eq!(wait(&mut child, A_SECOND_OR_SO).code(), Some(143));
    // A second signal kills.
    let mut child = project.command(&score).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    signal(&child, "TERM");
    std::thread::sleep(Duration::from_millis(50));
    signal(&child, "INT");
    let status = wait(&mut child, Duration::from_millis(600));
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(2)
    );
}

#[test]
fn nohup_is_obeyed() {
    let project = project();
    let pplx = project.command(&["run", FILE]);
    let mut sh = Command::new("sh");
    sh.current_dir(project.path(""));
    sh.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(pplx.get_program());
    sh.args(pplx.get_args())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for (name, value) in pplx.get_envs() {
        match value {
            Some(value) => sh.env(name, value),
            None => sh.env_remove(name),
        };
    }
    project.write("c/t.txt", &text(20_000));
    let mut child = sh.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, "HUP");
    assert_eq!(wait(&mut child, Duration::from_secs(60)).code(), Some(0));
}

#[test]
fn what_dead_processes_left_is_gone_after_the_next_start() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let tables = TABLES.map(|path| project.read(path));
    let directories = [
        "results",
        "results/.records",
        "results/.records/x",
        "cache",
        "cache/tokens",
    ];
    for directory in directories {
        project.write(&format!("{directory}/.pplx-dead01"), "half a file");
    }
    project.write("results/.pplx-alive1", "");
    let alive = File::open(project.path("results/.pplx-alive1")).unwrap();
    alive.lock().unwrap();
    project.write("results/mine", "");
    // There is nothing to write, but they are gone all the same.
    project.pplx(&["run", FILE, "--resume"]).good();
    assert_eq!(
        project.temporaries(),
        [project.path("results/.pplx-alive1")]
    );
    assert!(project.path("results/mine").exists());
    drop(alive);
    project.write(".pplx-dead01", "most of a base");
    let save = [
        "kld",
        "-m",
        "m/llama.gguf",
        "-f",
        "c/t.txt",
        "-c",
        "32",
        "--save-base",
        "b.bin",
    ];
    project.pplx(&save).good();
    project.pplx(&["noise", FILE, "--seeds", "1"]).good();
    assert!(project.temporaries().is_empty());
    assert_eq!(TABLES.map(|path| project.read(path)), tables);
    let mode = |path: &str| {
        let metadata = fs::metadata(project.path(path)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions())
    };
    assert_eq!(mode("b.bin"), mode("m/llama.gguf"));
}

/// Kills a command at `n` instants, or `PPLX_KILLS`, spread over the time that it
/// takes, `check` after each.
fn kill_at(project: &Project, n: u32, arguments: &[&str], mut check: impl FnMut()) {
    let n = std::env::var("PPLX_KILLS").map_or(n, |n| n.parse().unwrap());
    let start = |arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let began = Instant::now();
    assert!(start(arguments).wait().unwrap().success());
    let whole = began.elapsed();
    for i in 0..n {
        let mut child = start(arguments);
        std::thread::sleep(whole * (2 * i + 1) / (2 * n));
        child.kill().unwrap();
        child.wait().unwrap();
        check();
    }
}

#[test]
fn whatever_moment_it_is_killed_at_a_sweep_goes_on_to_the_same_bytes() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let tables = TABLES.map(|path| project.read(path));
    let wipe = || {
        fs::remove_dir_all(project.path("results")).unwrap();
        fs::remove_dir_all(project.path("cache")).unwrap();
    };
    wipe();
    kill_at(
        &project,
        10,
        &["run", FILE, "-t", "1", "--batch", "1"],
        || {
            project.pplx(&["run", FILE, "--resume"]).good();
            assert_eq!(TABLES.map(|path| project.read(path)), tables);
            assert!(project.temporaries().is_empty());
            wipe();
        },
    );
}

#[test]
fn whatever_moment_it_is_killed_at_a_calibration_goes_on_to_the_same_bytes() {
    const FLOORS: &str = "results/x.noise.csv";
    let project = project();
    let noise = ["noise", FILE, "--seeds", "2", "-t", "1"];
    let resume = [&noise[..], &["--resume"]].concat();
    project.pplx(&noise).good();
    let floors = project.read(FLOORS);
    let wipe = || {
        fs::remove_dir_all(project.path("results")).unwrap();
        fs::remove_dir_all(project.path("cache")).unwrap();
    };
    wipe();
    let mut kept = 0;
    kill_at(&project, 10, &noise, || {
        if let Ok(found) = fs::read_to_string(project.path(FLOORS)) {
            kept += found.lines().count() - 1;
            let right = found.lines().all(|line| floors.lines().any(|l| l == line));
            assert!(right, "{found}");
        }
        project.pplx(&resume).good();
        assert_eq!(project.read(FLOORS), floors);
        assert!(project.temporaries().is_empty());
        wipe();
    });
    assert!(kept > 0, "no kill came after a row");
}

#[test]
fn whatever_moment_it_is_killed_at_a_base_is_there_or_not() {
    let project = project();
    project.write("c/t.txt", &text(3000));
    for format in ["pplx", "llama.cpp"] {
        let save = [
            "kld",
            "-m",
            "m/llama.gguf",
            "-f",
            "c/t.txt",
            "-c",
            "32",
            "--format",
            format,
            "-t",
            "1",
        ];
        let save = [&save[..], &["--batch", "1", "--save-base", "b.bin"]].concat();
        project.pplx(&save).good();
        let base = fs::read(project.path("b.bin")).unwrap();
        kill_at(&project, 5, &save, || {
            if let Ok(bytes) = fs::read(project.path("b.bin")) {
                assert!(bytes == base);
            }
            project.pplx(&save).good();
            assert!(fs::read(project.path("b.bin")).unwrap() == base);
            assert!(project.temporaries().is_empty());
            fs::remove_file(project.path("b.bin")).unwrap();
        });
    }
}

#[test]
fn what_names_and_metadata_bring_along_is_shown_and_not_obeyed() {
    let project = project();
    const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}";
    let clean = |text: &str| {
        let bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(bad), "{text:?}");
        assert!(
            text.contains("\\u{1b}]0;pwned\\u{7}\\u{1b}[2J\\r\\u{9b}31m\\u{202e}"),
            "{text}"
        );
    };
    let value = Value::String(EVIL.to_owned());
    let evil = Tiny::llama().set_raw("general.name", value.clone());
    evil.write(project.path("m/evil.gguf"));
    clean(
        &project
            .pplx(&["inspect", "m/evil.gguf", "--metadata"])
            .good(),
    );
    let evil = Tiny::llama().tokenizer("model", value);
    evil.write(project.path("m/evil.gguf"));
    clean(
        &project
            .pplx(&["score", "m/evil.gguf", "-f", "c/t.txt"])
            .bad(2),
    );
    clean(&project.pplx(&["inspect", EVIL]).bad(2));
    clean(&project.pplx(&["run", &format!("{EVIL}.toml")]).bad(2));
    let name = format!("m/{EVIL}.gguf");
    Tiny::llama().write(project.path(&name));
    let ended = project.pplx(&["score", &name, "-f", "c/t.txt", "-c", "32"]);
    clean(&ended.good());
}
