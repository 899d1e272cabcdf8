//! Rows to test with.

use std::path::{Path, PathBuf};

use pplx::backend::TokenScore;
use pplx::eval::{Geometry, Moments, Window, WindowScore};
use pplx::results::{
    Figures, ModelSize, Outcome, Provenance, Record, ResultRow, TablePaths, Tables, TimingRow,
    WindowRow,
};

pub fn provenance() -> Provenance {
    Provenance {
        model: "smollm2".into(),
        model_sha256: "a".repeat(64),
        model_type: "Q4_1".into(),
        size: ModelSize {
            bytes: Some(98_000_000),
            bits_per_weight: Some(5.25),
            quantization: "Q4_1".into(),
        },
        architecture: "llama".into(),
        corpus: "wiki.test.raw".into(),
        corpus_sha256: "b".repeat(64),
        tokens: Some(5_000),
        tokens_sha256: "c".repeat(64),
        geometry: Geometry::llama_cpp(64),
        bos: Some(false),
        parse_special: false,
        windows: None,
        scored_tokens: None,
        placement: "cpu".into(),
        layer_placement: "cpu[0,30)".into(),
        numerics: "exact".into(),
        engine: "pplx 0.1.0".into(),
    }
}

/// A geometry whose windows have as many targets as these, for a corpus of so many
/// tokens: sliding windows, or blocks if the last one is shorter.
pub fn geometry_of(windows: &[Vec<f64>]) -> (Geometry, usize) {
    let targets = windows.iter().map(Vec::len).max().unwrap_or(1);
    let is_short = windows.last().is_some_and(|w| w.len() < targets);
    let geometry = match is_short {
        true => Geometry::teacher_forced(targets + 1),
        false => {
            let n_ctx = 64.max(2 * targets);
            Geometry::sliding_window(n_ctx, Some(n_ctx), Some(n_ctx - targets))
        }
    };
    (geometry, 5_000.max((windows.len() + 1) * geometry.n_ctx))
}

/// A finished run with these NLLs per token in its windows.
pub fn finished(key: &str, windows: &[Vec<f64>]) -> (ResultRow, Vec<WindowRow>) {
    let rows: Vec<WindowRow> = windows
        .iter()
        .enumerate()
        .map(|(window, nll)| WindowRow {
            window,
            scored: nll.len(),
            nll_sum: nll.iter().sum(),
            target_bytes: 4 * nll.len() as u64,
        })
        .collect();
    let tokens: Moments = windows.iter().flatten().copied().collect();
    let (geometry, n_tokens) = geometry_of(windows);
    let row = ResultRow {
        key: key.into(),
        provenance: Provenance {
            geometry,
            tokens: Some(n_tokens),
            windows: Some(windows.len()),
            scored_tokens: Some(tokens.n as usize),
            ..provenance()
        },
        outcome: Outcome::Ok(Figures::new(&tokens, &rows).unwrap()),
        ref_note: String::new(),
        note: String::new(),
    };
    (row, rows)
}

/// Four windows of three tokens whose NLLs are `base` and a fixed scatter; `wobble`
/// moves the windows up and down by turns.
pub fn nll(base: f64, wobble: f64) -> Vec<Vec<f64>> {
    (0..4)
        .map(|w| {
            let sign = if w % 2 == 0 { 1.0 } else { -1.0 };
            (0..3)
                .map(|t| base + 0.25 * f64::from((w * 3 + t) % 5) + sign * wobble)
                .collect()
        })
        .collect()
}

pub fn timing() -> TimingRow {
    TimingRow {
        wall_s: 1.5,
        tokens_per_s: 1e3 / 3.0,
        peak_rss_mib: Some(612.25),
        threads: 2,
        host: "box, \"the\" big one".into(),
        started_at: "2026-11-29T21:52:53Z".into(),
    }
}

/// Writes a table of finished runs and returns its path.
pub fn write(dir: &Path, name: &str, runs: &[(&str, Vec<Vec<f64>>)]) -> PathBuf {
    write_with(dir, name, runs, |_| {})
}

/// [`write`], with every row changed first.
pub fn write_with(
    dir: &Path,
    name: &str,
    runs: &[(&str, Vec<Vec<f64>>)],
    edit: impl Fn(&mut ResultRow),
) -> PathBuf {
    let mut t = Tables::new(dir, name);
    for (key, nll) in runs {
        let (mut row, windows) = finished(key, nll);
        edit(&mut row);
        let windows = if row.figures().is_some() {
            windows
        } else {
            Vec::new()
        };
        t.put(row, windows, Some(timing())).unwrap();
    }
    t.save().unwrap();
    t.paths().table.clone()
}

/// Writes the record of a run that [`write`] has put into the table at `path`:
/// target `i` of window `w` is the id `10 w + i`, and `top` is the most likely token
/// everywhere.
pub fn write_record(path: &Path, key: &str, windows: &[Vec<f64>], top: u32) {
    let (row, _) = finished(key, windows);
    let mut start = 0;
    let mut ids = Vec::new();
    let mut scores = Vec::new();
    for (index, nll) in windows.iter().enumerate() {
        let len = nll.len() + 1;
        let window = Window {
            index,
            start,
            len,
            first_target: 1,
        };
        start += len;
        ids.push(99);
        ids.extend((0..nll.len()).map(|i| (10 * index + i) as u32));
        let tokens = nll.iter().map(|&nll| TokenScore {
            nll,
            rank: u32::from(top != 0),
            top_id: top,
            top_p: 0.5,
            entropy: 1.0,
        });
        scores.push(WindowScore {
            window,
            tokens: tokens.collect(),
        });
    }
    let piece = |id| format!(" w{id}").into_bytes();
    let record = Record::new(&row, &scores, &ids, piece);
    TablePaths::beside(path).records.save(key, &record).unwrap();
}
