//! `exaone4`: norms after each block only, QK norm for each head; the 32B model
//! has windows, and RoPE only in the layers that have one.

use super::{Context, Parts, block, layer};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError, Span};

pub(super) fn exaone4(c: &mut Context) -> Result<Parts, ModelError> {
    const LAYERS_32B: usize = 64;
    const WINDOW: usize = 4096;
    const PERIOD: usize = 4;
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    // As in llama.cpp, the other models see everything whatever their keys say; the
    // model says so.
    let has_windows = c.n_layer == LAYERS_32B;
    if !has_windows {
        c.unheeded_window = c.window()?;
    }
    let window = c.window()?.unwrap_or(WINDOW);
    let spans = c.spans(has_windows.then_some(window), PERIOD)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, (n_ff, &span)) in n_ff.into_iter().zip(&spans).enumerate() {
        let mut attention = c.attention(i, &widths)?;
        attention.heads.span = span;
        attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
        let has_rope = !has_windows || span != Span::All;
        attention.rope = has_rope.then(|| rope.clone());
        let ffn = Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?);
        let post_attention = c.norm(&format!("blk.{i}.post_attention_norm"))?;
        let post_ffn = c.norm(&format!("blk.{i}.post_ffw_norm"))?;
        layers.push(layer(vec![
            block(None, Mixer::Attention(attention), Some(post_attention)),
            block(None, ffn, Some(post_ffn)),
        ]));
    }
    c.parts(layers)
}
