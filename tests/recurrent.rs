//! Layers with a state along the sequence: nothing may pass from one sequence to
//! another, and the bits may not depend on how the work is shared.

mod support;

use std::path::Path;
use std::sync::Arc;

use pplx::backend::cpu::{CpuModel, Isa};
use pplx::backend::{LayerWindowModel, Target};
use pplx::model::Model;
use support::{ids, shared};

const CASES: [&str; 16] = [
    "mamba",
    "mamba2",
    "jamba",
    "granitehybrid",
    "nemotron_h",
    "nemotron_h_moe",
    "falcon_h1",
    "qwen35",
    "qwen35_tied_mtp",
    "qwen35moe",
    "qwen3next",
    "qwen3next_legacy",
    "rwkv6",
    "rwkv7",
    "lfm2",
    "lfm2moe",
];

/// Figures of every target of `sequences`, each layer in a window of its own.
fn nll(cpu: &CpuModel, sequences: &[&[u32]]) -> Vec<Vec<u64>> {
    let mut hidden = cpu.embed(sequences, 64).expect("embedding");
    for i in 0..cpu.n_layer() {
        let mut window = cpu.layers(i..i + 1).expect("a window");
        window.reset_state();
        window.forward(&mut hidden).expect("a pass");
    }
    let mut first = 0;
    let mut all = Vec::new();
    for s in sequences {
        let rows = (first..).zip(&s[1..]);
        let targets: Vec<Target> = rows.map(|(row, &id)| Target { row, id }).collect();
        let nll = cpu.target_nll(&hidden, &targets).expect("a score");
        all.push(nll.into_iter().map(f64::to_bits).collect());
        first += s.len();
    }
    all
}

fn open(path: &Path) -> Arc<Model> {
    Arc::new(Model::open(path).unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn sequences_and_threads_do_not_mix() {
    let Some(root) = shared("arch") else { return };
    let tokens = ids(&root.join("ids.txt"));
    // Different lengths, one of a single predicted token.
    let sequences = [
        &tokens[..64],
        &tokens[64..66],
        &tokens[70..110],
        &tokens[128..192],
    ];
    for case in CASES {
        let model = open(&root.join(format!("{case}.gguf")));
        let cpu =
            |n_threads, isa| CpuModel::with_isa(model.clone(), n_threads, isa).expect("threads");
        // Each in a model of its own, so that there is nothing to be left over.
        let want: Vec<_> = sequences
            .iter()
            .flat_map(|s| nll(&cpu(1, Isa::detect()), &[s]))
            .collect();
        for isa in Isa::available() {
            for n_threads in [1, 3] {
                let cpu = cpu(n_threads, isa);
                // All at once, then one by one with scratch that others have used.
                assert!(nll(&cpu, &sequences) == want, "{case}: a batch");
                let single = sequences.iter().flat_map(|s| nll(&cpu, &[s]));
                assert!(single.collect::<Vec<_>>() == want, "{case}: one by one");
            }
        }
    }
}

/// Running on into the next sequence, which is what a state that is not reset
/// amounts to, changes every figure.
#[test]
fn a_state_from_before_changes_the_number() {
    let Some(root) = shared("arch") else { return };
    let tokens = ids(&root.join("ids.txt"));
    for case in CASES {
        let model = open(&root.join(format!("{case}.gguf")));
        let cpu = CpuModel::new(model, 1).expect("threads");
        let alone = &nll(&cpu, &[&tokens[32..64]])[0];
        let after = &nll(&cpu, &[&tokens[..64]])[0][32..];
        let moved = alone
            .iter()
            .zip(after)
            .filter(|(a, b)| (f64::from_bits(**a) - f64::from_bits(**b)).abs() > 1e-3);
        let moved = moved.count();
        assert!(moved > 16, "{case}: {moved} of {} moved", alone.len());
    }
}
