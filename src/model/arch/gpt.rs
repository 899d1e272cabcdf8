//! The LayerNorm families: GPT-2, GPT-NeoX, Falcon, StarCoder 2, StableLM.

use super::{Context, Parts, Widths, block, branch, layer};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError, NormKind, QkNorm, Residual};

/// Learned positions in place of RoPE.
pub(super) fn gpt2(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Attention(c.attention(i, &widths)?)),
        |c, i| {
            Ok(Mixer::Ffn(c.ungated_ffn(
                i,
                n_ff[i],
                Activation::GeluTanh,
            )?))
        },
    )?;
    let mut embedding = c.embedding(1.0)?;
    let positions = c
        .tensors
        .matrix("position_embd.weight", c.n_embd, c.n_ctx_train)?;
    embedding.positions = Some(positions);
    Ok(Parts {
        embedding,
        layers,
        head: c.head()?,
    })
}

/// Attention and FFN side by side, each with its norm, or one after the other.
pub(super) fn gptneox(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let parallel = c.hp.bool("use_parallel_residual", true)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, n_ff) in n_ff.into_iter().enumerate() {
        let attention = Mixer::Attention(c.roped(i, &widths, &rope)?);
        let ffn = Mixer::Ffn(c.ungated_ffn(i, n_ff, Activation::GeluTanh)?);
        let attn_norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let ffn_norm = c.norm(&format!("blk.{i}.ffn_norm"))?;
        let attention = branch(Some(attn_norm), attention, None);
        let ffn = branch(Some(ffn_norm), ffn, None);
        let blocks = match parallel {
            true => vec![vec![attention, ffn]],
            false => vec![vec![attention], vec![ffn]],
        };
        let blocks = blocks.into_iter().map(|branches| Residual { branches });
        layers.push(layer(blocks.collect()));
    }
    c.parts(layers)
}

/// Attention and FFN side by side; the large models norm attention's input
/// apart.
pub(super) fn falcon(c: &mut Context) -> Result<Parts, ModelError> {
    c.require_flag("use_parallel_residual", true)?;
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, n_ff) in n_ff.into_iter().enumerate() {
        let attention = Mixer::Attention(c.roped(i, &widths, &rope)?);
        let ffn = Mixer::Ffn(c.ungated_ffn(i, n_ff, Activation::GeluTanh)?);
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let second = format!("blk.{i}.attn_norm_2");
        let attn_norm = match c.tensors.offers(&format!("{second}.weight")) {
            true => c.norm(&second)?,
            false => norm.clone(),
        };
        layers.push(layer(vec![Residual {
            branches: vec![
                branch(Some(attn_norm), attention, None),
                branch(Some(norm), ffn, None),
            ],
        }]));
    }
    c.parts(layers)
}

pub(super) fn starcoder2(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Attention(c.roped(i, &widths, &rope)?)),
        |c, i| {
            Ok(Mixer::Ffn(c.ungated_ffn(
                i,
                n_ff[i],
                Activation::GeluTanh,
            )?))
        },
    )?;
    c.parts(layers)
}

/// A file without `ffn_norm` runs attention and FFN side by side, whatever its
/// keys say.
pub(super) fn stablelm(c: &mut Context) -> Result<Parts, ModelError> {
    // Converters write it as they find it: sequential models have it set.
    c.hp.bool("use_parallel_residual", true)?;
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, n_ff) in n_ff.into_iter().enumerate() {
        let mut attention = c.roped(i, &widths, &rope)?;
        attention.qk_norm = norm_per_head(c, i, &widths)?;
        let attention = Mixer::Attention(attention);
        let ffn = Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?);
        let attn_norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let ffn_norm = format!("blk.{i}.ffn_norm");
        let blocks = match c.tensors.offers(&format!("{ffn_norm}.weight")) {
            true => vec![
                block(Some(attn_norm), attention, None),
                block(Some(c.norm(&ffn_norm)?), ffn, None),
            ],
            false => vec![Residual {
                branches: vec![
                    branch(Some(attn_norm.clone()), attention, None),
                    branch(Some(attn_norm), ffn, None),
                ],
            }],
        };
        layers.push(layer(blocks));
    }
    c.parts(layers)
}

/// QK LayerNorm with a weight of its own for each head.
fn norm_per_head(c: &mut Context, i: usize, w: &Widths) -> Result<Option<QkNorm>, ModelError> {
    if !c.tensors.offers(&format!("blk.{i}.attn_q_norm.weight")) {
        return Ok(None);
    }
    let eps = c.norm.1;
    let mut norm = |part: &str, n_head| {
        let name = format!("blk.{i}.attn_{part}_norm");
        c.tensors
            .norm(&name, NormKind::Layer, w.head_dim, n_head, eps)
    };
    Ok(Some(QkNorm {
        q: norm("q", w.n_head[i])?,
        k: norm("k", w.n_head_kv[i])?,
        after_rope: false,
    }))
}
