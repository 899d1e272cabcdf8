//! Gated delta nets, short convolutions, RWKV.

use super::builder::{Attn, Builder, Experts, QkNorm, Shape};
use super::experts::next_token_block;
use super::state_space::{CONV, Ssm, hybrid, ssm_keys, without_attention};
use crate::support::tiny::Tiny;

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
