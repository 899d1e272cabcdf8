//! `cargo bench --bench profile -- MODEL CORPUS [WINDOWS_OF_512 [NUMERICS]]`
//!
//! Where the time of a run goes, at contexts 256, 512 and 2048: the shares of all
//! threads' time by what is computed, as a Markdown table.

use std::path::Path;
use std::time::Instant;

use pplx::backend::Numerics;
use pplx::backend::cpu::Part;
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{Geometry, Limits};
use pplx::plan::Placement;
use pplx::run::{Control, LoadedModel, Settings, measure};
use pplx::tokenizer::Options;

const CONTEXTS: [usize; 3] = [256, 512, 2048];

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [model, corpus, rest @ ..] = args.as_slice() else {
        eprintln!("usage: profile MODEL CORPUS [WINDOWS_OF_512 [exact|q8]]");
        return;
    };
    let windows: usize = rest
        .first()
        .map_or(32, |s| s.parse().expect("a number of windows"));
    let numerics = match rest.get(1).map(String::as_str) {
        None | Some("exact") => Numerics::Exact,
        Some("q8") => Numerics::Q8,
        Some(other) => panic!("unknown numerics {other}"),
    };
    let (model, corpus) = (Path::new(model), Path::new(corpus));
    let mut columns = Vec::new();
    let mut speeds = Vec::new();
    for n_ctx in CONTEXTS {
        let loaded = LoadedModel::open(model, &Options::default(), 0)
            .and_then(|loaded| loaded.with_numerics(numerics))
            .expect("a model");
        let tokenizer = loaded.tokenizer().expect("a tokenizer");
        let tokens = tokenize_file(corpus, tokenizer, DEFAULT_CHUNK).expect("a corpus");
        let settings = Settings {
            geometry: Geometry::llama_cpp(n_ctx),
            limits: Limits {
                windows: Some((windows * 512 / n_ctx).max(1)),
                ..Limits::default()
            },
            bos: tokenizer.bos().filter(|_| tokenizer.add_bos()),
            batch: None,
        };
        let start = Instant::now();
        let control = Control::default();
        let m = loaded
            .placed(Placement::CPU, &control, |subject| {
                measure(
                    subject,
                    loaded.text(&tokens.ids),
                    &settings,
                    &control,
                    &mut |_| (),
                )
            })
            .expect("a measurement");
        speeds.push(m.evaluated as f64 / start.elapsed().as_secs_f64());
        columns.push(loaded.cpu.times());
    }
    println!("{}, {numerics}", model.display());
    println!("| | {} |", CONTEXTS.map(|n| n.to_string()).join(" | "));
    println!("| --- |{}", " --- |".repeat(CONTEXTS.len()));
    for part in Part::ALL {
        let share = |t: &pplx::backend::cpu::Times| {
            format!(
                "{:.1} %",
                100.0 * t.of(part).as_secs_f64() / t.total().as_secs_f64()
            )
        };
        let shares: Vec<String> = columns.iter().map(share).collect();
        println!("| {} | {} |", part.name(), shares.join(" | "));
    }
    let speeds: Vec<String> = speeds.iter().map(|s| format!("{s:.0}")).collect();
    println!("| tokens/s | {} |", speeds.join(" | "));
}
