//! Layers with a state along the sequence: nothing may pass from one sequence to
//! another, and the bits may not depend on how the work is shared.

use std::path::Path;
use std::sync::Arc;

use crate::support::{ids, shared};
use pplx::backend::cpu::{CpuModel, Isa};
use pplx::backend::{Interrupt, LayerWindowModel, Target};
use pplx::gguf::{Array, Gguf, GgufWriter, Value};
use pplx::model::{Model, ModelError};

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
        window
            .forward(&mut hidden, &Interrupt::default())
            .expect("a pass");
    }
    let mut first = 0;
    let mut all = Vec::new();
    for s in sequences {
        let rows = (first..).zip(&s[1..]);
        let targets: Vec<Target> = rows.map(|(row, &id)| Target { row, id }).collect();
        let scores = cpu
            .score_targets(&hidden, &targets, &Interrupt::default())
            .expect("a score");
        all.push(scores.iter().map(|s| s.nll.to_bits()).collect());
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
            assert!(nll(&cpu(3, isa), &sequences) == want, "{case}: {isa:?}");
        }
        // One by one, on scratch that other sequences have used.
        for n_threads in [1, 3] {
            let cpu = cpu(n_threads, Isa::detect());
            let single = sequences.iter().flat_map(|s| nll(&cpu, &[s]));
            assert!(
                single.collect::<Vec<_>>() == want,
                "{case}: {n_threads} threads"
            );
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

/// Opens a case with one key changed or added, and tensors added or left out.
fn changed(
    root: &Path,
    case: &str,
    key: &str,
    value: Value,
    (without, with): (&str, &str),
) -> Result<Model, ModelError> {
    let gguf = Gguf::open(root.join(format!("{case}.gguf"))).expect("the case");
    let mut w = GgufWriter::default();
    for (k, v) in gguf.metadata().iter().filter(|(k, _)| *k != key) {
        w.meta(k, v.clone());
    }
    w.meta(key, value);
    for t in gguf.tensors().iter().filter(|t| t.name != without) {
        w.tensor(&t.name, &t.dims, t.ty, gguf.data(t).to_vec());
    }
    if !with.is_empty() {
        w.f32_tensor(with, &[4], &[0.0; 4]);
    }
    Model::from_gguf(Arc::new(Gguf::from_bytes(case, w.to_bytes())?))
}

#[test]
fn what_contradicts_is_refused() {
    let Some(root) = shared("arch") else { return };
    for (case, key, value, needles) in [
        ("mamba2", "ssm.group_count", 3, ["3", "8 heads"]),
        ("mamba2", "ssm.time_step_rank", 7, ["7", "inner width 128"]),
        ("mamba2", "ssm.state_size", 8, ["[4, 192]", "[4, 160]"]),
        ("mamba", "ssm.state_size", 8, ["blk.0.ssm_x.weight", "20"]),
        ("mamba", "ssm.conv_kernel", 3, ["[4, 128]", "[3, 128]"]),
        (
            "qwen35",
            "ssm.inner_size",
            96,
            ["96", "4 value heads of width 16 make 64"],
        ),
        (
            "qwen35",
            "ssm.time_step_rank",
            3,
            ["3", "multiple of the 2 key heads"],
        ),
        (
            "qwen35",
            "attention.value_length",
            16,
            ["16", "key width 32"],
        ),
        (
            "qwen35",
            "full_attention_interval",
            3,
            ["blk.2.attn_qkv.weight", "[64, 192]"],
        ),
        (
            "qwen35_tied_mtp",
            "nextn_predict_layers",
            0,
            ["blk.4.nextn.", "does not use"],
        ),
        ("rwkv6", "wkv.head_size", 48, ["48", "hidden width 128"]),
        ("rwkv6", "token_shift_count", 1, ["1", "supported"]),
        (
            "rwkv7",
            "attention.gate_lora_rank",
            16,
            ["[32, 128]", "[16, 128]"],
        ),
        ("lfm2", "shortconv.l_cache", 4, ["[3, 64]", "[4, 64]"]),
    ] {
        let key = format!("{}.{key}", case.trim_end_matches("_tied_mtp"));
        let error = match changed(&root, case, &key, Value::U32(value), ("", "")) {
            Ok(_) => panic!("{case} with {key} = {value} is accepted"),
            Err(e) => e.to_string(),
        };
        for needle in needles {
            assert!(error.contains(needle), "{case}, {key}: {error}");
        }
    }
    let flags = Value::Array(Array::Bool(vec![true; 3]));
    let key = "qwen35moe.attention.recurrent_layers";
    let error = changed(&root, "qwen35moe", key, flags, ("", "")).err();
    let error = error.expect("flags for each layer are needed").to_string();
    assert!(
        error.contains("array of 3") && error.contains("4 layers"),
        "{error}"
    );
}

#[test]
fn no_tensor_is_left_out_and_none_is_made_up() {
    let Some(root) = shared("arch") else { return };
    let same = || Value::U32(64);
    for (case, tensor) in [
        ("mamba", "blk.1.ssm_d"),
        ("mamba", "blk.0.ssm_conv1d.bias"),
        ("mamba2", "blk.1.ssm_dt.bias"),
        ("mamba2", "blk.2.ssm_norm.weight"),
        ("nemotron_h", "blk.3.ssm_norm.weight"),
        ("nemotron_h", "blk.0.ssm_a"),
        ("falcon_h1", "blk.2.ffn_norm"),
        ("qwen35", "blk.1.ssm_dt.bias"),
        ("qwen3next", "blk.0.attn_gate.weight"),
        ("rwkv6", "blk.0.time_mix_decay.weight"),
        ("rwkv7", "blk.1.time_mix_v0.weight"),
        ("lfm2", "blk.0.shortconv.conv.weight"),
    ] {
        let absent = changed(&root, case, "unused.key", same(), (tensor, "")).err();
        let absent = absent.expect("a tensor is missing").to_string();
        assert!(
            absent.contains(tensor) && absent.contains("missing"),
            "{absent}"
        );
        let extra = "blk.0.ssm_of_tomorrow.weight";
        let unknown = changed(&root, case, "unused.key", same(), ("", extra)).err();
        let unknown = unknown.expect("a tensor is not used").to_string();
        assert!(
            unknown.contains(extra) && unknown.contains("does not use"),
            "{unknown}"
        );
    }
}
