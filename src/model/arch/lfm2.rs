//! `lfm2` and `lfm2moe`: a gated short convolution where a layer has no KV heads,
//! else attention with QK norm.

use super::moe::MoeRules;
use super::{Context, Parts, pre_norm_layer};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Gating, Mixer, ModelError, QkNorm, ShortConv, Span};

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
    let window = c.hp.optional_count("attention.sliding_window")?;
    let window = window.filter(|&n| n > 0);
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let mixer = if widths.n_head_kv[i] == 0 {
            Mixer::ShortConv(short_conv(c, i)?)
        } else {
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
            attention.rope = Some(rope.clone());
            attention.heads.span = window.map_or(Span::All, Span::Window);
            Mixer::Attention(attention)
        };
        let ffn = if i < n_dense {
            Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?)
        } else {
            let rules = MoeRules {
                gating: c.gating(Gating::Sigmoid)?,
                ..MoeRules::softmax(c.hp.count("expert_feed_forward_length")?)
            };
            Mixer::Moe(c.moe(i, &rules)?)
        };
        layers.push(pre_norm_layer(
            (c.norm(&format!("blk.{i}.attn_norm"))?, mixer),
            (c.norm(&format!("blk.{i}.ffn_norm"))?, ffn),
        ));
    }
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
