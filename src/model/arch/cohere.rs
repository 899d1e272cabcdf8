//! Command R and Command A: attention and FFN side by side after one LayerNorm.

use super::{Context, Parts, branch, layer};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Mixer, ModelError, NormKind, QkNorm, Residual, Span};

pub(super) fn command_r(c: &mut Context) -> Result<Parts, ModelError> {
    let spans = vec![Span::All; c.n_layer];
    cohere(c, &spans, true)
}

/// Windows in three layers of four; only those have RoPE.
pub(super) fn cohere2(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 4;
    let window = c.hp.count("attention.sliding_window")?;
    let spans = c.spans(Some(window), PERIOD)?;
    cohere(c, &spans, false)
}

fn cohere(c: &mut Context, spans: &[Span], full_ropes: bool) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, (n_ff, &span)) in n_ff.into_iter().zip(spans).enumerate() {
        let mut attention = c.attention(i, &widths)?;
        attention.heads.span = span;
        attention.rope = (full_ropes || span != Span::All).then(|| rope.clone());
        // Command R+ norms query and key heads.
        if c.tensors.has(&format!("blk.{i}.attn_q_norm.weight")) {
            let eps = c.norm.1;
            let mut norm = |part: &str, n_head| {
                let name = format!("blk.{i}.attn_{part}_norm");
                let width = (widths.head_dim, n_head);
                c.tensors.norm(&name, NormKind::Layer, width, eps)
            };
            attention.qk_norm = Some(QkNorm {
                q: norm("q", widths.n_head[i])?,
                k: norm("k", widths.n_head_kv[i])?,
                after_rope: false,
            });
        }
        let ffn = c.ffn(i, n_ff, Activation::Silu)?;
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        layers.push(layer(vec![Residual {
            branches: vec![
                branch(Some(norm.clone()), Mixer::Attention(attention), None),
                branch(Some(norm), Mixer::Ffn(ffn), None),
            ],
        }]));
    }
    let mut head = c.head()?;
    head.scale = c.hp.float("logit_scale")?;
    Ok(Parts {
        embedding: c.embedding(1.0)?,
        layers,
        head,
    })
}
