//! Turning off a feature changes the figures of every case that has it, and by
//! more than twice the bound against llama.cpp: without the feature, the comparison
//! with llama.cpp would fail.

use std::collections::BTreeSet;
use std::sync::Arc;

use pplx::backend::cpu::{CpuModel, Isa};
use pplx::eval::{Geometry, WindowScore};
use pplx::gguf::Value;
use pplx::model::{Attention, Model, Span};

use super::fixtures::{EXACT, bound};
use super::off::{FEATURES, attentions};
use crate::cases::{CASES, GEOMETRY, N_CTX, N_WINDOWS, bos, by_name, tokens};
use crate::support::score;
use crate::support::tiny::Tiny;

/// What the mean of `|Δ NLL|` must exceed.
const VISIBLE: f64 = 1e-3;

fn nlls(model: Model, bos: Option<u32>) -> Vec<f64> {
    let cpu = CpuModel::with_isa(Arc::new(model), 1, Isa::detect()).expect("threads");
    let scores = score(&cpu, &tokens(), GEOMETRY, N_WINDOWS, bos, N_WINDOWS);
    scores.iter().flat_map(WindowScore::nll).collect()
}

/// Mean and largest of `|a − b|`.
fn moved(a: &[f64], b: &[f64]) -> (f64, f64) {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    let sum: f64 = differences.clone().sum();
    (sum / a.len() as f64, differences.fold(0.0, f64::max))
}

/// Whether figures differ enough for a test to fail that compares them within
/// `bound`.
fn shows((mean, largest): (f64, f64), bound: f64) -> bool {
    mean > VISIBLE && largest > 2.0 * bound
}

