//! Tokenization speed: `cargo bench --bench tokenizer -- MODEL.gguf CORPUS`.
//!
//! Prints, for one thread and for all, the best of seven runs over the corpus,
//! read as `pplx tokenize` reads it, and how long the vocabulary took to load.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::gguf::Gguf;
use pplx::tokenizer::{Options, Tokenizer};

fn main() -> ExitCode {
    // `cargo bench` adds --bench.
    let paths: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(|a| a != "--bench")
        .map(PathBuf::from)
        .collect();
    let [model, corpus] = &paths[..] else {
        eprintln!("usage: cargo bench --bench tokenizer -- MODEL.gguf CORPUS");
        return ExitCode::from(2);
    };
    match run(model, corpus) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run(model: &Path, corpus: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let gguf = Gguf::open(model)?;
    let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &Options::default())?;
    println!("load: {:.3} s", start.elapsed().as_secs_f64());
    let all = std::thread::available_parallelism()?.get();
    for threads in [1, all] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()?;
        let mut best = Duration::MAX;
        let mut counts = (0, 0);
        for _ in 0..7 {
            let start = Instant::now();
            let tokens = pool.install(|| tokenize_file(corpus, &tokenizer, DEFAULT_CHUNK))?;
            best = best.min(start.elapsed());
            counts = (tokens.ids.len(), tokens.text_bytes);
        }
        let seconds = best.as_secs_f64();
        println!(
            "{threads} thread(s): {} tokens in {seconds:.3} s, {:.1} MB/s",
            counts.0,
            counts.1 as f64 / seconds / 1e6
        );
    }
    Ok(())
}
