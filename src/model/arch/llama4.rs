//! `llama4`: layers with chunked attention and RoPE, layers that see everything
//! without it, experts weighed at their input.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::RopePairs;
use crate::model::{
    Activation, Gating, Mixer, ModelError, Norm, NormKind, QkNorm, Span, Temperature,
};

/// llama.cpp's constants for models that do not switch chunks off.
const CHUNK: usize = 8192;
const PERIOD: usize = 4;
const TEMPERATURE: Temperature = Temperature {
    floor: 8192.0,
    offset: 1.0,
    scale: 0.1,
};
/// The model with so many experts has no QK norm.
const EXPERTS_WITHOUT_QK_NORM: usize = 128;

pub(super) fn llama4(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff, n_ff_exp) = (c.widths()?, c.n_ff()?, c.n_ff_exp()?);
    let rope = c.rope(RopePairs::Adjacent, widths.head_dim)?;
    let step = c.hp.count("interleave_moe_layer_step")?;
    let has_qk_norm = c.hp.count("expert_count")? != EXPERTS_WITHOUT_QK_NORM;
    let chunked = match c.hp.optional_count("attention.sliding_window")? {
        Some(0) => None,
        Some(n) if n != CHUNK => {
            let problem = format!("chunks of {CHUNK}, or 0 for none, are known");
            return Err(c.hp.bad("attention.sliding_window", n, problem));
        }
        _ => Some(c.hp.sliding_pattern(c.n_layer, PERIOD)?),
    };
    let qk_norm = Norm {
        kind: NormKind::Rms,
        width: widths.head_dim,
        weight: None,
        bias: None,
        eps: c.norm.1,
    };
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.attention(i, &widths)?;
            let chunk = chunked.as_ref().map(|chunked| chunked[i]);
            if chunk == Some(true) {
                attention.heads.span = Span::Chunk(CHUNK);
            }
            if chunk == Some(false) {
                attention.temperature = Some(TEMPERATURE);
            } else {
                attention.rope = Some(rope.clone());
                attention.qk_norm = has_qk_norm.then(|| QkNorm {
                    q: qk_norm.clone(),
                    k: qk_norm.clone(),
                    after_rope: true,
                });
            }
            Ok(Mixer::Attention(attention))
        },
        |c, i| {
            if (i + 1) % step != 0 {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let rules = MoeRules {
                gating: Gating::Sigmoid,
                normalize: false,
                ..MoeRules::softmax(n_ff_exp[i])
            };
            let mut moe = c.moe(i, &rules)?;
            moe.weigh_input = true;
            moe.shared = Some(c.shared_expert(i, n_ff_exp[i], Activation::Silu)?);
            Ok(Mixer::Moe(moe))
        },
    )?;
    c.parts(layers)
}
