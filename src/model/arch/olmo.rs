//! OLMo: the first with norms that have no weights, `olmo2` (OLMo 2 and 3) with
//! norms after each block only and QK norm over the whole width.

use super::{Context, Parts, block, layer};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Head, Mixer, ModelError, Norm, Span};

pub(super) fn olmo(c: &mut Context) -> Result<Parts, ModelError> {
    const CLAMP: &str = "attention.clamp_kqv";
    if let Some(clamp) = c.hp.nonzero_float(CLAMP)? {
        let problem = "clamped queries, keys and values are not supported";
        return Err(c.hp.bad(CLAMP, clamp, problem));
    }
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let (kind, eps) = c.norm;
    let norm = Some(Norm {
        kind,
        width: c.n_embd,
        weight: None,
        bias: None,
        eps,
    });
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, n_ff) in n_ff.into_iter().enumerate() {
        let attention = c.roped(i, &widths, &rope)?;
        let ffn = Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?);
        layers.push(layer(vec![
            block(norm.clone(), Mixer::Attention(attention), None),
            block(norm.clone(), ffn, None),
        ]));
    }
    Ok(Parts {
        embedding: c.embedding(1.0)?,
        layers,
        head: Head {
            norm,
            ..c.projection()?
        },
    })
}

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
