//! Attention with query, key and value projections.

use std::sync::Arc;

use super::exec::Exec;
use super::heads::attend;
use super::rope::RopeTable;
use super::scratch::{Scratch, room};
use super::times::Part;
use super::weights::{LoadedLinear, Source};
use super::{math, norm};
use crate::backend::{BackendError, Variation};
use crate::isa::Isa;
use crate::model::{Attention, Norm};

pub(super) struct LoadedAttention<'m> {
    spec: &'m Attention,
    q: LoadedLinear<'m>,
    k: LoadedLinear<'m>,
    v: LoadedLinear<'m>,
    output: LoadedLinear<'m>,
    gate: Option<LoadedLinear<'m>>,
    rope: Option<Arc<RopeTable>>,
    variation: Variation,
}

impl<'m> LoadedAttention<'m> {
    pub fn load(
        source: Source<'m>,
        spec: &'m Attention,
        rope: Option<Arc<RopeTable>>,
    ) -> Result<Self, BackendError> {
        let gate = spec.gate.as_ref().map(|g| LoadedLinear::load(source, g));
        Ok(Self {
            spec,
            q: LoadedLinear::load(source, &spec.q)?,
            k: LoadedLinear::load(source, &spec.k)?,
            v: LoadedLinear::load(source, &spec.v)?,
            output: LoadedLinear::load(source, &spec.output)?,
            gate: gate.transpose()?,
            rope,
            variation: source.variation,
        })
    }

    /// `out ← attention(x)` for the rows of one sequence; the rows of `out` begin
    /// at position `first`, those of `x` at 0.
    pub fn apply(&self, exec: &Exec, x: &[f32], first: usize, s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let a = self.spec;
        let len = x.len() / self.k.n_in();
        let n_queries = len - first;
        let x_queries = &x[first * self.q.n_in()..];
        let q = room(&mut s.q, n_queries * self.q.n_out());
        let k = room(&mut s.k, len * self.k.n_out());
        let v = room(&mut s.v, len * self.v.n_out());
        self.q.apply(exec, x_queries, q);
        self.k.apply(exec, x, k);
        self.v.apply(exec, x, v);
        s.clock.lap(Part::Projections);
        let norms = a.qk_norm.as_ref();
        let after_rope = norms.is_some_and(|n| n.after_rope);
        let (q_norm, k_norm) = (norms.map(|n| &n.q), norms.map(|n| &n.k));
        self.prepare(isa, q, first, a.heads.n_head, q_norm, after_rope);
        self.prepare(isa, k, 0, a.heads.n_head_kv, k_norm, after_rope);
        if let Some(t) = a.temperature {
            let rows = q.chunks_exact_mut(self.q.n_out());
            rows.zip(first..)
                .for_each(|(row, p)| math::scale(isa, row, t.at(p)));
        }
        let mixed = room(&mut s.mixed, n_queries * self.output.n_in());
        attend(
            exec,
            &a.heads,
            self.variation,
            [q, k, v],
            first,
            &mut s.heads,
            mixed,
        );
        s.clock.lap(Part::Attention);
        if let Some(gate) = &self.gate {
            let gates = room(&mut s.gate, mixed.len());
            gate.apply(exec, x_queries, gates);
            math::sigmoid_mul(isa, mixed, gates);
        }
        if let Some(sub_norm) = &a.sub_norm {
            norm::apply(isa, sub_norm, mixed);
        }
        self.output.apply(exec, mixed, out);
        s.clock.lap(Part::Projections);
    }

    /// Norm and RoPE of query or key heads, in rows from position `first` on.
    fn prepare(
        &self,
        isa: Isa,
        xs: &mut [f32],
        first: usize,
        n_head: usize,
        norm: Option<&Norm>,
        after_rope: bool,
    ) {
        if let Some(norm) = norm.filter(|_| !after_rope) {
            norm::apply(isa, norm, xs);
        }
        if let Some(rope) = &self.rope {
            let head_dim = self.spec.heads.head_dim;
            rope.apply(isa, xs, first, n_head * head_dim, head_dim, 0);
        }
        if let Some(norm) = norm.filter(|_| after_rope) {
            norm::apply(isa, norm, xs);
        }
    }
}
