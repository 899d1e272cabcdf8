//! `olmo2` (OLMo 2 and 3): norms after each block only, QK norm over the whole
//! width.

use super::{Context, Parts, block, layer};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Mixer, ModelError, Span};

pub(super) fn olmo2(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 4;
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let n_rot = c.n_rot(widths.head_dim)?;
    let (scaling, base, attn_factor) = (c.scaling()?, c.rope_base()?, c.attn_factor()?);
    let rope = |base, scaling: &Scaling| {
        Rope::new(RopePairs::Halves, n_rot, base, scaling, None, attn_factor)
    };
    // Scaling applies to the layers that see everything.
    let global = rope(base, &scaling);
    let local_base = c.hp.optional_float("rope.freq_base_swa")?.unwrap_or(base);
    let local = rope(local_base, &Scaling::None);
    let spans = c.spans(c.window()?, PERIOD)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, (n_ff, &span)) in n_ff.into_iter().zip(&spans).enumerate() {
        let mut attention = c.attention(i, &widths)?;
        attention.heads.span = span;
        attention.qk_norm = Some(c.wide_qk_norm(i, &widths)?);
        attention.rope = Some(match span {
            Span::All => global.clone(),
            _ => local.clone(),
        });
        let ffn = c.ffn(i, n_ff, Activation::Silu)?;
        let post_attention = c.norm(&format!("blk.{i}.post_attention_norm"))?;
        let post_ffn = c.norm(&format!("blk.{i}.post_ffw_norm"))?;
        layers.push(layer(vec![
            block(None, Mixer::Attention(attention), Some(post_attention)),
            block(None, Mixer::Ffn(ffn), Some(post_ffn)),
        ]));
    }
    c.parts(layers)
}
