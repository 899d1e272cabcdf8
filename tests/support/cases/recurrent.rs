//! Layers with a state, most of them between others with attention.

use super::builder::{Attn, Builder, Experts, QkNorm, Shape};
use super::dense::granite_keys;
use super::experts::next_token_block;
use crate::support::tiny::Tiny;

/// A model without the keys of attention.
fn without_attention(architecture: &'static str, shape: Shape) -> Builder {
    let mut b = Builder::new(architecture, architecture, shape);
    for key in [
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
        "rope.freq_base",
    ] {
        b.unset(key);
    }
    b.count("attention.head_count", 0);
    b
}

/// Widths of a state space.
#[derive(Clone, Copy)]
struct Ssm {
    d_inner: usize,
    d_state: usize,
    /// Rank of the time steps (Mamba-1), or number of heads.
    rank: usize,
    groups: usize,
}

const CONV: usize = 4;
const MAMBA1: Ssm = Ssm {
    d_inner: 64,
    d_state: 8,
    rank: 4,
    groups: 0,
};
const MAMBA2: Ssm = Ssm {
    d_inner: 64,
    d_state: 8,
    rank: 4,
    groups: 2,
};

fn ssm_keys(b: &mut Builder, s: Ssm) {
    b.count("ssm.conv_kernel", CONV);
    b.count("ssm.inner_size", s.d_inner);
    b.count("ssm.state_size", s.d_state);
    b.count("ssm.time_step_rank", s.rank);
    if s.groups > 0 {
        b.count("ssm.group_count", s.groups);
    }
}

fn mamba1_layer(b: &mut Builder, i: usize, s: Ssm, norms: bool) {
    let d = b.shape.d;
    let at = |part: &str| format!("blk.{i}.ssm_{part}");
    b.linear(&at("in"), d, 2 * s.d_inner, 1.0);
    b.tensor(&at("conv1d.weight"), &[CONV, s.d_inner], 0.0, 0.5);
    b.bias(&at("conv1d"), &[s.d_inner]);
    b.linear(&at("x"), s.d_inner, s.rank + 2 * s.d_state, 1.8);
    b.linear(&at("dt"), s.rank, s.d_inner, 0.7);
    b.tensor(&at("dt.bias"), &[s.d_inner], -1.5, 0.7);
    b.log_uniform(&at("a"), &[s.d_state, s.d_inner], (0.03, 3.0), -1.0);
    b.tensor(&at("d"), &[s.d_inner], 1.0, 0.3);
    b.linear(&at("out"), s.d_inner, d, 1.5);
    if norms {
        b.norm(&at("dt_norm"), s.rank);
        b.norm(&at("b_norm"), s.d_state);
        b.norm(&at("c_norm"), s.d_state);
    }
}

fn mamba2_layer(b: &mut Builder, i: usize, s: Ssm, norm: bool) {
    let d = b.shape.d;
    let n_conv = s.d_inner + 2 * s.groups * s.d_state;
    let at = |part: &str| format!("blk.{i}.ssm_{part}");
    b.linear(&at("in"), d, s.d_inner + n_conv + s.rank, 1.2);
    b.tensor(&at("conv1d.weight"), &[CONV, n_conv], 0.0, 0.5);
    b.bias(&at("conv1d"), &[n_conv]);
    b.tensor(&at("dt.bias"), &[s.rank], -1.5, 0.7);
    b.log_uniform(&at("a"), &[1, s.rank], (0.03, 2.0), -1.0);
    b.tensor(&at("d"), &[1, s.rank], 1.0, 0.3);
    if norm {
        let dims = [s.d_inner / s.groups, s.groups];
        b.tensor(&at("norm.weight"), &dims, 1.0, 0.25);
    }
    b.linear(&at("out"), s.d_inner, d, 1.2);
}

fn state_space(architecture: &'static str, s: Ssm, layer: fn(&mut Builder, usize)) -> Tiny {
    let mut b = without_attention(architecture, Shape::default());
    b.count("feed_forward_length", 0);
    ssm_keys(&mut b, s);
    b.ends(true);
    for i in 0..b.shape.n_layer {
        b.layer_part(i, "attn_norm");
        layer(&mut b, i);
    }
    b.tiny
}

