//! `rwkv6` and `rwkv7`: time mixing and channel mixing, LayerNorms everywhere.

use super::{Context, Parts, block, layer};
use crate::model::{
    ChannelMix, Embedding, FirstValue, Inner, Layer, Linear, LowRank, Mixer, ModelError, Norm,
    NormKind, Rwkv6TimeMix, Rwkv7TimeMix, Vector,
};

/// Of the norm over each head's outputs; no key holds it.
const HEAD_NORM_EPS: f32 = 64e-5;

pub(super) fn rwkv6(c: &mut Context) -> Result<Parts, ModelError> {
    let every = c.hp.optional_count("rescale_every_n_layers")?;
    let every = every.filter(|&n| n > 0);
    build(c, |c, i, n_ff| {
        let time = Mixer::Rwkv6TimeMix(time_mix_6(c, i)?);
        let mut channel = channel_mix(c, i, n_ff)?;
        let (d, name) = (c.n_embd, format!("blk.{i}.channel_mix"));
        channel.receptance = Some((
            c.tensors.vector(&format!("{name}_lerp_r.weight"), d)?,
            c.tensors.linear(&format!("{name}_receptance"), d, d)?,
        ));
        let rescale = match every {
            Some(n) if (i + 1) % n == 0 => 0.5,
            _ => 1.0,
        };
        Ok((time, channel, rescale))
    })
}

pub(super) fn rwkv7(c: &mut Context) -> Result<Parts, ModelError> {
    build(c, |c, i, n_ff| {
        let time = Mixer::Rwkv7TimeMix(time_mix_7(c, i)?);
        Ok((time, channel_mix(c, i, n_ff)?, 1.0))
    })
}

/// Builds layers of a time mixing, a channel mixing and a rescaling.
fn build(
    c: &mut Context,
    parts: impl Fn(&mut Context, usize, usize) -> Result<(Mixer, ChannelMix, f32), ModelError>,
) -> Result<Parts, ModelError> {
    const SHIFTS: &str = "token_shift_count";
    if let Some(n) = c.hp.optional_count(SHIFTS)?.filter(|&n| n != 2) {
        return Err(c.hp.bad(SHIFTS, n, "one for each mixing, 2, is supported"));
    }
    c.norm = (NormKind::Layer, c.hp.float("attention.layer_norm_epsilon")?);
    let n_ff = c.n_ff()?;
    let mut layers = Vec::with_capacity(c.n_layer);
    for (i, &n_ff) in n_ff.iter().enumerate() {
        let (time, channel, rescale) = parts(c, i, n_ff)?;
        let (norm, norm_2) = (
            c.norm(&format!("blk.{i}.attn_norm"))?,
            c.norm(&format!("blk.{i}.attn_norm_2"))?,
        );
        layers.push(Layer {
            rescale,
            ..layer(vec![
                block(Some(norm), time, None),
                block(Some(norm_2), Mixer::ChannelMix(channel), None),
            ])
        });
    }
    let norm = Some(c.norm("token_embd_norm")?);
    Ok(Parts {
        embedding: Embedding {
            norm,
            ..c.embedding(1.0)?
        },
        layers,
        head: c.head()?,
    })
}

fn channel_mix(c: &mut Context, i: usize, n_ff: usize) -> Result<ChannelMix, ModelError> {
    let (d, name) = (c.n_embd, format!("blk.{i}.channel_mix"));
    let t = &mut c.tensors;
    Ok(ChannelMix {
        key_lerp: t.vector(&format!("{name}_lerp_k.weight"), d)?,
        key: t.linear(&format!("{name}_key"), d, n_ff)?,
        value: t.linear(&format!("{name}_value"), n_ff, d)?,
        receptance: None,
    })
}

/// Number and width of the heads.
fn heads(c: &Context) -> Result<(usize, usize), ModelError> {
    const KEY: &str = "wkv.head_size";
    let dim = c.hp.count(KEY)?;
    if !c.n_embd.is_multiple_of(dim) {
        let problem = format!("does not divide the hidden width {}", c.n_embd);
        return Err(c.hp.bad(KEY, dim, problem));
    }
    Ok((c.n_embd / dim, dim))
}

fn head_norm(c: &mut Context, i: usize, n_head: usize, dim: usize) -> Result<Norm, ModelError> {
    let name = format!("blk.{i}.time_mix_ln");
    c.tensors
        .norm(&name, NormKind::Layer, dim, n_head, HEAD_NORM_EPS)
}

