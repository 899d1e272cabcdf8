//! `cargo bench --bench cuda -- MODEL CORPUS [CONTEXT [WINDOWS [ROUNDS]]]`
//!
//! Tokens a second on the first GPU with each precision, and a cycle of a quarter
//! of the layers at a time against the whole device, in turn (A B A B …). Medians.

use std::path::Path;
use std::time::Instant;

use pplx::backend::cuda::{CUDA, CudaModel, Precision, batch_windows, devices};
use pplx::backend::{Interrupt, Partition};
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{CheckpointOptions, Feed, Geometry, Job, Layered, Limits, WindowPlan, score};
use pplx::run::LoadedModel;
use pplx::tokenizer::Options;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    match devices() {
        Ok(devices) => match devices.first() {
            Some(d) => println!("{}, sm_{}{}", d.name, d.arch.major, d.arch.minor),
            None => return println!("no GPU: nothing is measured"),
        },
        Err(e) => return println!("no GPU, nothing is measured: {e}"),
    }
    let [model, corpus, rest @ ..] = args.as_slice() else {
        return eprintln!("usage: cuda MODEL CORPUS [CONTEXT [WINDOWS [ROUNDS]]]");
    };
    let number = |i: usize, default| {
        rest.get(i)
            .map_or(default, |s: &String| s.parse().expect("a number"))
    };
    let (n_ctx, windows, rounds) = (number(0, 512), number(1, 64), number(2, 3));
    let loaded = LoadedModel::open(Path::new(model), &Options::default(), 0)
        .unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = loaded.tokenizer().unwrap_or_else(|e| panic!("{e}"));
    let tokens = tokenize_file(Path::new(corpus), tokenizer, DEFAULT_CHUNK)
        .unwrap_or_else(|e| panic!("{e}"));
    let limits = Limits {
        windows: Some(windows),
        max_tokens: None,
    };
    let plan = WindowPlan::new(tokens.ids.len(), Geometry::llama_cpp(n_ctx), limits)
        .unwrap_or_else(|e| panic!("{e}"));
    let feed = Feed {
        bos: tokenizer.bos().filter(|_| tokenizer.add_bos()),
        batch: batch_windows(n_ctx),
    };
    println!("{model}, context {n_ctx}, {windows} windows");
    let n = loaded.model.n_layer();
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        let cuda =
            CudaModel::new(loaded.model.clone(), precision, None).unwrap_or_else(|e| panic!("{e}"));
        let seconds = |partition: Partition| {
            let layered = Layered::new(vec![(CUDA, &cuda)], partition).expect("a device");
            let start = Instant::now();
            score(
                &layered,
                Job {
                    tokens: &tokens.ids,
                    plan: &plan,
                    feed,
                    interrupt: &Interrupt::default(),
                    checkpoints: &CheckpointOptions::default(),
                },
                &mut |_| (),
            )
            .unwrap_or_else(|e| panic!("{e}"));
            start.elapsed().as_secs_f64()
        };
        let whole = || seconds(Partition::whole(CUDA, n));
        let cycle = || seconds(Partition::cycle(CUDA, n, n.div_ceil(4)));
        // The first round finds the file's pages.
        whole();
        let pairs: Vec<(f64, f64)> = (0..rounds).map(|_| (whole(), cycle())).collect();
        let whole = median(pairs.iter().map(|p| p.0));
        let cycle = median(pairs.iter().map(|p| p.1));
        println!(
            "{precision:?}: {:.0} tokens/s; cycle of {} layers: {:.0} tokens/s, {:.2} of the time",
            plan.evaluated() as f64 / whole,
            n.div_ceil(4),
            plan.evaluated() as f64 / cycle,
            cycle / whole
        );
    }
}

fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
