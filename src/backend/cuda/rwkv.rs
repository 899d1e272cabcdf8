//! RWKV's time and channel mixing.

use super::error::CudaError;
use super::linear::{LoadedLinear, LoadedNorm};
use super::ops::{Argument, Function, int, launch};
use super::recurrent::{scan_grid, unit_length};
use super::run::Run;
use super::weights::{Packer, Values};
use super::workspace::{Buffer, Scope};
use crate::model::{
    Activation, ChannelMix, FirstValue, Inner, LowRank, Rwkv6TimeMix, Rwkv7TimeMix,
};

struct LoadedLowRank {
    down: LoadedLinear,
    inner: Inner,
    up: LoadedLinear,
}

impl LoadedLowRank {
    fn pack(packer: &mut Packer, spec: &LowRank) -> Self {
        Self {
            down: LoadedLinear::pack(packer, &spec.down),
            inner: spec.inner,
            up: LoadedLinear::pack(packer, &spec.up),
        }
    }

    /// `out ← up(f(down(x)))`.
    fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let scope = scope.scope();
        let low = scope.buffer(run.batch.n_rows * self.down.n_out());
        run.linear(&scope, &self.down, x, low)?;
        match self.inner {
            Inner::Identity => (),
            Inner::Tanh => run.q.apply(low, Function::Tanh)?,
            Inner::Sigmoid => run.q.apply(low, Function::Sigmoid)?,
        }
        run.linear(&scope, &self.up, low, out)
    }
}

/// `out[t] ← x[t] + (x[t − 1] − x[t]) · lerp[t]`; `lerp` may be one row for all.
fn blend_previous(run: &Run, out: Buffer, x: Buffer, lerp: Buffer) -> Result<(), CudaError> {
    let width = x.len / run.batch.n_rows.max(1);
    launch!(
        run.q,
        blend_previous,
        run.q.each(x.len),
        out.address,
        x.address,
        lerp.address,
        run.batch.positions.address,
        i32::from(lerp.len == width),
        int(width),
        x.len as i64,
    )
}

pub(super) struct LoadedRwkv6<'m> {
    spec: &'m Rwkv6TimeMix,
    lerp: Values,
    blends: [LoadedLowRank; 5],
    decay: LoadedLowRank,
    key: LoadedLinear,
    value: LoadedLinear,
    receptance: LoadedLinear,
    gate: LoadedLinear,
    bonus: Values,
    norm: LoadedNorm,
    output: LoadedLinear,
}

impl<'m> LoadedRwkv6<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Rwkv6TimeMix) -> Self {
        Self {
            spec,
            lerp: packer.vector(&spec.lerp),
            blends: spec
                .blends
                .each_ref()
                .map(|b| LoadedLowRank::pack(packer, b)),
            decay: LoadedLowRank::pack(packer, &spec.decay),
            key: LoadedLinear::pack(packer, &spec.key),
            value: LoadedLinear::pack(packer, &spec.value),
            receptance: LoadedLinear::pack(packer, &spec.receptance),
            gate: LoadedLinear::pack(packer, &spec.gate),
            bonus: packer.vector(&spec.bonus),
            norm: LoadedNorm::pack(packer, &spec.norm),
            output: LoadedLinear::pack(packer, &spec.output),
        }
    }

    /// `out ← time_mix(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let m = self.spec;
        let n = run.batch.n_rows * m.n_head * m.head_dim;
        let (shifted, lerp) = (scope.buffer(x.len), scope.buffer(x.len));
        let blended = scope.buffer(x.len);
        blend_previous(run, shifted, x, run.q.values(run.weights, self.lerp))?;
        let blend = |i: usize| {
            self.blends[i].apply(run, scope, shifted, lerp)?;
            blend_previous(run, blended, x, lerp)
        };
        let [w, k, v, r, gate] = [(); 5].map(|()| scope.buffer(n));
        blend(0)?;
        self.decay.apply(run, scope, blended, w)?;
        run.q.apply(w, Function::ExpScaledExp(-1.0))?;
        let parts = [
            (&self.key, k),
            (&self.value, v),
            (&self.receptance, r),
            (&self.gate, gate),
        ];
        for (i, (linear, part)) in (1..).zip(parts) {
            blend(i)?;
            run.linear(scope, linear, blended, part)?;
        }
        let mixed = scope.buffer(n);
        let bonus = run.q.values(run.weights, self.bonus);
        launch!(
            run.q,
            scan_rwkv6,
            scan_grid(run, m.n_head, m.head_dim, m.head_dim),
            mixed.address,
            r.address,
            w.address,
            k.address,
            v.address,
            bonus.address,
            run.batch.spans.address,
            int(m.n_head),
            int(m.head_dim),
        )?;
        run.norm(&self.norm, mixed, mixed)?;
        run.q.gate(gate, mixed, Activation::Silu)?;
        run.linear(scope, &self.output, gate, out)
    }
}

pub(super) struct LoadedRwkv7<'m> {
    spec: &'m Rwkv7TimeMix,
    lerps: [Values; 6],
    receptance: LoadedLinear,
    decay: LoadedLowRank,
    key: LoadedLinear,
    value: LoadedLinear,
    /// The blend with the first layer's values; none where they are stored.
    value_mix: Option<LoadedLowRank>,
    rate: LoadedLowRank,
    gate: LoadedLowRank,
    removal_scale: Values,
    rate_scale: Values,
    bonus: Values,
    norm: LoadedNorm,
    output: LoadedLinear,
}

