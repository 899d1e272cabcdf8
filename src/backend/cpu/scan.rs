//! Recurrences along a sequence, head by head. A head's state is a matrix with
//! one row for each key (or state) dimension; rows of values lie side by side, so
//! each step is a few passes over contiguous memory and no sum runs across lanes.

use super::exec::Exec;
use super::math::exp32;
use super::scratch::room;
use crate::isa::multiversion;

/// Columns of a row-major matrix: `width` values of each row, from `first` on.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub first: usize,
    pub width: usize,
}

impl<'a> Columns<'a> {
    /// The `i`-th group of `width` columns.
    pub fn group(data: &'a [f32], stride: usize, i: usize, width: usize) -> Self {
        Self {
            data,
            stride,
            first: i * width,
            width,
        }
    }

    #[inline(always)]
    fn row(&self, t: usize) -> &'a [f32] {
        &self.data[t * self.stride + self.first..][..self.width]
    }
}

/// Heads that run side by side.
#[derive(Clone, Copy)]
pub(super) struct Scan {
    pub n_head: usize,
    /// Rows of a head's state, and of whatever else it needs for a step.
    pub n_rows: usize,
    /// Values of a state row and of an output row.
    pub dim: usize,
}

impl Scan {
    /// Calls `f(head, state, outputs)` for every head, on all threads if rows
    /// are spread, with a zero state, and gathers the outputs (`len × dim` each) into the rows
    /// of `out` (`len × n_head·dim`).
    pub fn run(
        &self,
        exec: &Exec,
        buffer: &mut Vec<f32>,
        out: &mut [f32],
        f: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
    ) {
        const ROWS: usize = 64;
        let width = self.n_head * self.dim;
        let len = out.len() / width;
        let n_state = self.n_rows * self.dim;
        let size = n_state + len * self.dim;
        let buffer = room(buffer, self.n_head * size);
        exec.chunks_mut(buffer, size, |first, chunk| {
            for (i, chunk) in chunk.chunks_exact_mut(size).enumerate() {
                let (state, outputs) = chunk.split_at_mut(n_state);
                state.fill(0.0);
                f(first + i, state, outputs);
            }
        });
        let buffer = &*buffer;
        exec.chunks_mut(out, ROWS * width, |first, rows| {
            for (t, row) in (first * ROWS..).zip(rows.chunks_exact_mut(width)) {
                for (head, part) in row.chunks_exact_mut(self.dim).enumerate() {
                    let at = head * size + n_state + t * self.dim;
                    part.copy_from_slice(&buffer[at..][..self.dim]);
                }
            }
        });
    }
}

multiversion! {
    /// Mamba-1, on a block of channels: `a` and the state are `n_state × dim`.
    pub fn mamba1(
        state: &mut [f32],
        y: &mut [f32],
        u: Columns,
        delta: Columns,
        b: Columns,
        c: Columns,
        a: &[f32],
        d: &[f32],
    ) {
        let dim = u.width;
        for (t, y) in y.chunks_exact_mut(dim).enumerate() {
            let (u, delta) = (u.row(t), delta.row(t));
            for ((y, d), u) in y.iter_mut().zip(d).zip(u) {
                *y = d * u;
            }
            let rows = state.chunks_exact_mut(dim).zip(a.chunks_exact(dim));
            for (((s, a), b), c) in rows.zip(b.row(t)).zip(c.row(t)) {
                let channels = s.iter_mut().zip(a).zip(&mut *y).zip(u).zip(delta);
                for ((((s, a), y), u), delta) in channels {
                    *s = b.mul_add(delta * u, *s * exp32(delta * a));
                    *y = s.mul_add(*c, *y);
                }
            }
        }
    }
}

multiversion! {
    /// Mamba-2, one head: `delta` has one column; the state is `n_state × dim`.
    pub fn mamba2(
        state: &mut [f32],
        y: &mut [f32],
        u: Columns,
        delta: Columns,
        b: Columns,
        c: Columns,
        a: f32,
        d: f32,
    ) {
        let dim = u.width;
        for (t, y) in y.chunks_exact_mut(dim).enumerate() {
            let (u, delta) = (u.row(t), delta.row(t)[0]);
            let decay = exp32(delta * a);
            for (y, u) in y.iter_mut().zip(u) {
                *y = d * u;
            }
            for ((s, b), c) in state.chunks_exact_mut(dim).zip(b.row(t)).zip(c.row(t)) {
                let b = delta * b;
                for ((s, y), u) in s.iter_mut().zip(&mut *y).zip(u) {
                    *s = b.mul_add(*u, *s * decay);
                    *y = s.mul_add(*c, *y);
                }
            }
        }
    }
}

