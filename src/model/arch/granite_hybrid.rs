//! `granitehybrid`: Granite's scales on layers of Mamba-2 where they have no KV
//! heads, else attention.

use super::moe::MoeRules;
use super::{Context, Parts, branch};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Branch, Layer, Mixer, ModelError, Residual};

pub(super) fn granite_hybrid(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let has_experts = c.hp.optional_count("expert_count")?.unwrap_or(0) > 0;
    let n_ff_shared = c.hp.optional_count("expert_shared_feed_forward_length")?;
    let n_ff_shared = n_ff_shared.filter(|&n| n > 0);
    // The key that switches RoPE on says something else elsewhere.
    let rope = match c.hp.bool("rope.scaling.finetuned", true)? {
        true => Some(c.rope(RopePairs::Adjacent, widths.head_dim)?),
        false => None,
    };
    let attention_scale = c.hp.nonzero_float("attention.scale")?;
    let residual_scale = c.hp.nonzero_float("residual_scale")?.unwrap_or(1.0);
    let scaled = |branch: Branch| Residual {
        branches: vec![Branch {
            scale: residual_scale,
            ..branch
        }],
    };
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let mixer = match widths.n_head_kv[i] {
            0 => Mixer::Mamba2(c.mamba2(i)?),
            _ => {
                let mut attention = c.attention(i, &widths)?;
                attention.rope = rope.clone();
                attention.heads.scale = attention_scale.unwrap_or(attention.heads.scale);
                Mixer::Attention(attention)
            }
        };
        let ffn = match has_experts {
            false => Mixer::Ffn(c.ffn(i, n_ff, Activation::Silu)?),
            true => {
                let mut moe = c.moe(i, &MoeRules::softmax(n_ff))?;
                if let Some(n) = n_ff_shared {
                    moe.shared = Some(c.shared_expert(i, n, Activation::Silu)?);
                }
                Mixer::Moe(moe)
            }
        };
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let ffn_norm = c.norm(&format!("blk.{i}.ffn_norm"))?;
        layers.push(Layer {
            blocks: vec![
                scaled(branch(Some(norm), mixer, None)),
                scaled(branch(Some(ffn_norm), ffn, None)),
            ],
            rescale: 1.0,
        });
    }
    let mut head = c.head()?;
    head.scale = 1.0 / c.hp.nonzero_float("logit_scale")?.unwrap_or(1.0);
    let embedding_scale = c.hp.nonzero_float("embedding_scale")?.unwrap_or(1.0);
    Ok(Parts {
        embedding: c.embedding(embedding_scale)?,
        layers,
        head,
    })
}
