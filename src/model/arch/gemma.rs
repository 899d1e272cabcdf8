//! The Gemma family: scaled embeddings, GELU, norms whose weights include the
//! `+ 1` in the file.

use super::{Context, Parts, block, layer};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Attention, Layer, Mixer, ModelError, Span};

pub(super) fn gemma(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Attention(c.roped(i, &widths, &rope)?)),
        |c, i| Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::GeluTanh)?)),
    )?;
    parts(c, layers)
}

/// Soft-caps, norms around each block, a window in every second layer.
pub(super) fn gemma2(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 2;
    const WINDOW: usize = 4096;
    const LAYERS_27B: usize = 46;
    const ATTENTION_CAP: f32 = 50.0;
    const FINAL_CAP: f32 = 30.0;
    let widths = c.widths()?;
    let n_rot = c.n_rot(widths.head_dim)?;
    let (scaling, attn_factor, base) = (c.scaling()?, c.attn_factor()?, c.rope_base()?);
    let local_base = c.hp.optional_float("rope.freq_base_swa")?.unwrap_or(base);
    let rope = |base| Rope::new(RopePairs::Halves, n_rot, base, &scaling, None, attn_factor);
    let (global, local) = (rope(base), rope(local_base));
    let window = match c.hp.has("attention.sliding_window") {
        true => c.window()?,
        false => Some(WINDOW),
    };
    let spans = c.spans(window, PERIOD)?;
    let softcap = softcap_of(c, "attn_logit_softcapping", ATTENTION_CAP)?;
    let layers = around_blocks(c, |c, i| {
        let mut attention = c.attention(i, &widths)?;
        let is_local = spans[i] != Span::All;
        attention.rope = Some(if is_local {
            local.clone()
        } else {
            global.clone()
        });
        attention.heads.span = spans[i];
        attention.heads.softcap = softcap;
        scale_27b(c, LAYERS_27B, &mut attention);
        Ok(attention)
    })?;
    let final_cap = softcap_of(c, "final_logit_softcapping", FINAL_CAP)?;
    let mut parts = parts(c, layers)?;
    parts.head.softcap = final_cap;
    Ok(parts)
}

/// The file's cap; 0 turns it off. The first files of Gemma 2 do not state theirs,
/// which all models of the family share (llama.cpp's defaults).
fn softcap_of(c: &Context, key: &str, default: f32) -> Result<Option<f32>, ModelError> {
    match c.hp.has(key) {
        true => c.hp.nonzero_float(key),
        false => Ok(Some(default)),
    }
}

/// QK norm, norms around each block, local layers with a sliding window and
/// their own RoPE base.
pub(super) fn gemma3(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 6;
    const LAYERS_27B: usize = 62;
    let widths = c.widths()?;
    let n_rot = c.n_rot(widths.head_dim)?;
    let (scaling, attn_factor) = (c.scaling()?, c.attn_factor()?);
    let rope = |base, scaling: &Scaling| {
        Rope::new(RopePairs::Halves, n_rot, base, scaling, None, attn_factor)
    };
    // Scaling applies to the global layers only.
    let global = rope(c.rope_base()?, &scaling);
    let local_base =
        c.hp.optional_float("rope.freq_base_swa")?
            .unwrap_or(10000.0);
    let local = rope(local_base, &Scaling::None);
    let spans = c.spans(c.window()?, PERIOD)?;
    let softcap = c.hp.nonzero_float("attn_logit_softcapping")?;
    let layers = around_blocks(c, |c, i| {
        let mut attention = c.attention(i, &widths)?;
        let is_local = spans[i] != Span::All;
        attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
        attention.rope = Some(if is_local {
            local.clone()
        } else {
            global.clone()
        });
        attention.heads.span = spans[i];
        attention.heads.softcap = softcap;
        scale_27b(c, LAYERS_27B, &mut attention);
        Ok(attention)
    })?;
    parts(c, layers)
}

/// The 27B models scale by their hidden width instead of their head width.
fn scale_27b(c: &Context, n_layer: usize, attention: &mut Attention) {
    if c.n_layer == n_layer {
        let width = c.n_embd / attention.heads.n_head.max(1);
        attention.heads.scale = 1.0 / (width as f32).sqrt();
    }
}

/// Layers with a norm before and after each block.
fn around_blocks(
    c: &mut Context,
    mut attention: impl FnMut(&mut Context, usize) -> Result<Attention, ModelError>,
) -> Result<Vec<Layer>, ModelError> {
    let n_ff = c.n_ff()?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, n_ff) in n_ff.into_iter().enumerate() {
        let attention = Mixer::Attention(attention(c, i)?);
        let ffn = Mixer::Ffn(c.ffn(i, n_ff, Activation::GeluTanh)?);
        let mut around = |pre: &str, mixer, post: &str| -> Result<_, ModelError> {
            let pre = c.norm(&format!("blk.{i}.{pre}"))?;
            let post = c.norm(&format!("blk.{i}.{post}"))?;
            Ok(block(Some(pre), mixer, Some(post)))
        };
        layers.push(layer(vec![
            around("attn_norm", attention, "post_attention_norm")?,
            around("ffn_norm", ffn, "post_ffw_norm")?,
        ]));
    }
    Ok(layers)
}

fn parts(c: &mut Context, layers: Vec<Layer>) -> Result<Parts, ModelError> {
    let mut head = c.head()?;
    head.softcap = c.hp.nonzero_float("final_logit_softcapping")?;
    Ok(Parts {
        embedding: c.embedding((c.n_embd as f32).sqrt())?,
        layers,
        head,
    })
}
