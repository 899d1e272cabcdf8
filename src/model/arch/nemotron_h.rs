//! `nemotron_h` and `nemotron_h_moe`: one mixer a layer, Mamba-2 (no KV heads, no
//! feed-forward width), attention without positions (no feed-forward width) or a
//! network of squared ReLUs, with experts where the model has them.

use super::moe::MoeRules;
use super::{Context, Parts, block, layer};
use crate::model::{Activation, Gating, Mixer, ModelError, NormKind, SharedExpert};

pub(super) fn nemotron_h(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    // One of the two epsilon keys is there, whichever; the norms are the same.
    c.norm.0 = NormKind::Rms;
    let has_experts = c.hp.optional_count("expert_count")?.unwrap_or(0) > 0;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let mixer = match (n_ff, widths.n_head_kv[i]) {
            (0, 0) => Mixer::Mamba2(c.mamba2(i)?),
            (0, _) => Mixer::Attention(c.attention(i, &widths)?),
            _ if has_experts => experts(c, i)?,
            _ => Mixer::Ffn(c.ungated_ffn(i, n_ff, Activation::ReluSquared)?),
        };
        layers.push(layer(vec![block(Some(norm), mixer, None)]));
    }
    c.parts(layers)
}

fn experts(c: &mut Context, i: usize) -> Result<Mixer, ModelError> {
    const ACTIVATION: Activation = Activation::ReluSquared;
    let n_ff_shared = c.hp.count("expert_shared_feed_forward_length")?;
    let rules = MoeRules {
        n_ff: c.expert_width(i)?,
        activation: ACTIVATION,
        gated: false,
        gating: Gating::Sigmoid,
        normalize: c.weights_norm()?,
        scale: c.weights_scale()?,
    };
    let mut moe = c.moe(i, &rules)?;
    let shared = format!("blk.{i}.ffn");
    moe.shared = Some(SharedExpert {
        ffn: c.ffn_named(&shared, "_shexp", n_ff_shared, ACTIVATION, false)?,
        gate: None,
    });
    Ok(Mixer::Moe(moe))
}
