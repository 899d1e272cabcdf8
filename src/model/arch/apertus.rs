//! `apertus`: xIELU with constants of its own in each layer, no gate.

use super::{Context, Parts};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError, Xielu};

pub(super) fn apertus(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let xielu = xielu(c)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
            Ok(Mixer::Attention(attention))
        },
        |c, i| Ok(Mixer::Ffn(c.ffn(i, n_ff[i], xielu[i])?)),
    )?;
    c.parts(layers)
}

/// The activations of all layers. The file holds what softplus makes positive.
fn xielu(c: &Context) -> Result<Vec<Activation>, ModelError> {
    let softplus = |x: f32| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let read = |part: &str| c.hp.unprefixed_floats(&format!("xielu.{part}"), c.n_layer);
    let (alpha_n, alpha_p) = (read("alpha_n")?, read("alpha_p")?);
    let (beta, eps) = (read("beta")?, read("eps")?);
    let layer = |i: usize| {
        Activation::Xielu(Xielu {
            positive: softplus(alpha_p[i]),
            negative: beta[i] + softplus(alpha_n[i]),
            beta: beta[i],
            eps: eps[i],
        })
    };
    Ok((0..c.n_layer).map(layer).collect())
}
