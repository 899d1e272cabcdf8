//! A loaded layer: its residual blocks, run on a batch of sequences.

use super::attention::LoadedAttention;
use super::error::CudaError;
use super::ffn::LoadedFfn;
use super::linear::LoadedNorm;
use super::mla::LoadedMla;
use super::moe::LoadedMoe;
use super::recurrent::{LoadedDeltaNet, LoadedMamba1, LoadedMamba2, LoadedShortConv};
use super::run::Run;
use super::rwkv::{LoadedChannelMix, LoadedRwkv6, LoadedRwkv7};
use super::weights::Packer;
use super::workspace::{Buffer, Scope};
use crate::model::{Branch, Layer, Mixer, Rope, Temperature};

// A few values a layer: boxes would only cost readers.
#[allow(clippy::large_enum_variant)]
enum LoadedMixer<'m> {
    Attention(LoadedAttention<'m>),
    Mla(LoadedMla<'m>),
    Ffn(LoadedFfn),
    Moe(LoadedMoe<'m>),
    Mamba1(LoadedMamba1<'m>),
    Mamba2(LoadedMamba2<'m>),
    DeltaNet(LoadedDeltaNet<'m>),
    ShortConv(LoadedShortConv),
    Rwkv6(LoadedRwkv6<'m>),
    Rwkv7(LoadedRwkv7<'m>),
    ChannelMix(LoadedChannelMix),
}

struct LoadedBranch<'m> {
    pre_norm: Option<LoadedNorm>,
    mixer: LoadedMixer<'m>,
    post_norm: Option<LoadedNorm>,
    scale: f32,
}

pub(super) struct LoadedLayer<'m> {
    spec: &'m Layer,
    blocks: Vec<Vec<LoadedBranch<'m>>>,
}

impl<'m> LoadedLayer<'m> {
    /// Lays out the layer's weights.
    pub fn pack(packer: &mut Packer, spec: &'m Layer) -> Result<Self, CudaError> {
        let mut branch = |b: &'m Branch| -> Result<_, CudaError> {
            let mixer = match &b.mixer {
                Mixer::Attention(a) => LoadedMixer::Attention(LoadedAttention::pack(packer, a)?),
                Mixer::Mla(m) => LoadedMixer::Mla(LoadedMla::pack(packer, m)?),
                Mixer::Ffn(f) => LoadedMixer::Ffn(LoadedFfn::pack(packer, f)),
                Mixer::Moe(m) => LoadedMixer::Moe(LoadedMoe::pack(packer, m)),
                Mixer::Mamba1(m) => LoadedMixer::Mamba1(LoadedMamba1::pack(packer, m)),
                Mixer::Mamba2(m) => LoadedMixer::Mamba2(LoadedMamba2::pack(packer, m)),
                Mixer::DeltaNet(m) => LoadedMixer::DeltaNet(LoadedDeltaNet::pack(packer, m)),
                Mixer::ShortConv(m) => LoadedMixer::ShortConv(LoadedShortConv::pack(packer, m)),
                Mixer::Rwkv6TimeMix(m) => LoadedMixer::Rwkv6(LoadedRwkv6::pack(packer, m)),
                Mixer::Rwkv7TimeMix(m) => LoadedMixer::Rwkv7(LoadedRwkv7::pack(packer, m)),
                Mixer::ChannelMix(m) => LoadedMixer::ChannelMix(LoadedChannelMix::pack(packer, m)),
            };
            let mut norm = |n: &Option<_>| n.as_ref().map(|n| LoadedNorm::pack(packer, n));
            Ok(LoadedBranch {
                pre_norm: norm(&b.pre_norm),
                mixer,
                post_norm: norm(&b.post_norm),
                scale: b.scale,
            })
        };
        let blocks = spec.blocks.iter();
        Ok(Self {
            spec,
            blocks: blocks
                .map(|block| block.branches.iter().map(&mut branch).collect())
                .collect::<Result<_, _>>()?,
        })
    }

    /// The RoPEs and temperatures that the layer looks up by position.
    pub fn by_position(&self) -> (Vec<&'m Rope>, Vec<Temperature>) {
        let (mut ropes, mut temperatures) = (Vec::new(), Vec::new());
        for branch in self.spec.blocks.iter().flat_map(|b| &b.branches) {
            match &branch.mixer {
                Mixer::Attention(a) => {
                    ropes.extend(&a.rope);
                    temperatures.extend(a.temperature);
                }
                Mixer::Mla(m) => {
                    ropes.push(&m.rope);
                    temperatures.extend(m.temperature);
                }
                Mixer::Ffn(_)
                | Mixer::Moe(_)
                | Mixer::Mamba1(_)
                | Mixer::Mamba2(_)
                | Mixer::DeltaNet(_)
                | Mixer::ShortConv(_)
                | Mixer::Rwkv6TimeMix(_)
                | Mixer::Rwkv7TimeMix(_)
                | Mixer::ChannelMix(_) => (),
            }
        }
        (ropes, temperatures)
    }

    /// Runs the layer on the rows of a batch and the values that they carry, in
    /// place.
    pub fn apply(
        &self,
        run: &Run,
        scope: &Scope,
        x: Buffer,
        carried: Buffer,
    ) -> Result<(), CudaError> {
        for branches in &self.blocks {
            let scope = scope.scope();
            let out = scope.buffer(x.len);
            if let [branch] = &branches[..] {
                branch.apply(run, &scope, x, carried, out)?;
                run.q.add(x, out)?;
                continue;
            }
            // All branches read the same `x`.
            let sum = scope.buffer(x.len);
            run.q.clear(sum)?;
            for branch in branches {
                branch.apply(run, &scope, x, carried, out)?;
                run.q.add(sum, out)?;
            }
            run.q.add(x, sum)?;
        }
        run.q.scale(x, self.spec.rescale)
    }
}

impl LoadedBranch<'_> {
    fn apply(
        &self,
        run: &Run,
        scope: &Scope,
        x: Buffer,
        carried: Buffer,
        out: Buffer,
    ) -> Result<(), CudaError> {
        let scope = &scope.scope();
        let input = match &self.pre_norm {
            None => x,
            Some(norm) => {
                let normed = scope.buffer(x.len);
                run.norm(norm, x, normed)?;
                normed
            }
        };
        match &self.mixer {
            LoadedMixer::Attention(a) => a.apply(run, scope, input, out),
            LoadedMixer::Mla(m) => m.apply(run, scope, input, out),
            LoadedMixer::Ffn(f) => f.apply(run, scope, input, out),
            LoadedMixer::Moe(m) => m.apply(run, scope, input, out),
            LoadedMixer::Mamba1(m) => m.apply(run, scope, input, out),
            LoadedMixer::Mamba2(m) => m.apply(run, scope, input, out),
            LoadedMixer::DeltaNet(m) => m.apply(run, scope, input, out),
            LoadedMixer::ShortConv(m) => m.apply(run, scope, input, out),
            LoadedMixer::Rwkv6(m) => m.apply(run, scope, input, out),
            LoadedMixer::Rwkv7(m) => m.apply(run, scope, input, carried, out),
            LoadedMixer::ChannelMix(m) => m.apply(run, scope, input, out),
        }?;
        if let Some(norm) = &self.post_norm {
            run.norm(norm, out, out)?;
        }
        run.q.scale(out, self.scale)
    }
}
