//! Mixtures of experts, and latent attention.

use super::builder::{Attn, Builder, Experts, QkNorm, Shape};
use super::dense::granite_keys;
use crate::support::tiny::Tiny;

/// A model whose layers all have the experts `e`, `n_used` at a time.
fn mixture(
    architecture: &'static str,
    tied: bool,
    a: Attn,
    (e, n_used): (Experts, usize),
    change: impl FnOnce(&mut Builder),
) -> Tiny {
    let mut b = Builder::new(architecture, architecture, Shape::default());
    b.expert_keys(e, n_used);
    b.ends(tied);
    b.pre_norm_layers(a, |b, i| b.moe(i, e));
    change(&mut b);
    b.tiny
}

/// Mixtral: the experts have the FFN's width.
pub fn llama_moe() -> Tiny {
    let mut b = Builder::new("llama", "mixtral", Shape::default());
    let e = Experts {
        n_ff: b.shape.n_ff,
        ..Experts::default()
    };
    b.count("expert_count", e.n);
    b.count("expert_used_count", 2);
    b.ends(false);
    b.pre_norm_layers(Attn::default(), |b, i| b.moe(i, e));
    b.tiny
}

/// Not renormalized, a gated shared expert.
pub fn qwen2moe() -> Tiny {
    let e = Experts {
        shared: 24,
        shared_gate: true,
        down: 2.0,
        ..Experts::default()
    };
    let a = Attn {
        qkv_bias: true,
        ..Attn::default()
    };
    mixture("qwen2moe", false, a, (e, 2), |b| {
        b.count("expert_shared_feed_forward_length", e.shared);
    })
}

pub fn qwen3moe() -> Tiny {
    let e = Experts {
        n: 8,
        ..Experts::default()
    };
    let a = Attn {
        qk_norm: QkNorm::Head,
        ..Attn::default()
    };
    mixture("qwen3moe", true, a, (e, 3), |_| ())
}

/// The multipliers, and a shared expert without a gate.
pub fn granitemoe() -> Tiny {
    let e = Experts {
        n_ff: 24,
        shared: 24,
        ..Experts::default()
    };
    let shape = Shape {
        n_ff: e.n_ff,
        ..Shape::default()
    };
    let mut b = Builder::new("granitemoe", "granitemoe", shape);
    granite_keys(&mut b);
    b.count("expert_count", e.n);
    b.count("expert_used_count", 2);
    b.count("expert_shared_feed_forward_length", e.shared);
    b.ends(false);
    b.pre_norm_layers(Attn::default(), |b, i| b.moe(i, e));
    b.tiny
}

/// Sinks, windows, YaRN, all biases, softmax of the chosen, clamped SwiGLU.
pub fn gpt_oss() -> Tiny {
    let e = Experts {
        bias: true,
        inner: 5.0,
        down: 0.3,
        ..Experts::default()
    };
    let mut b = Builder::new("gpt-oss", "gpt-oss", Shape::default());
    b.expert_keys(e, 2);
    b.count("attention.sliding_window", 6);
    b.rope_scaling("yarn", 4.0);
    b.ends(false);
    let a = Attn {
        qkv_bias: true,
        o_bias: true,
        ..Attn::default()
    };
    for i in 0..b.shape.n_layer {
        b.layer_part(i, "attn_norm");
        b.attn(i, a);
        let sinks = format!("blk.{i}.attn_sinks.weight");
        b.tensor(&sinks, &[b.shape.n_head], 2.5, 1.5);
        b.layer_part(i, "post_attention_norm");
        b.moe(i, e);
    }
    b.tiny
}

/// The last layer of four has no RoPE; experts in every second layer, weighed
/// at their input.
pub fn llama4() -> Tiny {
    let e = Experts {
        shared: 16,
        inner: 2.0,
        ..Experts::default()
    };
    let shape = Shape {
        n_layer: 4,
        ..Shape::default()
    };
    let mut b = Builder::new("llama4", "llama4", shape);
    b.expert_keys(e, 1);
    b.count("interleave_moe_layer_step", 2);
    b.ends(true);
    b.pre_norm_layers(Attn::default(), |b, i| match i % 2 {
        0 => b.ffn(i, true, false),
        _ => b.moe(i, e),
    });
    b.tiny
}

