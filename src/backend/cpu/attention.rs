//! Causal attention over one sequence, in blocks of queries: keys that no query
//! of a block sees are never touched.

use std::sync::Arc;

use rayon::prelude::*;

use super::gemm::{self, PANEL, Packed, Product};
use super::isa::Isa;
use super::math;
use super::rope::RopeTable;
use super::scratch::{Scratch, room};
use super::weights::LoadedLinear;
use crate::backend::BackendError;
use crate::gguf::Gguf;
use crate::model::{Attention, Norm};

/// Queries in a block; a multiple of the kernels' row tiles.
const QUERIES: usize = 56;

pub(super) struct LoadedAttention<'m> {
    spec: &'m Attention,
    q: LoadedLinear<'m>,
    k: LoadedLinear<'m>,
    v: LoadedLinear<'m>,
    output: LoadedLinear<'m>,
    rope: Option<Arc<RopeTable>>,
}

impl<'m> LoadedAttention<'m> {
    pub fn load(
        gguf: &Gguf,
        spec: &'m Attention,
        rope: Option<Arc<RopeTable>>,
    ) -> Result<Self, BackendError> {
        Ok(Self {
            spec,
            q: LoadedLinear::load(gguf, &spec.q)?,
            k: LoadedLinear::load(gguf, &spec.k)?,
            v: LoadedLinear::load(gguf, &spec.v)?,
            output: LoadedLinear::load(gguf, &spec.output)?,
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
        self.prepare(isa, q, a.n_head, a.q_norm.as_ref());
        self.prepare(isa, k, a.n_head_kv, a.k_norm.as_ref());
        math::scale(isa, q, a.scale);

        s.keys.resize_with(a.n_head_kv, Packed::default);
        s.values.resize_with(a.n_head_kv, Packed::default);
        let pack = |(h, (keys, values)): (usize, (&mut Packed, &mut Packed))| {
            pack_keys(keys, k, len, a.n_head_kv, h, a.head_dim);
            pack_values(values, v, len, a.n_head_kv, h, a.head_dim_v);
        };
        if spread {
            let both = s.keys.par_iter_mut().zip(&mut s.values);
            both.enumerate().for_each(pack);
        } else {
            s.keys
                .iter_mut()
                .zip(&mut s.values)
                .enumerate()
                .for_each(pack);
        }

        let width = a.n_head * a.head_dim_v;
        let mixed = room(&mut s.mixed, len * width);
        let (keys, values) = (&s.keys, &s.values);
        let block = |scores: &mut Vec<f32>, i: usize, mixed: &mut [f32]| {
            for head in 0..a.n_head {
                let kv = head / (a.n_head / a.n_head_kv);
                let first = i * QUERIES;
                self.block(isa, q, first, head, &keys[kv], &values[kv], scores, mixed);
            }
        };
        if spread {
            mixed
                .par_chunks_mut(QUERIES * width)
                .enumerate()
                .for_each_init(Vec::new, |scores, (i, mixed)| block(scores, i, mixed));
        } else {
            for (i, mixed) in mixed.chunks_mut(QUERIES * width).enumerate() {
                block(&mut s.scores, i, mixed);
            }
        }
        self.output.apply(isa, spread, mixed, out);
    }

    /// Norm and RoPE of query or key heads.
    fn prepare(&self, isa: Isa, xs: &mut [f32], n_head: usize, norm: Option<&Norm>) {
        if let Some(norm) = norm {
            math::rms_norm_in_place(isa, xs, &norm.weight.values, norm.eps);
        }
        if let Some(rope) = &self.rope {
            rope.apply(isa, xs, n_head, self.spec.head_dim);
        }
    }

    /// One head for the queries `first..first + rows of mixed`.
    #[allow(clippy::too_many_arguments)]
    fn block(
        &self,
        isa: Isa,
        q: &[f32],
        first: usize,
        head: usize,
        keys: &Packed,
        values: &Packed,
        scores: &mut Vec<f32>,
        mixed: &mut [f32],
    ) {
        let a = self.spec;
        let (q_stride, stride) = (a.n_head * a.head_dim, a.n_head * a.head_dim_v);
        let n_rows = mixed.len() / stride;
        // Keys from the panel in which the first query's begin, to the last query.
        let start = a.visible(first).start / PANEL * PANEL;
        let end = first + n_rows;
        let width = (end - start).next_multiple_of(PANEL);
        let scores = room(scores, n_rows * width);
        let product = Product {
            x: &q[first * q_stride + head * a.head_dim..],
            x_stride: q_stride,
            n_rows,
            w: keys,
            k: (0, a.head_dim),
            panels: (start / PANEL, end.div_ceil(PANEL)),
        };
        gemm::multiply(isa, product, scores, width);

        let mut inverse_sums = [0.0f32; QUERIES];
        for (r, row) in scores.chunks_exact_mut(width).enumerate() {
            let visible = a.visible(first + r);
            let (from, to) = (visible.start - start, visible.end - start);
            row[..from].fill(0.0);
            row[to..].fill(0.0);
            if let Some(cap) = a.softcap {
                math::softcap(isa, &mut row[from..to], cap);
            }
            inverse_sums[r] = math::softmax_numerators(isa, &mut row[from..to]);
        }
        let product = Product {
            x: scores,
            x_stride: width,
            n_rows,
            w: values,
            k: (start, end),
            panels: (0, a.head_dim_v.div_ceil(PANEL)),
        };
        gemm::multiply(isa, product, &mut mixed[head * a.head_dim_v..], stride);
        for (row, inverse) in mixed.chunks_exact_mut(stride).zip(inverse_sums) {
            math::scale(
                isa,
                &mut row[head * a.head_dim_v..][..a.head_dim_v],
                inverse,
            );
        }
    }
}

/// Keys of one head as the outputs of a product: `n_in` is the head's width.
fn pack_keys(keys: &mut Packed, k: &[f32], len: usize, n_head: usize, h: usize, head_dim: usize) {
    let stride = n_head * head_dim;
    keys.reset(head_dim, len);
    for (panel, rows) in keys.panels_mut_serial().zip(k.chunks(PANEL * stride)) {
        // The last row ends with this head.
        let rows = &rows[h * head_dim..rows.len() - (n_head - 1 - h) * head_dim];
        gemm::pack_rows(panel, rows, stride, head_dim);
    }
}

/// Values of one head as the terms of a product: `n_in` is the sequence's length.
fn pack_values(
    values: &mut Packed,
    v: &[f32],
    len: usize,
    n_head: usize,
    h: usize,
    head_dim: usize,
) {
    values.reset(len, head_dim);
    for (p, panel) in values.panels_mut_serial().enumerate() {
        let width = PANEL.min(head_dim - p * PANEL);
        let rows = v.chunks_exact(n_head * head_dim);
        for (lane, row) in panel.as_chunks_mut::<PANEL>().0.iter_mut().zip(rows) {
            let from = h * head_dim + p * PANEL;
            lane[..width].copy_from_slice(&row[from..from + width]);
        }
    }
}
