//! ChatGLM 3 and GLM 4: gate and up projection in one matrix; GLM 4 also norms
//! what each block yields.

use super::mrope::Axes;
use super::phi::gate_up_ffn;
use super::{Context, Parts, block, layer};
use crate::model::rope::RopePairs;
use crate::model::{Mixer, ModelError};

pub(super) fn chatglm(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Attention(c.roped(i, &widths, &rope)?)),
        |c, i| Ok(Mixer::Ffn(gate_up_ffn(c, i, n_ff[i])?)),
    )?;
    c.parts(layers)
}

/// The models that see images rotate halves.
pub(super) fn glm4(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = match c.has_mrope()? {
        true => {
            let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
            c.with_axes(rope, Axes::Runs)?
        }
        false => c.rope(RopePairs::Adjacent, widths.head_dim)?,
    };
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, n_ff) in n_ff.into_iter().enumerate() {
        let attention = c.roped(i, &widths, &rope)?;
        let ffn = Mixer::Ffn(gate_up_ffn(c, i, n_ff)?);
        let mut norm = |name: &str| c.norm(&format!("blk.{i}.{name}"));
        let (pre, post) = (norm("attn_norm")?, norm("post_attention_norm")?);
        let attention = block(Some(pre), Mixer::Attention(attention), Some(post));
        let (pre, post) = (norm("ffn_norm")?, norm("post_ffw_norm")?);
        let ffn = block(Some(pre), ffn, Some(post));
        layers.push(layer(vec![attention, ffn]));
    }
    c.parts(layers)
}