/// A dense layer first; a bias for the choice of experts.
pub fn ernie4_5_moe() -> Tiny {
    let e = Experts {
        n: 6,
        selection_bias: true,
        shared: 24,
        ..Experts::default()
    };
    let mut b = Builder::new("ernie4_5-moe", "ernie4_5-moe", Shape::default());
    b.expert_keys(e, 2);
    b.count("interleave_moe_layer_step", 1);
    b.count("leading_dense_block_count", 1);
    b.count("expert_shared_count", 1);
    b.count("expert_shared_feed_forward_length", e.shared);
    b.ends(true);
    b.pre_norm_layers(Attn::default(), |b, i| match i {
        0 => b.ffn(i, true, false),
        _ => b.moe(i, e),
    });
    b.tiny
}

/// Sigmoid routing, scaled weights, partial rotary, biases, and a block for
/// multi-token prediction at the end.
pub fn glm4moe() -> Tiny {
    let e = Experts {
        selection_bias: true,
        shared: 16,
        ..Experts::default()
    };
    let shape = Shape {
        n_layer: 3,
        ..Shape::default()
    };
    let mut b = Builder::new("glm4moe", "glm4moe", shape);
    b.expert_keys(e, 2);
    b.count("leading_dense_block_count", 1);
    b.count("expert_shared_count", 1);
    b.count("expert_gating_func", 2);
    b.float("expert_weights_scale", 1.7);
    b.bool("expert_weights_norm", true);
    b.count("rope.dimension_count", 4);
    b.count("nextn_predict_layers", 1);
    b.ends(false);
    let a = Attn {
        qkv_bias: true,
        qk_norm: QkNorm::Head,
        ..Attn::default()
    };
    for i in 0..shape.n_layer {
        b.layer_part(i, "attn_norm");
        b.attn(i, a);
        b.layer_part(i, "post_attention_norm");
        match i {
            0 => b.ffn(i, true, false),
            _ => b.moe(i, e),
        }
    }
    next_token_block(&mut b);
    b.tiny
}

/// What makes the last block one for multi-token prediction.
pub fn next_token_block(b: &mut Builder) {
    let (i, d) = (b.shape.n_layer - 1, b.shape.d);
    b.linear(&format!("blk.{i}.nextn.eh_proj"), 2 * d, d, 1.0);
    for part in ["enorm", "hnorm", "shared_head_norm"] {
        b.layer_part(i, &format!("nextn.{part}"));
    }
}

/// QK norm after RoPE.
pub fn hunyuan_moe() -> Tiny {
    let e = Experts {
        shared: 24,
        ..Experts::default()
    };
    let shape = Shape {
        n_ff: e.n_ff,
        ..Shape::default()
    };
    let mut b = Builder::new("hunyuan-moe", "hunyuan-moe", shape);
    b.expert_keys(e, 2);
    b.count("expert_shared_count", 1);
    b.count("expert_shared_feed_forward_length", e.shared);
    b.ends(true);
    let a = Attn {
        qk_norm: QkNorm::Head,
        ..Attn::default()
    };
    b.pre_norm_layers(a, |b, i| b.moe(i, e));
    b.tiny
}

/// QK norm over all heads, sigmoid routing, partial rotary.
pub fn minimax_m2() -> Tiny {
    let e = Experts {
        n: 6,
        selection_bias: true,
        ..Experts::default()
    };
    let shape = Shape {
        n_ff: e.n_ff,
        ..Shape::default()
    };
    let mut b = Builder::new("minimax-m2", "minimax-m2", shape);
    b.expert_keys(e, 2);
    b.count("expert_gating_func", 2);
    b.count("rope.dimension_count", 4);
    b.ends(false);
    let a = Attn {
        qk_norm: QkNorm::Wide,
        ..Attn::default()
    };
    b.pre_norm_layers(a, |b, i| b.moe(i, e));
    b.tiny
}

struct Latent {
    q_lora: Option<usize>,
    kv_lora: usize,
    n_nope: usize,
    n_rot: usize,
    head_v: usize,
    /// Separate matrices for keys and values, which can be absorbed.
    split: bool,
    experts: Experts,
}

