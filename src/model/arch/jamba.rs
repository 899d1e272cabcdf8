//! `jamba`: Mamba-1 where a layer has no KV heads, else attention without
//! positions; experts where a layer has a router.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::{Activation, Mixer, ModelError};

pub(super) fn jamba(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            Ok(match widths.n_head_kv[i] {
                0 => Mixer::Mamba1(c.mamba1(i)?),
                _ => Mixer::Attention(c.attention(i, &widths)?),
            })
        },
        |c, i| {
            if !c.tensors.has(&format!("blk.{i}.ffn_gate_inp.weight")) {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let rules = MoeRules {
                normalize: false,
                ..MoeRules::softmax(n_ff[i])
            };
            Ok(Mixer::Moe(c.moe(i, &rules)?))
        },
    )?;
    c.parts(layers)
}
