//! What several test files share. Each compiles its own copy, so not every
//! helper is used in each.
#![allow(dead_code)]

pub mod quantize;
pub mod skip;
pub mod tiny;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pplx::backend::cpu::CpuModel;
use pplx::backend::{CPU, Interrupt};
use pplx::eval::{
    CheckpointOptions, EvalError, Feed, Job, Layered, Limits, WindowPlan, WindowScore,
};
use pplx::model::Model;
pub use skip::skip;

/// A file of the shared material (`../shared`, or `PPLX_SHARED`); where it is
/// missing the test is skipped.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PPLX_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    present("shared", root.join(path))
}

/// A model file (in `models/`, or `PPLX_TEST_MODELS`).
pub fn model(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PPLX_TEST_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("models"),
        PathBuf::from,
    );
    let need = match name {
        GEMMA3 => "gemma3",
        _ => "smollm2",
    };
    present(need, root.join(name))
}

fn present(need: &str, path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    skip(need, format_args!("{} is missing", path.display()));
    None
}

pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// Token ids, one a line.
pub fn ids(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).expect("ids can be read");
    text.lines().map(|l| l.parse().expect("an id")).collect()
}

/// A row of llama.cpp's per-token figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenNll {
    pub chunk: usize,
    pub pos: usize,
    pub target: u32,
    pub nll: f64,
}

/// Reads `chunk,pos,target,nll`.
pub fn token_nlls(path: &Path) -> Vec<TokenNll> {
    let mut reader = csv::Reader::from_path(path).expect("a CSV file");
    reader
        .records()
        .map(|r| {
            let r = r.expect("a CSV row");
            TokenNll {
                chunk: r[0].parse().expect("chunk"),
                pos: r[1].parse().expect("pos"),
                target: r[2].parse().expect("target"),
                nll: r[3].parse().expect("nll"),
            }
        })
        .collect()
}

pub fn cpu(path: &Path, n_threads: usize) -> CpuModel {
    let model = Model::open(path).unwrap_or_else(|e| panic!("{e}"));
    CpuModel::new(Arc::new(model), n_threads).expect("threads")
}

/// Scores `windows` windows, `batch` at a time.
pub fn score(
    cpu: &CpuModel,
    tokens: &[u32],
    geometry: pplx::eval::Geometry,
    windows: usize,
    bos: Option<u32>,
    batch: usize,
) -> Vec<WindowScore> {
    let limits = Limits {
        windows: Some(windows),
        max_tokens: None,
    };
    let plan = WindowPlan::new(tokens.len(), geometry, limits).expect("a plan");
    let feed = Feed { bos, batch };
    score_whole(cpu, tokens, &plan, feed).unwrap_or_else(|e| panic!("{e}"))
}

/// Scores all layers in one window.
pub fn score_whole(
    cpu: &CpuModel,
    tokens: &[u32],
    plan: &WindowPlan,
    feed: Feed,
) -> Result<Vec<WindowScore>, EvalError> {
    pplx::eval::score(
        &Layered::whole(CPU, cpu),
        Job {
            tokens,
            plan,
            feed,
            interrupt: &Interrupt::default(),
            checkpoints: &CheckpointOptions::default(),
        },
        &mut |_| (),
    )
}

/// Our figures in the oracle's form.
pub fn rows(tokens: &[u32], scores: &[WindowScore]) -> Vec<TokenNll> {
    scores
        .iter()
        .flat_map(|s| {
            let w = s.window;
            s.nll().enumerate().map(move |(i, nll)| TokenNll {
                chunk: w.index,
                pos: w.first_target + i,
                target: tokens[w.start + w.first_target + i],
                nll,
            })
        })
        .collect()
}

/// Largest and mean difference of two lists of the same positions and targets.
pub fn differences(ours: &[TokenNll], reference: &[TokenNll]) -> (f64, f64) {
    assert_eq!(ours.len(), reference.len(), "number of scored positions");
    let mut max: f64 = 0.0;
    let mut sum = 0.0;
    for (a, b) in ours.iter().zip(reference) {
        assert_eq!((a.chunk, a.pos, a.target), (b.chunk, b.pos, b.target));
        max = max.max((a.nll - b.nll).abs());
        sum += a.nll - b.nll;
    }
    (max, (sum / ours.len() as f64).abs())
}

/// The bits of all NLLs, for comparisons that allow no difference.
pub fn bits(scores: &[WindowScore]) -> Vec<u64> {
    let nll = scores.iter().flat_map(WindowScore::nll);
    nll.map(f64::to_bits).collect()
}
