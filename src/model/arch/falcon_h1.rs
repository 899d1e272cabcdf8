//! `falcon-h1`: attention and Mamba-2 side by side in every layer.

use super::{Context, Parts, block, branch, layer};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError, Norm, Residual};

pub(super) fn falcon_h1(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let attention = c.roped(i, &widths, &rope)?;
        let mut mamba = c.mamba2_without_norm(i)?;
        if c.tensors.offers(&format!("blk.{i}.ssm_norm.weight")) {
            mamba.norm = Some(c.mamba2_norm(i, &mamba)?);
        }
        let mixers = [Mixer::Attention(attention), Mixer::Mamba2(mamba)];
        let ffn_norm = Norm {
            // The only norm whose tensor has no suffix.
            weight: Some(c.tensors.vector(&format!("blk.{i}.ffn_norm"), c.n_embd)?),
            ..norm.clone()
        };
        let ffn = Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?);
        layers.push(layer(vec![
            Residual {
                branches: mixers.map(|m| branch(Some(norm.clone()), m, None)).into(),
            },
            block(Some(ffn_norm), ffn, None),
        ]));
    }
    c.parts(layers)
}
