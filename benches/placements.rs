//! `cargo bench --bench placements -- MODEL CORPUS LAYERS_PER_WINDOW [CONTEXT
//! [WINDOWS [ROUNDS]]]`
//!
//! A cycle on the CPU against the whole device, in turn (A B A B …), each in a
//! process of its own: peak resident memory, time, and user CPU time, which other
//! work on the machine disturbs less. Medians and their ratios.

use std::path::Path;
use std::process::Command;

use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{Geometry, Limits};
use pplx::plan::Placement;
use pplx::run::{Control, LoadedModel, Settings, measure, peak_rss_mib};
use pplx::tokenizer::Options;

/// Set for the processes that measure: layers of a window, 0 for all.
const CHILD: &str = "PPLX_BENCH_LAYERS_PER_WINDOW";

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [model, corpus, layers, rest @ ..] = args.as_slice() else {
        eprintln!("usage: placements MODEL CORPUS LAYERS_PER_WINDOW [CONTEXT [WINDOWS [ROUNDS]]]");
        return;
    };
    let number = |i: usize, default| {
        rest.get(i)
            .map_or(default, |s| s.parse().expect("a number"))
    };
    let (n_ctx, windows, rounds) = (number(0, 512), number(1, 32), number(2, 3));
    if let Ok(layers) = std::env::var(CHILD) {
        return child(
            model,
            corpus,
            n_ctx,
            windows,
            layers.parse().expect("a number"),
        );
    }
    println!("{model}, context {n_ctx}, {windows} windows");
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (which, layers) in ["0", layers].into_iter().enumerate() {
            let out = Command::new(std::env::current_exe().expect("our own path"))
                .args(&args)
                .env(CHILD, layers)
                .output()
                .expect("a process");
            let text = String::from_utf8_lossy(&out.stdout);
            print!("  {text}");
            let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
            assert_eq!(numbers.len(), 4, "{}", String::from_utf8_lossy(&out.stderr));
            figures[which].push(numbers);
        }
    }
    let [whole, cycle] = figures;
    for (i, name) in ["peak MiB", "seconds", "user CPU seconds", "mean NLL"]
        .iter()
        .enumerate()
    {
        let median = |runs: &[Vec<f64>]| {
            let mut xs: Vec<f64> = runs.iter().map(|r| r[i]).collect();
            xs.sort_by(f64::total_cmp);
            xs[xs.len() / 2]
        };
        let (a, b) = (median(&whole), median(&cycle));
        println!("{name:16}  whole {a:.6}  cycle {b:.6}  ratio {:.4}", b / a);
    }
}

/// Prints `cpu PEAK MiB SECONDS s USER s user mean NLL NLL`.
fn child(model: &str, corpus: &str, n_ctx: usize, windows: usize, layers: usize) {
    let loaded = LoadedModel::open(Path::new(model), &Options::default(), 0)
        .unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = loaded.tokenizer().unwrap_or_else(|e| panic!("{e}"));
    let tokens = tokenize_file(Path::new(corpus), tokenizer, DEFAULT_CHUNK)
        .unwrap_or_else(|e| panic!("{e}"));
    let settings = Settings {
        geometry: Geometry::llama_cpp(n_ctx),
        limits: Limits {
            windows: Some(windows),
            max_tokens: None,
        },
        bos: tokenizer.bos().filter(|_| tokenizer.add_bos()),
        batch: None,
    };
    let placement = match layers {
        0 => Placement::CPU,
        layers_per_window => Placement::cpu_cycle(layers_per_window),
    };
    let before = user_seconds();
    let control = Control::default();
    let m = loaded
        .placed(placement, &control, |subject| {
            measure(
                subject,
                loaded.text(&tokens.ids),
                &settings,
                &control,
                &mut |_| (),
            )
        })
        .unwrap_or_else(|e| panic!("{e}"));
    println!(
        "{}: {:.1} MiB, {:.3} s, {:.2} s user, mean NLL {}",
        placement,
        peak_rss_mib().unwrap_or(f64::NAN),
        m.seconds,
        user_seconds() - before,
        m.figures.mean_nll
    );
}

/// User CPU time of this process, in clock ticks of a hundredth of a second.
fn user_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name
        .split(' ')
        .nth(11)
        .and_then(|t| t.parse::<f64>().ok());
    ticks.map_or(f64::NAN, |t| t / 100.0)
}
