//! `cargo bench --bench end_to_end -- MODEL CORPUS [CONTEXT [WINDOWS [ROUNDS]]]`
//!
//! Tokens per second of a perplexity run: ours, exact and in 8 bits, and llama.cpp's
//! in turn in one run (A B C A B C …), medians and their ratios. The peer is the binary that
//! `LLAMA_PERPLEXITY` names, else llama-cpp-python in the Python that
//! `LLAMA_PYTHON` names; without either ours is measured alone and no ratio is
//! claimed.

use std::path::Path;
use std::process::Command;

use pplx::backend::Numerics;
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{Geometry, Limits};
use pplx::plan::Placement;
use pplx::run::{Control, LoadedModel, Settings, measure, peak_rss_mib};
use pplx::tokenizer::Options;

struct Job {
    model: String,
    corpus: String,
    n_ctx: usize,
    windows: usize,
    threads: usize,
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [model, corpus, rest @ ..] = args.as_slice() else {
        eprintln!("usage: end_to_end MODEL CORPUS [CONTEXT [WINDOWS [ROUNDS]]]");
        return;
    };
    let number = |i: usize, default| {
        rest.get(i)
            .map_or(default, |s| s.parse().expect("a number"))
    };
    let job = Job {
        model: model.clone(),
        corpus: corpus.clone(),
        n_ctx: number(0, 512),
        windows: number(1, 32),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let rounds = number(2, 3);
    println!(
        "{}, context {}, {} windows, {} threads",
        job.model, job.n_ctx, job.windows, job.threads
    );
    const NUMERICS: [Numerics; 2] = [Numerics::Exact, Numerics::Q8];
    let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..rounds {
        for (numerics, ours) in NUMERICS.into_iter().zip(&mut ours) {
            let rate = pplx(&job, numerics);
            ours.push(rate);
            println!("  pplx {numerics:5} {rate:8.1} tokens/s");
        }
        if let Some(rate) = llama_cpp(&job) {
            theirs.push(rate);
            println!("  llama.cpp  {rate:8.1} tokens/s");
        }
    }
    let ours = ours.map(median);
    for (numerics, rate) in NUMERICS.into_iter().zip(ours) {
        println!("pplx {numerics} median {rate:.1} tokens/s");
    }
    if let Some(mib) = peak_rss_mib() {
        println!("pplx peak memory {mib:.0} MiB");
    }
    if theirs.is_empty() {
        println!("llama.cpp not measured: set LLAMA_PERPLEXITY or LLAMA_PYTHON");
    } else {
        let theirs = median(theirs);
        println!("llama.cpp median {theirs:.1} tokens/s");
        for (numerics, rate) in NUMERICS.into_iter().zip(ours) {
            println!("ratio of {numerics} {:.2}", rate / theirs);
        }
    }
}

fn median(mut xs: Vec<f64>) -> f64 {
    xs.sort_by(f64::total_cmp);
    xs[xs.len() / 2]
}

/// The model is loaded and the corpus tokenized before the clock starts.
fn pplx(job: &Job, numerics: Numerics) -> f64 {
    let loaded = LoadedModel::open(Path::new(&job.model), &Options::default(), job.threads)
        .and_then(|loaded| loaded.with_numerics(numerics))
        .unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = loaded.tokenizer().unwrap_or_else(|e| panic!("{e}"));
    let tokens = tokenize_file(Path::new(&job.corpus), tokenizer, DEFAULT_CHUNK)
        .unwrap_or_else(|e| panic!("{e}"));
    let settings = Settings {
        geometry: Geometry::llama_cpp(job.n_ctx),
        limits: Limits {
            windows: Some(job.windows),
            max_tokens: None,
        },
        bos: tokenizer.bos().filter(|_| tokenizer.add_bos()),
        placement: Placement::Cpu,
        batch: None,
    };
    let m = measure(
        &loaded,
        &tokens.ids,
        settings,
        &Control::default(),
        &mut |_| (),
    )
    .unwrap_or_else(|e| panic!("{e}"));
    m.evaluated as f64 / m.seconds
}

fn llama_cpp(job: &Job) -> Option<f64> {
    let (n_ctx, windows) = (job.n_ctx.to_string(), job.windows.to_string());
    let threads = job.threads.to_string();
    if let Some(binary) = std::env::var_os("LLAMA_PERPLEXITY") {
        let out = Command::new(binary)
            .args(["-m", &job.model, "-f", &job.corpus, "-c", &n_ctx])
            .args(["--chunks", &windows, "-t", &threads])
            .output()
            .expect("LLAMA_PERPLEXITY runs");
        return prompt_rate(&String::from_utf8_lossy(&out.stderr));
    }
    let python = std::env::var_os("LLAMA_PYTHON")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/llama_decode.py");
    let out = Command::new(python)
        .args([script, &job.model, &job.corpus, &n_ctx, &windows, &threads])
        .output()
        .expect("LLAMA_PYTHON runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let rate = text.trim().parse().ok();
    if rate.is_none() {
        eprintln!("{}", String::from_utf8_lossy(&out.stderr));
    }
    rate
}

/// llama-perplexity's own "prompt eval time = … ( … ms per token, N tokens per
/// second)".
fn prompt_rate(log: &str) -> Option<f64> {
    let line = log.lines().find(|l| l.contains("prompt eval time"))?;
    let before = line.split(" tokens per second").next()?;
    before.split_whitespace().last()?.parse().ok()
}
