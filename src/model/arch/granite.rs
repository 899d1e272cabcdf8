//! `granite`, `granitemoe` and `granitehybrid`: Llama with four multipliers, and
//! Mamba-2 where a layer has no KV heads.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs};
use crate::model::{Activation, Layer, Mixer, ModelError};

/// The multipliers of the Granite family.
pub(super) struct Multipliers {
    pub embedding: f32,
    pub residual: f32,
    pub attention: Option<f32>,
    /// Logits are divided by it.
    pub logits: f32,
}

impl Multipliers {
    pub fn read(c: &Context) -> Result<Self, ModelError> {
        let or_1 = |key| -> Result<f32, ModelError> { Ok(c.hp.nonzero_float(key)?.unwrap_or(1.0)) };
        Ok(Self {
            embedding: or_1("embedding_scale")?,
            residual: or_1("residual_scale")?,
            attention: c.hp.nonzero_float("attention.scale")?,
            logits: or_1("logit_scale")?,
        })
    }
}

/// Scales what the blocks of `layers` add.
pub(super) fn scale_residuals(layers: &mut [Layer], scale: f32) {
    let blocks = layers.iter_mut().flat_map(|l| &mut l.blocks);
    for branch in blocks.flat_map(|b| &mut b.branches) {
        branch.scale = scale;
    }
}

pub(super) fn granite(c: &mut Context) -> Result<Parts, ModelError> {
    let head_dim = c.widths()?.head_dim;
    let multipliers = Multipliers::read(c)?;
    let rope = match c.hp.bool("rope.scaling.finetuned", true)? {
        true => Some(c.rope(RopePairs::Adjacent, head_dim)?),
        false => None,
    };
    scaled(c, &multipliers, rope)
}

pub(super) fn scaled(
    c: &mut Context,
    multipliers: &Multipliers,
    rope: Option<Rope>,
) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let has_experts = c.hp.optional_count("expert_count")?.unwrap_or(0) > 0;
    let shared = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let shared = shared.filter(|&n| n > 0);
    let mut layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            if widths.n_head_kv[i] == 0 {
                return Ok(Mixer::Mamba2(c.mamba2(i)?));
            }
            let mut attention = c.attention(i, &widths)?;
            attention.rope.clone_from(&rope);
            attention.heads.scale = multipliers.attention.unwrap_or(attention.heads.scale);
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            if !has_experts {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let mut moe = c.moe(i, &MoeRules::softmax(n_ff[i]))?;
            if let Some(n_ff) = shared {
                moe.shared = Some(c.shared_expert(i, n_ff, Activation::Silu)?);
            }
            Ok(Mixer::Moe(moe))
        },
    )?;
    scale_residuals(&mut layers, multipliers.residual);
    let mut head = c.head()?;
    head.scale = 1.0 / multipliers.logits;
    Ok(Parts {
        embedding: c.embedding(multipliers.embedding)?,
        layers,
        head,
    })
}