fn model(tiny: &Tiny) -> Model {
    tiny.model().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_feature_of_every_case_shows() {
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for case in CASES {
        let tiny = (case.build)();
        let bound = bound(&model(&tiny));
        let base = nlls(model(&tiny), bos(&tiny));
        for (name, off) in FEATURES {
            let mut model = model(&tiny);
            if !off(&mut model) {
                continue;
            }
            seen.insert(*name);
            let moved = moved(&nlls(model, bos(&tiny)), &base);
            if !shows(moved, bound) {
                wrong.push(format!("{}: {name}: {moved:.5?}", case.name));
            }
        }
    }
    for (name, _) in FEATURES {
        if !seen.contains(name) {
            wrong.push(format!("no case has the feature '{name}'"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn text(s: &str) -> Value {
    Value::String(s.to_owned())
}

/// Features that a file's keys and tensors switch: case, feature, change.
type Change = fn(Tiny) -> Tiny;

const NO_SCALING: Change = |t| t.set("rope.scaling.type", text("none"));
const NO_ATTN_FACTOR: Change = |t| t.unset("rope.scaling.attn_factor");
const FULL_ROTARY: Change = |t| t.unset("rope.dimension_count");

const CHANGES: &[(&str, &str, Change)] = &[
    ("llama", "RoPE base", |t| {
        t.set("rope.freq_base", Value::F32(500.0))
    }),
    ("llama_rope_linear", "RoPE scaling", NO_SCALING),
    ("llama_rope_yarn", "RoPE scaling", NO_SCALING),
    ("llama_rope_yarn", "kind of RoPE scaling", |t| {
        t.set("rope.scaling.type", text("linear"))
    }),
    ("llama_rope_yarn", "original context", |t| {
        t.unset("rope.scaling.original_context_length")
    }),
    ("llama_rope_llama3", "frequency factors", |t| {
        t.without("rope_freqs.weight")
    }),
    ("gemma3", "RoPE base of sliding layers", |t| {
        t.set("rope.freq_base_swa", Value::F32(1e6))
    }),
    ("gemma3_rope_scaling", "RoPE scaling", NO_SCALING),
    ("gemma3_rope_scaling", "period of windows", |t| {
        t.unset("attention.sliding_window_pattern")
    }),
    ("olmo3", "RoPE scaling", NO_SCALING),
    ("gpt_oss", "RoPE scaling", NO_SCALING),
    ("deepseek2_yarn", "RoPE scaling", NO_SCALING),
    ("deepseek2_yarn", "YaRN's multiplier", |t| {
        t.unset("rope.scaling.yarn_log_multiplier")
    }),
    ("phi3_longrope_short", "attention factor", NO_ATTN_FACTOR),
    ("phi3_longrope_short", "short factors", |t| {
        t.edit("rope_factors_short.weight", |f| f.fill(1.0))
    }),
    ("phi3_longrope_long", "attention factor", NO_ATTN_FACTOR),
    ("phi3_longrope_long", "long factors", |t| {
        t.edit("rope_factors_long.weight", |f| f.fill(1.0))
    }),
    ("phi3_longrope_long", "original context", |t| {
        t.set("rope.scaling.original_context_length", Value::U32(512))
    }),
    ("gptneox", "partial rotary", FULL_ROTARY),
    ("stablelm", "partial rotary", FULL_ROTARY),
    ("minimax_m2", "partial rotary", FULL_ROTARY),
    ("glm4moe", "partial rotary", FULL_ROTARY),
    ("gptneox", "parallel residual", |t| {
        t.set("use_parallel_residual", Value::Bool(false))
    }),
    ("llama_tied_bos", "BOS", |t| {
        t.tokenizer("add_bos_token", Value::Bool(false))
    }),
];

#[test]
fn what_a_files_keys_switch_shows() {
    let mut wrong = Vec::new();
    for (name, feature, change) in CHANGES {
        let tiny = (by_name(name).build)();
        let bound = bound(&model(&tiny));
        let base = nlls(model(&tiny), bos(&tiny));
        let changed = change(tiny);
        let moved = moved(&nlls(model(&changed), bos(&changed)), &base);
        if !shows(moved, bound) {
            wrong.push(format!("{name}: {feature}: {moved:.5?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_for_multi_token_prediction_change_nothing() {
    let with = (by_name("glm4moe").build)();
    let mut without = with.clone().unset("nextn_predict_layers");
    without.tensors.retain(|(n, ..)| !n.starts_with("blk.2."));
    let without = without.set("block_count", Value::U32(2));
    assert_eq!(nlls(model(&with), None), nlls(model(&without), None));
    // As an ordinary layer it would.
    let mut layer = with.unset("nextn_predict_layers");
    layer.tensors.retain(|(n, ..)| !n.contains(".nextn."));
    let (layer, without) = (model(&layer), model(&without));
    let moved = moved(&nlls(layer, None), &nlls(without, None));
    assert!(shows(moved, EXACT), "{moved:.5?}");
}

/// Windows are too short to reach the constants of Llama 4, so smaller ones
/// take their place.
#[test]
fn chunks_are_windows_of_their_own() {
    const CHUNK: usize = 8;
    let tiny = (by_name("llama4").build)();
    let mut chunked = model(&tiny);
    let rope = attentions(&mut chunked).next().unwrap().rope.clone();
    let everywhere = |m: &mut Model, span| {
        for a in attentions(m) {
            a.heads.span = span;
            a.temperature = None;
            a.rope.clone_from(&rope);
        }
    };
    everywhere(&mut chunked, Span::Chunk(CHUNK));
    let ours = nlls(chunked, None);
    let mut whole = model(&tiny);
    everywhere(&mut whole, Span::All);
    let cpu = CpuModel::with_isa(Arc::new(whole), 1, Isa::detect()).unwrap();
    let short = Geometry::sliding_window(CHUNK, None, Some(1));
    let alone = score(&cpu, &tokens(), short, N_CTX / CHUNK, None, 1);
    for (i, window) in alone.iter().enumerate() {
        // A chunk's first target is predicted from the chunk before.
        let ours = &ours[i * CHUNK..][..CHUNK - 1];
        let off = window.nll().zip(ours).map(|(a, b)| (a - b).abs());
        let off = off.fold(0.0, f64::max);
        assert!(off < 1e-4, "chunk {i}: {off:e}");
    }
}

/// In the last layer of Llama 4, which sees everything, the only query that a
/// window's last target depends on is the last one.
#[test]
fn temperature_multiplies_queries() {
    let tiny = (by_name("llama4").build)();
    let with = |change: fn(&mut Attention)| {
        let mut model = model(&tiny);
        change(attentions(&mut model).last().unwrap());
        nlls(model, None)
    };
    // Reached by the last query, at position `N_CTX - 2`.
    let scaled = with(|a| a.temperature.as_mut().unwrap().floor = (N_CTX - 1) as f32);
    let base = with(|_| ());
    let by_hand = with(|a| a.heads.scale *= 1.0 + 0.1 * 2f32.ln());
    for window in 0..N_WINDOWS {
        let all = window * (N_CTX - 1)..(window + 1) * (N_CTX - 1);
        let (last, before) = (all.end - 1, all.start..all.end - 1);
        assert_eq!(scaled[before.clone()], base[before]);
        assert!((scaled[last] - by_hand[last]).abs() < 1e-5);
        assert!((scaled[last] - base[last]).abs() > 1e-4);
    }
}
