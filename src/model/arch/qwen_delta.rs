//! `qwen3next`, `qwen35` and `qwen35moe`: gated delta nets, with gated full
//! attention every few layers.

use super::moe::MoeRules;
use super::mrope::Axes;
use super::{Context, Parts, Widths};
use crate::model::rope::{Rope, RopePairs};
use crate::model::{
    Activation, Attention, DeltaNet, HeadSharing, Linear, Mixer, ModelError, NormKind,
};

pub(super) fn qwen35(c: &mut Context) -> Result<Parts, ModelError> {
    build(c, HeadSharing::Cyclic, |c, i| {
        let n_ff = c.n_ff()?[i];
        c.ffn(i, n_ff, Activation::Silu).map(Mixer::Ffn)
    })
}

pub(super) fn qwen35moe(c: &mut Context) -> Result<Parts, ModelError> {
    build(c, HeadSharing::Cyclic, experts)
}

pub(super) fn qwen3next(c: &mut Context) -> Result<Parts, ModelError> {
    build(c, HeadSharing::Blocks, experts)
}

fn build(
    c: &mut Context,
    sharing: HeadSharing,
    ffn: impl Fn(&mut Context, usize) -> Result<Mixer, ModelError>,
) -> Result<Parts, ModelError> {
    let widths = c.widths()?;
    let mut rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    if c.has_mrope()? {
        rope = c.with_axes(rope, Axes::Turns)?;
    }
    let recurrent = recurrent_layers(c)?;
    let layers = c.pre_norm_layers(
        "post_attention_norm",
        |c, i| {
            Ok(match recurrent[i] {
                true => Mixer::DeltaNet(delta_net(c, i, sharing)?),
                false => Mixer::Attention(gated_attention(c, i, &widths, &rope)?),
            })
        },
        ffn,
    )?;
    c.parts(layers)
}

/// A flag for each layer, or every layer but the last of each period.
fn recurrent_layers(c: &Context) -> Result<Vec<bool>, ModelError> {
    const KEY: &str = "attention.recurrent_layers";
    const PERIOD: usize = 4;
    if let Some(flags) = c.hp.optional_flags(KEY, c.n_layer)? {
        return Ok(flags);
    }
    let period = c.hp.optional_count("full_attention_interval")?;
    let period = period.unwrap_or(PERIOD).max(1);
    Ok((1..=c.n_layer).map(|i| i % period != 0).collect())
}

fn experts(c: &mut Context, i: usize) -> Result<Mixer, ModelError> {
    let rules = MoeRules::softmax(c.expert_width(i)?);
    let shared = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let n_ff_shared = match shared.filter(|&n| n > 0) {
        Some(n) => n,
        None => c.n_ff()?[i],
    };
    let mut moe = c.moe(i, &rules)?;
    moe.shared = Some(c.shared_expert(i, n_ff_shared, Activation::Silu)?);
    Ok(Mixer::Moe(moe))
}

/// Attention whose query projection yields `[query | gate]` for each head.
fn gated_attention(
    c: &mut Context,
    i: usize,
    w: &Widths,
    rope: &Rope,
) -> Result<Attention, ModelError> {
    let (n_head, dim) = (w.n_head[i], w.head_dim);
    if w.head_dim_v != dim {
        let problem = format!("gated attention needs the key width {dim}");
        return Err(c.hp.bad("attention.value_length", w.head_dim_v, problem));
    }
    let doubled = Widths {
        n_head: w.n_head.iter().map(|n| 2 * n).collect(),
        ..w.clone()
    };
    let [both, k, v] = c.qkv(i, &doubled)?;
    let half = |first| both.runs(first, n_head * dim, dim, 2 * dim);
    let mut attention = c.attention_over([half(0), k, v], i, w)?;
    attention.gate = Some(half(dim));
    attention.qk_norm = Some(c.qk_norm(i, w, false)?);
    attention.rope = Some(rope.clone());
    Ok(attention)
}

/// The delta net of layer `i`. Its projections come whole, or (older files of
/// `qwen3next`) interleaved by key head as `[q | k | v | gate]`; β and α likewise
/// in two tensors, or in one as `[β… | α…]`.
fn delta_net(c: &mut Context, i: usize, sharing: HeadSharing) -> Result<DeltaNet, ModelError> {
    const HEADS: &str = "ssm.time_step_rank";
    const INNER: &str = "ssm.inner_size";
    let dim = c.hp.count("ssm.state_size")?;
    let (n_k_head, n_v_head) = (c.hp.count("ssm.group_count")?, c.hp.count(HEADS)?);
    let width = c.hp.count("ssm.conv_kernel")?;
    let (n_k, n_v) = (n_k_head * dim, n_v_head * dim);
    if !n_v_head.is_multiple_of(n_k_head) {
        let problem = format!("a multiple of the {n_k_head} key heads is needed");
        return Err(c.hp.bad(HEADS, n_v_head, problem));
    }
    let inner = c.hp.count(INNER)?;
    if inner != n_v {
        let problem = format!("{n_v_head} value heads of width {dim} make {n_v}");
        return Err(c.hp.bad(INNER, inner, problem));
    }
    let conv = c.causal_conv(&format!("blk.{i}.ssm_conv1d"), width, 2 * n_k + n_v)?;
    let (d, eps, t) = (c.n_embd, c.norm.1, &mut c.tensors);
    let name = |part: &str| format!("blk.{i}.{part}");
    let per_k = n_v_head / n_k_head;

    let [q, k, v, gate] = if t.has(&name("ssm_in.weight")) {
        let all = t.linear(&name("ssm_in"), d, 2 * n_k + 2 * n_v)?;
        let step = 2 * (1 + per_k) * dim;
        [
            all.runs(0, n_k, dim, step),
            all.runs(dim, n_k, dim, step),
            all.runs(2 * dim, n_v, per_k * dim, step),
            all.runs((2 + per_k) * dim, n_v, per_k * dim, step),
        ]
    } else {
        let qkv = t.linear(&name("attn_qkv"), d, 2 * n_k + n_v)?;
        [
            qkv.rows(0, n_k),
            qkv.rows(n_k, n_k),
            qkv.rows(2 * n_k, n_v),
            t.linear(&name("attn_gate"), d, n_v)?,
        ]
    };
    let (beta, alpha) = if t.has(&name("ssm_ba.weight")) {
        let both = t.linear(&name("ssm_ba"), d, 2 * n_v_head)?;
        let part = |first| both.runs(first, n_v_head, per_k, 2 * per_k);
        (part(0), part(per_k))
    } else {
        (
            t.linear(&name("ssm_beta"), d, n_v_head)?,
            t.linear(&name("ssm_alpha"), d, n_v_head)?,
        )
    };
    Ok(DeltaNet {
        n_k_head,
        n_v_head,
        head_dim: dim,
        sharing,
        q,
        k,
        v,
        q_conv: conv.channels(0, n_k),
        k_conv: conv.channels(n_k, n_k),
        v_conv: conv.channels(2 * n_k, n_v),
        length_eps: eps,
        alpha: Linear {
            bias: Some(t.vector(&name("ssm_dt.bias"), n_v_head)?),
            ..alpha
        },
        beta,
        a: t.vector(&name("ssm_a"), n_v_head)?,
        norm: t.norm(&name("ssm_norm"), NormKind::Rms, dim, 1, eps)?,
        gate,
        output: t.linear(&name("ssm_out"), n_v, d)?,
    })
}
