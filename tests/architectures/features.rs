//! Turning off a feature changes the figures of every case that has it, far more
//! than the bound against llama.cpp: a feature that could not be seen would not
//! be tested.

use std::collections::BTreeSet;
use std::sync::Arc;

use pplx::backend::cpu::{CpuModel, Isa};
use pplx::eval::Geometry;
use pplx::gguf::Value;
use pplx::model::{
    Activation, Attention, Ffn, Gating, Heads, Linear, Mixer, Mla, MlaKv, MlaQuery, Model, Moe,
    Norm, Residual, Rope, RopePairs, Span,
};

use crate::cases::{CASES, GEOMETRY, N_CTX, N_WINDOWS, bos, by_name, tokens};
use crate::support::score;
use crate::support::tiny::Tiny;

/// What the mean of `|Δ NLL|` must exceed.
const VISIBLE: f64 = 1e-3;

fn nlls(model: Model, bos: Option<u32>) -> Vec<f64> {
    let cpu = CpuModel::with_isa(Arc::new(model), 1, Isa::detect()).expect("threads");
    let scores = score(&cpu, &tokens(), GEOMETRY, N_WINDOWS, bos, N_WINDOWS);
    scores.into_iter().flat_map(|s| s.nll).collect()
}

fn moved(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.sum::<f64>() / a.len() as f64
}

fn model(tiny: &Tiny) -> Model {
    tiny.model().unwrap_or_else(|e| panic!("{e}"))
}

fn blocks(m: &mut Model) -> impl Iterator<Item = &mut Residual> {
    m.layers.iter_mut().flat_map(|l| &mut l.blocks)
}

fn mixers(m: &mut Model) -> impl Iterator<Item = &mut Mixer> {
    blocks(m)
        .flat_map(|b| &mut b.branches)
        .map(|b| &mut b.mixer)
}

fn attentions(m: &mut Model) -> impl Iterator<Item = &mut Attention> {
    mixers(m).filter_map(|m| match m {
        Mixer::Attention(a) => Some(a),
        _ => None,
    })
}

fn latent(m: &mut Model) -> impl Iterator<Item = &mut Mla> {
    mixers(m).filter_map(|m| match m {
        Mixer::Mla(a) => Some(a),
        _ => None,
    })
}

fn heads(m: &mut Model) -> impl Iterator<Item = &mut Heads> {
    mixers(m).filter_map(|m| match m {
        Mixer::Attention(a) => Some(&mut a.heads),
        Mixer::Mla(a) => Some(&mut a.heads),
        _ => None,
    })
}

fn ropes(m: &mut Model) -> impl Iterator<Item = &mut Rope> {
    mixers(m).filter_map(|m| match m {
        Mixer::Attention(a) => a.rope.as_mut(),
        Mixer::Mla(a) => Some(&mut a.rope),
        _ => None,
    })
}

fn moes(m: &mut Model) -> impl Iterator<Item = &mut Moe> {
    mixers(m).filter_map(|m| match m {
        Mixer::Moe(e) => Some(e),
        _ => None,
    })
}

/// All networks, experts too.
fn ffns(m: &mut Model) -> impl Iterator<Item = &mut Ffn> {
    mixers(m).flat_map(|m| -> Vec<&mut Ffn> {
        match m {
            Mixer::Ffn(f) => vec![f],
            Mixer::Moe(e) => {
                let shared = e.shared.iter_mut().map(|s| &mut s.ffn);
                e.experts.iter_mut().chain(shared).collect()
            }
            _ => Vec::new(),
        }
    })
}

/// Applies `change` to all, and says whether one of them had something to change.
fn each<T>(items: impl Iterator<Item = T>, mut change: impl FnMut(T) -> bool) -> bool {
    items.fold(false, |any, item| change(item) | any)
}

fn take<T>(option: &mut Option<T>) -> bool {
    option.take().is_some()
}

/// Sets `value`, and says whether that is a change.
fn put<T: PartialEq>(place: &mut T, value: T) -> bool {
    let changes = *place != value;
    *place = value;
    changes
}

fn no_bias(linear: &mut Linear) -> bool {
    take(&mut linear.bias)
}

fn plain(norm: &mut Norm) -> bool {
    take(&mut norm.weight) | take(&mut norm.bias)
}

/// Takes one feature out of a model, and says whether the model had it.
type Off = fn(&mut Model) -> bool;