pub fn mamba() -> Tiny {
    state_space("mamba", MAMBA1, |b, i| mamba1_layer(b, i, MAMBA1, false))
}

pub fn mamba2() -> Tiny {
    state_space("mamba2", MAMBA2, |b, i| mamba2_layer(b, i, MAMBA2, true))
}

/// A hybrid: `n_kv` has 0 where a layer has no attention.
fn hybrid(architecture: &'static str, shape: Shape, n_kv: &[usize]) -> Builder {
    let shape = Shape {
        n_layer: n_kv.len(),
        ..shape
    };
    let mut b = Builder::new(architecture, architecture, shape);
    b.counts("attention.head_count_kv", n_kv);
    b
}

/// Norms of the time steps and of what goes into the state and out of it;
/// attention without RoPE; experts in every second layer.
pub fn jamba() -> Tiny {
    let n_kv = [0, 2];
    let e = Experts {
        n_ff: 24,
        down: 2.0,
        ..Experts::default()
    };
    let shape = Shape {
        n_ff: e.n_ff,
        ..Shape::default()
    };
    let mut b = hybrid("jamba", shape, &n_kv);
    ssm_keys(&mut b, MAMBA1);
    b.count("expert_count", e.n);
    b.count("expert_used_count", 2);
    b.ends(true);
    for (i, n) in n_kv.into_iter().enumerate() {
        b.layer_part(i, "attn_norm");
        match n {
            0 => mamba1_layer(&mut b, i, MAMBA1, true),
            _ => b.attn(i, Attn::default()),
        }
        b.layer_part(i, "ffn_norm");
        match i % 2 {
            0 => b.ffn(i, true, false),
            _ => b.moe(i, e),
        }
    }
    b.tiny
}

/// Granite's multipliers; attention without RoPE.
pub fn granitehybrid() -> Tiny {
    let n_kv = [0, 2];
    let s = Ssm {
        groups: 1,
        ..MAMBA2
    };
    let e = Experts {
        n_ff: 24,
        shared: 24,
        down: 2.5,
        ..Experts::default()
    };
    let shape = Shape {
        n_ff: e.n_ff,
        ..Shape::default()
    };
    let mut b = hybrid("granitehybrid", shape, &n_kv);
    granite_keys(&mut b);
    b.bool("rope.scaling.finetuned", false);
    ssm_keys(&mut b, s);
    b.count("expert_count", e.n);
    b.count("expert_used_count", 2);
    b.count("expert_shared_feed_forward_length", e.shared);
    b.embedding(0.25);
    b.norm("output_norm", b.shape.d);
    for (i, n) in n_kv.into_iter().enumerate() {
        b.layer_part(i, "attn_norm");
        match n {
            0 => mamba2_layer(&mut b, i, s, true),
            _ => b.attn(i, Attn::default()),
        }
        b.layer_part(i, "ffn_norm");
        b.moe(i, e);
    }
    b.tiny
}

/// One mixer a layer: Mamba-2, attention, or a squared-ReLU network.
fn nemotron(architecture: &'static str, experts: Option<Experts>) -> Tiny {
    let n_kv = [0, 0, 2];
    let mut b = hybrid(architecture, Shape::default(), &n_kv);
    let n_ff = experts.map_or(b.shape.n_ff, |e| e.n_ff);
    b.counts("feed_forward_length", &[0, n_ff, 0]);
    b.float("attention.layer_norm_epsilon", 1e-5);
    ssm_keys(&mut b, MAMBA2);
    b.ends(experts.is_some());
    for i in 0..3 {
        b.layer_part(i, "attn_norm");
    }
    mamba2_layer(&mut b, 0, MAMBA2, true);
    b.attn(2, Attn::default());
    match experts {
        None => b.ffn(1, false, false),
        Some(e) => {
            b.expert_keys(e, 2);
            b.count("expert_shared_count", 1);
            b.count("expert_shared_feed_forward_length", e.shared);
            b.count("expert_group_count", 1);
            b.count("expert_group_used_count", 1);
            b.bool("expert_weights_norm", true);
            b.float("expert_weights_scale", 2.5);
            b.moe(1, e);
        }
    }
    b.tiny
}

