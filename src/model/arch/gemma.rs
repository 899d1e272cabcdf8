//! The Gemma family: scaled embeddings, GELU, norms whose weights include the
//! `+ 1` in the file.

use super::{Context, Parts, block};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Layer, Mixer, ModelError, QkNorm, Span};

/// Layers in which the last one attends to everything, where the file is silent.
const PERIOD: usize = 6;
/// The 27B model scales by its hidden width instead of its head width.
const LAYERS_27B: usize = 62;

/// QK norm, norms around each block, local layers with a sliding window and
/// their own RoPE base.
pub(super) fn gemma3(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
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
    let window = c.hp.optional_count("attention.sliding_window")?;
    let window = window.filter(|&n| n > 0);
    let slides = match window {
        Some(_) => c.hp.sliding_pattern(c.n_layer, PERIOD)?,
        None => vec![false; c.n_layer],
    };
    let softcap = c.hp.nonzero_float("attn_logit_softcapping")?;

    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &slides) in slides.iter().enumerate() {
        let mut attention = c.attention(i, &widths)?;
        let mut head_norm = |part: &str| {
            let name = format!("blk.{i}.attn_{part}_norm");
            c.tensors
                .norm(&name, c.norm.0, (widths.head_dim, 1), c.norm.1)
        };
        attention.qk_norm = Some(QkNorm {
            q: head_norm("q")?,
            k: head_norm("k")?,
            after_rope: false,
        });
        attention.rope = Some(if slides {
            local.clone()
        } else {
            global.clone()
        });
        if c.n_layer == LAYERS_27B {
            attention.heads.scale = 1.0 / ((c.n_embd / widths.n_head[0].max(1)) as f32).sqrt();
        }
        attention.heads.softcap = softcap;
        attention.heads.span = match window {
            Some(n) if slides => Span::Window(n),
            _ => Span::All,
        };
        let ffn = Mixer::Ffn(c.ffn(i, n_ff[i], Activation::GeluTanh)?);
        let mut around = |pre: &str, mixer, post: &str| -> Result<_, ModelError> {
            let pre = c.norm(&format!("blk.{i}.{pre}"))?;
            let post = c.norm(&format!("blk.{i}.{post}"))?;
            Ok(block(Some(pre), mixer, Some(post)))
        };
        layers.push(Layer {
            blocks: vec![
                around(
                    "attn_norm",
                    Mixer::Attention(attention),
                    "post_attention_norm",
                )?,
                around("ffn_norm", ffn, "post_ffw_norm")?,
            ],
            rescale: 1.0,
        });
    }
    let mut head = c.head()?;
    head.softcap = c.hp.nonzero_float("final_logit_softcapping")?;
    Ok(Parts {
        embedding: c.embedding((c.n_embd as f32).sqrt())?,
        layers,
        head,
    })
}
