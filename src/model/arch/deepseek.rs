//! `deepseek2`: DeepSeek V2 and V3, multi-head latent attention; `mistral4`.

use super::moe::MoeRules;
use super::{Context, Parts};
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::{
    Activation, Gating, Heads, Linear, Mixer, Mla, MlaKv, MlaQuery, ModelError, Span, Temperature,
};

pub(super) fn deepseek2(c: &mut Context) -> Result<Parts, ModelError> {
    decoder(c, false)
}

/// As DeepSeek's, but YaRN's magnitude stays in RoPE where the file's multiplier
/// does not take it out.
pub(super) fn mistral4(c: &mut Context) -> Result<Parts, ModelError> {
    decoder(c, true)
}

fn decoder(c: &mut Context, is_mistral: bool) -> Result<Parts, ModelError> {
    let w = MlaWidths::read(c)?;
    let (rope, scale) = rope(c, &w, is_mistral)?;
    let temperature = temperature(c)?;
    let (n_ff, n_ff_exp) = (c.n_ff()?, c.n_ff_exp()?);
    let dense =
        c.hp.optional_count("leading_dense_block_count")?
            .unwrap_or(0);
    let n_shared = c.hp.count("expert_shared_count")?;
    let gating = c.gating(default_gating(c))?;
    let (normalize, weights_scale) = (c.weights_norm()?, c.weights_scale()?);
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut attention = attention(c, i, &w, &rope, scale)?;
            attention.temperature = temperature;
            Ok(Mixer::Mla(attention))
        },
        |c, i| {
            if i < dense {
                return Ok(Mixer::Ffn(c.ffn(i, n_ff[i], Activation::Silu)?));
            }
            let rules = MoeRules {
                gating,
                normalize,
                scale: weights_scale,
                ..MoeRules::softmax(n_ff_exp[i])
            };
            let mut moe = c.moe(i, &rules)?;
            let width = n_ff_exp[i] * n_shared;
            moe.shared = Some(c.shared_expert(i, width, Activation::Silu)?);
            Ok(Mixer::Moe(moe))
        },
    )?;
    c.parts(layers)
}

/// Files that do not name their gating function: softmax, but for GLM 4.7 Lite.
fn default_gating(c: &Context) -> Gating {
    match (c.n_layer, c.n_vocab) {
        (47 | 48, 154_880) => Gating::Sigmoid,
        _ => Gating::Softmax,
    }
}

pub(super) struct MlaWidths {
    n_head: usize,
    q_lora: Option<usize>,
    kv_lora: usize,
    n_rot: usize,
    n_nope: usize,
    head_dim_v: usize,
    /// Whether keys and values come from separate, absorbable matrices.
    absorbed: bool,
}

impl MlaWidths {
    fn read(c: &Context) -> Result<Self, ModelError> {
        // The models that llama.cpp takes for Lite have no low-rank query.
        let lite = matches!(c.n_layer, 26 | 27) || (c.n_layer == 48 && c.n_vocab == 128_256);
        let q_lora = match lite {
            true => None,
            false => Some(c.hp.count("attention.q_lora_rank")?),
        };
        let absorbed = c.hp.has("attention.key_length_mla");
        let heads = match absorbed {
            true => Some((
                c.hp.count("attention.key_length_mla")?,
                c.hp.count("attention.value_length_mla")?,
            )),
            false => None,
        };
        Self::new(c, q_lora, heads)
    }

    /// With a low-rank query, and keys and values in one matrix.
    pub fn of_heads(c: &Context) -> Result<Self, ModelError> {
        let q_lora = c.hp.count("attention.q_lora_rank")?;
        Self::new(c, Some(q_lora), None)
    }

    /// `absorbed` are the widths of key and value heads that come from separate
    /// matrices.
    fn new(
        c: &Context,
        q_lora: Option<usize>,
        absorbed: Option<(usize, usize)>,
    ) -> Result<Self, ModelError> {
        let w = c.widths()?;
        let n_head = w.n_head[0];
        if w.n_head.iter().any(|&n| n != n_head) {
            return Err(c
                .hp
                .bad("attention.head_count", "an array", "all layers must agree"));
        }
        let (key, value) = absorbed.unwrap_or((w.head_dim, w.head_dim_v));
        let n_rot = c.n_rot(key)?;
        if n_rot >= key {
            return Err(c.hp.bad(
                "rope.dimension_count",
                n_rot,
                format!("key heads of {key} need a part without RoPE"),
            ));
        }
        Ok(Self {
            n_head,
            q_lora,
            kv_lora: c.hp.count("attention.kv_lora_rank")?,
            n_rot,
            n_nope: key - n_rot,
            head_dim_v: value,
            absorbed: absorbed.is_some(),
        })
    }

    /// Width of a key head.
    pub fn key(&self) -> usize {
        self.n_nope + self.n_rot
    }
}

