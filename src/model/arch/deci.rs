//! `deci` (Llama Nemotron): Llama pruned layer by layer. Some layers have no
//! attention, some no FFN, the others widths of their own.

use super::{Context, Parts, block, layer};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError};

pub(super) fn deci(c: &mut Context) -> Result<Parts, ModelError> {
    const KV: &str = "attention.head_count_kv";
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, n_ff) in n_ff.into_iter().enumerate() {
        let has_attention = widths.n_head[i] > 0;
        if has_attention && widths.n_head_kv[i] == 0 {
            let problem = format!("layer {i} has a matrix in place of attention: not supported");
            return Err(c.hp.bad(KV, 0, problem));
        }
        if has_attention && n_ff == 0 {
            let problem = format!("layer {i} has attention alone, which llama.cpp leaves out");
            return Err(c.hp.bad("feed_forward_length", 0, problem));
        }
        let mut blocks = Vec::new();
        if has_attention {
            let attention = c.roped(i, &widths, &rope)?;
            let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
            blocks.push(block(Some(norm), Mixer::Attention(attention), None));
        }
        if n_ff > 0 {
            let ffn = c.ffn(i, n_ff, Activation::Silu)?;
            let norm = c.norm(&format!("blk.{i}.ffn_norm"))?;
            blocks.push(block(Some(norm), Mixer::Ffn(ffn), None));
        }
        layers.push(layer(blocks));
    }
    c.parts(layers)
}
