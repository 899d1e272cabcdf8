//! `llama`: Llama 1–3, SmolLM2, Mistral, Mixtral and their kin.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError};

pub(super) fn llama(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let scale = c.hp.nonzero_float("attention.scale")?;
    let has_experts = c.hp.optional_count("expert_count")?.unwrap_or(0) > 0;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            attention.heads.scale = scale.unwrap_or(attention.heads.scale);
            Ok(Mixer::Attention(attention))
        },
        |c, i| match has_experts {
            false => Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?)),
            true => Ok(Mixer::Moe(c.moe(i, &MoeRules::softmax(n_ff[i]))?)),
        },
    )?;
    c.parts(layers)
}