impl<'m> LoadedRwkv7<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Rwkv7TimeMix) -> Self {
        Self {
            spec,
            lerps: spec.lerps.each_ref().map(|l| packer.vector(l)),
            receptance: LoadedLinear::pack(packer, &spec.receptance),
            decay: LoadedLowRank::pack(packer, &spec.decay),
            key: LoadedLinear::pack(packer, &spec.key),
            value: LoadedLinear::pack(packer, &spec.value),
            value_mix: match &spec.first_value {
                FirstValue::Store => None,
                FirstValue::Mix(mix) => Some(LoadedLowRank::pack(packer, mix)),
            },
            rate: LoadedLowRank::pack(packer, &spec.rate),
            gate: LoadedLowRank::pack(packer, &spec.gate),
            removal_scale: packer.vector(&spec.removal_scale),
            rate_scale: packer.vector(&spec.rate_scale),
            bonus: packer.vector(&spec.bonus),
            norm: LoadedNorm::pack(packer, &spec.norm),
            output: LoadedLinear::pack(packer, &spec.output),
        }
    }

    /// `out ← time_mix(x)`; `first` holds the first layer's values.
    pub fn apply(
        &self,
        run: &Run,
        scope: &Scope,
        x: Buffer,
        first: Buffer,
        out: Buffer,
    ) -> Result<(), CudaError> {
        /// e^(−½) as ggml rounds it.
        const DECAY_SCALE: f32 = 0.606_531;
        const LENGTH_FLOOR: f32 = 1e-12;
        let m = self.spec;
        let (dim, width, len) = (m.head_dim, m.n_head * m.head_dim, run.batch.n_rows);
        let n = len * width;
        let values = |v: Values| run.q.values(run.weights, v);
        let blended = scope.buffer(x.len);
        let blend = |i: usize| blend_previous(run, blended, x, values(self.lerps[i]));
        let [r, w, k, v, rate, gate] = [(); 6].map(|()| scope.buffer(n));
        blend(0)?;
        run.linear(scope, &self.receptance, blended, r)?;
        blend(1)?;
        self.decay.apply(run, scope, blended, w)?;
        run.q.apply(w, Function::ExpScaledSigmoid(-DECAY_SCALE))?;
        blend(2)?;
        run.linear(scope, &self.key, blended, k)?;
        blend(3)?;
        run.linear(scope, &self.value, blended, v)?;
        match &self.value_mix {
            None => run.q.copy(first, v)?,
            Some(mix) => {
                let inner = scope.scope();
                let share = inner.buffer(n);
                mix.apply(run, &inner, blended, share)?;
                run.q.apply(share, Function::Sigmoid)?;
                let grid = run.q.each(n);
                launch!(
                    run.q,
                    interpolate,
                    grid,
                    v.address,
                    first.address,
                    share.address,
                    n as i64
                )?;
            }
        }
        blend(4)?;
        self.rate.apply(run, scope, blended, rate)?;
        run.q.apply(rate, Function::Sigmoid)?;
        blend(5)?;
        self.gate.apply(run, scope, blended, gate)?;

        let removal = scope.buffer(n);
        run.q.copy(removal, k)?;
        run.q.multiply_row(removal, values(self.removal_scale))?;
        unit_length(run, removal, dim, 0.0, LENGTH_FLOOR)?;
        let rate_scale = values(self.rate_scale);
        launch!(
            run.q,
            scale_by_rate,
            run.q.each(n),
            k.address,
            rate.address,
            rate_scale.address,
            int(width),
            n as i64,
        )?;
        let mixed = scope.buffer(n);
        launch!(
            run.q,
            scan_rwkv7,
            scan_grid(run, m.n_head, dim, dim),
            mixed.address,
            r.address,
            w.address,
            k.address,
            v.address,
            removal.address,
            rate.address,
            run.batch.spans.address,
            int(m.n_head),
            int(dim),
        )?;
        run.norm(&self.norm, mixed, mixed)?;
        run.q.multiply_by(r, k)?;
        run.q.multiply_row(r, values(self.bonus))?;
        launch!(
            run.q,
            add_scaled_by_sums,
            run.q.warps(n / dim),
            mixed.address,
            v.address,
            r.address,
            int(dim),
            (n / dim) as i64,
        )?;
        run.q.multiply_by(mixed, gate)?;
        run.linear(scope, &self.output, mixed, out)
    }
}

pub(super) struct LoadedChannelMix {
    key_lerp: Values,
    key: LoadedLinear,
    value: LoadedLinear,
    receptance: Option<(Values, LoadedLinear)>,
}

impl LoadedChannelMix {
    pub fn pack(packer: &mut Packer, spec: &ChannelMix) -> Self {
        let receptance = spec.receptance.as_ref();
        Self {
            key_lerp: packer.vector(&spec.key_lerp),
            key: LoadedLinear::pack(packer, &spec.key),
            value: LoadedLinear::pack(packer, &spec.value),
            receptance: receptance
                .map(|(lerp, r)| (packer.vector(lerp), LoadedLinear::pack(packer, r))),
        }
    }

    /// `out ← channel_mix(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let values = |v: Values| run.q.values(run.weights, v);
        let blended = scope.buffer(x.len);
        blend_previous(run, blended, x, values(self.key_lerp))?;
        let keys = scope.buffer(run.batch.n_rows * self.key.n_out());
        run.linear(scope, &self.key, blended, keys)?;
        run.q.activate(keys, Activation::ReluSquared)?;
        run.linear(scope, &self.value, keys, out)?;
        if let Some((lerp, receptance)) = &self.receptance {
            blend_previous(run, blended, x, values(*lerp))?;
            let gate = scope.buffer(out.len);
            run.linear(scope, receptance, blended, gate)?;
            run.q.sigmoid_gate(out, gate)?;
        }
        Ok(())
    }
}
