//! RMSNorm and a gated FFN.

use pplx::gguf::Value;

use super::builder::{Attn, Builder, QkNorm, Shape};
use crate::support::tiny::Tiny;

const HEAD_NORM: Attn = Attn {
    fused: false,
    qkv_bias: false,
    o_bias: false,
    qk_norm: QkNorm::Head,
    gated: false,
    out: 1.5,
};

fn llama_with(change: impl FnOnce(&mut Builder)) -> Tiny {
    let mut b = Builder::new("llama", "llama", Shape::default());
    b.ends(false);
    b.dense_layers(Attn::default());
    change(&mut b);
    b.tiny
}

pub fn llama() -> Tiny {
    llama_with(|_| ())
}

/// Tied head, heads wider than their share of the hidden state, BOS.
pub fn llama_tied_bos() -> Tiny {
    let shape = Shape {
        head: 12,
        ..Shape::default()
    };
    let mut b = Builder::new("llama", "llama tied", shape);
    b.ends(true);
    b.dense_layers(Attn::default());
    b.tiny.tokenizer("add_bos_token", Value::Bool(true))
}

/// All biases, one tensor for query, key and value.
pub fn llama_bias_fused() -> Tiny {
    let mut b = Builder::new("llama", "llama biases", Shape::default());
    b.ends(false);
    let a = Attn {
        fused: true,
        qkv_bias: true,
        o_bias: true,
        ..Attn::default()
    };
    b.pre_norm_layers(a, |b, i| b.ffn(i, true, true));
    b.tiny
}

pub fn llama_rope_linear() -> Tiny {
    llama_with(|b| b.rope_scaling("linear", 4.0))
}

pub fn llama_rope_yarn() -> Tiny {
    llama_with(|b| b.rope_scaling("yarn", 4.0))
}

/// Frequency factors, as Llama 3 has them.
pub fn llama_rope_llama3() -> Tiny {
    llama_with(|b| {
        b.given("rope_freqs.weight", &[4], vec![1.0, 1.3, 4.5, 8.0]);
    })
}

pub fn qwen2() -> Tiny {
    let mut b = Builder::new("qwen2", "qwen2", Shape::default());
    b.ends(true);
    b.dense_layers(Attn {
        qkv_bias: true,
        ..Attn::default()
    });
    b.tiny
}

pub fn qwen3() -> Tiny {
    let shape = Shape {
        head: 12,
        ..Shape::default()
    };
    let mut b = Builder::new("qwen3", "qwen3", shape);
    b.ends(true);
    b.dense_layers(HEAD_NORM);
    b.tiny
}

/// Embeddings small enough that a token does not just predict itself.
fn gemma_ends(b: &mut Builder) {
    let d = b.shape.d as f32;
    b.embedding(1.5 / d);
    b.tensor("output_norm.weight", &[b.shape.d], 0.5 * d.sqrt(), 0.5);
}

fn gemma_layers(b: &mut Builder, a: Attn) {
    for i in 0..b.shape.n_layer {
        b.layer_part(i, "attn_norm");
        b.attn(i, a);
        b.layer_part(i, "post_attention_norm");
        b.layer_part(i, "ffn_norm");
        b.ffn(i, true, false);
        b.layer_part(i, "post_ffw_norm");
    }
}

/// One KV head, scaled embeddings, GELU.
pub fn gemma() -> Tiny {
    let shape = Shape {
        n_kv: 1,
        head: 12,
        ..Shape::default()
    };
    let mut b = Builder::new("gemma", "gemma", shape);
    gemma_ends(&mut b);
    b.dense_layers(Attn::default());
    b.tiny
}

/// Soft-caps; every second layer slides.
pub fn gemma2() -> Tiny {
    let shape = Shape {
        n_kv: 1,
        ..Shape::default()
    };
    let mut b = Builder::new("gemma2", "gemma2", shape);
    b.count("attention.sliding_window", 6);
    b.float("attn_logit_softcapping", 1.5);
    b.float("final_logit_softcapping", 3.0);
    gemma_ends(&mut b);
    gemma_layers(&mut b, Attn::default());
    b.tiny
}

fn gemma3_with(change: impl FnOnce(&mut Builder)) -> Tiny {
    let shape = Shape {
        n_layer: 6,
        n_ff: 24,
        ..Shape::default()
    };
    let mut b = Builder::new("gemma3", "gemma3", shape);
    b.count("attention.sliding_window", 6);
    b.float("rope.freq_base", 1e6);
    gemma_ends(&mut b);
    gemma_layers(&mut b, HEAD_NORM);
    change(&mut b);
    b.tiny
}