/// RoPE, and what multiplies the scores: YaRN's magnitude goes into the scores
/// where the file has a multiplier for it.
fn rope(c: &Context, w: &MlaWidths, is_mistral: bool) -> Result<(Rope, f32), ModelError> {
    let (scaling, base) = (c.scaling()?, c.rope_base()?);
    let attn_factor = c.attn_factor()?;
    // The converter stores a tenth of the multiplier.
    let multiplier =
        c.hp.nonzero_float("rope.scaling.yarn_log_multiplier")?
            .map(|m| m / 0.1);
    let log_factor = match &scaling {
        Scaling::Yarn(y) => y.factor.ln(),
        Scaling::Linear { factor } => factor.ln(),
        Scaling::None => 0.0,
    };
    let grown = 1.0 + 0.1 * log_factor;
    let is_yarn = matches!(scaling, Scaling::Yarn(_));
    let (attn_factor, magnitude) = match multiplier {
        Some(m) if is_yarn && is_mistral => {
            let by = 1.0 + 0.1 * m * log_factor;
            (attn_factor / by, attn_factor * grown / by)
        }
        // RoPE would grow by YaRN's magnitude; that is cancelled.
        Some(_) if is_yarn => (attn_factor / grown, attn_factor),
        _ if is_yarn => (attn_factor, attn_factor * grown),
        _ => (attn_factor, attn_factor * grown),
    };
    let rope = Rope::new(
        RopePairs::Adjacent,
        w.n_rot,
        base,
        &scaling,
        None,
        attn_factor,
    );
    let mscale = magnitude * (1.0 + 0.1 * multiplier.unwrap_or(0.0) * log_factor);
    let width = w.key() as f32;
    Ok((rope, mscale * mscale / width.sqrt()))
}

/// Queries that grow with the position, where the file says so.
fn temperature(c: &Context) -> Result<Option<Temperature>, ModelError> {
    let Some(scale) = c.hp.nonzero_float("attention.temperature_scale")? else {
        return Ok(None);
    };
    Ok(Some(Temperature {
        floor: c.hp.count("attention.temperature_length")? as f32,
        offset: 0.0,
        scale,
    }))
}

pub(super) fn attention(
    c: &mut Context,
    i: usize,
    w: &MlaWidths,
    rope: &Rope,
    scale: f32,
) -> Result<Mla, ModelError> {
    let (d, n_head, lora) = (c.n_embd, w.n_head, w.kv_lora);
    let (kind, eps) = c.norm;
    let name = |part: &str| format!("blk.{i}.attn_{part}");
    let n_q = n_head * w.key();
    let query = match w.q_lora {
        None => MlaQuery::Direct(c.tensors.linear(&name("q"), d, n_q)?),
        Some(rank) => MlaQuery::LowRank {
            a: c.tensors.linear(&name("q_a"), d, rank)?,
            norm: c.tensors.norm(&name("q_a_norm"), kind, rank, 1, eps)?,
            b: c.tensors.linear(&name("q_b"), rank, n_q)?,
        },
    };
    let mut heads = Heads {
        n_head,
        n_head_kv: n_head,
        head_dim: w.key(),
        head_dim_v: w.head_dim_v,
        span: Span::All,
        scale,
        softcap: None,
        sinks: None,
    };
    let kv = match w.absorbed {
        true => {
            (heads.n_head_kv, heads.head_dim, heads.head_dim_v) = (1, lora + w.n_rot, lora);
            let mut maps = |part: &str, n_in, n_out| -> Result<Vec<Linear>, ModelError> {
                let name = format!("{}.weight", name(part));
                let maps = c.tensors.stacked(&name, n_in, n_out, n_head)?;
                Ok(maps.into_iter().map(Linear::unbiased).collect())
            };
            MlaKv::Absorbed {
                k: maps("k_b", w.n_nope, lora)?,
                v: maps("v_b", lora, w.head_dim_v)?,
            }
        }
        false => {
            let step = w.n_nope + w.head_dim_v;
            let both = c.tensors.linear(&name("kv_b"), lora, n_head * step)?;
            MlaKv::Expanded {
                k: both.runs(0, n_head * w.n_nope, w.n_nope, step),
                v: both.runs(w.n_nope, n_head * w.head_dim_v, w.head_dim_v, step),
            }
        }
    };
    Ok(Mla {
        heads,
        query,
        kv_a: c.tensors.linear(&name("kv_a_mqa"), d, lora + w.n_rot)?,
        kv_norm: c.tensors.norm(&name("kv_a_norm"), kind, lora, 1, eps)?,
        kv,
        n_nope: w.n_nope,
        rope: rope.clone(),
        temperature: None,
        output: c
            .tensors
            .linear(&name("output"), n_head * w.head_dim_v, d)?,
    })
}
