//! `lfm2` and `lfm2moe`: a gated short convolution where a layer has no KV heads,
//! else attention with QK norm.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Gating, Mixer, ModelError, ShortConv, Span};

pub(super) fn lfm2(c: &mut Context) -> Result<Parts, ModelError> {
    let n_layer = c.n_layer;
    build(c, n_layer)
}

pub(super) fn lfm2moe(c: &mut Context) -> Result<Parts, ModelError> {
    let n_dense = c.hp.optional_count("leading_dense_block_count")?;
    build(c, n_dense.unwrap_or(0))
}

fn build(c: &mut Context, n_dense: usize) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let span = c.window()?.map_or(Span::All, Span::Window);
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            if widths.n_head_kv[i] == 0 {
                return Ok(Mixer::ShortConv(short_conv(c, i)?));
            }
            let mut attention = c.attention(i, &widths)?;
            attention.qk_norm = Some(c.qk_norm(i, &widths, false)?);
            attention.rope = Some(rope.clone());
            attention.heads.span = span;
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            if i < n_dense {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let rules = MoeRules {
                gating: c.gating(Gating::Sigmoid)?,
                ..MoeRules::softmax(c.expert_width(i)?)
            };
            Ok(Mixer::Moe(c.moe(i, &rules)?))
        },
    )?;
    Ok(Parts {
        embedding: c.embedding(1.0)?,
        layers,
        // The name notwithstanding, it is the last norm.
        head: c.head_after("token_embd_norm")?,
    })
}

fn short_conv(c: &mut Context, i: usize) -> Result<ShortConv, ModelError> {
    let (d, width) = (c.n_embd, c.hp.count("shortconv.l_cache")?);
    let name = |part: &str| format!("blk.{i}.shortconv.{part}");
    let conv = c.causal_conv(&name("conv"), width, d)?;
    let all = c.tensors.linear(&name("in_proj"), d, 3 * d)?;
    Ok(ShortConv {
        b: all.rows(0, d),
        c: all.rows(d, d),
        input: all.rows(2 * d, d),
        conv,
        output: c.tensors.linear(&name("out_proj"), d, d)?,
    })
}