const FEATURES: &[(&str, Off)] = &[
    ("embedding scale", |m| put(&mut m.embedding.scale, 1.0)),
    ("position embedding", |m| take(&mut m.embedding.positions)),
    // Without any, deep models overflow.
    ("pre-norms of the first layer", |m| {
        let first = m.layers[0].blocks.iter_mut();
        each(first.flat_map(|b| &mut b.branches), |b| {
            take(&mut b.pre_norm)
        })
    }),
    ("weights of pre-norms", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            b.pre_norm.as_mut().is_some_and(plain)
        })
    }),
    ("biases of pre-norms", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            b.pre_norm.as_mut().is_some_and(|n| take(&mut n.bias))
        })
    }),
    ("post-norms", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            take(&mut b.post_norm)
        })
    }),
    ("residual scale", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            put(&mut b.scale, 1.0)
        })
    }),
    ("parallel residual", |m| {
        each(m.layers.iter_mut(), |layer| {
            let n_blocks = layer.blocks.len();
            let branches = layer.blocks.drain(..).flat_map(|b| b.branches);
            let blocks: Vec<Residual> = branches.map(|b| Residual { branches: vec![b] }).collect();
            layer.blocks = blocks;
            layer.blocks.len() > n_blocks
        })
    }),
    ("sequential residual", |m| {
        each(m.layers.iter_mut(), |layer| {
            let n_blocks = layer.blocks.len();
            let branches = layer.blocks.drain(..).flat_map(|b| b.branches).collect();
            layer.blocks = vec![Residual { branches }];
            n_blocks > 1
        })
    }),
    ("sliding window", |m| {
        each(heads(m), |h| {
            matches!(h.span, Span::Window(_)) && put(&mut h.span, Span::All)
        })
    }),
    ("attention soft-cap", |m| {
        each(heads(m), |h| take(&mut h.softcap))
    }),
    ("sinks", |m| each(heads(m), |h| take(&mut h.sinks))),
    ("attention scale", |m| {
        each(attentions(m), |a| {
            let usual = 1.0 / (a.heads.head_dim as f32).sqrt();
            put(&mut a.heads.scale, usual)
        })
    }),
    ("QK norm", |m| each(attentions(m), |a| take(&mut a.qk_norm))),
    ("place of the QK norm", |m| {
        each(attentions(m), |a| match (&mut a.qk_norm, &a.rope) {
            // Without weights, the order does not matter.
            (Some(n), Some(_)) if n.q.weight.is_some() => {
                n.after_rope = !n.after_rope;
                true
            }
            _ => false,
        })
    }),
    ("RoPE", |m| each(attentions(m), |a| take(&mut a.rope))),
    ("pairs of RoPE", |m| {
        each(ropes(m), |r| {
            let other = match r.pairs {
                RopePairs::Adjacent => RopePairs::Halves,
                RopePairs::Halves => RopePairs::Adjacent,
            };
            put(&mut r.pairs, other)
        })
    }),
    ("norm before the attention's output", |m| {
        each(attentions(m), |a| take(&mut a.sub_norm))
    }),
    ("query bias", |m| each(attentions(m), |a| no_bias(&mut a.q))),
    // Without RoPE it adds the same to all scores of a query.
    ("key bias", |m| {
        each(attentions(m), |a| a.rope.is_some() && no_bias(&mut a.k))
    }),
    ("value bias", |m| each(attentions(m), |a| no_bias(&mut a.v))),
    ("attention output bias", |m| {
        each(attentions(m), |a| no_bias(&mut a.output))
    }),
    ("factors of attention matrices", |m| {
        each(attentions(m), |a| {
            let maps = [&mut a.q, &mut a.k, &mut a.v, &mut a.output];
            each(maps.into_iter(), |l| put(&mut l.scale, 1.0))
        })
    }),
    ("norm of the latent query", |m| {
        each(latent(m), |a| match &mut a.query {
            MlaQuery::LowRank { norm, .. } => plain(norm),
            MlaQuery::Direct(_) => false,
        })
    }),
    ("norm of the latent", |m| {
        each(latent(m), |a| plain(&mut a.kv_norm))
    }),
    ("keys of the latent", |m| {
        each(latent(m), |a| match &mut a.kv {
            MlaKv::Absorbed { k, .. } => each(k.iter_mut(), |k| put(&mut k.scale, 0.0)),
            MlaKv::Expanded { k, .. } => put(&mut k.scale, 0.0),
        })
    }),
    ("FFN gate", |m| {
        // The clamped SwiGLU is nothing without its gate.
        let ffns = ffns(m).filter(|f| f.activation != Activation::ClampedSwiglu);
        each(ffns, |f| take(&mut f.gate))
    }),
    ("activation", |m| {
        each(ffns(m), |f| {
            let other = match f.activation {
                Activation::Silu => Activation::GeluTanh,
                _ => Activation::Silu,
            };
            put(&mut f.activation, other)
        })
    }),
    ("FFN gate bias", |m| {
        each(ffns(m), |f| f.gate.as_mut().is_some_and(no_bias))
    }),
    ("FFN up bias", |m| each(ffns(m), |f| no_bias(&mut f.up))),
    ("FFN down bias", |m| each(ffns(m), |f| no_bias(&mut f.down))),
    ("factors of FFN matrices", |m| {
        each(ffns(m), |f| {
            let maps = f.gate.iter_mut().chain([&mut f.up, &mut f.down]);
            each(maps, |l| put(&mut l.scale, 1.0))
        })
    }),
    ("norm within the FFN", |m| {
        each(ffns(m), |f| take(&mut f.sub_norm))
    }),
    ("router bias", |m| each(moes(m), |e| no_bias(&mut e.router))),
    ("number of experts", |m| {
        each(moes(m), |e| {
            e.n_used = if e.n_used > 1 { e.n_used - 1 } else { 2 };
            true
        })
    }),
    ("gating function", |m| {
        each(moes(m), |e| {
            // Renormalized, a softmax over all is one over the chosen.
            let other = match e.gating {
                Gating::Sigmoid => Gating::Softmax,
                _ => Gating::Sigmoid,
            };
            put(&mut e.gating, other)
        })
    }),
    ("bias for the choice of experts", |m| {
        each(moes(m), |e| take(&mut e.selection_bias))
    }),
    ("groups of experts", |m| {
        each(moes(m), |e| take(&mut e.groups))
    }),
    ("renormalization", |m| {
        each(moes(m), |e| {
            e.gating != Gating::SoftmaxOfChosen && put(&mut e.normalize, false)
        })
    }),
    ("no renormalization", |m| {
        each(moes(m), |e| {
            e.gating != Gating::SoftmaxOfChosen && put(&mut e.normalize, true)
        })
    }),
    ("scale of the experts' weights", |m| {
        each(moes(m), |e| put(&mut e.scale, 1.0))
    }),
    ("weights at the experts' input", |m| {
        each(moes(m), |e| put(&mut e.weigh_input, false))
    }),
    ("shared expert", |m| each(moes(m), |e| take(&mut e.shared))),
    ("gate of the shared expert", |m| {
        each(moes(m), |e| {
            e.shared.as_mut().is_some_and(|s| take(&mut s.gate))
        })
    }),
    ("final norm", |m| take(&mut m.head.norm)),
    ("bias of the final norm", |m| {
        m.head.norm.as_mut().is_some_and(|n| take(&mut n.bias))
    }),
    ("logit scale", |m| put(&mut m.head.scale, 1.0)),
    ("logit soft-cap", |m| take(&mut m.head.softcap)),
];

#[test]
fn every_feature_of_every_case_shows() {
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for case in CASES {
        let tiny = (case.build)();
        let base = nlls(model(&tiny), bos(&tiny));
        for (name, off) in FEATURES {
            let mut model = model(&tiny);
            if !off(&mut model) {
                continue;
            }
            seen.insert(*name);
            let moved = moved(&nlls(model, bos(&tiny)), &base);
            // Written so that NaN is wrong.
            if !(moved > VISIBLE) {
                wrong.push(format!("{}: {name}: {moved:.1e}", case.name));
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
        t.without("rope_factors_short.weight")
    }),
    ("phi3_longrope_long", "attention factor", NO_ATTN_FACTOR),
    ("phi3_longrope_long", "long factors", |t| {
        t.without("rope_factors_long.weight")
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
        let base = nlls(model(&tiny), bos(&tiny));
        let changed = change(tiny);
        let moved = moved(&nlls(model(&changed), bos(&changed)), &base);
        if !(moved > VISIBLE) {
            wrong.push(format!("{name}: {feature}: {moved:.1e}"));
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
    assert!(moved(&nlls(layer, None), &nlls(without, None)) > VISIBLE);
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
        let off = window.nll.iter().zip(ours).map(|(a, b)| (a - b).abs());
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
