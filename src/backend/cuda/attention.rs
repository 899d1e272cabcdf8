//! Attention with query, key and value projections.

use super::error::CudaError;
use super::linear::{LoadedLinear, LoadedNorm};
use super::ops::{Argument, Grid, Rows, int, launch};
use super::run::Run;
use super::weights::{Packer, Values};
use super::workspace::{Buffer, Scope};
use crate::model::{Attention, Heads, Rope, RopePairs, Span};

pub(super) struct LoadedAttention<'m> {
    spec: &'m Attention,
    q: LoadedLinear,
    k: LoadedLinear,
    v: LoadedLinear,
    output: LoadedLinear,
    norms: Option<(LoadedNorm, LoadedNorm)>,
    gate: Option<LoadedLinear>,
    sub_norm: Option<LoadedNorm>,
    heads: LoadedHeads<'m>,
}

/// The scores and sums of attention.
pub(super) struct LoadedHeads<'m> {
    spec: &'m Heads,
    sinks: Option<Values>,
}

impl<'m> LoadedHeads<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Heads) -> Result<Self, CudaError> {
        /// 16 sums of this width are in shared memory beside the kernel's tiles.
        const WIDEST: usize = 592;
        if spec.head_dim_v > WIDEST {
            let why = format!("value heads of {} are wider than {WIDEST}", spec.head_dim_v);
            return Err(CudaError::Unsupported("attention", why));
        }
        Ok(Self {
            spec,
            sinks: spec.sinks.as_ref().map(|s| packer.vector(s)),
        })
    }

    /// `mixed ← softmax(scale · q·kᵀ) · v` for every head.
    pub fn attend(
        &self,
        run: &Run,
        [q, k, v]: [Buffer; 3],
        mixed: Buffer,
    ) -> Result<(), CudaError> {
        const THREADS: u32 = 128;
        const QUERIES: usize = 16;
        let h = self.spec;
        let (span, span_n) = match h.span {
            Span::All => (0, 0),
            Span::Window(n) => (1, int(n)),
            Span::Chunk(n) => (2, int(n)),
        };
        let grid = Grid {
            blocks: (
                int(run.batch.tiles.len / 3).unsigned_abs(),
                int(h.n_head).unsigned_abs(),
                1,
            ),
            threads: THREADS,
            shared_bytes: int(QUERIES * h.head_dim_v * size_of::<f32>()).unsigned_abs(),
        };
        let sinks = self
            .sinks
            .map_or(0, |s| run.q.values(run.weights, s).address);
        launch!(
            run.q,
            attend,
            grid,
            mixed.address,
            q.address,
            k.address,
            v.address,
            sinks,
            run.batch.tiles.address,
            int(h.n_head),
            int(h.n_head_kv),
            int(h.head_dim),
            int(h.head_dim_v),
            h.scale,
            h.softcap.unwrap_or(0.0),
            span,
            span_n,
        )
    }
}

/// Turns heads of `head_dim` values from element `at` on.
pub(super) fn rotate(
    run: &Run,
    rope: &Rope,
    x: Rows,
    n_head: usize,
    head_dim: usize,
    at: usize,
) -> Result<(), CudaError> {
    let [cosines, sines] = run.batch.rope(rope);
    let (n_rows, n_pairs) = (run.batch.n_rows, rope.n_pairs());
    launch!(
        run.q,
        rotate,
        run.q.each(n_rows * n_head * n_pairs),
        x.data.address,
        x.stride as i64,
        int(head_dim),
        int(at),
        int(n_head),
        cosines.address,
        sines.address,
        run.batch.positions.address,
        int(n_pairs),
        i32::from(rope.pairs == RopePairs::Adjacent),
        n_rows as i64,
    )
}

impl<'m> LoadedAttention<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Attention) -> Result<Self, CudaError> {
        let mut linear = |l| LoadedLinear::pack(packer, l);
        let (q, k, v) = (linear(&spec.q), linear(&spec.k), linear(&spec.v));
        let output = linear(&spec.output);
        let gate = spec.gate.as_ref().map(&mut linear);
        let mut norm = |n| LoadedNorm::pack(packer, n);
        let norms = spec.qk_norm.as_ref().map(|n| (norm(&n.q), norm(&n.k)));
        let sub_norm = spec.sub_norm.as_ref().map(&mut norm);
        Ok(Self {
            spec,
            q,
            k,
            v,
            output,
            norms,
            gate,
            sub_norm,
            heads: LoadedHeads::pack(packer, &spec.heads)?,
        })
    }

    /// `out ← attention(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let (a, rows) = (self.spec, run.batch.n_rows);
        let project = |linear: &LoadedLinear, to| run.linear(scope, linear, x, to);
        let q = scope.buffer(rows * self.q.n_out());
        let k = scope.buffer(rows * self.k.n_out());
        let v = scope.buffer(rows * self.v.n_out());
        project(&self.q, q)?;
        project(&self.k, k)?;
        project(&self.v, v)?;
        let norms = self.norms.as_ref();
        self.prepare(run, q, a.heads.n_head, norms.map(|n| &n.0))?;
        self.prepare(run, k, a.heads.n_head_kv, norms.map(|n| &n.1))?;
        if let Some(t) = a.temperature {
            let (factors, positions) = (run.batch.temperature(t), Some(run.batch.positions));
            run.q.scale_rows(q, factors, positions, self.q.n_out())?;
        }
        let mixed = scope.buffer(rows * self.output.n_in());
        self.heads.attend(run, [q, k, v], mixed)?;
        if let Some(gate) = &self.gate {
            let gates = scope.buffer(mixed.len);
            project(gate, gates)?;
            run.q.sigmoid_gate(mixed, gates)?;
        }
        if let Some(norm) = &self.sub_norm {
            run.norm(norm, mixed, mixed)?;
        }
        run.linear(scope, &self.output, mixed, out)
    }

    /// Norm and RoPE of query or key heads.
    fn prepare(
        &self,
        run: &Run,
        x: Buffer,
        n_head: usize,
        norm: Option<&LoadedNorm>,
    ) -> Result<(), CudaError> {
        let after_rope = self.spec.qk_norm.as_ref().is_some_and(|n| n.after_rope);
        if let Some(norm) = norm.filter(|_| !after_rope) {
            run.norm(norm, x, x)?;
        }
        if let Some(rope) = &self.spec.rope {
            let head_dim = self.spec.heads.head_dim;
            rotate(
                run,
                rope,
                Rows::dense(x, n_head * head_dim),
                n_head,
                head_dim,
                0,
            )?;
        }
        match norm.filter(|_| after_rope) {
            Some(norm) => run.norm(norm, x, x),
            None => Ok(()),
        }
    }
}
