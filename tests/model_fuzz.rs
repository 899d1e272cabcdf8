//! Damaged model files: an error or a score, never a panic, whatever bytes of
//! the header or the weights are wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::support::score_whole;
use crate::support::tiny::{Random, Tiny};
use pplx::backend::cpu::CpuModel;
use pplx::eval::{Feed, Geometry, Limits, WindowPlan};
use pplx::gguf::Gguf;
use pplx::model::Model;

/// A number below `n`: the same damage on every machine.
fn below(random: &mut Random, n: usize) -> usize {
    (random.next() * n as f32) as usize
}

/// Loads and scores what may be a model; says whether it was one.
fn try_to_score(bytes: Vec<u8>) -> bool {
    let Ok(gguf) = Gguf::from_bytes("damaged.gguf", bytes) else {
        return false;
    };
    let Ok(model) = Model::from_gguf(Arc::new(gguf)) else {
        return false;
    };
    let n_vocab = model.n_vocab as u32;
    let cpu = CpuModel::new(Arc::new(model), 1).expect("a thread");
    let tokens: Vec<u32> = (0..24).map(|i| (i * 7) % n_vocab.max(1)).collect();
    let plan =
        WindowPlan::new(tokens.len(), Geometry::llama_cpp(12), Limits::default()).expect("a plan");
    let feed = Feed {
        bos: None,
        batch: 2,
    };
    score_whole(&cpu, &tokens, &plan, feed).is_ok()
}

/// Damages the first `header` bytes of a model in `rounds` ways.
fn damage(name: &str, whole: &[u8], header: usize, seed: u64, rounds: usize) {
    let mut random = Random::new(seed);
    let mut scored = 0;
    for _ in 0..rounds {
        let mut bytes = whole.to_vec();
        for _ in 0..1 + below(&mut random, 3) {
            let at = below(&mut random, header);
            bytes[at] = match below(&mut random, 3) {
                0 => below(&mut random, 256) as u8,
                1 => bytes[at] ^ (1 << below(&mut random, 8)),
                _ => [0, 1, 0x7f, 0x80, 0xff][below(&mut random, 5)],
            };
        }
        match catch_unwind(AssertUnwindSafe(|| try_to_score(bytes.clone()))) {
            Ok(good) => scored += usize::from(good),
            Err(_) => {
                let path = std::env::temp_dir().join("pplx-damaged.gguf");
                std::fs::write(&path, bytes).expect("the temp directory");
                panic!("{name}: {} makes it panic", path.display());
            }
        }
    }
    println!("{name}: {scored} of {rounds} damaged models were scored");
    assert!(0 < scored && scored < rounds, "{name}: {scored} scored");
}

#[test]
fn damaged_models_never_panic() {
    for (seed, tiny) in [(1, Tiny::llama()), (2, Tiny::gemma3())] {
        let whole = tiny.writer().to_bytes();
        damage(
            tiny.architecture,
            &whole,
            whole.len().min(6000),
            seed,
            10_000,
        );
    }
}

#[test]
fn damaged_models_of_the_suite_never_panic() {
    // The suite's vocabulary takes the first kilobytes; what decides is around it.
    const HEADER: usize = 24_000;
    let Some(root) = crate::support::shared("arch") else {
        return;
    };
    let files = std::fs::read_dir(root).expect("a directory");
    let mut files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    files.sort();
    for (seed, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".gguf") && !name.contains("_q_") {
            let whole = std::fs::read(path).expect("a model");
            damage(&name, &whole, HEADER, seed as u64, 60);
        }
    }
}

#[test]
fn damaged_relatives_never_panic() {
    // These have no vocabulary: metadata, the list of tensors, some weights.
    const HEADER: usize = 6000;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/relatives");
    let files = std::fs::read_dir(root).expect("a directory");
    let mut files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    files.sort();
    for (seed, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".gguf") {
            let whole = std::fs::read(path).expect("a model");
            damage(&name, &whole, HEADER, seed as u64, 500);
        }
    }
}
