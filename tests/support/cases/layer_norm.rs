//! LayerNorm, often with attention and FFN side by side.

use super::builder::{Attn, Builder, QkNorm, Shape};
use crate::support::tiny::Tiny;

const ALL_BIASES: Attn = Attn {
    fused: false,
    qkv_bias: true,
    o_bias: true,
    qk_norm: QkNorm::None,
    gated: false,
    out: 1.5,
};

fn new(architecture: &'static str, seed: &str, shape: Shape) -> Builder {
    let mut b = Builder::new(architecture, seed, shape);
    b.layer_norm();
    b
}

/// As many KV heads as query heads.
const UNGROUPED: Shape = Shape {
    n_layer: 2,
    d: 32,
    n_ff: 64,
    n_head: 4,
    n_kv: 4,
    head: 8,
};

fn ends(b: &mut Builder, tied: bool) {
    b.ends(tied);
    b.bias("output_norm", &[b.shape.d]);
}

fn norm(b: &mut Builder, i: usize, part: &str) {
    b.norm_bias(&format!("blk.{i}.{part}"), b.shape.d);
}

/// Norms with biases, attention, a network without a gate.
fn layers(b: &mut Builder, a: Attn) {
    for i in 0..b.shape.n_layer {
        norm(b, i, "attn_norm");
        b.attn(i, a);
        norm(b, i, "ffn_norm");
        b.ffn(i, false, true);
    }
}

/// Learned positions.
pub fn gpt2() -> Tiny {
    let mut b = new("gpt2", "gpt2", UNGROUPED);
    ends(&mut b, true);
    let positions = [b.shape.d, 128];
    b.tensor("position_embd.weight", &positions, 0.0, 0.25);
    layers(
        &mut b,
        Attn {
            fused: true,
            ..ALL_BIASES
        },
    );
    b.tiny
}

fn gptneox_with(parallel: bool) -> Tiny {
    let mut b = new("gptneox", "gptneox", UNGROUPED);
    b.count("rope.dimension_count", 4);
    b.bool("use_parallel_residual", parallel);
    ends(&mut b, false);
    layers(
        &mut b,
        Attn {
            fused: true,
            ..ALL_BIASES
        },
    );
    b.tiny
}

/// Side by side, each with its norm; partial rotary.
pub fn gptneox() -> Tiny {
    gptneox_with(true)
}

/// One after the other.
pub fn gptneox_sequential() -> Tiny {
    gptneox_with(false)
}

fn falcon_with(seed: &str, shape: Shape, two_norms: bool) -> Tiny {
    let mut b = new("falcon", seed, shape);
    ends(&mut b, two_norms);
    for i in 0..shape.n_layer {
        norm(&mut b, i, "attn_norm");
        if two_norms {
            norm(&mut b, i, "attn_norm_2");
        }
        b.attn(
            i,
            Attn {
                fused: true,
                ..Attn::default()
            },
        );
        b.ffn(i, false, false);
    }
    b.tiny
}

/// 7B: one KV head, one norm for both.
pub fn falcon() -> Tiny {
    let shape = Shape {
        n_kv: 1,
        n_ff: 64,
        ..Shape::default()
    };
    falcon_with("falcon", shape, false)
}

/// 40B: a norm each.
pub fn falcon_40b() -> Tiny {
    let shape = Shape {
        n_ff: 64,
        ..Shape::default()
    };
    falcon_with("falcon 40b", shape, true)
}

/// Partial rotary, biases on query, key and value.
pub fn stablelm() -> Tiny {
    let mut b = new("stablelm", "stablelm", Shape::default());
    b.count("rope.dimension_count", 4);
    b.bool("use_parallel_residual", false);
    ends(&mut b, false);
    for i in 0..b.shape.n_layer {
        norm(&mut b, i, "attn_norm");
        b.attn(
            i,
            Attn {
                qkv_bias: true,
                ..Attn::default()
            },
        );
        norm(&mut b, i, "ffn_norm");
        b.ffn(i, true, false);
    }
    b.tiny
}

/// 12B: QK norm with weights for each head; one norm, so side by side.
pub fn stablelm_12b() -> Tiny {
    let mut b = new("stablelm", "stablelm 12b", Shape::default());
    b.count("rope.dimension_count", 4);
    b.bool("use_parallel_residual", true);
    ends(&mut b, false);
    for i in 0..b.shape.n_layer {
        norm(&mut b, i, "attn_norm");
        b.attn(
            i,
            Attn {
                qk_norm: QkNorm::PerHead,
                ..Attn::default()
            },
        );
        b.ffn(i, true, false);
    }
    b.tiny
}

/// All biases, grouped heads.
pub fn starcoder2() -> Tiny {
    let mut b = new("starcoder2", "starcoder2", Shape::default());
    ends(&mut b, true);
    layers(&mut b, ALL_BIASES);
    b.tiny
}

fn cohere(architecture: &'static str, shape: Shape, change: impl FnOnce(&mut Builder)) -> Tiny {
    let mut b = new(architecture, architecture, shape);
    b.float("logit_scale", 0.4);
    b.text("rope.scaling.type", "none");
    b.embedding(0.5);
    b.norm("output_norm", shape.d);
    for i in 0..shape.n_layer {
        b.layer_part(i, "attn_norm");
        b.attn(i, Attn::default());
        b.ffn(i, true, false);
    }
    change(&mut b);
    b.tiny
}

/// Side by side after one norm without bias; logits multiplied.
pub fn command_r() -> Tiny {
    cohere("command-r", Shape::default(), |_| ())
}

/// Three layers of four slide and have RoPE; the fourth has none.
pub fn cohere2() -> Tiny {
    let shape = Shape {
        n_layer: 4,
        n_ff: 24,
        ..Shape::default()
    };
    cohere("cohere2", shape, |b| {
        b.count("attention.sliding_window", 6);
    })
}
