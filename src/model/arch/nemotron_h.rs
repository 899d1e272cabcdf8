//! `nemotron_h` and `nemotron_h_moe`: one mixer a layer, Mamba-2 (no KV heads, no
//! feed-forward width), attention without positions (no feed-forward width) or a
//! network of squared ReLUs, with experts where the model has them.

use super::moe::MoeRules;
use super::{Context, Parts, block};
use crate::model::{Activation, Gating, Layer, Mixer, ModelError};

pub(super) fn nemotron_h(c: &mut Context) -> Result<Parts, ModelError> {
    c.skip_mtp_blocks()?;
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let attention_scale = c.hp.nonzero_float("attention.scale")?;
    let has_experts = c.hp.optional_count("expert_count")?.unwrap_or(0) > 0;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let mixer = match (n_ff, widths.n_head_kv[i]) {
            (0, 0) => Mixer::Mamba2(c.mamba2(i)?),
            (0, _) => {
                let mut attention = c.attention(i, &widths)?;
                attention.heads.scale = attention_scale.unwrap_or(attention.heads.scale);
                Mixer::Attention(attention)
            }
            _ if has_experts => experts(c, i, n_ff)?,
            _ => Mixer::Ffn(c.ffn(i, n_ff, Activation::ReluSquared)?),
        };
        layers.push(Layer {
            blocks: vec![block(Some(norm), mixer, None)],
            rescale: 1.0,
        });
    }
    Ok(Parts {
        embedding: c.embedding(1.0)?,
        layers,
        head: c.head()?,
    })
}

fn experts(c: &mut Context, i: usize, n_ff: usize) -> Result<Mixer, ModelError> {
    const ACTIVATION: Activation = Activation::ReluSquared;
    let n_ff_shared = c.hp.count("expert_shared_feed_forward_length")?;
    let n_used = c.hp.count("expert_used_count")?;
    let rules = MoeRules {
        n_ff: c
            .hp
            .optional_count("expert_feed_forward_length")?
            .unwrap_or(n_ff / n_used),
        activation: ACTIVATION,
        gating: Gating::Sigmoid,
        normalize: c.hp.bool("expert_weights_norm", false)?,
        scale: c.hp.nonzero_float("expert_weights_scale")?.unwrap_or(1.0),
    };
    let mut moe = c.moe(i, &rules)?;
    moe.shared = Some(c.shared_expert(i, n_ff_shared, ACTIVATION)?);
    Ok(Mixer::Moe(moe))
}
