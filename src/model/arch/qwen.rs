//! Qwen 1 to 3, dense and with experts.

use super::moe::MoeRules;
use super::mrope::Axes;
use super::{Context, Parts, Widths};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError};

/// Biases on query, key and value; the file's FFN width counts gate and up.
pub(super) fn qwen1(c: &mut Context) -> Result<Parts, ModelError> {
    let n_ff = c.n_ff()?;
    qwen(c, false, None, |c, i| {
        Ok(Mixer::Ffn(c.ffn(i, n_ff[i] / 2, Activation::Silu)?))
    })
}

/// Biases on query, key and value.
pub(super) fn qwen2(c: &mut Context) -> Result<Parts, ModelError> {
    dense(c, false, None)
}

pub(super) fn qwen2vl(c: &mut Context) -> Result<Parts, ModelError> {
    dense(c, false, Some(Axes::Runs))
}

/// Weights of the chosen experts are not renormalized; a gated shared expert.
pub(super) fn qwen2moe(c: &mut Context) -> Result<Parts, ModelError> {
    let n_ff = expert_widths(c)?;
    let shared = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let dense = c.n_ff()?;
    qwen(c, false, None, |c, i| {
        let rules = MoeRules {
            normalize: false,
            ..MoeRules::softmax(n_ff[i])
        };
        let mut moe = c.moe(i, &rules)?;
        let width = shared.filter(|&n| n > 0).unwrap_or(dense[i]);
        moe.shared = Some(c.shared_expert(i, width, Activation::Silu)?);
        Ok(Mixer::Moe(moe))
    })
}

/// QK norm for each head.
pub(super) fn qwen3(c: &mut Context) -> Result<Parts, ModelError> {
    dense(c, true, None)
}

pub(super) fn qwen3vl(c: &mut Context) -> Result<Parts, ModelError> {
    dense(c, true, Some(Axes::Turns))
}

pub(super) fn qwen3moe(c: &mut Context) -> Result<Parts, ModelError> {
    experts(c, None)
}

pub(super) fn qwen3vlmoe(c: &mut Context) -> Result<Parts, ModelError> {
    experts(c, Some(Axes::Turns))
}

fn dense(c: &mut Context, qk_norm: bool, axes: Option<Axes>) -> Result<Parts, ModelError> {
    let n_ff = c.n_ff()?;
    qwen(c, qk_norm, axes, |c, i| {
        Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?))
    })
}

fn experts(c: &mut Context, axes: Option<Axes>) -> Result<Parts, ModelError> {
    let n_ff = expert_widths(c)?;
    qwen(c, true, axes, |c, i| {
        Ok(Mixer::Moe(c.moe(i, &MoeRules::softmax(n_ff[i]))?))
    })
}

fn qwen(
    c: &mut Context,
    qk_norm: bool,
    axes: Option<Axes>,
    ffn: impl FnMut(&mut Context, usize) -> Result<Mixer, ModelError>,
) -> Result<Parts, ModelError> {
    let widths: Widths = c.widths()?;
    let mut rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    if let Some(axes) = axes {
        rope = c.with_axes(rope, axes)?;
    }
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            if qk_norm {
                attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
            }
            Ok(Mixer::Attention(attention))
        },
        ffn,
    )?;
    c.parts(layers)
}

/// Width of an expert; older files state only that of all chosen ones together.
fn expert_widths(c: &Context) -> Result<Vec<usize>, ModelError> {
    if c.hp.has("expert_feed_forward_length") {
        return c.n_ff_exp();
    }
    let n_used = c.hp.count("expert_used_count")?;
    Ok(c.n_ff()?.into_iter().map(|n| n / n_used).collect())
}
