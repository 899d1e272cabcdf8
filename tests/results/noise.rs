//! Noise floors in `pplx diff` and in gates.

use std::fs;
use std::path::Path;

use pplx::results::ResultRow;
use pplx::results::TablePaths;
use pplx::results::noise::{Calibration, Component, NoiseRow, RunNoise, Shift, Subject};

use super::diff::{diff, json};
use super::support::{nll, provenance, write, write_with};

/// A calibration beside the table at `path`, whose floors are these.
fn calibrate(path: &Path, runs: &[(&str, f64)]) {
    let mut c = Calibration::new(&TablePaths::beside(path).noise);
    for (key, floor) in runs {
        let row = |seed, sign: f64| NoiseRow {
            component: Component::Jitter,
            seed: Some(seed),
            in_floor: true,
            shift: Shift {
                mean: sign * floor,
                se: Some(1e-9),
                rms: 2.0 * floor,
                max: 3.0 * floor,
            },
        };
        c.put(
            key,
            RunNoise {
                subject: Subject {
                    model_sha256: provenance().model_sha256,
                    tokens_sha256: provenance().tokens_sha256,
                    bos: false,
                    windows: 4,
                    scored_tokens: 12,
                    engine: "pplx 0.1.0".into(),
                },
                rows: vec![row(1, 1.0), row(2, -1.0)],
            },
        );
    }
    c.save().unwrap();
}

/// Runs whose ln PPL moves by 0 in `same`, and by 0.001 in `moved`.
fn tables(dir: &Path) -> [std::path::PathBuf; 2] {
    let a = [("moved", nll(2.0, 0.0)), ("same", nll(2.0, 0.0))];
    let b = [("moved", nll(2.001, 0.0)), ("same", nll(2.0, 0.0))];
    [write(dir, "a", &a), write(dir, "b", &b)]
}

fn verdicts(d: &serde_json::Value) -> Vec<&str> {
    let rows = d["rows"].as_array().unwrap().iter();
    rows.map(|r| r["verdict"].as_str().unwrap()).collect()
}

#[test]
fn a_bound_is_a_multiple_of_the_runs_own_floor() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = tables(dir.path());
    for (floor, bound, verdict, code) in [
        (4e-4, "noise*3", "pass", 0),
        (4e-4, "noise*2", "fail", 1),
        (3e-4, "noise*3", "fail", 1),
        (0.0, "noise*3", "fail", 1),
        (0.0011, "noise*3", "below-noise-floor", 0),
        // Tighter than the floor, as was asked.
        (0.0011, "noise*0.5", "fail", 1),
        (4e-4, "0.0011", "pass", 0),
        (4e-4, "0.0009", "fail", 1),
    ] {
        calibrate(&a, &[("moved", floor), ("same", floor)]);
        let d = json(&a, &b, &["--max-delta", bound], code);
        assert_eq!(verdicts(&d), [verdict, "pass"], "{floor}, {bound}");
        assert_eq!(d["rows"][0]["noise_floor"], floor);
    }
    let (code, out, _) = diff(&a, &b, &["--max-delta", "noise*1e-3"]);
    assert_eq!(code, 1);
    assert!(out.contains("outside ±4.0e-7 (noise*0.001)"), "{out}");
    assert!(out.contains("gate Δ ln PPL ±noise*0.001"), "{out}");
}

#[test]
fn without_a_gate_differences_below_the_floor_are_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = tables(dir.path());
    calibrate(&a, &[("moved", 0.0011)]);
    let d = json(&a, &b, &[], 0);
    assert_eq!(verdicts(&d), ["below-noise-floor", "compared"]);
    assert_eq!(d["rows"][1]["noise_floor"], serde_json::Value::Null);
}

