//! `phi3`: fused projections, LongRoPE; `phimoe`: experts and biases.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Ffn, Mixer, ModelError};

/// llama.cpp ignores the file's sliding window, and so do we; the model says so.
pub(super) fn phi3(c: &mut Context) -> Result<Parts, ModelError> {
    c.unheeded_window = c.window()?;
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = long_rope(c, RopePairs::Halves, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Attention(c.roped(i, &widths, &rope)?)),
        |c, i| Ok(Mixer::Ffn(gate_up_ffn(c, i, n_ff[i])?)),
    )?;
    c.parts(layers)
}

/// Norms have biases, as has the head.
pub(super) fn phimoe(c: &mut Context) -> Result<Parts, ModelError> {
    c.unheeded_window = c.window()?;
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = long_rope(c, RopePairs::Halves, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| Ok(Mixer::Attention(c.roped(i, &widths, &rope)?)),
        |c, i| Ok(Mixer::Moe(c.moe(i, &MoeRules::softmax(n_ff[i]))?)),
    )?;
    c.parts(layers)
}

/// RoPE with one set of factors up to the original context, another beyond,
/// where the file has them.
pub(super) fn long_rope(
    c: &mut Context,
    pairs: RopePairs,
    head_dim: usize,
) -> Result<Rope, ModelError> {
    let n_rot = c.n_rot(head_dim)?;
    let mut factors = |which: &str| {
        let name = format!("rope_factors_{which}.weight");
        c.tensors.optional_vector(&name, n_rot / 2)
    };
    let (short, long) = (factors("short")?, factors("long")?);
    let is_declared = c.hp.optional_string("rope.scaling.type")? == Some("longrope");
    for (factors, which) in [(&short, "short"), (&long, "long")] {
        // One of the two alone would leave half of the contexts unscaled.
        let is_asked_for = is_declared || short.is_some() || long.is_some();
        if is_asked_for && factors.is_none() {
            return Err(ModelError::MissingTensor {
                name: format!("rope_factors_{which}.weight"),
                expected: vec![n_rot / 2],
            });
        }
    }
    let scaling = Scaling::read(&c.hp, c.n_ctx_train, true)?;
    let base = c.rope_base()?;
    let attn_factor = c.attn_factor()?;
    let rope = Rope::new(pairs, n_rot, base, &scaling, short.as_ref(), attn_factor);
    let original =
        c.hp.optional_count("rope.scaling.original_context_length")?
            .unwrap_or(c.n_ctx_train);
    Ok(match long {
        Some(long) => rope.with_long_factors(original, &long),
        None => rope,
    })
}

/// `ffn_up` holds the gate, then the up projection.
pub(super) fn gate_up_ffn(c: &mut Context, i: usize, n_ff: usize) -> Result<Ffn, ModelError> {
    let d = c.n_embd;
    let both = c.tensors.linear(&format!("blk.{i}.ffn_up"), d, 2 * n_ff)?;
    Ok(Ffn {
        n_ff,
        activation: Activation::Silu,
        gate: Some(both.rows(0, n_ff)),
        up: both.rows(n_ff, n_ff),
        down: c.tensors.linear(&format!("blk.{i}.ffn_down"), n_ff, d)?,
        sub_norm: None,
    })
}
