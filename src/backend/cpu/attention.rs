//! Attention with query, key and value projections.

use std::sync::Arc;

use super::heads::attend;
use super::isa::Isa;
use super::rope::RopeTable;
use super::scratch::{Scratch, room};
use super::weights::{LoadedLinear, Source};
use super::{math, norm};
use crate::backend::BackendError;
use crate::model::{Attention, Norm, Temperature};

pub(super) struct LoadedAttention<'m> {
    spec: &'m Attention,
    q: LoadedLinear<'m>,
    k: LoadedLinear<'m>,
    v: LoadedLinear<'m>,
    output: LoadedLinear<'m>,
    gate: Option<LoadedLinear<'m>>,
    rope: Option<Arc<RopeTable>>,
}

impl<'m> LoadedAttention<'m> {
    pub fn load(
        source: Source,
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
        })
    }

    /// `out ← attention(x)` for the rows of one sequence.
    pub fn apply(&self, isa: Isa, spread: bool, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let a = self.spec;
        let len = out.len() / self.output.n_out();
        let q = room(&mut s.q, len * self.q.n_out());
        let k = room(&mut s.k, len * self.k.n_out());
        let v = room(&mut s.v, len * self.v.n_out());
        self.q.apply(isa, spread, x, q);
        self.k.apply(isa, spread, x, k);
        self.v.apply(isa, spread, x, v);
        let norms = a.qk_norm.as_ref();
        let after_rope = norms.is_some_and(|n| n.after_rope);
        self.prepare(isa, q, a.heads.n_head, norms.map(|n| &n.q), after_rope);
        self.prepare(isa, k, a.heads.n_head_kv, norms.map(|n| &n.k), after_rope);
        if let Some(t) = a.temperature {
            let rows = q.chunks_exact_mut(self.q.n_out());
            rows.enumerate()
                .for_each(|(p, row)| math::scale(isa, row, t.at(p)));
        }
        let mixed = room(&mut s.mixed, len * self.output.n_in());
        attend(isa, spread, &a.heads, [q, k, v], &mut s.heads, mixed);
        if let Some(gate) = &self.gate {
            let gates = room(&mut s.gate, mixed.len());
            gate.apply(isa, spread, x, gates);
            math::sigmoid_mul(isa, mixed, gates);
        }
        if let Some(sub_norm) = &a.sub_norm {
            norm::apply(isa, sub_norm, mixed);
        }
        self.output.apply(isa, spread, mixed, out);
    }

    /// Norm and RoPE of query or key heads.
    fn prepare(
        &self,
        isa: Isa,
        xs: &mut [f32],
        n_head: usize,
        norm: Option<&Norm>,
        after_rope: bool,
    ) {
        if let Some(norm) = norm.filter(|_| !after_rope) {
            norm::apply(isa, norm, xs);
        }
        if let Some(rope) = &self.rope {
            let head_dim = self.spec.heads.head_dim;
            rope.apply(isa, xs, n_head * head_dim, head_dim, 0);
        }
        if let Some(norm) = norm.filter(|_| after_rope) {
            norm::apply(isa, norm, xs);
        }
    }
}

impl Temperature {
    /// The factor at a position.
    pub(super) fn at(&self, position: usize) -> f32 {
        let steps = ((position as f32 + self.offset) / self.floor).floor();
        1.0 + self.scale * (steps + 1.0).ln()
    }
}
