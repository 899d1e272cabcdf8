//! What there is to turn off in a model, by walking it: no architecture is
//! named, so none can be forgotten.

use pplx::model::{
    Activation, Attention, CausalConv, Ffn, FirstValue, Gating, HeadSharing, Heads, Linear, Mixer,
    Mla, MlaKv, MlaQuery, Model, Moe, Norm, Residual, Rope, RopePairs, Span, Vector,
};

fn blocks(m: &mut Model) -> impl Iterator<Item = &mut Residual> {
    m.layers.iter_mut().flat_map(|l| &mut l.blocks)
}

fn mixers(m: &mut Model) -> impl Iterator<Item = &mut Mixer> {
    blocks(m)
        .flat_map(|b| &mut b.branches)
        .map(|b| &mut b.mixer)
}

pub fn attentions(m: &mut Model) -> impl Iterator<Item = &mut Attention> {
    mixers(m).filter_map(|m| match m {
        Mixer::Attention(a) => Some(a),
        _ => None,
    })
}

fn latent(m: &mut Model) -> impl Iterator<Item = &mut Mla> {
    mixers(m).filter_map(|m| match m {
        Mixer::Mla(a) => Some(a),
        _ => None,
    })
}

fn heads(m: &mut Model) -> impl Iterator<Item = &mut Heads> {
    mixers(m).filter_map(|m| match m {
        Mixer::Attention(a) => Some(&mut a.heads),
        Mixer::Mla(a) => Some(&mut a.heads),
        _ => None,
    })
}

fn ropes(m: &mut Model) -> impl Iterator<Item = &mut Rope> {
    mixers(m).filter_map(|m| match m {
        Mixer::Attention(a) => a.rope.as_mut(),
        Mixer::Mla(a) => Some(&mut a.rope),
        _ => None,
    })
}

fn moes(m: &mut Model) -> impl Iterator<Item = &mut Moe> {
    mixers(m).filter_map(|m| match m {
        Mixer::Moe(e) => Some(e),
        _ => None,
    })
}

/// All networks, experts too.
fn ffns(m: &mut Model) -> impl Iterator<Item = &mut Ffn> {
    mixers(m).flat_map(|m| -> Vec<&mut Ffn> {
        match m {
            Mixer::Ffn(f) => vec![f],
            Mixer::Moe(e) => {
                let shared = e.shared.iter_mut().map(|s| &mut s.ffn);
                e.experts.iter_mut().chain(shared).collect()
            }
            _ => Vec::new(),
        }
    })
}

fn convolutions(m: &mut Model) -> impl Iterator<Item = &mut CausalConv> {
    mixers(m).flat_map(|m| match m {
        Mixer::Mamba1(l) => vec![&mut l.conv],
        Mixer::Mamba2(l) => vec![&mut l.conv],
        Mixer::DeltaNet(l) => vec![&mut l.q_conv, &mut l.k_conv, &mut l.v_conv],
        Mixer::ShortConv(l) => vec![&mut l.conv],
        _ => Vec::new(),
    })
}

/// Applies `change` to all, and says whether one of them had something to change.
fn each<T>(items: impl Iterator<Item = T>, mut change: impl FnMut(T) -> bool) -> bool {
    items.fold(false, |any, item| change(item) | any)
}

fn take<T>(option: &mut Option<T>) -> bool {
    option.take().is_some()
}

/// Sets `value`, and says whether that is a change.
fn put<T: PartialEq>(place: &mut T, value: T) -> bool {
    let changes = *place != value;
    *place = value;
    changes
}

fn fill(vector: &mut Vector, value: f32) -> bool {
    vector.values.fill(value);
    true
}

fn no_bias(linear: &mut Linear) -> bool {
    take(&mut linear.bias)
}

fn plain(norm: &mut Norm) -> bool {
    take(&mut norm.weight) | take(&mut norm.bias)
}

/// Takes one feature out of a model, and says whether the model had it.
pub type Off = fn(&mut Model) -> bool;

