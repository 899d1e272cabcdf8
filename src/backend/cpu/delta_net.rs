//! Gated delta nets.

use super::conv::LoadedConv;
use super::exec::Exec;
use super::scan::{self, Columns, Scan};
use super::scratch::{Scratch, room};
use super::weights::{LoadedLinear, Source};
use super::{math, norm};
use crate::backend::BackendError;
use crate::model::{DeltaNet, HeadSharing};

pub(super) struct LoadedDeltaNet<'m> {
    spec: &'m DeltaNet,
    /// Queries, keys and values.
    qkv: [(LoadedLinear<'m>, LoadedConv<'m>); 3],
    alpha: LoadedLinear<'m>,
    beta: LoadedLinear<'m>,
    gate: LoadedLinear<'m>,
    output: LoadedLinear<'m>,
}

impl<'m> LoadedDeltaNet<'m> {
    pub fn load(source: Source<'m>, spec: &'m DeltaNet) -> Result<Self, BackendError> {
        let load = |linear| LoadedLinear::load(source, linear);
        Ok(Self {
            spec,
            qkv: [
                (load(&spec.q)?, LoadedConv::load(&spec.q_conv)),
                (load(&spec.k)?, LoadedConv::load(&spec.k_conv)),
                (load(&spec.v)?, LoadedConv::load(&spec.v_conv)),
            ],
            alpha: load(&spec.alpha)?,
            beta: load(&spec.beta)?,
            gate: load(&spec.gate)?,
            output: load(&spec.output)?,
        })
    }

    /// `out ← delta_net(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let m = self.spec;
        let dim = m.head_dim;
        let len = out.len() / self.output.n_out();
        let parts = self.qkv.iter().zip([&mut s.q, &mut s.k, &mut s.v]);
        for ((linear, conv), buffer) in parts {
            let raw = room(&mut s.raw, len * linear.n_out());
            let part = room(buffer, len * linear.n_out());
            // Where a query is nearly orthogonal to the keys so far, the norm behind
            // the recurrence magnifies what these products have lost.
            linear.apply_wide(exec, x, raw);
            conv.apply(exec, raw, part);
            math::silu(isa, part);
        }
        let (n_k, n_v) = (m.n_k_head * dim, m.n_v_head * dim);
        let (q, k) = (&mut s.q[..len * n_k], &mut s.k[..len * n_k]);
        math::unit_length(isa, q, dim, m.length_eps, 0.0);
        math::unit_length(isa, k, dim, m.length_eps, 0.0);
        math::scale(isa, q, 1.0 / (dim as f32).sqrt());
        let log_decay = room(&mut s.decay, len * m.n_v_head);
        self.alpha.apply(exec, x, log_decay);
        math::softplus(isa, log_decay);
        math::mul_rows(isa, log_decay, &m.a.values);
        let beta = room(&mut s.rate, len * m.n_v_head);
        self.beta.apply(exec, x, beta);
        math::sigmoid_in_place(isa, beta);

        let (q, k, v) = (&*q, &*k, &s.v[..len * n_v]);
        let (log_decay, beta) = (&*log_decay, &*beta);
        let scan = Scan {
            n_head: m.n_v_head,
            n_rows: dim + 1,
            dim,
        };
        let mixed = room(&mut s.mixed, len * n_v);
        scan.run(exec, &mut s.scan, mixed, |head, state, y| {
            let k_head = match m.sharing {
                HeadSharing::Cyclic => head % m.n_k_head,
                HeadSharing::Blocks => head / (m.n_v_head / m.n_k_head),
            };
            scan::delta_net(
                isa,
                state,
                y,
                Columns::group(q, n_k, k_head, dim),
                Columns::group(k, n_k, k_head, dim),
                Columns::group(v, n_v, head, dim),
                Columns::group(log_decay, m.n_v_head, head, 1),
                Columns::group(beta, m.n_v_head, head, 1),
            );
        });
        norm::apply(isa, &m.norm, mixed);
        let gate = room(&mut s.gate, len * n_v);
        self.gate.apply(exec, x, gate);
        math::silu_mul(isa, gate, mixed);
        self.output.apply(exec, gate, out);
    }
}