/// Five layers of six slide and have a RoPE base of their own.
pub fn gemma3() -> Tiny {
    gemma3_with(|_| ())
}

/// RoPE scaled in the layer that sees everything; a period and a base of the
/// file's own; a soft-cap.
pub fn gemma3_rope_scaling() -> Tiny {
    gemma3_with(|b| {
        b.rope_scaling("linear", 8.0);
        b.float("rope.freq_base", 10000.0);
        b.float("rope.freq_base_swa", 500.0);
        b.count("attention.sliding_window_pattern", 3);
        b.float("final_logit_softcapping", 4.0);
    })
}

/// `long` puts the original context below the window's length.
fn phi3_with(longrope: bool, original: usize, n_rot: usize) -> Tiny {
    let mut b = Builder::new("phi3", "phi3", Shape::default());
    b.count("rope.dimension_count", n_rot);
    b.count("context_length", 4096);
    b.count("rope.scaling.original_context_length", original);
    b.ends(true);
    let a = Attn {
        fused: true,
        ..Attn::default()
    };
    b.pre_norm_layers(a, |b, i| {
        let (d, n_ff) = (b.shape.d, b.shape.n_ff);
        b.linear(&format!("blk.{i}.ffn_up"), d, 2 * n_ff, 1.2);
        b.linear(&format!("blk.{i}.ffn_down"), n_ff, d, 1.3);
    });
    if longrope {
        b.float("rope.scaling.attn_factor", 1.2);
        for (name, step) in [("short", 0.4), ("long", 2.0)] {
            let factors = (0..n_rot / 2).map(|i| 1.1 + step * i as f32);
            let name = format!("rope_factors_{name}.weight");
            b.given(&name, &[n_rot / 2], factors.collect());
        }
    }
    b.tiny
}

/// Fused projections.
pub fn phi3() -> Tiny {
    phi3_with(false, 4096, 8)
}

/// Within the original context.
pub fn phi3_longrope_short() -> Tiny {
    phi3_with(true, 4096, 8)
}

/// Beyond the original context, which is rounded up to 256; partial rotary.
pub fn phi3_longrope_long() -> Tiny {
    phi3_with(true, 32, 6)
}

fn olmo2_with(shape: Shape, change: impl FnOnce(&mut Builder)) -> Tiny {
    let mut b = Builder::new("olmo2", "olmo2", shape);
    b.ends(false);
    for i in 0..shape.n_layer {
        b.attn(
            i,
            Attn {
                qk_norm: QkNorm::Wide,
                ..Attn::default()
            },
        );
        b.layer_part(i, "post_attention_norm");
        b.ffn(i, true, false);
        b.layer_part(i, "post_ffw_norm");
    }
    change(&mut b);
    b.tiny
}

/// No norms before the blocks; QK norm over all heads.
pub fn olmo2() -> Tiny {
    olmo2_with(Shape::default(), |_| ())
}

/// OLMo 3: three layers of four slide, YaRN in the fourth.
pub fn olmo3() -> Tiny {
    let shape = Shape {
        n_layer: 4,
        n_ff: 24,
        ..Shape::default()
    };
    olmo2_with(shape, |b| {
        b.count("attention.sliding_window", 6);
        b.rope_scaling("yarn", 4.0);
    })
}

/// The four multipliers.
pub fn granite_keys(b: &mut Builder) {
    for (key, value) in [
        ("embedding_scale", 4.0),
        ("residual_scale", 0.6),
        ("attention.scale", 0.6),
        ("logit_scale", 1.5),
    ] {
        b.float(key, value);
    }
}

pub fn granite() -> Tiny {
    let mut b = Builder::new("granite", "granite", Shape::default());
    granite_keys(&mut b);
    b.embedding(0.25);
    b.norm("output_norm", b.shape.d);
    b.dense_layers(Attn {
        out: 2.5,
        ..Attn::default()
    });
    b.tiny
}

/// Norms within the blocks, a factor for each matrix.
pub fn bitnet() -> Tiny {
    let mut b = Builder::new("bitnet", "bitnet", Shape::default());
    let Shape { d, n_ff, .. } = b.shape;
    b.ends(true);
    b.dense_layers(Attn::default());
    for i in 0..b.shape.n_layer {
        b.norm(&format!("blk.{i}.attn_sub_norm"), d);
        b.norm(&format!("blk.{i}.ffn_sub_norm"), n_ff);
        for part in [
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_gate",
            "ffn_up",
            "ffn_down",
        ] {
            b.tensor(&format!("blk.{i}.{part}.scale"), &[1], 1.3, 0.15);
        }
    }
    b.tiny
}
