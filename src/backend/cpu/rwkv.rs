//! RWKV's time and channel mixing.

use super::exec::Exec;
use super::scan::{self, Columns, Scan};
use super::scratch::{Scratch, room};
use super::weights::{LoadedLinear, Source};
use super::{math, norm};
use crate::backend::BackendError;
use crate::model::{ChannelMix, FirstValue, Inner, LowRank, Rwkv6TimeMix, Rwkv7TimeMix};

struct LoadedLowRank<'m> {
    down: LoadedLinear<'m>,
    inner: Inner,
    up: LoadedLinear<'m>,
}

impl<'m> LoadedLowRank<'m> {
    fn load(source: Source<'m>, spec: &'m LowRank) -> Result<Self, BackendError> {
        Ok(Self {
            down: LoadedLinear::load(source, &spec.down)?,
            inner: spec.inner,
            up: LoadedLinear::load(source, &spec.up)?,
        })
    }

    fn apply(&self, exec: &Exec, x: &[f32], low: &mut Vec<f32>, out: &mut [f32]) {
        let isa = exec.isa;
        let low = room(low, out.len() / self.up.n_out() * self.down.n_out());
        self.down.apply(exec, x, low);
        match self.inner {
            Inner::Identity => (),
            Inner::Tanh => math::tanh(isa, low),
            Inner::Sigmoid => math::sigmoid_in_place(isa, low),
        }
        self.up.apply(exec, low, out);
    }
}

pub(super) struct LoadedRwkv6<'m> {
    spec: &'m Rwkv6TimeMix,
    blends: Vec<LoadedLowRank<'m>>,
    decay: LoadedLowRank<'m>,
    key: LoadedLinear<'m>,
    value: LoadedLinear<'m>,
    receptance: LoadedLinear<'m>,
    gate: LoadedLinear<'m>,
    output: LoadedLinear<'m>,
}

impl<'m> LoadedRwkv6<'m> {
    pub fn load(source: Source<'m>, spec: &'m Rwkv6TimeMix) -> Result<Self, BackendError> {
        let blends = spec.blends.iter().map(|b| LoadedLowRank::load(source, b));
        let load = |linear| LoadedLinear::load(source, linear);
        Ok(Self {
            spec,
            blends: blends.collect::<Result<_, _>>()?,
            decay: LoadedLowRank::load(source, &spec.decay)?,
            key: load(&spec.key)?,
            value: load(&spec.value)?,
            receptance: load(&spec.receptance)?,
            gate: load(&spec.gate)?,
            output: load(&spec.output)?,
        })
    }

    /// `out ← time_mix(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let m = self.spec;
        let (dim, width) = (m.head_dim, m.n_head * m.head_dim);
        let n_embd = self.key.n_in();
        let n = out.len() / n_embd * width;
        let (shifted, lerp) = (room(&mut s.raw, x.len()), room(&mut s.up, x.len()));
        let (blended, low) = (room(&mut s.blended, x.len()), &mut s.low);
        math::blend_previous(isa, shifted, x, &m.lerp.values, n_embd);
        let shifted = &*shifted;
        let (r, w) = (room(&mut s.q, n), room(&mut s.decay, n));
        let (k, v) = (room(&mut s.k, n), room(&mut s.v, n));
        let gate = room(&mut s.gate, n);
        let mut blend = |i: usize, low: &mut Vec<f32>, blended: &mut [f32]| {
            self.blends[i].apply(exec, shifted, low, lerp);
            math::blend_previous(isa, blended, x, lerp, n_embd);
        };
        blend(0, low, blended);
        self.decay.apply(exec, blended, low, w);
        math::exp_scaled_exp(isa, w, -1.0);
        let parts = [
            (&self.key, &mut *k),
            (&self.value, &mut *v),
            (&self.receptance, &mut *r),
            (&self.gate, &mut *gate),
        ];
        for (i, (linear, part)) in (1..).zip(parts) {
            blend(i, low, blended);
            linear.apply(exec, blended, part);
        }

        let (r, w, k, v) = (&*r, &*w, &*k, &*v);
        let scan = Scan {
            n_head: m.n_head,
            n_rows: dim,
            dim,
        };
        let mixed = room(&mut s.mixed, n);
        scan.run(exec, &mut s.scan, mixed, |head, state, y| {
            let of = |data| Columns::group(data, width, head, dim);
            let bonus = &m.bonus.values[head * dim..][..dim];
            scan::rwkv6(isa, state, y, of(r), of(w), of(k), of(v), bonus);
        });
        norm::apply(isa, &m.norm, mixed);
        math::silu_mul(isa, gate, mixed);
        self.output.apply(exec, gate, out);
    }
}

pub(super) struct LoadedRwkv7<'m> {
    spec: &'m Rwkv7TimeMix,
    receptance: LoadedLinear<'m>,
    decay: LoadedLowRank<'m>,
    key: LoadedLinear<'m>,
    value: LoadedLinear<'m>,
    /// The blend with the first layer's values; none where they are stored.
    value_mix: Option<LoadedLowRank<'m>>,
    rate: LoadedLowRank<'m>,
    gate: LoadedLowRank<'m>,
    output: LoadedLinear<'m>,
}

