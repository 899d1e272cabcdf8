//! MiniCPM: Granite's multipliers with defaults of their own; MiniCPM 3 has
//! latent attention.

use super::deepseek::{self, MlaWidths};
use super::granite::{self, Multipliers};
use super::{Context, Parts, phi};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError};

const EMBEDDING_SCALE: f32 = 12.0;
const DEPTH_SCALE: f32 = 1.4;
/// The hidden width for which logits are not scaled.
const BASE_WIDTH: f32 = 256.0;

fn residual_scale(c: &Context) -> f32 {
    DEPTH_SCALE / (c.n_layer as f32).sqrt()
}

/// `logit_scale` is asked for: llama.cpp multiplies by the inverse of the right
/// value in files without it.
pub(super) fn minicpm(c: &mut Context) -> Result<Parts, ModelError> {
    let head_dim = c.widths()?.head_dim;
    let multipliers = Multipliers {
        embedding: c
            .hp
            .optional_float("embedding_scale")?
            .unwrap_or(EMBEDDING_SCALE),
        residual: c
            .hp
            .optional_float("residual_scale")?
            .unwrap_or(residual_scale(c)),
        attention: None,
        logits: c.hp.positive_float("logit_scale")?,
    };
    let rope = phi::long_rope(c, RopePairs::Adjacent, head_dim)?;
    granite::scaled(c, &multipliers, Some(rope))
}

pub(super) fn minicpm3(c: &mut Context) -> Result<Parts, ModelError> {
    let n_ff = c.n_ff()?;
    let w = MlaWidths::of_heads(c)?;
    let key = w.key();
    let rope = phi::long_rope(c, RopePairs::Halves, key)?;
    let scale = 1.0 / (key as f32).sqrt();
    let mut layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Mla(deepseek::attention(c, i, &w, &rope, scale)?)),
        |c, i| Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?)),
    )?;
    granite::scale_residuals(&mut layers, residual_scale(c));
    let mut head = c.head()?;
    head.scale = BASE_WIDTH / c.n_embd as f32;
    Ok(Parts {
        embedding: c.embedding(EMBEDDING_SCALE)?,
        layers,
        head,
    })
}