fn deepseek2_with(seed: &str, shape: Shape, l: Latent, change: impl FnOnce(&mut Builder)) -> Tiny {
    let mut b = Builder::new("deepseek2", seed, shape);
    let (d, n_head) = (shape.d, shape.n_head);
    let key = l.n_nope + l.n_rot;
    b.expert_keys(l.experts, 2);
    b.count("leading_dense_block_count", 1);
    b.count("expert_shared_count", 1);
    b.count("attention.kv_lora_rank", l.kv_lora);
    b.count("rope.dimension_count", l.n_rot);
    if let Some(rank) = l.q_lora {
        b.count("attention.q_lora_rank", rank);
    }
    let (key_length, value_length) = match l.split {
        true => (l.kv_lora + l.n_rot, l.kv_lora),
        false => (key, l.head_v),
    };
    b.count("attention.key_length", key_length);
    b.count("attention.value_length", value_length);
    if l.split {
        b.count("attention.key_length_mla", key);
        b.count("attention.value_length_mla", l.head_v);
    }
    b.ends(false);
    for i in 0..shape.n_layer {
        let at = |part: &str| format!("blk.{i}.attn_{part}");
        b.layer_part(i, "attn_norm");
        match l.q_lora {
            Some(rank) => {
                b.linear(&at("q_a"), d, rank, 1.0);
                b.norm(&at("q_a_norm"), rank);
                b.linear(&at("q_b"), rank, n_head * key, 1.5);
            }
            None => b.linear(&at("q"), d, n_head * key, 1.5),
        }
        b.linear(&at("kv_a_mqa"), d, l.kv_lora + l.n_rot, 1.5);
        b.norm(&at("kv_a_norm"), l.kv_lora);
        if l.split {
            let std = 1.3 / (l.kv_lora as f32).sqrt();
            let k = [l.n_nope, l.kv_lora, n_head];
            b.tensor(&format!("{}.weight", at("k_b")), &k, 0.0, std);
            let v = [l.kv_lora, l.head_v, n_head];
            b.tensor(&format!("{}.weight", at("v_b")), &v, 0.0, std);
        } else {
            let n_out = n_head * (l.n_nope + l.head_v);
            b.linear(&at("kv_b"), l.kv_lora, n_out, 1.3);
        }
        // Deep models must stay tame.
        let out = if shape.n_layer > 8 { 0.5 } else { 1.5 };
        b.linear(&at("output"), n_head * l.head_v, d, out);
        b.layer_part(i, "ffn_norm");
        match i {
            0 => b.ffn(i, true, false),
            _ => b.moe(i, l.experts),
        }
    }
    change(&mut b);
    b.tiny
}

/// V3: sigmoid routing within groups of experts.
pub fn deepseek2() -> Tiny {
    let latent = Latent {
        q_lora: Some(16),
        kv_lora: 12,
        n_nope: 8,
        n_rot: 4,
        head_v: 6,
        split: true,
        experts: Experts {
            n: 8,
            selection_bias: true,
            shared: 16,
            ..Experts::default()
        },
    };
    let shape = Shape {
        n_kv: 1,
        ..Shape::default()
    };
    deepseek2_with("deepseek2", shape, latent, |b| {
        b.count("expert_group_count", 2);
        b.count("expert_group_used_count", 1);
        b.count("expert_gating_func", 2);
        b.float("expert_weights_scale", 2.5);
        b.bool("expert_weights_norm", true);
    })
}

/// V2: YaRN with a multiplier, softmax routing, fused gate and up projections.
pub fn deepseek2_yarn() -> Tiny {
    let latent = Latent {
        q_lora: Some(16),
        kv_lora: 12,
        n_nope: 8,
        n_rot: 4,
        head_v: 6,
        split: true,
        experts: Experts {
            fused: true,
            shared: 16,
            ..Experts::default()
        },
    };
    let shape = Shape {
        n_kv: 1,
        ..Shape::default()
    };
    deepseek2_with("deepseek2 yarn", shape, latent, |b| {
        b.count("expert_gating_func", 1);
        b.float("expert_weights_scale", 2.0);
        b.bool("expert_weights_norm", false);
        b.rope_scaling("yarn", 4.0);
        b.float("rope.scaling.yarn_log_multiplier", 0.0707);
    })
}

/// V2 Lite: 27 layers (which is how llama.cpp knows it), queries that are not
/// low-rank, one tensor for keys and values.
pub fn deepseek2_lite() -> Tiny {
    let latent = Latent {
        q_lora: None,
        kv_lora: 8,
        n_nope: 4,
        n_rot: 4,
        head_v: 4,
        split: false,
        experts: Experts {
            n_ff: 8,
            shared: 8,
            down: 0.5,
            ..Experts::default()
        },
    };
    let shape = Shape {
        n_layer: 27,
        d: 16,
        n_ff: 16,
        n_head: 2,
        n_kv: 2,
        head: 8,
    };
    deepseek2_with("deepseek2 lite", shape, latent, |_| ())
}
