//! Mamba-1 and Mamba-2.

use super::conv::LoadedConv;
use super::exec::Exec;
use super::scan::{self, Columns, Scan};
use super::scratch::{Scratch, room};
use super::weights::{LoadedLinear, Source};
use super::{math, norm};
use crate::backend::BackendError;
use crate::model::{Mamba1, Mamba2};

pub(super) struct LoadedMamba1<'m> {
    spec: &'m Mamba1,
    input: LoadedLinear<'m>,
    gate: LoadedLinear<'m>,
    conv: LoadedConv<'m>,
    dt_low: LoadedLinear<'m>,
    b: LoadedLinear<'m>,
    c: LoadedLinear<'m>,
    dt: LoadedLinear<'m>,
    /// Channels that run together.
    block: usize,
    /// For each block of channels, `n_state × block`.
    a: Vec<f32>,
    output: LoadedLinear<'m>,
}

impl<'m> LoadedMamba1<'m> {
    pub fn load(source: Source<'m>, spec: &'m Mamba1) -> Result<Self, BackendError> {
        /// Channels whose states stay in the nearest cache.
        const LOG_MAX_BLOCK: u32 = 6;
        let block = 1 << spec.n_inner.trailing_zeros().min(LOG_MAX_BLOCK);
        let n_state = spec.n_state;
        let blocks = spec.a.values.chunks_exact(block * n_state);
        let transposed =
            blocks.flat_map(|b| (0..n_state).flat_map(|n| b.iter().skip(n).step_by(n_state)));
        Ok(Self {
            spec,
            input: LoadedLinear::load(source, &spec.input)?,
            gate: LoadedLinear::load(source, &spec.gate)?,
            conv: LoadedConv::load(&spec.conv),
            dt_low: LoadedLinear::load(source, &spec.dt_low)?,
            b: LoadedLinear::load(source, &spec.b)?,
            c: LoadedLinear::load(source, &spec.c)?,
            dt: LoadedLinear::load(source, &spec.dt)?,
            block,
            a: transposed.copied().collect(),
            output: LoadedLinear::load(source, &spec.output)?,
        })
    }

    /// `out ← mamba(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let (n, n_state, block) = (self.spec.n_inner, self.spec.n_state, self.block);
        let len = out.len() / self.output.n_out();
        let (raw, u) = (room(&mut s.raw, len * n), room(&mut s.up, len * n));
        self.input.apply(exec, x, raw);
        self.conv.apply(exec, raw, u);
        math::silu(isa, u);

        let low = room(&mut s.low, len * self.dt_low.n_out());
        let (b, c) = (room(&mut s.k, len * n_state), room(&mut s.v, len * n_state));
        self.dt_low.apply(exec, u, low);
        self.b.apply(exec, u, b);
        self.c.apply(exec, u, c);
        if let Some([low_norm, b_norm, c_norm]) = &self.spec.norms {
            norm::apply(isa, low_norm, low);
            norm::apply(isa, b_norm, b);
            norm::apply(isa, c_norm, c);
        }
        let delta = room(&mut s.decay, len * n);
        self.dt.apply(exec, low, delta);
        math::softplus(isa, delta);

        let (u, delta, b, c) = (&*u, &*delta, &*b, &*c);
        let scan = Scan {
            n_head: n / block,
            n_rows: n_state,
            dim: block,
        };
        let mixed = room(&mut s.mixed, len * n);
        scan.run(exec, &mut s.scan, mixed, |i, state, y| {
            scan::mamba1(
                isa,
                state,
                y,
                Columns::group(u, n, i, block),
                Columns::group(delta, n, i, block),
                Columns::group(b, n_state, 0, n_state),
                Columns::group(c, n_state, 0, n_state),
                &self.a[i * block * n_state..][..block * n_state],
                &self.spec.d.values[i * block..][..block],
            );
        });
        let gate = room(&mut s.gate, len * n);
        self.gate.apply(exec, x, gate);
        math::silu_mul(isa, gate, mixed);
        self.output.apply(exec, gate, out);
    }
}

pub(super) struct LoadedMamba2<'m> {
    spec: &'m Mamba2,
    gate: LoadedLinear<'m>,
    input: LoadedLinear<'m>,
    dt: LoadedLinear<'m>,
    conv: LoadedConv<'m>,
    output: LoadedLinear<'m>,
}

impl<'m> LoadedMamba2<'m> {
    pub fn load(source: Source<'m>, spec: &'m Mamba2) -> Result<Self, BackendError> {
        Ok(Self {
            spec,
            gate: LoadedLinear::load(source, &spec.gate)?,
            input: LoadedLinear::load(source, &spec.input)?,
            dt: LoadedLinear::load(source, &spec.dt)?,
            conv: LoadedConv::load(&spec.conv),
            output: LoadedLinear::load(source, &spec.output)?,
        })
    }

    /// `out ← mamba2(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let m = self.spec;
        let (n, width) = (m.n_head * m.head_dim, self.input.n_out());
        let len = out.len() / self.output.n_out();
        let (raw, ubc) = (room(&mut s.raw, len * width), room(&mut s.up, len * width));
        self.input.apply(exec, x, raw);
        self.conv.apply(exec, raw, ubc);
        math::silu(isa, ubc);
        let delta = room(&mut s.decay, len * m.n_head);
        self.dt.apply(exec, x, delta);
        math::softplus(isa, delta);

        let (ubc, delta) = (&*ubc, &*delta);
        let scan = Scan {
            n_head: m.n_head,
            n_rows: m.n_state,
            dim: m.head_dim,
        };
        let mixed = room(&mut s.mixed, len * n);
        scan.run(exec, &mut s.scan, mixed, |head, state, y| {
            let group = head / (m.n_head / m.n_group);
            let shared = |first: usize| Columns {
                data: ubc,
                stride: width,
                first: first + group * m.n_state,
                width: m.n_state,
            };
            scan::mamba2(
                isa,
                state,
                y,
                Columns::group(ubc, width, head, m.head_dim),
                Columns::group(delta, m.n_head, head, 1),
                shared(n),
                shared(n + m.n_group * m.n_state),
                m.a.values[head],
                m.d.values[head],
            );
        });
        let gate = room(&mut s.gate, len * n);
        self.gate.apply(exec, x, gate);
        math::silu_mul(isa, gate, mixed);
        if let Some(norm) = &m.norm {
            norm::apply(isa, norm, gate);
        }
        self.output.apply(exec, gate, out);
    }
}
