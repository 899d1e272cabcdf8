//! `jamba`: Mamba-1 where a layer has no KV heads, else attention without
//! positions; experts where a layer has a router.

use super::moe::MoeRules;
use super::{Context, Parts, pre_norm_layer};
use crate::model::{Activation, Mixer, ModelError};

pub(super) fn jamba(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let mixer = match widths.n_head_kv[i] {
            0 => Mixer::Mamba1(c.mamba1(i)?),
            _ => Mixer::Attention(c.attention(i, &widths)?),
        };
        let ffn = match c.tensors.has(&format!("blk.{i}.ffn_gate_inp.weight")) {
            false => Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?),
            true => {
                let rules = MoeRules {
                    normalize: false,
                    ..MoeRules::softmax(n_ff)
                };
                Mixer::Moe(c.moe(i, &rules)?)
            }
        };
        layers.push(pre_norm_layer(
            (c.norm(&format!("blk.{i}.attn_norm"))?, mixer),
            (c.norm(&format!("blk.{i}.ffn_norm"))?, ffn),
        ));
    }
    Ok(Parts {
        embedding: c.embedding(1.0)?,
        layers,
        head: c.head()?,
    })
}
