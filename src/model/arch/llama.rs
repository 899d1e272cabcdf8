//! `llama`: Llama 1–3, SmolLM2, Mistral, Mixtral and their kin; `mistral3`.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{Activation, Mixer, ModelError, Temperature};

pub(super) fn llama(c: &mut Context) -> Result<Parts, ModelError> {
    let head_dim = c.widths()?.head_dim;
    let rope = c.rope(RopePairs::Adjacent, head_dim)?;
    decoder(c, &rope, None)
}

/// Ministral 3: queries grow with the position, and YaRN's magnitude shrinks by
/// the file's multiplier.
pub(super) fn mistral3(c: &mut Context) -> Result<Parts, ModelError> {
    let n_rot = c.n_rot(c.widths()?.head_dim)?;
    let (scaling, base) = (c.scaling()?, c.rope_base()?);
    let mut attn_factor = c.attn_factor()?;
    let multiplier = c.hp.nonzero_float("rope.scaling.yarn_log_multiplier")?;
    if let (Scaling::Yarn(y), Some(m)) = (&scaling, multiplier) {
        attn_factor /= 1.0 + 0.1 * m * y.factor.ln();
    }
    let factors = c.tensors.optional_vector("rope_freqs.weight", n_rot / 2)?;
    let pairs = RopePairs::Adjacent;
    let rope = Rope::new(pairs, n_rot, base, &scaling, factors.as_ref(), attn_factor);
    let temperature = match c.hp.nonzero_float("attention.temperature_scale")? {
        None => None,
        Some(scale) => {
            let original =
                c.hp.optional_count("rope.scaling.original_context_length")?;
            Some(Temperature {
                floor: original.unwrap_or(c.n_ctx_train) as f32,
                offset: 0.0,
                scale,
            })
        }
    };
    decoder(c, &rope, temperature)
}

fn decoder(
    c: &mut Context,
    rope: &Rope,
    temperature: Option<Temperature>,
) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let has_experts = c.hp.optional_count("expert_count")?.unwrap_or(0) > 0;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = c.roped(i, &widths, rope)?;
            attention.temperature = temperature;
            Ok(Mixer::Attention(attention))
        },
        |c, i| match has_experts {
            false => Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?)),
            true => Ok(Mixer::Moe(c.moe(i, &MoeRules::softmax(n_ff[i]))?)),
        },
    )?;
    c.parts(layers)
}
