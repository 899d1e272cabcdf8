//! `llama`: Llama 1–3, SmolLM2, Mistral, Mixtral and their kin.

use super::{Context, Parts, unbiased};
use crate::model::rope::{Rope, RopePairs};
use crate::model::{Activation, Attention, Branch, Ffn, Layer, Mixer, ModelError, Moe, Residual};

pub(super) fn build(c: &mut Context) -> Result<Parts, ModelError> {
    let n_rot = c.n_rot()?;
    let base = c.hp.optional_float("rope.freq_base")?.unwrap_or(10000.0);
    let attn_factor =
        c.hp.optional_float("rope.scaling.attn_factor")?
            .unwrap_or(1.0);
    let factors = c.tensors.optional_vector("rope_freqs.weight", n_rot / 2)?;
    let rope = Rope::new(
        RopePairs::Adjacent,
        n_rot,
        base,
        &c.scaling()?,
        factors.as_ref(),
        attn_factor,
    );
    let scale =
        c.hp.nonzero_float("attention.scale")?
            .unwrap_or(1.0 / (c.head_dim as f32).sqrt());
    let n_expert = c.hp.optional_count("expert_count")?.unwrap_or(0);

    let mut layers = Vec::with_capacity(c.n_layer);
    for i in 0..c.n_layer {
        let [q, k, v] = c.qkv(i)?;
        let attention = Attention {
            n_head: c.n_head[i],
            n_head_kv: c.n_head_kv[i],
            head_dim: c.head_dim,
            head_dim_v: c.head_dim_v,
            output: c.tensors.linear(
                &format!("blk.{i}.attn_output"),
                c.n_head[i] * c.head_dim_v,
                c.n_embd,
            )?,
            q,
            k,
            v,
            q_norm: None,
            k_norm: None,
            rope: Some(rope.clone()),
            window: None,
            scale,
            softcap: None,
        };
        let ffn = match n_expert {
            0 => Mixer::Ffn(c.ffn(i, Activation::Silu)?),
            n => Mixer::Moe(moe(c, i, n)?),
        };
        let attn_norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        let ffn_norm = c.norm(&format!("blk.{i}.ffn_norm"))?;
        layers.push(Layer {
            blocks: [(attn_norm, Mixer::Attention(attention)), (ffn_norm, ffn)]
                .map(|(norm, mixer)| Residual {
                    branches: vec![Branch {
                        pre_norm: Some(norm),
                        mixer,
                        post_norm: None,
                    }],
                })
                .into(),
        });
    }
    Ok(Parts {
        embedding_scale: 1.0,
        layers,
        softcap: None,
    })
}

fn moe(c: &mut Context, i: usize, n_expert: usize) -> Result<Moe, ModelError> {
    let (d, n_ff) = (c.n_embd, c.n_ff[i]);
    let n_used = c.hp.count("expert_used_count")?;
    if n_used > n_expert {
        let problem = format!("the model has {n_expert} experts");
        return Err(c.hp.bad("expert_used_count", n_used, problem));
    }
    let mut stacked = |part: &str, n_in, n_out| {
        c.tensors.stacked(
            &format!("blk.{i}.ffn_{part}_exps.weight"),
            n_in,
            n_out,
            n_expert,
        )
    };
    let gate = stacked("gate", d, n_ff)?;
    let up = stacked("up", d, n_ff)?;
    let down = stacked("down", n_ff, d)?;
    let experts = gate.into_iter().zip(up).zip(down);
    Ok(Moe {
        n_used,
        experts: experts
            .map(|((gate, up), down)| Ffn {
                n_ff,
                activation: Activation::Silu,
                gate: unbiased(gate),
                up: unbiased(up),
                down: unbiased(down),
            })
            .collect(),
        router: c
            .tensors
            .linear(&format!("blk.{i}.ffn_gate_inp"), d, n_expert)?,
    })
}