pub const FEATURES: &[(&str, Off)] = &[
    ("embedding scale", |m| put(&mut m.embedding.scale, 1.0)),
    ("position embedding", |m| take(&mut m.embedding.positions)),
    // Without any, deep models overflow.
    ("pre-norms of the first layer", |m| {
        let first = m.layers[0].blocks.iter_mut();
        each(first.flat_map(|b| &mut b.branches), |b| {
            take(&mut b.pre_norm)
        })
    }),
    ("weights of pre-norms", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            b.pre_norm.as_mut().is_some_and(plain)
        })
    }),
    ("biases of pre-norms", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            b.pre_norm.as_mut().is_some_and(|n| take(&mut n.bias))
        })
    }),
    ("post-norms", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            take(&mut b.post_norm)
        })
    }),
    ("residual scale", |m| {
        each(blocks(m).flat_map(|b| &mut b.branches), |b| {
            put(&mut b.scale, 1.0)
        })
    }),
    ("parallel residual", |m| {
        each(m.layers.iter_mut(), |layer| {
            let n_blocks = layer.blocks.len();
            let branches = layer.blocks.drain(..).flat_map(|b| b.branches);
            let blocks: Vec<Residual> = branches.map(|b| Residual { branches: vec![b] }).collect();
            layer.blocks = blocks;
            layer.blocks.len() > n_blocks
        })
    }),
    ("sequential residual", |m| {
        each(m.layers.iter_mut(), |layer| {
            let n_blocks = layer.blocks.len();
            let branches = layer.blocks.drain(..).flat_map(|b| b.branches).collect();
            layer.blocks = vec![Residual { branches }];
            n_blocks > 1
        })
    }),
    ("sliding window", |m| {
        each(heads(m), |h| {
            matches!(h.span, Span::Window(_)) && put(&mut h.span, Span::All)
        })
    }),
    ("attention soft-cap", |m| {
        each(heads(m), |h| take(&mut h.softcap))
    }),
    ("sinks", |m| each(heads(m), |h| take(&mut h.sinks))),
    ("attention scale", |m| {
        each(attentions(m), |a| {
            let usual = 1.0 / (a.heads.head_dim as f32).sqrt();
            put(&mut a.heads.scale, usual)
        })
    }),
    ("QK norm", |m| each(attentions(m), |a| take(&mut a.qk_norm))),
    ("place of the QK norm", |m| {
        each(attentions(m), |a| match (&mut a.qk_norm, &a.rope) {
            // Without weights, the order does not matter.
            (Some(n), Some(_)) if n.q.weight.is_some() => {
                n.after_rope = !n.after_rope;
                true
            }
            _ => false,
        })
    }),
    ("RoPE", |m| each(attentions(m), |a| take(&mut a.rope))),
    ("pairs of RoPE", |m| {
        each(ropes(m), |r| {
            let other = match r.pairs {
                RopePairs::Adjacent => RopePairs::Halves,
                RopePairs::Halves => RopePairs::Adjacent,
            };
            put(&mut r.pairs, other)
        })
    }),
    ("norm before the attention's output", |m| {
        each(attentions(m), |a| take(&mut a.sub_norm))
    }),
    ("query bias", |m| each(attentions(m), |a| no_bias(&mut a.q))),
    // Without RoPE it adds the same to all scores of a query.
    ("key bias", |m| {
        each(attentions(m), |a| a.rope.is_some() && no_bias(&mut a.k))
    }),
    ("value bias", |m| each(attentions(m), |a| no_bias(&mut a.v))),
    ("attention output bias", |m| {
        each(attentions(m), |a| no_bias(&mut a.output))
    }),
    ("factors of attention matrices", |m| {
        each(attentions(m), |a| {
            let maps = [&mut a.q, &mut a.k, &mut a.v, &mut a.output];
            each(maps.into_iter(), |l| put(&mut l.scale, 1.0))
        })
    }),
    ("norm of the latent query", |m| {
        each(latent(m), |a| match &mut a.query {
            MlaQuery::LowRank { norm, .. } => plain(norm),
            MlaQuery::Direct(_) => false,
        })
    }),
    ("norm of the latent", |m| {
        each(latent(m), |a| plain(&mut a.kv_norm))
    }),
    ("keys of the latent", |m| {
        each(latent(m), |a| match &mut a.kv {
            MlaKv::Absorbed { k, .. } => each(k.iter_mut(), |k| put(&mut k.scale, 0.0)),
            MlaKv::Expanded { k, .. } => put(&mut k.scale, 0.0),
        })
    }),
    ("FFN gate", |m| {
        // The clamped SwiGLU is nothing without its gate.
        let ffns = ffns(m).filter(|f| f.activation != Activation::ClampedSwiglu);
        each(ffns, |f| take(&mut f.gate))
    }),
    ("activation", |m| {
        each(ffns(m), |f| {
            let other = match f.activation {
                Activation::Silu => Activation::GeluTanh,
                _ => Activation::Silu,
            };
            put(&mut f.activation, other)
        })
    }),
    ("FFN gate bias", |m| {
        each(ffns(m), |f| f.gate.as_mut().is_some_and(no_bias))
    }),
    ("FFN up bias", |m| each(ffns(m), |f| no_bias(&mut f.up))),
    ("FFN down bias", |m| each(ffns(m), |f| no_bias(&mut f.down))),
    ("factors of FFN matrices", |m| {
        each(ffns(m), |f| {
            let maps = f.gate.iter_mut().chain([&mut f.up, &mut f.down]);
            each(maps, |l| put(&mut l.scale, 1.0))
        })
    }),
    ("norm within the FFN", |m| {
        each(ffns(m), |f| take(&mut f.sub_norm))
    }),
    ("router bias", |m| each(moes(m), |e| no_bias(&mut e.router))),
    ("number of experts", |m| {
        each(moes(m), |e| {
            e.n_used = if e.n_used > 1 { e.n_used - 1 } else { 2 };
            true
        })
    }),
    ("gating function", |m| {
        each(moes(m), |e| {
            // Renormalized, a softmax over all is one over the chosen.
            let other = match e.gating {
                Gating::Sigmoid => Gating::Softmax,
                _ => Gating::Sigmoid,
            };
            put(&mut e.gating, other)
        })
    }),
    ("bias for the choice of experts", |m| {
        each(moes(m), |e| take(&mut e.selection_bias))
    }),
    ("groups of experts", |m| {
        each(moes(m), |e| take(&mut e.groups))
    }),
    ("renormalization", |m| {
        each(moes(m), |e| {
            e.gating != Gating::SoftmaxOfChosen && put(&mut e.normalize, false)
        })
    }),
    ("no renormalization", |m| {
        each(moes(m), |e| {
            e.gating != Gating::SoftmaxOfChosen && put(&mut e.normalize, true)
        })
    }),
    ("scale of the experts' weights", |m| {
        each(moes(m), |e| put(&mut e.scale, 1.0))
    }),
    ("weights at the experts' input", |m| {
        each(moes(m), |e| put(&mut e.weigh_input, false))
    }),
    ("shared expert", |m| each(moes(m), |e| take(&mut e.shared))),
    ("gate of the shared expert", |m| {
        each(moes(m), |e| {
            e.shared.as_mut().is_some_and(|s| take(&mut s.gate))
        })
    }),
    ("final norm", |m| take(&mut m.head.norm)),
    ("bias of the final norm", |m| {
        m.head.norm.as_mut().is_some_and(|n| take(&mut n.bias))
    }),
    ("logit scale", |m| put(&mut m.head.scale, 1.0)),
    ("logit soft-cap", |m| take(&mut m.head.softcap)),
    ("norm of the embedding", |m| take(&mut m.embedding.norm)),
    ("rescaling of the hidden state", |m| {
        each(m.layers.iter_mut(), |l| put(&mut l.rescale, 1.0))
    }),
    ("attention gate", |m| {
        each(attentions(m), |a| take(&mut a.gate))
    }),
    ("positions before, in convolutions", |m| {
        each(convolutions(m), |c| {
            for taps in c.weight.values.chunks_mut(c.width) {
                taps[..c.width - 1].fill(0.0);
            }
            true
        })
    }),
    ("bias of convolutions", |m| {
        each(convolutions(m), |c| take(&mut c.bias))
    }),
    ("state", |m| {
        each(mixers(m), |m| match m {
            Mixer::Mamba1(l) => fill(&mut l.a, -1e6),
            Mixer::Mamba2(l) => fill(&mut l.a, -1e6),
            Mixer::DeltaNet(l) => fill(&mut l.a, -1e6),
            Mixer::Rwkv6TimeMix(l) => l.decay.up.bias.as_mut().is_some_and(|b| fill(b, 10.0)),
            // Its decay has a floor.
            Mixer::Rwkv7TimeMix(l) => l.decay.up.bias.as_mut().is_some_and(|b| fill(b, 20.0)),
            _ => false,
        })
    }),
    ("what passes by the state", |m| {
        each(mixers(m), |m| match m {
            Mixer::Mamba1(l) => fill(&mut l.d, 0.0),
            Mixer::Mamba2(l) => fill(&mut l.d, 0.0),
            Mixer::Rwkv6TimeMix(l) => fill(&mut l.bonus, 0.0),
            Mixer::Rwkv7TimeMix(l) => fill(&mut l.bonus, 0.0),
            _ => false,
        })
    }),
    ("biases of step sizes", |m| {
        each(mixers(m), |m| match m {
            Mixer::Mamba1(l) => no_bias(&mut l.dt),
            Mixer::Mamba2(l) => no_bias(&mut l.dt),
            Mixer::DeltaNet(l) => no_bias(&mut l.alpha),
            _ => false,
        })
    }),
    ("step sizes", |m| {
        each(mixers(m), |m| match m {
            Mixer::Mamba1(l) => put(&mut l.dt.scale, 0.0),
            Mixer::Mamba2(l) => put(&mut l.dt.scale, 0.0),
            Mixer::DeltaNet(l) => put(&mut l.alpha.scale, 0.0),
            Mixer::Rwkv6TimeMix(l) => put(&mut l.decay.up.scale, 0.0),
            Mixer::Rwkv7TimeMix(l) => put(&mut l.decay.up.scale, 0.0),
            _ => false,
        })
    }),
    ("rates of the delta rule", |m| {
        each(mixers(m), |m| match m {
            Mixer::DeltaNet(l) => put(&mut l.beta.scale, 0.0),
            Mixer::Rwkv7TimeMix(l) => put(&mut l.rate.up.scale, 0.0),
            _ => false,
        })
    }),
    ("norms of what enters the state", |m| {
        each(mixers(m), |m| match m {
            Mixer::Mamba1(l) => take(&mut l.norms),
            _ => false,
        })
    }),
    ("norm of what the state yields", |m| {
        each(mixers(m), |m| match m {
            Mixer::Mamba2(l) => take(&mut l.norm),
            Mixer::DeltaNet(l) => plain(&mut l.norm),
            Mixer::Rwkv6TimeMix(l) => plain(&mut l.norm),
            Mixer::Rwkv7TimeMix(l) => plain(&mut l.norm),
            _ => false,
        })
    }),
    ("gate of what the state yields", |m| {
        each(mixers(m), |m| match m {
            Mixer::Mamba1(l) => put(&mut l.gate.scale, 0.0),
            Mixer::Mamba2(l) => put(&mut l.gate.scale, 0.0),
            Mixer::DeltaNet(l) => put(&mut l.gate.scale, 0.0),
            Mixer::Rwkv6TimeMix(l) => put(&mut l.gate.scale, 0.0),
            Mixer::Rwkv7TimeMix(l) => put(&mut l.gate.up.scale, 0.0),
            _ => false,
        })
    }),
    ("sharing of key heads", |m| {
        each(mixers(m), |m| match m {
            Mixer::DeltaNet(l) => {
                l.sharing = match l.sharing {
                    HeadSharing::Cyclic => HeadSharing::Blocks,
                    HeadSharing::Blocks => HeadSharing::Cyclic,
                };
                true
            }
            _ => false,
        })
    }),
    ("blend with the row before", |m| {
        each(mixers(m), |m| match m {
            Mixer::Rwkv6TimeMix(l) => fill(&mut l.lerp, 0.0),
            Mixer::Rwkv7TimeMix(l) => each(l.lerps.iter_mut(), |v| fill(v, 0.0)),
            Mixer::ChannelMix(l) => fill(&mut l.key_lerp, 0.0),
            _ => false,
        })
    }),
    ("blends that depend on the row", |m| {
        each(mixers(m), |m| match m {
            Mixer::Rwkv6TimeMix(l) => each(l.blends.iter_mut(), |b| put(&mut b.up.scale, 0.0)),
            _ => false,
        })
    }),
    ("values of the first layer", |m| {
        each(mixers(m), |m| match m {
            Mixer::Rwkv7TimeMix(l) if matches!(l.first_value, FirstValue::Mix(_)) => {
                l.first_value = FirstValue::Store;
                true
            }
            _ => false,
        })
    }),
    ("direction of what is removed", |m| {
        each(mixers(m), |m| match m {
            Mixer::Rwkv7TimeMix(l) => fill(&mut l.removal_scale, 1.0),
            _ => false,
        })
    }),
    ("scale of keys by their rate", |m| {
        each(mixers(m), |m| match m {
            Mixer::Rwkv7TimeMix(l) => fill(&mut l.rate_scale, 0.0),
            _ => false,
        })
    }),
    ("receptance of the channel mix", |m| {
        each(mixers(m), |m| match m {
            Mixer::ChannelMix(l) => take(&mut l.receptance),
            _ => false,
        })
    }),
];
