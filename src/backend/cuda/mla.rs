//! Multi-head latent attention, over latents or over whole heads.

use super::attention::{LoadedHeads, rotate};
use super::error::CudaError;
use super::linear::{LoadedLinear, LoadedNorm};
use super::ops::Rows;
use super::run::Run;
use super::weights::Packer;
use super::workspace::{Buffer, Scope};
use crate::model::{Linear, Mla, MlaKv, MlaQuery};

enum LoadedQuery {
    Direct(LoadedLinear),
    LowRank(LoadedLinear, LoadedNorm, LoadedLinear),
}

enum LoadedKv {
    Absorbed {
        k: Vec<LoadedLinear>,
        v: Vec<LoadedLinear>,
    },
    Expanded {
        k: LoadedLinear,
        v: LoadedLinear,
    },
}

pub(super) struct LoadedMla<'m> {
    spec: &'m Mla,
    query: LoadedQuery,
    kv_a: LoadedLinear,
    kv_norm: LoadedNorm,
    kv: LoadedKv,
    output: LoadedLinear,
    heads: LoadedHeads<'m>,
}

impl<'m> LoadedMla<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Mla) -> Result<Self, CudaError> {
        let query = match &spec.query {
            MlaQuery::Direct(q) => LoadedQuery::Direct(LoadedLinear::pack(packer, q)),
            MlaQuery::LowRank { a, norm, b } => LoadedQuery::LowRank(
                LoadedLinear::pack(packer, a),
                LoadedNorm::pack(packer, norm),
                LoadedLinear::pack(packer, b),
            ),
        };
        let mut all = |ls: &[Linear]| ls.iter().map(|l| LoadedLinear::pack(packer, l)).collect();
        let kv = match &spec.kv {
            MlaKv::Absorbed { k, v } => LoadedKv::Absorbed {
                k: all(k),
                v: all(v),
            },
            MlaKv::Expanded { k, v } => LoadedKv::Expanded {
                k: LoadedLinear::pack(packer, k),
                v: LoadedLinear::pack(packer, v),
            },
        };
        Ok(Self {
            spec,
            query,
            kv_a: LoadedLinear::pack(packer, &spec.kv_a),
            kv_norm: LoadedNorm::pack(packer, &spec.kv_norm),
            kv,
            output: LoadedLinear::pack(packer, &spec.output),
            heads: LoadedHeads::pack(packer, &spec.heads)?,
        })
    }

    /// `out ← attention(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let (m, h, len) = (self.spec, &self.spec.heads, run.batch.n_rows);
        let (n_head, n_rot) = (h.n_head, 2 * m.rope.n_pairs());
        let width = m.n_nope + n_rot;

        // Queries: heads of `n_nope + n_rot`, the latter with RoPE.
        let raw = scope.buffer(len * n_head * width);
        match &self.query {
            LoadedQuery::Direct(q) => run.linear(scope, q, x, raw)?,
            LoadedQuery::LowRank(a, norm, b) => {
                let low = scope.buffer(len * a.n_out());
                run.linear(scope, a, x, low)?;
                run.norm(norm, low, low)?;
                run.linear(scope, b, low, raw)?;
            }
        }
        let raw_rows = Rows::dense(raw, n_head * width);
        rotate(run, &m.rope, raw_rows, n_head, width, m.n_nope)?;
        if let Some(t) = m.temperature {
            let (factors, positions) = (run.batch.temperature(t), Some(run.batch.positions));
            run.q.scale_rows(raw, factors, positions, n_head * width)?;
        }

        // The latent, normed, and the shared RoPE key behind it.
        let lora = m.kv_norm.width;
        let kv_a = scope.buffer(len * (lora + n_rot));
        run.linear(scope, &self.kv_a, x, kv_a)?;
        let kv_rows = Rows::dense(kv_a, lora + n_rot);
        rotate(run, &m.rope, kv_rows, 1, lora + n_rot, lora)?;
        self.kv_norm
            .apply_strided(run.q, run.weights, kv_rows, kv_rows, len)?;
        let latents = scope.buffer(len * lora);
        let latent_rows = Rows::dense(latents, lora);
        run.q
            .copy_columns(latent_rows.every(0), kv_rows.every(0), len, 1, lora)?;

        let mixed = scope.buffer(len * n_head * h.head_dim_v);
        match &self.kv {
            LoadedKv::Absorbed {
                k: to_latent,
                v: to_value,
            } => {
                let q = scope.buffer(len * n_head * h.head_dim);
                let q_rows = Rows::dense(q, n_head * h.head_dim);
                for (head, map) in to_latent.iter().enumerate() {
                    let nope = raw_rows.from(head * width);
                    let to = q_rows.from(head * h.head_dim);
                    map.apply_strided(run.q, scope, run.weights, nope, len, to)?;
                }
                run.q.copy_columns(
                    q_rows.from(lora).every(h.head_dim),
                    raw_rows.from(m.n_nope).every(width),
                    len,
                    n_head,
                    n_rot,
                )?;
                self.heads.attend(run, [q, kv_a, latents], mixed)?;
                let values = scope.buffer(len * self.output.n_in());
                let value_rows = Rows::dense(values, self.output.n_in());
                let mixed_rows = Rows::dense(mixed, n_head * lora);
                for (head, map) in to_value.iter().enumerate() {
                    let sums = mixed_rows.from(head * lora);
                    let to = value_rows.from(head * map.n_out());
                    map.apply_strided(run.q, scope, run.weights, sums, len, to)?;
                }
                run.linear(scope, &self.output, values, out)
            }
            LoadedKv::Expanded {
                k: to_key,
                v: to_value,
            } => {
                let nope = scope.buffer(len * n_head * m.n_nope);
                run.linear(scope, to_key, latents, nope)?;
                let k = scope.buffer(len * n_head * width);
                let k_rows = Rows::dense(k, n_head * width);
                run.q.copy_columns(
                    k_rows.every(width),
                    Rows::dense(nope, n_head * m.n_nope).every(m.n_nope),
                    len,
                    n_head,
                    m.n_nope,
                )?;
                // One RoPE key for all heads.
                run.q.copy_columns(
                    k_rows.from(m.n_nope).every(width),
                    kv_rows.from(lora).every(0),
                    len,
                    n_head,
                    n_rot,
                )?;
                let v = scope.buffer(len * h.n_head_kv * h.head_dim_v);
                run.linear(scope, to_value, latents, v)?;
                self.heads.attend(run, [raw, k, v], mixed)?;
                run.linear(scope, &self.output, mixed, out)
            }
        }
    }
}