#[test]
fn a_floor_that_was_not_measured_never_passes() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = tables(dir.path());
    let gate = ["--max-delta", "noise*3"];
    let d = json(&a, &b, &gate, 1);
    // What has not changed needs no floor.
    assert_eq!(verdicts(&d), ["not-measured", "pass"]);
    let reason = d["rows"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("there is no") && reason.contains("a.noise.csv"),
        "{reason}"
    );

    // One run is calibrated, the other not.
    calibrate(&a, &[("moved", 0.0008)]);
    assert_eq!(verdicts(&json(&a, &b, &gate, 0)), ["pass", "pass"]);
    calibrate(&a, &[("same", 0.0008)]);
    let d = json(&a, &b, &gate, 1);
    assert_eq!(verdicts(&d), ["not-measured", "pass"]);
    let reason = d["rows"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("has no such run"), "{reason}");
    calibrate(&a, &[("moved", 0.0008)]);

    // B's noise is not A's.
    fs::rename(
        dir.path().join("a.noise.csv"),
        dir.path().join("b.noise.csv"),
    )
    .unwrap();
    assert_eq!(verdicts(&json(&a, &b, &gate, 1)), ["not-measured", "pass"]);
    let file = dir.path().join("b.noise.csv");
    let named = [&gate[..], &["--noise", file.to_str().unwrap()]].concat();
    assert_eq!(verdicts(&json(&a, &b, &named, 0)), ["pass", "pass"]);
}

/// A calibration of another file, or of other tokens, is none.
#[test]
fn a_stale_floor_is_none() {
    let dir = tempfile::tempdir().unwrap();
    type Edit = fn(&mut ResultRow);
    let edits: [(&str, Edit); 4] = [
        ("model file", |r| r.provenance.model_sha256 = "d".repeat(64)),
        ("tokens", |r| r.provenance.tokens_sha256 = "d".repeat(64)),
        ("BOS", |r| r.provenance.bos = Some(true)),
        ("nothing", |_| ()),
    ];
    for (what, edit) in edits {
        let a = write_with(dir.path(), "a", &[("x", nll(2.0, 0.0))], edit);
        let b = write_with(dir.path(), "b", &[("x", nll(2.001, 0.0))], edit);
        calibrate(&a, &[("x", 0.0008)]);
        let fits = what == "nothing";
        let d = json(&a, &b, &["--max-delta", "noise*3"], i32::from(!fits));
        let reason = d["rows"][0]["reason"].as_str().unwrap();
        match fits {
            true => assert_eq!(verdicts(&d), ["pass"]),
            false => assert!(
                verdicts(&d) == ["not-measured"] && reason.contains(&format!("another {what}")),
                "{reason}"
            ),
        }
    }
}

#[test]
fn bounds_and_files_that_are_none_end_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = tables(dir.path());
    for flags in [
        ["--max-delta", "noise*0"],
        ["--max-delta", "-1"],
        ["--max-delta", "3*noise"],
        ["--noise-floor", "NaN"],
        ["--noise", "nowhere.csv"],
    ] {
        let (code, _, err) = diff(&a, &b, &flags);
        assert_eq!(code, 2, "{flags:?}: {err}");
    }
    fs::write(dir.path().join("a.noise.csv"), "key\nx\n").unwrap();
    let (code, _, err) = diff(&a, &b, &[]);
    assert!(code == 2 && err.contains("a.noise.csv:1:"), "{err}");
    // An experiment's gate.
    let file = dir.path().join("x.toml");
    let text = "name = \"x\"\n[sweep]\ncorpora = [\"c\"]\ncontexts = [8]\n[[models]]\npath = \"m\"\n[gate]\n";
    fs::write(&file, format!("{text}max_delta = \"noise*x\"\n")).unwrap();
    let flags = [
        "--noise-floor",
        "0.0004",
        "--experiment",
        file.to_str().unwrap(),
    ];
    let (code, _, err) = diff(&a, &b, &flags);
    assert!(
        code == 2 && err.contains("x.toml:8:13: 'noise*x' is not a bound"),
        "{err}"
    );
    fs::write(&file, format!("{text}max_delta = \"noise*3\"\n")).unwrap();
    assert_eq!(diff(&a, &b, &flags).0, 0);
    fs::write(&file, format!("{text}max_delta = 0.0001\n")).unwrap();
    assert_eq!(diff(&a, &b, &flags).0, 1);
}