pub fn nemotron_h() -> Tiny {
    nemotron("nemotron_h", None)
}

pub fn nemotron_h_moe() -> Tiny {
    let e = Experts {
        n: 5,
        gate: false,
        selection_bias: true,
        shared: 24,
        down: 0.6,
        ..Experts::default()
    };
    nemotron("nemotron_h_moe", Some(e))
}

/// Attention and Mamba-2 side by side.
pub fn falcon_h1() -> Tiny {
    let s = Ssm {
        groups: 1,
        ..MAMBA2
    };
    let mut b = Builder::new("falcon-h1", "falcon-h1", Shape::default());
    ssm_keys(&mut b, s);
    b.ends(true);
    for i in 0..b.shape.n_layer {
        b.layer_part(i, "attn_norm");
        b.attn(i, Attn::default());
        mamba2_layer(&mut b, i, s, false);
        // The one norm that is named without `.weight`.
        b.tensor(&format!("blk.{i}.ffn_norm"), &[b.shape.d], 1.0, 0.25);
        b.ffn(i, true, false);
    }
    b.tiny
}

/// A gated delta net and gated full attention.
#[derive(Clone, Copy)]
struct Delta {
    /// Heads of keys and of values, and their width.
    n_k: usize,
    n_v: usize,
    width: usize,
    /// Decay and step in one tensor, as Qwen3-Next has them.
    fused: bool,
    /// All inputs but those in one tensor, as its first files had them.
    legacy: bool,
    /// Blocks for multi-token prediction.
    n_mtp: usize,
    experts: Option<Experts>,
}

fn delta_layer(b: &mut Builder, i: usize, n: Delta) {
    let (d, n_conv) = (b.shape.d, n.width * (2 * n.n_k + n.n_v));
    let d_v = n.width * n.n_v;
    let at = |part: &str| format!("blk.{i}.ssm_{part}");
    if n.legacy {
        b.linear(&at("in"), d, n_conv + d_v, 1.2);
    } else {
        b.linear(&format!("blk.{i}.attn_qkv"), d, n_conv, 1.2);
        b.linear(&format!("blk.{i}.attn_gate"), d, d_v, 1.2);
    }
    b.tensor(&at("conv1d.weight"), &[CONV, n_conv], 0.0, 0.6);
    b.tensor(&at("dt.bias"), &[n.n_v], -1.0, 0.7);
    b.log_uniform(&at("a"), &[n.n_v], (0.02, 1.0), -1.0);
    if n.fused {
        b.linear(&at("ba"), d, 2 * n.n_v, 1.3);
    } else {
        b.linear(&at("beta"), d, n.n_v, 1.5);
        b.linear(&at("alpha"), d, n.n_v, 1.0);
    }
    b.norm(&at("norm"), n.width);
    b.linear(&at("out"), d_v, d, 1.5);
}

/// Every second layer has attention, so has a block for multi-token prediction.
fn qwen_delta(architecture: &'static str, seed: &str, tied: bool, n: Delta) -> Tiny {
    let shape = Shape {
        n_layer: 2 + n.n_mtp,
        n_head: 2,
        n_kv: 1,
        head: 16,
        ..Shape::default()
    };
    let mut b = Builder::new(architecture, seed, shape);
    b.count("rope.dimension_count", 8);
    if !n.fused {
        b.counts("rope.dimension_sections", &[2, 1, 1, 0]);
    }
    ssm_keys(
        &mut b,
        Ssm {
            d_inner: n.width * n.n_v,
            d_state: n.width,
            rank: n.n_v,
            groups: n.n_k,
        },
    );
    b.count("full_attention_interval", 2);
    if n.n_mtp > 0 {
        b.count("nextn_predict_layers", n.n_mtp);
    }
    if let Some(e) = n.experts {
        b.expert_keys(e, 2);
        b.count("expert_shared_feed_forward_length", e.shared);
    }
    b.ends(tied);
    let a = Attn {
        qk_norm: QkNorm::Head,
        gated: true,
        out: 2.0,
        ..Attn::default()
    };
    for i in 0..shape.n_layer {
        b.layer_part(i, "attn_norm");
        b.layer_part(i, "post_attention_norm");
        match i {
            0 => delta_layer(&mut b, i, n),
            _ => b.attn(i, a),
        }
        match n.experts {
            Some(e) => b.moe(i, e),
            None => b.ffn(i, true, false),
        }
    }
    if n.n_mtp > 0 {
        next_token_block(&mut b);
    }
    b.tiny
}

