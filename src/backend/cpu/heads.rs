//! The scores and sums of causal attention over one sequence, in blocks of
//! queries: keys that no query of a block sees are never touched.

use rayon::prelude::*;

use super::exec::Exec;
use super::gemm::{self, PANEL, Packed, Product};
use super::math;
use super::scratch::{HeadScratch, room};
use crate::backend::{Storage, SumOrder, Variation};
use crate::isa::Isa;
use crate::model::Heads;

/// Queries in a block, which meet the same keys; a multiple of the kernels' row tiles.
const QUERIES: usize = 28;

/// `mixed ← softmax(scale · q·kᵀ) · v` for every head. Rows are positions; `q`
/// rows hold `n_head × head_dim` values, `k` rows `n_head_kv × head_dim`, `v`
/// rows `n_head_kv × head_dim_v`, `mixed` rows `n_head × head_dim_v`. The rows of
/// `k` and `v` begin at position 0, those of `q` and `mixed` at `first`. The scale
/// is taken into `q`.
pub(super) fn attend(
    exec: &Exec,
    heads: &Heads,
    variation: Variation,
    [q, k, v]: [&mut [f32]; 3],
    first: usize,
    s: &mut HeadScratch,
    mixed: &mut [f32],
) {
    let (h, isa) = (heads, exec.isa);
    if variation.kv == Storage::F16 {
        math::round_to_f16(isa, k);
        math::round_to_f16(isa, v);
    }
    if variation.attention == Storage::F16 {
        math::round_to_f16(isa, q);
    }
    math::scale(isa, q, h.scale);
    let (q, k, v) = (&*q, &*k, &*v);
    let len = k.len() / (h.n_head_kv * h.head_dim);
    s.keys.resize_with(h.n_head_kv, Packed::default);
    s.values.resize_with(h.n_head_kv, Packed::default);
    let pack = |(head, (keys, values)): (usize, (&mut Packed, &mut Packed))| {
        pack_keys(keys, k, len, h.n_head_kv, head, h.head_dim);
        pack_values(values, v, len, h.n_head_kv, head, h.head_dim_v);
        if variation.order == SumOrder::Descending {
            keys.reverse_terms();
            values.reverse_terms();
        }
    };
    if exec.spread {
        let both = s.keys.par_iter_mut().zip(&mut s.values);
        both.enumerate().for_each(pack);
    } else {
        let both = s.keys.iter_mut().zip(&mut s.values);
        both.take(h.n_head_kv).enumerate().for_each(pack);
    }

    let width = h.n_head * h.head_dim_v;
    let (keys, values) = (&s.keys, &s.values);
    let run = |scores: &mut Vec<f32>, i: usize, mixed: &mut [f32]| {
        for head in 0..h.n_head {
            let kv = head / (h.n_head / h.n_head_kv);
            let one = OneHead {
                heads: h,
                storage: variation.attention,
                q,
                first,
                head,
                keys: &keys[kv],
                values: &values[kv],
            };
            one.block(isa, i * QUERIES, scores, mixed);
        }
    };
    if exec.spread {
        mixed
            .par_chunks_mut(QUERIES * width)
            .enumerate()
            .for_each_init(Vec::new, |scores, (i, mixed)| run(scores, i, mixed));
    } else {
        for (i, mixed) in mixed.chunks_mut(QUERIES * width).enumerate() {
            run(&mut s.scores, i, mixed);
        }
    }
}

struct OneHead<'a> {
    heads: &'a Heads,
    /// Of the softmax's numerators.
    storage: Storage,
    q: &'a [f32],
    /// Position of its first row.
    first: usize,
    head: usize,
    keys: &'a Packed,
    values: &'a Packed,
}

impl OneHead<'_> {
    /// The queries in as many rows as `mixed` has, from `row` on.
    fn block(&self, isa: Isa, row: usize, scores: &mut Vec<f32>, mixed: &mut [f32]) {
        let (h, head) = (self.heads, self.head);
        let (q_stride, stride) = (h.n_head * h.head_dim, h.n_head * h.head_dim_v);
        let n_rows = mixed.len() / stride;
        let first = self.first + row;
        // Keys from the panel in which the first query's begin, to the last query.
        let start = h.visible(first).start / PANEL * PANEL;
        let end = first + n_rows;
        let width = (end - start).next_multiple_of(PANEL);
        let scores = room(scores, n_rows * width);
        let product = Product {
            x: &self.q[row * q_stride + head * h.head_dim..],
            x_stride: q_stride,
            n_rows,
            w: self.keys,
            k: (0, h.head_dim),
            panels: (start / PANEL, end.div_ceil(PANEL)),
        };
        gemm::multiply(isa, product, scores, width);

        let sink = h
            .sinks
            .as_ref()
            .map_or(f32::NEG_INFINITY, |s| s.values[head]);
        let mut inverse_sums = [0.0f32; QUERIES];
        for (r, row) in scores.chunks_exact_mut(width).enumerate() {
            let visible = h.visible(first + r);
            let (from, to) = (visible.start - start, visible.end - start);
            row[..from].fill(0.0);
            row[to..].fill(0.0);
            if let Some(cap) = h.softcap {
                math::softcap(isa, &mut row[from..to], cap);
            }
            inverse_sums[r] = math::softmax_numerators(isa, &mut row[from..to], sink);
            if self.storage == Storage::F16 {
                math::round_to_f16(isa, &mut row[from..to]);
            }
        }
        let product = Product {
            x: scores,
            x_stride: width,
            n_rows,
            w: self.values,
            k: (start, end),
            panels: (0, h.head_dim_v.div_ceil(PANEL)),
        };
        gemm::multiply(isa, product, &mut mixed[head * h.head_dim_v..], stride);
        for (row, inverse) in mixed.chunks_exact_mut(stride).zip(inverse_sums) {
            math::scale(
                isa,
                &mut row[head * h.head_dim_v..][..h.head_dim_v],
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