fn time_mix_6(c: &mut Context, i: usize) -> Result<Rwkv6TimeMix, ModelError> {
    let (n_head, head_dim) = heads(c)?;
    let n_blend = c.hp.count("time_mix_extra_dim")?;
    let n_decay = c.hp.count("time_decay_extra_dim")?;
    let norm = head_norm(c, i, n_head, head_dim)?;
    let (d, t) = (c.n_embd, &mut c.tensors);
    let name = |part: &str| format!("blk.{i}.time_mix_{part}");

    let down = t.linear(&name("w1"), d, 5 * n_blend)?;
    let ups = t.stacked(&name("w2.weight"), n_blend, d, 5)?;
    let lerps: [Vector; 5] = match t.has(&name("lerp_fused.weight")) {
        true => rows(&t.shaped(&name("lerp_fused.weight"), &[d, 1, 1, 5])?),
        false => {
            let mut lerp = |part| t.vector(&name(&format!("lerp_{part}.weight")), d);
            [lerp("w")?, lerp("k")?, lerp("v")?, lerp("r")?, lerp("g")?]
        }
    };
    let blend = |m: usize| LowRank {
        down: down.rows(m * n_blend, n_blend),
        inner: Inner::Tanh,
        up: Linear {
            bias: Some(lerps[m].clone()),
            ..Linear::unbiased(ups[m].clone())
        },
    };
    Ok(Rwkv6TimeMix {
        n_head,
        head_dim,
        lerp: t.vector(&name("lerp_x.weight"), d)?,
        blends: [0, 1, 2, 3, 4].map(blend),
        decay: LowRank {
            down: t.linear(&name("decay_w1"), d, n_decay)?,
            inner: Inner::Tanh,
            up: Linear {
                bias: Some(t.vector(&name("decay.weight"), d)?),
                ..t.linear(&name("decay_w2"), n_decay, d)?
            },
        },
        key: t.linear(&name("key"), d, d)?,
        value: t.linear(&name("value"), d, d)?,
        receptance: t.linear(&name("receptance"), d, d)?,
        gate: t.linear(&name("gate"), d, d)?,
        bonus: t.shaped(&name("first.weight"), &[head_dim, n_head])?,
        norm,
        output: t.linear(&name("output"), d, d)?,
    })
}

fn time_mix_7(c: &mut Context, i: usize) -> Result<Rwkv7TimeMix, ModelError> {
    let (n_head, head_dim) = heads(c)?;
    let rank = |part: &str| c.hp.count(&format!("attention.{part}_lora_rank"));
    let (n_decay, n_rate, n_gate) = (rank("decay")?, rank("iclr")?, rank("gate")?);
    let n_value = rank("value_residual_mix")?;
    let norm = head_norm(c, i, n_head, head_dim)?;
    let (d, t) = (c.n_embd, &mut c.tensors);
    let name = |part: &str| format!("blk.{i}.time_mix_{part}");

    if i == 0 {
        // Files have this mix in the first layer too, whose values are those to
        // mix with: llama.cpp never reads it.
        for (part, shape) in [
            ("v0.weight", &[d][..]),
            ("v1.weight", &[d, n_value]),
            ("v2.weight", &[n_value, d]),
        ] {
            t.leave_out(&name(part), shape)?;
        }
    }
    let mut low_rank = |part: &str, n: usize, inner, biased| -> Result<LowRank, ModelError> {
        let up = t.linear(&name(&format!("{part}2")), n, d)?;
        Ok(LowRank {
            down: t.linear(&name(&format!("{part}1")), d, n)?,
            inner,
            up: match biased {
                true => Linear {
                    bias: Some(t.vector(&name(&format!("{part}0.weight")), d)?),
                    ..up
                },
                false => up,
            },
        })
    };
    let decay = low_rank("w", n_decay, Inner::Tanh, true)?;
    let rate = low_rank("a", n_rate, Inner::Identity, true)?;
    let gate = low_rank("g", n_gate, Inner::Sigmoid, false)?;
    let first_value = match i {
        0 => FirstValue::Store,
        _ => FirstValue::Mix(low_rank("v", n_value, Inner::Identity, true)?),
    };
    let lerps = rows(&t.shaped(&name("lerp_fused.weight"), &[d, 1, 1, 6])?);
    Ok(Rwkv7TimeMix {
        n_head,
        head_dim,
        lerps,
        receptance: t.linear(&name("receptance"), d, d)?,
        decay,
        key: t.linear(&name("key"), d, d)?,
        value: t.linear(&name("value"), d, d)?,
        first_value,
        rate,
        gate,
        removal_scale: t.vector(&name("k_k.weight"), d)?,
        rate_scale: t.vector(&name("k_a.weight"), d)?,
        bonus: t.vector(&name("r_k.weight"), d)?,
        norm,
        output: t.linear(&name("output"), d, d)?,
    })
}

/// The `N` rows of a tensor.
fn rows<const N: usize>(all: &Vector) -> [Vector; N] {
    let width = all.values.len() / N;
    std::array::from_fn(|m| Vector {
        tensor: all.tensor.clone(),
        values: all.values[m * width..][..width].to_vec(),
    })
}
