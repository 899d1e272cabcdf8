use std::fs;

use proptest::prelude::*;

use super::*;
use crate::backend::TokenScore;
use crate::eval::{Window, WindowScore};

fn scores(nll: &[&[f64]]) -> Vec<WindowScore> {
    let window = |(index, nll): (usize, &&[f64])| WindowScore {
        window: Window {
            index,
            start: 10 * index,
            len: nll.len() + 1,
            first_target: 1,
        },
        tokens: nll
            .iter()
            .map(|&nll| TokenScore {
                nll,
                rank: 0,
                top_id: 0,
                top_p: 0.5,
                entropy: 1.0,
            })
            .collect(),
    };
    nll.iter().enumerate().map(window).collect()
}

#[test]
fn a_shift_by_hand() {
    // Differences 1, 1 and 4, 0: mean 3/2, RMS sqrt(18/4), sums 2 and 4 around 3:
    // se² = 2/1 · (1 + 1) / 16.
    let (a, b) = (
        scores(&[&[1.0, 2.0], &[3.0, 4.0]]),
        scores(&[&[2.0, 3.0], &[7.0, 4.0]]),
    );
    let s = Shift::between(&a, &b).unwrap();
    assert_eq!((s.mean, s.max), (1.5, 4.0));
    assert!((s.rms - 4.5f64.sqrt()).abs() < 1e-15);
    assert!((s.se.unwrap() - 0.5).abs() < 1e-15);
    // On the same targets, the difference of the means is the mean difference.
    let m = shift_of_means(&a, &b).unwrap();
    assert!((m.value - 1.5).abs() < 1e-15 && (m.se.unwrap() - 0.5).abs() < 1e-15);
    assert_eq!(Shift::between(&a, &b[..1]), None);
    assert_eq!(Shift::between(&a[..1], &b[..1]).unwrap().se, None);
}

/// The error of a difference of means over other targets, against the jackknife.
#[test]
fn error_of_means_of_other_targets() {
    let mut random = crate::stats::SplitMix64(5);
    let mut draw = || (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    let windows: Vec<[Vec<f64>; 2]> = (0..60)
        .map(|_| {
            let hardness = 3.0 + draw();
            [3, 7].map(|n| (0..n).map(|_| hardness + draw()).collect())
        })
        .collect();
    let side = |i: usize, without: Option<usize>| {
        let kept = (0..windows.len()).filter(|w| Some(*w) != without);
        let nll: Vec<&[f64]> = kept.map(|w| windows[w][i].as_slice()).collect();
        scores(&nll)
    };
    let delta = |without| shift_of_means(&side(0, without), &side(1, without)).unwrap();
    let without: crate::stats::Moments = (0..60).map(|w| delta(Some(w)).value).collect();
    let jackknife = (59.0 / 60.0 * without.m2).sqrt();
    let se = delta(None).se.unwrap();
    assert!((se / jackknife - 1.0).abs() < 0.03, "{se} {jackknife}");
}

fn row(component: Component, seed: Option<u64>, in_floor: bool, mean: f64) -> NoiseRow {
    NoiseRow {
        component,
        seed,
        in_floor,
        shift: Shift {
            mean,
            se: Some(mean.abs() / 3.0),
            rms: 2.0 * mean.abs(),
            max: 5.0 * mean.abs(),
        },
    }
}

fn run(rows: Vec<NoiseRow>) -> RunNoise {
    RunNoise {
        subject: Subject {
            model_sha256: "a".repeat(64),
            tokens_sha256: "b".repeat(64),
            bos: false,
            windows: 4,
            scored_tokens: 12,
            engine: "pplx 0.1.0".into(),
        },
        rows,
    }
}

fn calibration(path: &Path) -> Calibration {
    let mut c = Calibration::new(path);
    c.put(
        "m/c,\"quoted\"/64",
        run(vec![
            row(Component::SummationOrder, None, true, 3e-7),
            row(Component::Jitter, Some(1), true, -1.0 / 3.0),
            row(Component::Jitter, Some(2), false, 4e-7),
            row(Component::Q8, None, false, 3e-3),
            row(Component::BatchShape, None, false, 0.0),
        ]),
    );
    c.put("a", run(vec![row(Component::KvF16, None, true, 1e-5)]));
    c
}

#[test]
fn the_floor_is_the_root_mean_square_of_what_counts() {
    let r = run(vec![
        row(Component::SummationOrder, None, true, 3e-7),
        row(Component::Jitter, Some(1), true, -4e-7),
        row(Component::Q8, None, false, 1.0),
    ]);
    let floor = r.floor().unwrap();
    assert!((floor - (12.5f64).sqrt() * 1e-7).abs() < 1e-20, "{floor:e}");
    assert_eq!(
        run(vec![row(Component::Q8, None, false, 1.0)]).floor(),
        None
    );
}

#[test]
fn files_read_back_and_are_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.noise.csv");
    let c = calibration(&path);
    c.save().unwrap();
    let first = fs::read(&path).unwrap();
    let read = Calibration::load(&path).unwrap();
    assert_eq!(read, c);
    read.save().unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
    let other = dir.path().join("y.noise.csv");
    assert_eq!(Calibration::load_if_exists(&other).unwrap(), None);
}

#[test]
fn what_does_not_fit_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.noise.csv");
    calibration(&path).save().unwrap();
    let good = fs::read_to_string(&path).unwrap();
    for (from, to, problem) in [
        ("kv-f16", "kv-f8", "2: the component 'kv-f8' is unknown"),
        ("a,kv-f16,,", "a,kv-f16,3,", "2: jitter has a seed"),
        (
            "a,kv-f16,,true,1e-5",
            "a,kv-f16,,true,NaN",
            "2: column 'delta_ln_ppl' holds NaN",
        ),
        ("a,kv-f16,,true,1e-5", "a,kv-f16,,true,1", "does not hold"),
        (
            "a,kv-f16,,true",
            "a,kv-f16,,yes",
            "2: column 'in_floor' holds 'yes'",
        ),
        ("\na,", "\n,", "2: the key is empty"),
        ("jitter,2", "jitter,1", "occurs twice"),
        ("key,", "kee,", "1: the column 'kee' is unknown"),
    ] {
        // As Rust or as a shorter form: figures are written as the writer likes.
        let text = good.replace("0.00001", "1e-5");
        assert!(text.contains(from), "{from} is not in {text}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let e = Calibration::load(&path).unwrap_err().to_string();
        assert!(e.contains("x.noise.csv:") && e.contains(problem), "{e}");
    }
    let line = good.lines().nth(2).unwrap().replacen(",12,", ",13,", 1);
    fs::write(
        &path,
        good + &line.replacen("summation-order", "kv-f16", 1) + "\n",
    )
    .unwrap();
    let e = Calibration::load(&path).unwrap_err().to_string();
    assert!(e.contains("were not measured on the same"), "{e}");
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.noise.csv");
        fs::write(&path, &bytes).unwrap();
        let _ = Calibration::load(&path);
    }

    #[test]
    fn no_damage_makes_reading_panic(at in 0usize..2000, byte in any::<u8>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.noise.csv");
        calibration(&path).save().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        fs::write(&path, &bytes).unwrap();
        if let Ok(c) = Calibration::load(&path) {
            let finite = |r: &NoiseRow| r.shift.mean.is_finite() && r.shift.rms <= r.shift.max * 1.1;
            prop_assert!(c.runs().all(|(_, run)| run.rows.iter().all(finite)));
        }
    }
}
