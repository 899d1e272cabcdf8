//! `llama`: Llama 1–3, SmolLM2, Mistral, Mixtral and their kin.

use super::moe::MoeRules;
use super::{Context, Parts, pre_norm_layer};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError};

pub(super) fn llama(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let scale = c.hp.nonzero_float("attention.scale")?;
    let has_experts = c.hp.optional_count("expert_count")?.unwrap_or(0) > 0;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let mut attention = c.attention(i, &widths)?;
        attention.rope = Some(rope.clone());
        attention.heads.scale = scale.unwrap_or(attention.heads.scale);
        let ffn = match has_experts {
            false => Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?),
            true => Mixer::Moe(c.moe(i, &MoeRules::softmax(n_ff))?),
        };
        layers.push(pre_norm_layer(
            (
                c.norm(&format!("blk.{i}.attn_norm"))?,
                Mixer::Attention(attention),
            ),
            (c.norm(&format!("blk.{i}.ffn_norm"))?, ffn),
        ));
    }
    Ok(Parts {
        embedding: c.embedding(1.0)?,
        layers,
        head: c.head()?,
    })
}
