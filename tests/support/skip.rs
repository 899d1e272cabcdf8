//! What tests need beside this repository, and what happens where it is missing:
//! a test that needs it says so and counts as skipped, or fails where
//! `PPLX_REQUIRE` names the need. `tests/zz_skipped.rs` counts them at the end.
//! `docs/testing.md` says how to have each.
#![allow(dead_code)] // Each test binary has its own copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// The needs, by the names that `PPLX_REQUIRE` takes, and what each is.
pub const NEEDS: [(&str, &str); 10] = [
    (
        "shared",
        "llama.cpp's figures and vocabularies in ../shared, or PPLX_SHARED",
    ),
    (
        "smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf in models/, or PPLX_TEST_MODELS",
    ),
    (
        "gemma3",
        "gemma-3-270m-q4_k_m.gguf in models/, or PPLX_TEST_MODELS",
    ),
    ("gpu", "an NVIDIA GPU with its driver"),
    ("no-gpu", "a machine without the driver"),
    (
        "standin",
        "the CUDA stand-in, which PPLX_CUDA_STANDIN=0 turns off",
    ),
    (
        "nvrtc",
        "NVIDIA's compiler, which PPLX_CUDA_PATH may lead to",
    ),
    (
        "python",
        "python3 with pip and numpy; PPLX_PYTHON names another",
    ),
    ("chromium", "Chromium in /usr/bin, or PPLX_CHROMIUM"),
    ("strace", "strace, which makes system calls fail"),
];

/// Names of several needs. A machine has a GPU or has none, so `all` names one.
const GROUPS: [(&str, &[&str]); 2] = [
    ("models", &["smollm2", "gemma3"]),
    (
        "all",
        &[
            "shared", "smollm2", "gemma3", "gpu", "standin", "nvrtc", "python", "chromium",
            "strace",
        ],
    ),
];

/// Whether a list of needs and groups, as in `PPLX_REQUIRE`, holds `need`.
///
/// # Errors
/// A name that is none.
pub fn requires(list: &str, need: &str) -> Result<bool, String> {
    let mut found = false;
    for name in list.split([',', ' ']).filter(|n| !n.is_empty()) {
        let group = GROUPS.iter().find(|(group, _)| *group == name);
        match group {
            Some((_, needs)) => found |= needs.contains(&need),
            None if NEEDS.iter().any(|(n, _)| *n == name) => found |= name == need,
            None => {
                let needs: Vec<&str> = NEEDS.iter().map(|(n, _)| *n).collect();
                let groups: Vec<&str> = GROUPS.iter().map(|(n, _)| *n).collect();
                return Err(format!(
                    "PPLX_REQUIRE: '{name}' is none of {}, {}",
                    needs.join(", "),
                    groups.join(", ")
                ));
            }
        }
    }
    Ok(found)
}

/// Where the skips of all test binaries are noted: a line each of the process that
/// runs them, need, test and reason, with tabs between.
pub fn notes() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("skipped.tsv")
}

/// The process that runs the test binaries one after the other.
pub fn runner() -> u32 {
    #[cfg(unix)]
    return std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    return 0;
}

/// Says that a test cannot run for want of `need`; it is to return then.
///
/// # Panics
/// If `PPLX_REQUIRE` asks for it.
pub fn skip(need: &str, why: impl Display) {
    assert!(NEEDS.iter().any(|(n, _)| *n == need), "no need is '{need}'");
    let list = std::env::var("PPLX_REQUIRE").unwrap_or_default();
    match requires(&list, need) {
        Ok(false) => {}
        Ok(true) => panic!("{why} (PPLX_REQUIRE asks for {need})"),
        Err(e) => panic!("{e}"),
    }
    let binary = std::env::current_exe().unwrap_or_default();
    let binary = binary.file_stem().unwrap_or_default().to_string_lossy();
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let thread = std::thread::current();
    let test = format!("{binary}::{}", thread.name().unwrap_or("?"));
    // Not `eprintln!`, which `cargo test` hides for tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED ({need}): {test}: {why}");
    let line = format!("{}\t{need}\t{test}\t{why}\n", runner());
    let file = OpenOptions::new().create(true).append(true).open(notes());
    let noted = file.and_then(|mut file| file.write_all(line.as_bytes()));
    noted.unwrap_or_else(|e| panic!("{}: {e}", notes().display()));
}

/// What to say at the end of the tests that `runner` ran.
pub fn summary(notes: &str, runner: u32) -> String {
    let runner = runner.to_string();
    let mut by_need: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in notes.lines() {
        let mut fields = line.split('\t');
        if let (Some(r), Some(need), Some(test)) = (fields.next(), fields.next(), fields.next())
            && r == runner
        {
            by_need.entry(need).or_default().insert(test);
        }
    }
    let tests: BTreeSet<&str> = by_need.values().flatten().copied().collect();
    if tests.is_empty() {
        return "SKIPPED: no test".to_owned();
    }
    let mut out = format!(
        "SKIPPED: {} tests, counted as ok above. PPLX_REQUIRE=NEED,… makes them fail \
         (docs/testing.md).",
        tests.len()
    );
    for (need, tests) in by_need {
        let what = NEEDS.iter().find(|(n, _)| *n == need);
        let what = what.map_or("", |(_, what)| what);
        let names: Vec<&str> = tests.iter().copied().collect();
        out += &format!("\n  {need}: {} for want of {what}:", tests.len());
        for name in names {
            out += &format!("\n    {name}");
        }
    }
    out
}
