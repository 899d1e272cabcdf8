//! Mamba-1 and -2, alone and between layers of other kinds.

use super::builder::{Attn, Builder, Experts, Shape};
use super::dense::granite_keys;
use crate::support::tiny::Tiny;

/// A model without the keys of attention.
pub fn without_attention(architecture: &'static str, shape: Shape) -> Builder {
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
pub struct Ssm {
    pub d_inner: usize,
    pub d_state: usize,
    /// Rank of the time steps (Mamba-1), or number of heads.
    pub rank: usize,
    pub groups: usize,
}

pub const CONV: usize = 4;
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

pub fn ssm_keys(b: &mut Builder, s: Ssm) {
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
pub fn hybrid(architecture: &'static str, shape: Shape, n_kv: &[usize]) -> Builder {
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
