//! A loaded layer: its residual blocks, run on one sequence.

use std::sync::Arc;

use super::attention::LoadedAttention;
use super::delta_net::LoadedDeltaNet;
use super::exec::Exec;
use super::ffn::LoadedFfn;
use super::mamba::{LoadedMamba1, LoadedMamba2};
use super::mla::LoadedMla;
use super::moe::LoadedMoe;
use super::rope::RopeTable;
use super::rwkv::{LoadedChannelMix, LoadedRwkv6, LoadedRwkv7};
use super::scratch::{Scratch, room};
use super::short_conv::LoadedShortConv;
use super::times::Part;
use super::weights::Source;
use super::{math, norm};
use crate::backend::BackendError;
use crate::model::{Branch, Layer, Mixer, Rope};

// A few values a layer: boxes would only cost readers.
#[allow(clippy::large_enum_variant)]
enum LoadedMixer<'m> {
    Attention(LoadedAttention<'m>),
    Mla(LoadedMla<'m>),
    Ffn(LoadedFfn<'m>),
    Moe(LoadedMoe<'m>),
    Mamba1(LoadedMamba1<'m>),
    Mamba2(LoadedMamba2<'m>),
    DeltaNet(LoadedDeltaNet<'m>),
    ShortConv(LoadedShortConv<'m>),
    Rwkv6(LoadedRwkv6<'m>),
    Rwkv7(LoadedRwkv7<'m>),
    ChannelMix(LoadedChannelMix<'m>),
}

type Branches<'m> = Vec<(&'m Branch, LoadedMixer<'m>)>;

pub(super) struct LoadedLayer<'m> {
    /// Of the hidden state.
    width: usize,
    rescale: f32,
    blocks: Vec<Branches<'m>>,
}

impl<'m> LoadedLayer<'m> {
    pub fn load(
        source: Source<'m>,
        layer: &'m Layer,
        width: usize,
        rope: impl Fn(&Rope) -> Arc<RopeTable>,
    ) -> Result<Self, BackendError> {
        let branch = |b: &'m Branch| -> Result<_, BackendError> {
            let mixer = match &b.mixer {
                Mixer::Attention(a) => {
                    let table = a.rope.as_ref().map(&rope);
                    LoadedMixer::Attention(LoadedAttention::load(source, a, table)?)
                }
                Mixer::Mla(m) => LoadedMixer::Mla(LoadedMla::load(source, m, rope(&m.rope))?),
                Mixer::Ffn(f) => LoadedMixer::Ffn(LoadedFfn::load(source, f)?),
                Mixer::Moe(m) => LoadedMixer::Moe(LoadedMoe::load(source, m)?),
                Mixer::Mamba1(m) => LoadedMixer::Mamba1(LoadedMamba1::load(source, m)?),
                Mixer::Mamba2(m) => LoadedMixer::Mamba2(LoadedMamba2::load(source, m)?),
                Mixer::DeltaNet(m) => LoadedMixer::DeltaNet(LoadedDeltaNet::load(source, m)?),
                Mixer::ShortConv(m) => LoadedMixer::ShortConv(LoadedShortConv::load(source, m)?),
                Mixer::Rwkv6TimeMix(m) => LoadedMixer::Rwkv6(LoadedRwkv6::load(source, m)?),
                Mixer::Rwkv7TimeMix(m) => LoadedMixer::Rwkv7(LoadedRwkv7::load(source, m)?),
                Mixer::ChannelMix(m) => LoadedMixer::ChannelMix(LoadedChannelMix::load(source, m)?),
            };
            Ok((b, mixer))
        };
        let blocks = layer.blocks.iter();
        Ok(Self {
            width,
            rescale: layer.rescale,
            blocks: blocks
                .map(|block| block.branches.iter().map(branch).collect())
                .collect::<Result<_, _>>()?,
        })
    }

    /// Runs the layer on the rows of one sequence and the values that they carry,
    /// in place. Rows before position `from` take part as far as later rows depend
    /// on them; what becomes of them is left open. Whether all values are known to
    /// be finite: false may concern rows before `from`.
    pub fn apply(
        &self,
        exec: &Exec,
        x: &mut [f32],
        carried: &mut [f32],
        from: usize,
        s: &mut Scratch,
    ) -> bool {
        let width = self.width;
        let isa = exec.isa;
        let mut finite = false;
        let mixes = |branches: &Branches| branches.iter().any(|(b, _)| b.mixer.mixes_rows());
        let last_mixing = self.blocks.iter().rposition(mixes).unwrap_or(0);
        for (i, branches) in self.blocks.iter().enumerate() {
            let partial = branches.iter().all(|(_, m)| m.can_start_late());
            // The first row whose output anyone reads.
            let first = match partial && i >= last_mixing {
                true => from,
                false => 0,
            };
            let n = x.len() - first * width;
            let mut sum = std::mem::take(&mut s.sum);
            let mut out = std::mem::take(&mut s.branch);
            for (i, (branch, mixer)) in branches.iter().enumerate() {
                let into = match i {
                    0 => room(&mut sum, n),
                    _ => room(&mut out, n),
                };
                let input = Input {
                    x,
                    carried,
                    width,
                    first,
                };
                apply_branch(exec, branch, mixer, input, s, into);
                if i > 0 {
                    math::add(isa, &mut sum[..n], &out[..n]);
                }
            }
            finite = math::add_checked(isa, &mut x[first * width..], &sum[..n]);
            s.sum = sum;
            s.branch = out;
        }
        if self.rescale != 1.0 {
            math::scale(isa, &mut x[from * width..], self.rescale);
            return false;
        }
        finite
    }
}

/// What a branch reads.
struct Input<'a> {
    x: &'a [f32],
    carried: &'a mut [f32],
    /// Values of a row of `x`.
    width: usize,
    /// The position of the first row that is wanted.
    first: usize,
}

/// `out ← branch(x)`; the rows of `out` begin at position `first`, those of `x` at 0.
fn apply_branch(
    exec: &Exec,
    branch: &Branch,
    mixer: &LoadedMixer,
    input: Input,
    s: &mut Scratch,
    out: &mut [f32],
) {
    let isa = exec.isa;
    let Input {
        x,
        carried,
        width,
        first,
    } = input;
    let mut normed = std::mem::take(&mut s.normed);
    let x = match branch.mixer.mixes_rows() {
        true => x,
        false => &x[first * width..],
    };
    let input = match &branch.pre_norm {
        None => x,
        Some(norm) => {
            let normed = room(&mut normed, x.len());
            norm::apply_to(isa, norm, x, normed);
            normed
        }
    };
    s.clock.lap(Part::Rest);
    match mixer {
        LoadedMixer::Attention(a) => a.apply(exec, input, first, s, out),
        LoadedMixer::Mla(m) => m.apply(exec, input, s, out),
        LoadedMixer::Ffn(f) => f.apply(exec, input, &mut s.gate, &mut s.up, out),
        LoadedMixer::Moe(m) => m.apply(exec, input, s, out),
        LoadedMixer::Mamba1(m) => m.apply(exec, input, s, out),
        LoadedMixer::Mamba2(m) => m.apply(exec, input, s, out),
        LoadedMixer::DeltaNet(m) => m.apply(exec, input, s, out),
        LoadedMixer::ShortConv(m) => m.apply(exec, input, s, out),
        LoadedMixer::Rwkv6(m) => m.apply(exec, input, s, out),
        LoadedMixer::Rwkv7(m) => m.apply(exec, input, carried, s, out),
        LoadedMixer::ChannelMix(m) => m.apply(exec, input, s, out),
    }
    s.clock.lap(mixer.part());
    if let Some(norm) = &branch.post_norm {
        norm::apply(isa, norm, out);
    }
    if branch.scale != 1.0 {
        math::scale(isa, out, branch.scale);
    }
    s.normed = normed;
}

impl LoadedMixer<'_> {
    /// What its time, or the rest of it, is spent on.
    fn part(&self) -> Part {
        match self {
            LoadedMixer::Attention(_) | LoadedMixer::Mla(_) => Part::Projections,
            LoadedMixer::Ffn(_) | LoadedMixer::Moe(_) | LoadedMixer::ChannelMix(_) => Part::Ffn,
            LoadedMixer::Mamba1(_)
            | LoadedMixer::Mamba2(_)
            | LoadedMixer::DeltaNet(_)
            | LoadedMixer::ShortConv(_)
            | LoadedMixer::Rwkv6(_)
            | LoadedMixer::Rwkv7(_) => Part::Recurrence,
        }
    }

    /// Whether it can yield the rows from some position on alone.
    fn can_start_late(&self) -> bool {
        match self {
            LoadedMixer::Attention(_) | LoadedMixer::Ffn(_) | LoadedMixer::Moe(_) => true,
            LoadedMixer::Mla(_)
            | LoadedMixer::Mamba1(_)
            | LoadedMixer::Mamba2(_)
            | LoadedMixer::DeltaNet(_)
            | LoadedMixer::ShortConv(_)
            | LoadedMixer::Rwkv6(_)
            | LoadedMixer::Rwkv7(_)
            | LoadedMixer::ChannelMix(_) => false,
        }
    }
}