const DELTA: Delta = Delta {
    n_k: 2,
    n_v: 4,
    width: 8,
    fused: false,
    legacy: false,
    n_mtp: 0,
    experts: None,
};
const GATED_SHARED: Experts = Experts {
    n: 4,
    n_ff: 16,
    gate: true,
    fused: false,
    bias: false,
    selection_bias: false,
    shared: 24,
    shared_gate: true,
    inner: 1.2,
    down: 1.5,
};

/// Value head `h` reads key head `h mod 2`.
pub fn qwen35() -> Tiny {
    qwen_delta("qwen35", "qwen35", false, DELTA)
}

/// A block for multi-token prediction, three value heads a key head.
pub fn qwen35_mtp() -> Tiny {
    let n = Delta {
        n_v: 6,
        n_mtp: 1,
        ..DELTA
    };
    qwen_delta("qwen35", "qwen35 mtp", true, n)
}

pub fn qwen35moe() -> Tiny {
    let n = Delta {
        experts: Some(GATED_SHARED),
        ..DELTA
    };
    qwen_delta("qwen35moe", "qwen35moe", false, n)
}

/// Value head `h` reads key head `h / 2`.
pub fn qwen3next() -> Tiny {
    let n = Delta {
        fused: true,
        experts: Some(GATED_SHARED),
        ..DELTA
    };
    qwen_delta("qwen3next", "qwen3next", true, n)
}

pub fn qwen3next_legacy() -> Tiny {
    let n = Delta {
        fused: true,
        legacy: true,
        experts: Some(GATED_SHARED),
        ..DELTA
    };
    qwen_delta("qwen3next", "qwen3next legacy", true, n)
}

/// Gated short convolutions and attention.
fn lfm2_with(architecture: &'static str, n_kv: &[usize], experts: Option<Experts>) -> Tiny {
    const TAPS: usize = 3;
    const N_DENSE: usize = 2;
    let mut b = hybrid(architecture, Shape::default(), n_kv);
    let d = b.shape.d;
    b.count("shortconv.l_cache", TAPS);
    if let Some(e) = experts {
        b.expert_keys(e, 2);
        b.count("leading_dense_block_count", N_DENSE);
        b.count("expert_gating_func", 2);
    }
    b.embedding(1.5 / (d as f32).sqrt());
    b.norm("token_embd_norm", d);
    let a = Attn {
        qk_norm: QkNorm::Head,
        ..Attn::default()
    };
    for (i, &n) in n_kv.iter().enumerate() {
        b.layer_part(i, "attn_norm");
        if n > 0 {
            b.attn(i, a);
        } else {
            let at = |part: &str| format!("blk.{i}.shortconv.{part}");
            b.tensor(&at("conv.weight"), &[TAPS, d], 0.0, 0.7);
            b.linear(&at("in_proj"), d, 3 * d, 1.0);
            b.linear(&at("out_proj"), d, d, 1.0);
        }
        b.layer_part(i, "ffn_norm");
        match experts {
            Some(e) if i >= N_DENSE => b.moe(i, e),
            _ => b.ffn(i, true, false),
        }
    }
    b.tiny
}

pub fn lfm2() -> Tiny {
    lfm2_with("lfm2", &[0, 2, 0], None)
}

pub fn lfm2moe() -> Tiny {
    let e = Experts {
        selection_bias: true,
        ..Experts::default()
    };
    lfm2_with("lfm2moe", &[0, 0, 2], Some(e))
}

/// What both RWKV have: two heads of 64, which llama.cpp's kernels ask for.
fn rwkv(architecture: &'static str) -> Builder {
    let shape = Shape {
        d: 128,
        n_ff: 32,
        ..Shape::default()
    };
    let mut b = without_attention(architecture, shape);
    b.layer_norm();
    b.count("wkv.head_size", 64);
    b.ends(false);
    b.bias("output_norm", &[shape.d]);
    b.norm_bias("token_embd_norm", shape.d);
    for i in 0..shape.n_layer {
        for part in ["attn_norm", "attn_norm_2", "time_mix_ln"] {
            b.norm_bias(&format!("blk.{i}.{part}"), shape.d);
        }
    }
    b
}

