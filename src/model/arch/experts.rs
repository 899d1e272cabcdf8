//! Mixtures whose first layers are dense and whose later ones have a shared
//! expert (DeepSeek MoE, dots.1, Ling, K-EXAONE), and mixtures without them (OLMoE,
//! Mellum).

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Attention, Gating, Mixer, ModelError, Span};

/// The first DeepSeek mixture: weights are not renormalized.
pub(super) fn deepseek(c: &mut Context) -> Result<Parts, ModelError> {
    let n_ff_exp = c.n_ff_exp()?;
    let n_shared = c.hp.count("expert_shared_count")?;
    let scale = c.weights_scale()?;
    let rules = |i| MoeRules {
        normalize: false,
        scale,
        ..MoeRules::softmax(n_ff_exp[i])
    };
    let shared = |i| n_ff_exp[i] * n_shared;
    let dense = n_dense(c)?;
    dense_then_experts(c, RopePairs::Adjacent, dense, rules, shared, |_, _, _| {
        Ok(())
    })
}

/// The first Ling: no dense layers, softmax.
pub(super) fn bailingmoe(c: &mut Context) -> Result<Parts, ModelError> {
    let n_ff_exp = c.n_ff_exp()?;
    let n_shared = c.hp.count("expert_shared_count")?;
    let n_rot = c.n_rot(c.widths()?.head_dim)?;
    let (normalize, scale) = (c.weights_norm()?, c.weights_scale()?);
    let rules = |i| MoeRules {
        normalize,
        scale,
        ..MoeRules::softmax(n_ff_exp[i])
    };
    let shared = |i| n_ff_exp[i] * n_shared;
    let score_scale = 1.0 / (n_rot as f32).sqrt();
    dense_then_experts(
        c,
        RopePairs::Adjacent,
        0,
        rules,
        shared,
        |_, _, attention| {
            attention.heads.scale = score_scale;
            Ok(())
        },
    )
}

/// QK norm for each head.
pub(super) fn dots1(c: &mut Context) -> Result<Parts, ModelError> {
    let n_ff_exp = c.n_ff_exp()?;
    let n_shared = c.hp.count("expert_shared_count")?;
    qk_normed(c, &n_ff_exp, |i| n_ff_exp[i] * n_shared, |_, _| ())
}

/// Ling 2 and Ring 2: as dots.1, with groups of experts and partial RoPE.
pub(super) fn bailingmoe2(c: &mut Context) -> Result<Parts, ModelError> {
    let n_ff_exp = c.n_ff_exp()?;
    let n_shared = c.hp.count("expert_shared_count")?;
    let one = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let one = one.filter(|&n| n > 0);
    let shared = |i: usize| one.unwrap_or(n_ff_exp[i]) * n_shared;
    qk_normed(c, &n_ff_exp, shared, |_, _| ())
}

/// K-EXAONE: as dots.1, with windows, and RoPE only in the layers that have one.
pub(super) fn exaone_moe(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 4;
    let n_ff_exp = c.n_ff_exp()?;
    let one = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let one = one.filter(|&n| n > 0);
    let window = c.hp.count("attention.sliding_window")?;
    let spans = c.spans(Some(window), PERIOD)?;
    let shared = |i: usize| one.unwrap_or(n_ff_exp[i]);
    qk_normed(c, &n_ff_exp, shared, |i, attention| {
        attention.heads.span = spans[i];
        if spans[i] == Span::All {
            attention.rope = None;
        }
    })
}

fn qk_normed(
    c: &mut Context,
    n_ff_exp: &[usize],
    shared: impl Fn(usize) -> usize,
    adjust: impl Fn(usize, &mut Attention),
) -> Result<Parts, ModelError> {
    let widths = c.widths()?;
    // There is no default for these: llama.cpp stops without the key.
    c.hp.count("expert_gating_func")?;
    let gating = c.gating(Gating::Sigmoid)?;
    let (normalize, scale) = (c.weights_norm()?, c.weights_scale()?);
    let rules = |i: usize| MoeRules {
        gating,
        normalize,
        scale,
        ..MoeRules::softmax(n_ff_exp[i])
    };
    let dense = n_dense(c)?;
    dense_then_experts(
        c,
        RopePairs::Halves,
        dense,
        rules,
        shared,
        |c, i, attention| {
            attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
            adjust(i, attention);
            Ok(())
        },
    )
}

fn n_dense(c: &Context) -> Result<usize, ModelError> {
    let n = c.hp.optional_count("leading_dense_block_count")?;
    Ok(n.unwrap_or(0))
}

fn dense_then_experts(
    c: &mut Context,
    pairs: RopePairs,
    dense: usize,
    rules: impl Fn(usize) -> MoeRules,
    shared: impl Fn(usize) -> usize,
    mut adjust: impl FnMut(&mut Context, usize, &mut Attention) -> Result<(), ModelError>,
) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(pairs, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            adjust(c, i, &mut attention)?;
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            if i < dense {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let mut moe = c.moe(i, &rules(i))?;
            moe.shared = Some(c.shared_expert(i, shared(i), Activation::Silu)?);
            Ok(Mixer::Moe(moe))
        },
    )?;
    c.parts(layers)
}

/// QK norm over the whole width; weights are not renormalized.
pub(super) fn olmoe(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            attention.qk_norm = Some(c.wide_qk_norm(i, &widths)?);
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            let rules = MoeRules {
                normalize: false,
                ..MoeRules::softmax(n_ff[i])
            };
            Ok(Mixer::Moe(c.moe(i, &rules)?))
        },
    )?;
    c.parts(layers)
}

/// QK norm for each head; RoPE scaling applies to the layers without a window.
pub(super) fn mellum(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 4;
    let (widths, n_ff_exp) = (c.widths()?, c.n_ff_exp()?);
    let (pairs, n_rot) = (RopePairs::Halves, c.n_rot(widths.head_dim)?);
    let (base, scaling) = (c.rope_base()?, c.scaling()?);
    let global = Rope::new(pairs, n_rot, base, &scaling, None, c.attn_factor()?);
    let local = Rope::new(pairs, n_rot, base, &Scaling::None, None, 1.0);
    let spans = c.spans(c.window()?, PERIOD)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.attention(i, &widths)?;
            attention.heads.span = spans[i];
            attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
            attention.rope = Some(match spans[i] {
                Span::All => global.clone(),
                _ => local.clone(),
            });
            Ok(Mixer::Attention(attention))
        },
        |c, i| Ok(Mixer::Moe(c.moe(i, &MoeRules::softmax(n_ff_exp[i]))?)),
    )?;
    c.parts(layers)
}