impl<'m> LoadedRwkv7<'m> {
    pub fn load(source: Source<'m>, spec: &'m Rwkv7TimeMix) -> Result<Self, BackendError> {
        let load = |linear| LoadedLinear::load(source, linear);
        Ok(Self {
            spec,
            receptance: load(&spec.receptance)?,
            decay: LoadedLowRank::load(source, &spec.decay)?,
            key: load(&spec.key)?,
            value: load(&spec.value)?,
            value_mix: match &spec.first_value {
                FirstValue::Store => None,
                FirstValue::Mix(mix) => Some(LoadedLowRank::load(source, mix)?),
            },
            rate: LoadedLowRank::load(source, &spec.rate)?,
            gate: LoadedLowRank::load(source, &spec.gate)?,
            output: load(&spec.output)?,
        })
    }

    /// `out ← time_mix(x)` for the rows of one sequence; `first` holds the first
    /// layer's values.
    pub fn apply(
        &self,
        exec: &Exec,
        x: &[f32],
        first: &mut [f32],
        s: &mut Scratch,
        out: &mut [f32],
    ) {
        let isa = exec.isa;
        /// e^(−½) as ggml rounds it.
        const DECAY_SCALE: f32 = 0.606_531;
        const LENGTH_FLOOR: f32 = 1e-12;
        let m = self.spec;
        let (dim, width) = (m.head_dim, m.n_head * m.head_dim);
        let n_embd = self.key.n_in();
        let n = out.len() / n_embd * width;
        let (blended, low) = (room(&mut s.blended, x.len()), &mut s.low);
        let blend = |i: usize, blended: &mut [f32]| {
            math::blend_previous(isa, blended, x, &m.lerps[i].values, n_embd);
        };
        let (r, w) = (room(&mut s.q, n), room(&mut s.decay, n));
        let (k, v) = (room(&mut s.k, n), room(&mut s.v, n));
        let (rate, gate) = (room(&mut s.rate, n), room(&mut s.gate, n));
        blend(0, blended);
        self.receptance.apply(exec, blended, r);
        blend(1, blended);
        self.decay.apply(exec, blended, low, w);
        math::exp_scaled_sigmoid(isa, w, -DECAY_SCALE);
        blend(2, blended);
        self.key.apply(exec, blended, k);
        blend(3, blended);
        self.value.apply(exec, blended, v);
        match &self.value_mix {
            None => first.copy_from_slice(v),
            Some(mix) => {
                let share = room(&mut s.up, n);
                mix.apply(exec, blended, low, share);
                math::sigmoid_in_place(isa, share);
                math::lerp(isa, v, first, share);
            }
        }
        blend(4, blended);
        self.rate.apply(exec, blended, low, rate);
        math::sigmoid_in_place(isa, rate);
        blend(5, blended);
        self.gate.apply(exec, blended, low, gate);

        let removal = room(&mut s.raw, n);
        removal.copy_from_slice(k);
        math::mul_rows(isa, removal, &m.removal_scale.values);
        math::unit_length(isa, removal, dim, 0.0, LENGTH_FLOOR);
        math::mul_scaled_rate(isa, k, rate, &m.rate_scale.values);

        let (w, k, v, removal, rate) = (&*w, &*k, &*v, &*removal, &*rate);
        let scan = Scan {
            n_head: m.n_head,
            n_rows: dim + 1,
            dim,
        };
        let mixed = room(&mut s.mixed, n);
        let receptance = &*r;
        scan.run(exec, &mut s.scan, mixed, |head, state, y| {
            let of = |data| Columns::group(data, width, head, dim);
            let (r, removal, rate) = (of(receptance), of(removal), of(rate));
            scan::rwkv7(isa, state, y, r, of(w), of(k), of(v), removal, rate);
        });
        norm::apply(isa, &m.norm, mixed);
        math::mul(isa, r, k);
        math::mul_rows(isa, r, &m.bonus.values);
        math::add_scaled_by_sums(isa, mixed, v, r, dim);
        math::mul(isa, mixed, gate);
        self.output.apply(exec, mixed, out);
    }
}

pub(super) struct LoadedChannelMix<'m> {
    spec: &'m ChannelMix,
    key: LoadedLinear<'m>,
    value: LoadedLinear<'m>,
    receptance: Option<(&'m [f32], LoadedLinear<'m>)>,
}

impl<'m> LoadedChannelMix<'m> {
    pub fn load(source: Source<'m>, spec: &'m ChannelMix) -> Result<Self, BackendError> {
        Ok(Self {
            spec,
            key: LoadedLinear::load(source, &spec.key)?,
            value: LoadedLinear::load(source, &spec.value)?,
            receptance: match &spec.receptance {
                None => None,
                Some((lerp, r)) => Some((lerp.values.as_slice(), LoadedLinear::load(source, r)?)),
            },
        })
    }

    /// `out ← channel_mix(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let n_embd = self.key.n_in();
        let blended = room(&mut s.mixed, x.len());
        math::blend_previous(isa, blended, x, &self.spec.key_lerp.values, n_embd);
        let keys = room(&mut s.up, x.len() / n_embd * self.key.n_out());
        self.key.apply(exec, blended, keys);
        math::relu_squared(isa, keys);
        self.value.apply(exec, keys, out);
        if let Some((lerp, receptance)) = &self.receptance {
            math::blend_previous(isa, blended, x, lerp, n_embd);
            let gate = room(&mut s.gate, out.len());
            receptance.apply(exec, blended, gate);
            math::sigmoid_mul(isa, out, gate);
        }
    }
}
