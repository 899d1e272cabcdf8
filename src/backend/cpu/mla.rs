//! Multi-head latent attention, over latents or over whole heads.

use std::sync::Arc;

use super::exec::Exec;
use super::heads::attend;
use super::rope::RopeTable;
use super::scratch::{Scratch, room};
use super::times::Part;
use super::weights::{LoadedLinear, Source};
use super::{math, norm};
use crate::backend::{BackendError, Variation};
use crate::model::{Linear, Mla, MlaKv, MlaQuery, Norm};

enum LoadedQuery<'m> {
    Direct(LoadedLinear<'m>),
    LowRank(LoadedLinear<'m>, &'m Norm, LoadedLinear<'m>),
}

// A few values a layer: boxes would only cost readers.
#[allow(clippy::large_enum_variant)]
enum LoadedKv<'m> {
    Absorbed {
        k: Vec<LoadedLinear<'m>>,
        v: Vec<LoadedLinear<'m>>,
    },
    Expanded {
        k: LoadedLinear<'m>,
        v: LoadedLinear<'m>,
    },
}

pub(super) struct LoadedMla<'m> {
    spec: &'m Mla,
    query: LoadedQuery<'m>,
    kv_a: LoadedLinear<'m>,
    kv: LoadedKv<'m>,
    output: LoadedLinear<'m>,
    rope: Arc<RopeTable>,
    variation: Variation,
}

impl<'m> LoadedMla<'m> {
    pub fn load(
        source: Source<'m>,
        spec: &'m Mla,
        rope: Arc<RopeTable>,
    ) -> Result<Self, BackendError> {
        let load = |l: &'m Linear| LoadedLinear::load(source, l);
        let all = |ls: &'m [Linear]| ls.iter().map(load).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            spec,
            query: match &spec.query {
                MlaQuery::Direct(q) => LoadedQuery::Direct(load(q)?),
                MlaQuery::LowRank { a, norm, b } => LoadedQuery::LowRank(load(a)?, norm, load(b)?),
            },
            kv_a: load(&spec.kv_a)?,
            kv: match &spec.kv {
                MlaKv::Absorbed { k, v } => LoadedKv::Absorbed {
                    k: all(k)?,
                    v: all(v)?,
                },
                MlaKv::Expanded { k, v } => LoadedKv::Expanded {
                    k: load(k)?,
                    v: load(v)?,
                },
            },
            output: load(&spec.output)?,
            rope,
            variation: source.variation,
        })
    }

    /// `out ← attention(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let m = self.spec;
        let len = out.len() / self.output.n_out();
        let (n_head, n_rot) = (m.heads.n_head, 2 * m.rope.n_pairs());
        let width = m.n_nope + n_rot;

        // Queries: heads of `n_nope + n_rot`, the latter with RoPE.
        let raw = room(&mut s.gate, len * n_head * width);
        match &self.query {
            LoadedQuery::Direct(q) => q.apply(exec, x, raw),
            LoadedQuery::LowRank(a, q_norm, b) => {
                let low = room(&mut s.up, len * a.n_out());
                a.apply(exec, x, low);
                norm::apply(isa, q_norm, low);
                b.apply(exec, low, raw);
            }
        }
        self.rope
            .apply(isa, raw, 0, n_head * width, width, m.n_nope);
        if let Some(t) = m.temperature {
            let rows = raw.chunks_exact_mut(n_head * width);
            rows.enumerate()
                .for_each(|(p, row)| math::scale(isa, row, t.at(p)));
        }

        // The latent, normed, and the shared RoPE key behind it.
        let lora = m.kv_norm.width;
        let kv_a = room(&mut s.mixed, len * (lora + n_rot));
        self.kv_a.apply(exec, x, kv_a);
        self.rope
            .apply(isa, kv_a, 0, lora + n_rot, lora + n_rot, lora);
        let latents = room(&mut s.up, len * lora);
        for (latent, row) in latents
            .chunks_exact_mut(lora)
            .zip(kv_a.chunks_exact_mut(lora + n_rot))
        {
            norm::apply(isa, &m.kv_norm, &mut row[..lora]);
            latent.copy_from_slice(&row[..lora]);
        }
        let h = &m.heads;
        let q = room(&mut s.q, len * n_head * h.head_dim);
        let k = room(&mut s.k, len * h.n_head_kv * h.head_dim);
        let v = room(&mut s.v, len * h.n_head_kv * h.head_dim_v);
        match &self.kv {
            LoadedKv::Absorbed { k: maps, .. } => {
                for (head, map) in maps.iter().enumerate() {
                    let nope = gather(raw, n_head * width, head * width, m.n_nope);
                    let mut mapped = vec![0.0; len * lora];
                    map.apply(exec, &nope, &mut mapped);
                    scatter(&mapped, lora, q, n_head * h.head_dim, head * h.head_dim);
                    let rot = gather(raw, n_head * width, head * width + m.n_nope, n_rot);
                    scatter(
                        &rot,
                        n_rot,
                        q,
                        n_head * h.head_dim,
                        head * h.head_dim + lora,
                    );
                }
                k.copy_from_slice(kv_a);
                v.copy_from_slice(latents);
            }
            LoadedKv::Expanded { k: to_k, v: to_v } => {
                q.copy_from_slice(raw);
                let mut nope = vec![0.0; len * n_head * m.n_nope];
                to_k.apply(exec, latents, &mut nope);
                let rot = gather(kv_a, lora + n_rot, lora, n_rot);
                for head in 0..n_head {
                    let part = gather(&nope, n_head * m.n_nope, head * m.n_nope, m.n_nope);
                    scatter(&part, m.n_nope, k, n_head * width, head * width);
                    scatter(&rot, n_rot, k, n_head * width, head * width + m.n_nope);
                }
                to_v.apply(exec, latents, v);
            }
        }
        let mixed = room(&mut s.mixed, len * n_head * h.head_dim_v);
        s.clock.lap(Part::Projections);
        attend(exec, h, self.variation, [q, k, v], 0, &mut s.heads, mixed);
        s.clock.lap(Part::Attention);
        match &self.kv {
            LoadedKv::Expanded { .. } => self.output.apply(exec, mixed, out),
            LoadedKv::Absorbed { v: maps, .. } => {
                let values = room(&mut s.gate, len * self.output.n_in());
                for (head, map) in maps.iter().enumerate() {
                    let sum = gather(mixed, n_head * lora, head * lora, lora);
                    let mut value = vec![0.0; len * map.n_out()];
                    map.apply(exec, &sum, &mut value);
                    let n = map.n_out();
                    scatter(&value, n, values, n_head * n, head * n);
                }
                self.output.apply(exec, values, out);
            }
        }
    }
}

/// `n` columns of rows `stride` apart, from column `at`.
fn gather(rows: &[f32], stride: usize, at: usize, n: usize) -> Vec<f32> {
    let columns = rows.chunks_exact(stride).map(|row| &row[at..at + n]);
    columns.flatten().copied().collect()
}

/// Writes rows of `n` columns into rows `stride` apart, at column `at`.
fn scatter(from: &[f32], n: usize, rows: &mut [f32], stride: usize, at: usize) {
    for (row, part) in rows.chunks_exact_mut(stride).zip(from.chunks_exact(n)) {
        row[at..at + n].copy_from_slice(part);
    }
}
