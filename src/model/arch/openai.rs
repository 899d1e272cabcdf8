//! `gpt-oss`: attention sinks, windows in every second layer, experts with a
//! clamped SwiGLU.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs};
use crate::model::{Activation, Gating, Mixer, ModelError, Span};

pub(super) fn gpt_oss(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 2;
    let (widths, n_ff) = (c.widths()?, c.n_ff_exp()?);
    let n_rot = c.n_rot(widths.head_dim)?;
    let (scaling, base, attn_factor) = (c.scaling()?, c.rope_base()?, c.attn_factor()?);
    let local_base = c.hp.optional_float("rope.freq_base_swa")?.unwrap_or(base);
    let rope = |base| Rope::new(RopePairs::Halves, n_rot, base, &scaling, None, attn_factor);
    let (global, local) = (rope(base), rope(local_base));
    let window = c.hp.count("attention.sliding_window")?;
    let spans = c.spans(Some(window), PERIOD)?;
    let layers = c.pre_norm_layers(
        "post_attention_norm",
        |c, i| {
            let mut attention = c.attention(i, &widths)?;
            attention.heads.span = spans[i];
            let sinks = format!("blk.{i}.attn_sinks.weight");
            attention.heads.sinks = Some(c.tensors.vector(&sinks, widths.n_head[i])?);
            attention.rope = Some(match spans[i] {
                Span::All => global.clone(),
                _ => local.clone(),
            });
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            let rules = MoeRules {
                activation: Activation::ClampedSwiglu,
                gating: Gating::SoftmaxOfChosen,
                normalize: false,
                ..MoeRules::softmax(n_ff[i])
            };
            Ok(Mixer::Moe(c.moe(i, &rules)?))
        },
    )?;
    c.parts(layers)
}