multiversion! {
    /// Gated delta net, one head: `log_decay` and `beta` have one column; the
    /// state is `dim × dim`, with one more row for a step's update.
    pub fn delta_net(
        state: &mut [f32],
        y: &mut [f32],
        q: Columns,
        k: Columns,
        v: Columns,
        log_decay: Columns,
        beta: Columns,
    ) {
        let dim = v.width;
        let (state, update) = state.split_at_mut(k.width * dim);
        for (t, y) in y.chunks_exact_mut(dim).enumerate() {
            let decay = exp32(log_decay.row(t)[0]);
            let beta = beta.row(t)[0];
            update.fill(0.0);
            for (s, k) in state.chunks_exact_mut(dim).zip(k.row(t)) {
                for (s, u) in s.iter_mut().zip(&mut *update) {
                    *s *= decay;
                    *u = s.mul_add(*k, *u);
                }
            }
            for (u, v) in update.iter_mut().zip(v.row(t)) {
                *u = beta * (v - *u);
            }
            y.fill(0.0);
            for ((s, k), q) in state.chunks_exact_mut(dim).zip(k.row(t)).zip(q.row(t)) {
                for ((s, u), y) in s.iter_mut().zip(&*update).zip(&mut *y) {
                    *s = k.mul_add(*u, *s);
                    *y = s.mul_add(*q, *y);
                }
            }
        }
    }
}

multiversion! {
    /// RWKV-6, one head; the state is `dim × dim`.
    pub fn rwkv6(
        state: &mut [f32],
        y: &mut [f32],
        r: Columns,
        w: Columns,
        k: Columns,
        v: Columns,
        bonus: &[f32],
    ) {
        let dim = v.width;
        for (t, y) in y.chunks_exact_mut(dim).enumerate() {
            let v = v.row(t);
            y.fill(0.0);
            let rows = state.chunks_exact_mut(dim).zip(bonus);
            for ((((s, bonus), r), w), k) in rows.zip(r.row(t)).zip(w.row(t)).zip(k.row(t)) {
                for ((s, y), v) in s.iter_mut().zip(&mut *y).zip(v) {
                    let kv = k * v;
                    *y = r.mul_add(bonus.mul_add(kv, *s), *y);
                    *s = w.mul_add(*s, kv);
                }
            }
        }
    }
}

multiversion! {
    /// RWKV-7, one head: `removal` is at unit length; the state is `dim × dim`
    /// with a row for each key, and one more row for what a step removes.
    pub fn rwkv7(
        state: &mut [f32],
        y: &mut [f32],
        r: Columns,
        w: Columns,
        k: Columns,
        v: Columns,
        removal: Columns,
        rate: Columns,
    ) {
        let dim = v.width;
        let (state, removed) = state.split_at_mut(k.width * dim);
        for (t, y) in y.chunks_exact_mut(dim).enumerate() {
            let (v, removal) = (v.row(t), removal.row(t));
            removed.fill(0.0);
            for (s, removal) in state.chunks_exact(dim).zip(removal) {
                for (s, x) in s.iter().zip(&mut *removed) {
                    *x = s.mul_add(*removal, *x);
                }
            }
            y.fill(0.0);
            let keys = removal.iter().zip(rate.row(t)).zip(w.row(t)).zip(k.row(t));
            let keys = keys.zip(r.row(t));
            for (s, ((((removal, rate), w), k), r)) in state.chunks_exact_mut(dim).zip(keys) {
                let back = -(removal * rate);
                for (((s, x), v), y) in s.iter_mut().zip(&*removed).zip(v).zip(&mut *y) {
                    *s = w.mul_add(*s, back.mul_add(*x, k * v));
                    *y = s.mul_add(*r, *y);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
