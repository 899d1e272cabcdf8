//! Dense decoders that differ from Llama in a property or two.

use super::mrope::Axes;
use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs};
use crate::model::{Activation, Attention, Mixer, ModelError};

/// The properties in which they differ.
struct Kind {
    pairs: RopePairs,
    activation: Activation,
    /// Name of the norm before the FFN.
    ffn_norm: &'static str,
    gated: bool,
}

const ADJACENT: Kind = Kind {
    pairs: RopePairs::Adjacent,
    activation: Activation::Silu,
    ffn_norm: "ffn_norm",
    gated: true,
};
const HALVES: Kind = Kind {
    pairs: RopePairs::Halves,
    ..ADJACENT
};

/// ERNIE 4.5, InternLM 2, XVERSE.
pub(super) fn adjacent(c: &mut Context) -> Result<Parts, ModelError> {
    decoder(c, &ADJACENT, |_, _, _| Ok(()))
}

/// EXAONE 3, openPangu with biases, and Orion with LayerNorms.
pub(super) fn halves(c: &mut Context) -> Result<Parts, ModelError> {
    decoder(c, &HALVES, |_, _, _| Ok(()))
}

/// Squared ReLU in place of the gate.
pub(super) fn arcee(c: &mut Context) -> Result<Parts, ModelError> {
    let kind = Kind {
        activation: Activation::ReluSquared,
        gated: false,
        ..ADJACENT
    };
    decoder(c, &kind, |_, _, _| Ok(()))
}

/// The 13B model has ALiBi in place of RoPE.
pub(super) fn baichuan(c: &mut Context) -> Result<Parts, ModelError> {
    const LAYERS_7B: usize = 32;
    if c.n_layer != LAYERS_7B {
        let problem =
            format!("only the 7B models with {LAYERS_7B} layers have RoPE; ALiBi is not supported");
        return Err(c.hp.bad("block_count", c.n_layer, problem));
    }
    adjacent(c)
}

/// QK norm after RoPE, whose base may grow with `rope.scaling.alpha`.
pub(super) fn hunyuan(c: &mut Context) -> Result<Parts, ModelError> {
    let widths = c.widths()?;
    let mut base = c.rope_base()?;
    if let Some(alpha) = c.hp.nonzero_float("rope.scaling.alpha")? {
        let dim = widths.head_dim as f32;
        base *= alpha.powf(dim / (dim - 2.0));
    }
    let (n_rot, scaling) = (c.n_rot(widths.head_dim)?, c.scaling()?);
    let pairs = RopePairs::Halves;
    let mut rope = Rope::new(pairs, n_rot, base, &scaling, None, c.attn_factor()?);
    if c.has_mrope()? {
        rope = c.with_axes(rope, Axes::Runs)?;
    }
    decoder(c, &HALVES, |c, i, attention| {
        attention.qk_norm = Some(c.qk_norm(i, &widths, true)?);
        attention.rope = Some(rope.clone());
        Ok(())
    })
}

/// Nemotron and Jais 2: squared ReLU without a gate, LayerNorms, RoPE on a part
/// of each head.
pub(super) fn nemotron(c: &mut Context) -> Result<Parts, ModelError> {
    let kind = Kind {
        activation: Activation::ReluSquared,
        gated: false,
        ..HALVES
    };
    decoder(c, &kind, |_, _, _| Ok(()))
}

/// QK norm after RoPE.
pub(super) fn maincoder(c: &mut Context) -> Result<Parts, ModelError> {
    let widths = c.widths()?;
    decoder(c, &ADJACENT, |c, i, attention| {
        attention.qk_norm = Some(c.qk_norm(i, &widths, true)?);
        Ok(())
    })
}

/// Biases on query, key and value; the FFN's norm has another name.
pub(super) fn seed_oss(c: &mut Context) -> Result<Parts, ModelError> {
    let kind = Kind {
        ffn_norm: "post_attention_norm",
        ..HALVES
    };
    decoder(c, &kind, |_, _, _| Ok(()))
}

/// No RoPE in every fourth layer.
pub(super) fn smollm3(c: &mut Context) -> Result<Parts, ModelError> {
    const PERIOD: usize = 4;
    decoder(c, &ADJACENT, |_, i, attention| {
        if (i + 1) % PERIOD == 0 {
            attention.rope = None;
        }
        Ok(())
    })
}

fn decoder(
    c: &mut Context,
    kind: &Kind,
    mut adjust: impl FnMut(&mut Context, usize, &mut Attention) -> Result<(), ModelError>,
) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(kind.pairs, widths.head_dim)?;
    let layers = c.pre_norm_layers(
        kind.ffn_norm,
        |c, i| {
            let mut attention = c.roped(i, &widths, &rope)?;
            adjust(c, i, &mut attention)?;
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            Ok(Mixer::Ffn(match kind.gated {
                true => c.ffn(i, n_ff[i], kind.activation)?,
                false => c.ungated_ffn(i, n_ff[i], kind.activation)?,
            }))
        },
    )?;
    c.parts(layers)
}
