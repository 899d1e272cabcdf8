//! Llama-like models with experts that differ in routing and in small things:
//! ERNIE 4.5, GLM 4.5, Hunyuan, MiniMax M2.

use super::moe::MoeRules;
use super::mrope::Axes;
use super::{Context, Parts};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Gating, Mixer, ModelError};

/// Leading dense layers; a bias for the choice of experts.
pub(super) fn ernie4_5_moe(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff, n_ff_exp) = (c.widths()?, c.n_ff()?, c.n_ff_exp()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let dense = c.hp.count("leading_dense_block_count")?;
    let step = c.hp.count("interleave_moe_layer_step")?;
    let shared = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let shared = shared.filter(|&n| n > 0);
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Attention(c.roped(i, &widths, &rope)?)),
        |c, i| {
            if i < dense || (i + 1) % step != 0 {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let mut moe = c.moe(i, &MoeRules::softmax(n_ff_exp[i]))?;
            if let Some(n_ff) = shared {
                moe.shared = Some(c.shared_expert(i, n_ff, Activation::Silu)?);
            }
            Ok(Mixer::Moe(moe))
        },
    )?;
    c.parts(layers)
}

/// Biases, QK norm where the file has one, sigmoid routing. The models that see
/// images deal pairs out to axes.
pub(super) fn glm4moe(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff, n_ff_exp) = (c.widths()?, c.n_ff()?, c.n_ff_exp()?);
    let mut rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    if c.has_mrope()? {
        rope = c.with_axes(rope, Axes::Runs)?;
    }
    let dense =
        c.hp.optional_count("leading_dense_block_count")?
            .unwrap_or(0);
    let n_shared = c.hp.optional_count("expert_shared_count")?.unwrap_or(0);
    let gating = c.gating(Gating::Sigmoid)?;
    let (normalize, scale) = (c.weights_norm()?, c.weights_scale()?);
    let layers = c.pre_norm_layers(
        "post_attention_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            if c.tensors.offers(&format!("blk.{i}.attn_q_norm.weight")) {
                attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
            }
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            if i < dense {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let rules = MoeRules {
                gating,
                normalize,
                scale,
                ..MoeRules::softmax(n_ff_exp[i])
            };
            let mut moe = c.moe(i, &rules)?;
            if n_shared > 0 {
                let width = n_ff_exp[i] * n_shared;
                moe.shared = Some(c.shared_expert(i, width, Activation::Silu)?);
            }
            Ok(Mixer::Moe(moe))
        },
    )?;
    c.parts(layers)
}

/// QK norm after RoPE; the experts' width is the file's FFN width.
pub(super) fn hunyuan_moe(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let shared = c.hp.count("expert_shared_feed_forward_length")?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            attention.qk_norm = Some(c.qk_norm(i, &widths, true)?);
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            let mut moe = c.moe(i, &MoeRules::softmax(n_ff[i]))?;
            moe.shared = Some(c.shared_expert(i, shared, Activation::Silu)?);
            Ok(Mixer::Moe(moe))
        },
    )?;
    c.parts(layers)
}

/// QK norm over the whole width, sigmoid routing.
pub(super) fn minimax_m2(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let gating = c.gating(Gating::Softmax)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            attention.qk_norm = Some(c.wide_qk_norm(i, &widths)?);
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            let rules = MoeRules {
                gating,
                ..MoeRules::softmax(n_ff[i])
            };
            Ok(Mixer::Moe(c.moe(i, &rules)?))
        },
    )?;
    c.parts(layers)
}
