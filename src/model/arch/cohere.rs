//! Command R and Command A: attention and FFN side by side after one norm.

use super::moe::MoeRules;
use super::{Context, Parts, branch, layer};
use crate::model::rope::RopePairs;
use crate::model::{
    Activation, Branch, Gating, Mixer, ModelError, NormKind, QkNorm, Residual, Span,
};

pub(super) fn command_r(c: &mut Context) -> Result<Parts, ModelError> {
    let spans = vec![Span::All; c.n_layer];
    let n_ff = c.n_ff()?;
    cohere(c, &spans, |_| true, |c, i| dense(c, i, n_ff[i]))
}

/// Windows in three layers of four; only those have RoPE.
pub(super) fn cohere2(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 4;
    let window = c.hp.count("attention.sliding_window")?;
    let spans = c.spans(Some(window), PERIOD)?;
    let n_ff = c.n_ff()?;
    let has_rope = |i: usize| spans[i] != Span::All;
    cohere(c, &spans, has_rope, |c, i| dense(c, i, n_ff[i]))
}

/// The first layers are dense and have RoPE whatever they see; the first layer
/// of each period sees everything. Experts and the shared expert are averaged.
pub(super) fn cohere2moe(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 4;
    let window = c.hp.count("attention.sliding_window")?;
    let slides = c.hp.sliding_after_full(c.n_layer, PERIOD)?;
    let span = |slides| match slides {
        true => Span::Window(window),
        false => Span::All,
    };
    let spans: Vec<Span> = slides.into_iter().map(span).collect();
    let (n_ff, n_ff_exp) = (c.n_ff()?, c.n_ff_exp()?);
    let n_dense = c.hp.optional_count("leading_dense_block_count")?;
    let n_dense = n_dense.unwrap_or(0);
    let n_shared = c.hp.optional_count("expert_shared_count")?.unwrap_or(0);
    let shared = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let shared = shared.filter(|&n| n > 0);
    let gating = c.gating(Gating::Sigmoid)?;
    let (normalize, scale) = (c.weights_norm()?, c.weights_scale()?);
    let has_rope = |i: usize| i < n_dense || spans[i] != Span::All;
    cohere(c, &spans, has_rope, |c, i| {
        if i < n_dense {
            return dense(c, i, n_ff[i]);
        }
        let rules = MoeRules {
            gating,
            normalize,
            scale,
            ..MoeRules::softmax(n_ff_exp[i])
        };
        let mut moe = c.moe(i, &rules)?;
        if n_shared == 0 {
            return Ok((Mixer::Moe(moe), 1.0));
        }
        let width = shared.unwrap_or(n_ff_exp[i] * n_shared);
        moe.shared = Some(c.shared_expert(i, width, Activation::Silu)?);
        Ok((Mixer::Moe(moe), 0.5))
    })
}

fn dense(c: &mut Context, i: usize, n_ff: usize) -> Result<(Mixer, f32), ModelError> {
    Ok((Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?), 1.0))
}

/// `ffn` yields the mixer beside attention and its scale.
fn cohere(
    c: &mut Context,
    spans: &[Span],
    has_rope: impl Fn(usize) -> bool,
    mut ffn: impl FnMut(&mut Context, usize) -> Result<(Mixer, f32), ModelError>,
) -> Result<Parts, ModelError> {
    c.require_flag("use_parallel_residual", true)?;
    let widths = c.widths()?;
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &span) in spans.iter().enumerate() {
        let mut attention = c.attention(i, &widths)?;
        attention.heads.span = span;
        attention.rope = has_rope(i).then(|| rope.clone());
        // Command R+ norms query and key heads.
        if c.tensors.offers(&format!("blk.{i}.attn_q_norm.weight")) {
            let eps = c.norm.1;
            let mut norm = |part: &str, n_head| {
                let name = format!("blk.{i}.attn_{part}_norm");
                c.tensors
                    .norm(&name, NormKind::Layer, widths.head_dim, n_head, eps)
            };
            attention.qk_norm = Some(QkNorm {
                q: norm("q", widths.n_head[i])?,
                k: norm("k", widths.n_head_kv[i])?,
                after_rope: false,
            });
        }
        let (ffn, scale) = ffn(c, i)?;
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        layers.push(layer(vec![Residual {
            branches: vec![
                branch(Some(norm.clone()), Mixer::Attention(attention), None),
                Branch {
                    scale,
                    ..branch(Some(norm), ffn, None)
                },
            ],
        }]));
    }
    let mut head = c.head()?;
    head.scale = c.hp.positive_float("logit_scale")?;
    Ok(Parts {
        embedding: c.embedding(1.0)?,
        layers,
        head,
    })
}
