//! `gemma3`: QK norm, norms around each block, local layers with a sliding
//! window and their own RoPE base. The file's norm weights include the `+ 1`.

use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Attention, Branch, Layer, Mixer, ModelError, Residual};

/// Layers in which the last one attends to everything, where the file is silent.
const PERIOD: usize = 6;
/// The 27B model scales by its hidden width instead of its head width.
const LAYERS_27B: usize = 62;

pub(super) fn build(c: &mut Context) -> Result<Parts, ModelError> {
    let n_rot = c.n_rot()?;
    let scaling = c.scaling()?;
    let attn_factor =
        c.hp.optional_float("rope.scaling.attn_factor")?
            .unwrap_or(1.0);
    let base = c.hp.optional_float("rope.freq_base")?.unwrap_or(10000.0);
    let local_base =
        c.hp.optional_float("rope.freq_base_swa")?
            .unwrap_or(10000.0);
    let rope = |base, scaling: &Scaling| {
        Rope::new(RopePairs::Halves, n_rot, base, scaling, None, attn_factor)
    };
    // Scaling applies to the global layers only.
    let global = rope(base, &scaling);
    let local = rope(local_base, &Scaling::None);
    let window =
        c.hp.optional_count("attention.sliding_window")?
            .filter(|&n| n > 0);
    let slides = match window {
        Some(_) => c.hp.sliding_pattern(c.n_layer, PERIOD)?,
        None => vec![false; c.n_layer],
    };
    let softcap = c.hp.nonzero_float("attn_logit_softcapping")?;

    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &slides) in slides.iter().enumerate() {
        let scale_width = match c.n_layer {
            LAYERS_27B => c.n_embd / c.n_head[0],
            _ => c.head_dim,
        };
        let [q, k, v] = c.qkv(i)?;
        let mut head_norm = |part: &str| {
            c.tensors
                .norm(&format!("blk.{i}.attn_{part}_norm"), c.head_dim, c.eps)
        };
        let attention = Attention {
            n_head: c.n_head[i],
            n_head_kv: c.n_head_kv[i],
            head_dim: c.head_dim,
            head_dim_v: c.head_dim_v,
            q,
            k,
            v,
            q_norm: Some(head_norm("q")?),
            k_norm: Some(head_norm("k")?),
            output: c.tensors.linear(
                &format!("blk.{i}.attn_output"),
                c.n_head[i] * c.head_dim_v,
                c.n_embd,
            )?,
            rope: Some(if slides {
                local.clone()
            } else {
                global.clone()
            }),
            window: window.filter(|_| slides),
            scale: 1.0 / (scale_width as f32).sqrt(),
            softcap,
        };
        let ffn = c.ffn(i, Activation::GeluTanh)?;
        let mut block = |pre: &str, mixer, post: &str| -> Result<Residual, ModelError> {
            Ok(Residual {
                branches: vec![Branch {
                    pre_norm: Some(c.norm(&format!("blk.{i}.{pre}"))?),
                    mixer,
                    post_norm: Some(c.norm(&format!("blk.{i}.{post}"))?),
                }],
            })
        };
        layers.push(Layer {
            blocks: vec![
                block(
                    "attn_norm",
                    Mixer::Attention(attention),
                    "post_attention_norm",
                )?,
                block("ffn_norm", Mixer::Ffn(ffn), "post_ffw_norm")?,
            ],
        });
    }
    Ok(Parts {
        embedding_scale: (c.n_embd as f32).sqrt(),
        layers,
        softcap: c.hp.nonzero_float("final_logit_softcapping")?,
    })
}