/// The hidden state is halved after every layer.
pub fn rwkv6() -> Tiny {
    let mut b = rwkv("rwkv6");
    let (d, n_ff) = (b.shape.d, b.shape.n_ff);
    b.count("time_mix_extra_dim", 8);
    b.count("time_decay_extra_dim", 16);
    b.count("rescale_every_n_layers", 1);
    for i in 0..b.shape.n_layer {
        let at = |part: &str| format!("blk.{i}.{part}");
        b.linear(&at("time_mix_w1"), d, 40, 1.0);
        let w2 = at("time_mix_w2.weight");
        b.tensor(&w2, &[8, d, 5], 0.0, 0.5 / 8f32.sqrt());
        b.tensor(&at("time_mix_lerp_x.weight"), &[d, 1, 1], 0.5, 0.25);
        let fused = at("time_mix_lerp_fused.weight");
        b.tensor(&fused, &[d, 1, 1, 5], 0.5, 0.25);
        b.tensor(&at("time_mix_first.weight"), &[64, d / 64], 0.0, 0.5);
        b.tensor(&at("time_mix_decay.weight"), &[d], -1.5, 1.0);
        b.linear(&at("time_mix_decay_w1"), d, 16, 1.0);
        b.linear(&at("time_mix_decay_w2"), 16, d, 1.0);
        for part in ["key", "value", "receptance", "gate"] {
            b.linear(&at(&format!("time_mix_{part}")), d, d, 1.0);
        }
        b.linear(&at("time_mix_output"), d, d, 1.5);
        for part in ["k", "r"] {
            let lerp = at(&format!("channel_mix_lerp_{part}.weight"));
            b.tensor(&lerp, &[d, 1, 1], 0.5, 0.25);
        }
        b.linear(&at("channel_mix_key"), d, n_ff, 1.0);
        b.linear(&at("channel_mix_value"), n_ff, d, 1.2);
        b.linear(&at("channel_mix_receptance"), d, d, 1.0);
    }
    b.tiny
}

pub fn rwkv7() -> Tiny {
    let mut b = rwkv("rwkv7");
    let (d, n_ff) = (b.shape.d, b.shape.n_ff);
    for (key, rank) in [
        ("decay", 16),
        ("iclr", 16),
        ("value_residual_mix", 16),
        ("gate", 32),
    ] {
        b.count(&format!("attention.{key}_lora_rank"), rank);
    }
    for i in 0..b.shape.n_layer {
        let at = |part: &str| format!("blk.{i}.{part}");
        for (part, mean) in [("w", -1.0), ("a", 0.0), ("v", 0.0)] {
            b.tensor(&at(&format!("time_mix_{part}0.weight")), &[d], mean, 0.8);
            b.linear(&at(&format!("time_mix_{part}1")), d, 16, 1.0);
            b.linear(&at(&format!("time_mix_{part}2")), 16, d, 1.0);
        }
        b.linear(&at("time_mix_g1"), d, 32, 1.0);
        b.linear(&at("time_mix_g2"), 32, d, 2.0);
        let fused = at("time_mix_lerp_fused.weight");
        b.tensor(&fused, &[d, 1, 1, 6], 0.5, 0.25);
        b.tensor(&at("time_mix_k_k.weight"), &[d], 0.8, 0.2);
        b.tensor(&at("time_mix_k_a.weight"), &[d], 1.0, 0.2);
        b.tensor(&at("time_mix_r_k.weight"), &[d], 0.0, 0.2);
        for part in ["key", "value", "receptance"] {
            b.linear(&at(&format!("time_mix_{part}")), d, d, 1.0);
        }
        b.linear(&at("time_mix_output"), d, d, 1.2);
        let lerp = at("channel_mix_lerp_k.weight");
        b.tensor(&lerp, &[d, 1, 1], 0.5, 0.25);
        b.linear(&at("channel_mix_key"), d, n_ff, 1.0);
        b.linear(&at("channel_mix_value"), n_ff, d, 0.8);
    }
    b.tiny
}
