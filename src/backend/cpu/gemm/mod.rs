//! f32 matrix products against packed panels.
//!
//! `out[r, o] = Σ_k x[r, k] · w[o, k]`. Every element is summed in one order
//! that does not depend on the shape, the tiling, the threads or the instruction
//! set: fused multiply-adds over blocks of `K_BLOCK` consecutive `k` from 0,
//! the blocks' sums added in order. So results are the same bits however the
//! work is cut.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;
mod wide;

use std::cell::RefCell;

use bytemuck::Zeroable;
use rayon::prelude::*;

use super::shelf::Reusable;
use crate::isa::{Isa, Level};

pub use wide::multiply_wide;

/// Columns (outputs) in a panel.
pub const PANEL: usize = 32;
/// Terms that are summed before they join the total; short sums round less.
const K_BLOCK: usize = 16;

/// A matrix in panels: panel `p` holds, for each `k`, the elements of the
/// outputs `[32p, 32p + 32)`; outputs beyond `n_out` are zero.
#[derive(Default)]
pub struct Packed {
    n_in: usize,
    n_out: usize,
    /// Whether the panels begin with the last `k`.
    descending: bool,
    data: Vec<Lanes>,
}

/// One `k` of a panel. Aligned, so that no load of a register crosses cache lines.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Lanes([f32; PANEL]);

impl Reusable for Packed {
    fn capacity(&self) -> usize {
        self.data.capacity() * PANEL
    }
}

impl Packed {
    /// A matrix to be filled: reuses the memory of `self`, and holds what that held.
    /// Outputs that do not exist are zero.
    pub fn reset(&mut self, n_in: usize, n_out: usize) {
        self.n_in = n_in;
        self.n_out = n_out;
        self.descending = false;
        let n = n_in * n_out.div_ceil(PANEL);
        self.data.resize(n, Lanes::zeroed());
        if !n_out.is_multiple_of(PANEL) {
            self.data[n - n_in..].fill(Lanes::zeroed());
        }
    }

    /// A matrix of zeros, to be packed into.
    pub fn zeros(n_in: usize, n_out: usize) -> Self {
        let mut packed = Self::default();
        packed.reset(n_in, n_out);
        packed
    }

    /// Terms of a product: columns.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// Outputs: rows.
    pub fn n_out(&self) -> usize {
        self.n_out
    }

    /// Has products with it sum their terms from the other end: the same elements,
    /// rounded elsewhere.
    pub fn reverse_terms(&mut self) {
        self.descending = !self.descending;
        let len = self.n_in.max(1);
        self.data.chunks_exact_mut(len).for_each(<[_]>::reverse);
    }

    /// The panels, to be filled; each is `n_in × 32`.
    pub fn panels_mut(&mut self) -> impl IndexedParallelIterator<Item = &mut [f32]> {
        let len = (self.n_in * PANEL).max(1);
        self.elements_mut().par_chunks_exact_mut(len)
    }

    /// As [`Self::panels_mut`], for one thread.
    pub fn panels_mut_serial(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let len = (self.n_in * PANEL).max(1);
        self.elements_mut().chunks_exact_mut(len)
    }

    fn elements(&self) -> &[f32] {
        bytemuck::cast_slice(&self.data)
    }

    fn elements_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.data)
    }
}

/// Fills a panel from rows of outputs: `rows` holds up to 32 rows, `stride`
/// apart, of `n_in` elements.
pub fn pack_rows(panel: &mut [f32], rows: &[f32], stride: usize, n_in: usize) {
    let n_rows = rows.len().div_ceil(stride.max(1)).min(PANEL);
    for (k, lane) in panel.as_chunks_mut::<PANEL>().0[..n_in]
        .iter_mut()
        .enumerate()
    {
        for (r, x) in lane[..n_rows].iter_mut().enumerate() {
            *x = rows[r * stride + k];
        }
    }
}

/// The operands of a product: rows of `x`, `x_stride` apart, against `w`.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// Rows of inputs, `x_stride` apart.
    pub x: &'a [f32],
    /// From row to row of `x`, in values.
    pub x_stride: usize,
    /// Rows of `x`.
    pub n_rows: usize,
    /// What they are multiplied with.
    pub w: &'a Packed,
    /// The terms to sum: `x`'s columns `0..` meet `w`'s `k` in this range.
    pub k: (usize, usize),
    /// The panels to compute.
    pub panels: (usize, usize),
}

impl<'a> Product<'a> {
    /// All of `x · wᵀ`, rows without gaps.
    pub fn full(x: &'a [f32], n_rows: usize, w: &'a Packed) -> Self {
        Product {
            x,
            x_stride: w.n_in,
            n_rows,
            w,
            k: (0, w.n_in),
            panels: (0, w.n_out.div_ceil(PANEL)),
        }
    }
}

/// Computes a product into `out`, whose rows are `out_stride` apart and begin
/// with the first output of the first panel.
///
/// # Panics
/// If a slice is too short for the shape.
pub fn multiply(isa: Isa, p: Product, out: &mut [f32], out_stride: usize) {
    if !p.w.descending {
        return multiply_in_order(isa, p, out, out_stride);
    }
    let (n_k, n_in) = (p.k.1 - p.k.0, p.w.n_in);
    with_rows_reversed(p.x, p.x_stride, p.n_rows, n_k, |x| {
        let k = (n_in - p.k.1, n_in - p.k.0);
        let product = Product {
            x,
            x_stride: n_k,
            k,
            ..p
        };
        multiply_in_order(isa, product, out, out_stride);
    });
}

/// Calls `f` with a copy of the first `n` columns of rows `stride` apart, the last
/// column first and without gaps.
fn with_rows_reversed(x: &[f32], stride: usize, n_rows: usize, n: usize, f: impl FnOnce(&[f32])) {
    thread_local! {
        /// Kept from product to product.
        static REVERSED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    }
    REVERSED.with_borrow_mut(|reversed| {
        reversed.clear();
        for row in x.chunks(stride.max(1)).take(n_rows) {
            reversed.extend(row[..n].iter().rev());
        }
        f(reversed);
    });
}

/// [`multiply`], the terms in the order in which the panels hold them.
fn multiply_in_order(isa: Isa, p: Product, out: &mut [f32], out_stride: usize) {
    let n_k = p.k.1 - p.k.0;
    let first_out = p.panels.0 * PANEL;
    let n_cols = (p.panels.1 * PANEL).min(p.w.n_out) - first_out.min(p.w.n_out);
    if p.n_rows == 0 || n_cols == 0 {
        return;
    }
    // Everything that the kernels read and write lies within these bounds.
    assert!(p.k.1 <= p.w.n_in && n_cols <= out_stride);
    assert!(p.x.len() >= (p.n_rows - 1) * p.x_stride + n_k);
    assert!(out.len() >= (p.n_rows - 1) * out_stride + n_cols);
    let cut = Cut::of(n_k);
    for panels in runs(p.panels.0, p.panels.1, cut.panels) {
        for (row, to) in runs(0, p.n_rows, cut.rows) {
            for k in runs(p.k.0, p.k.1, cut.terms) {
                let part = Product {
                    x: &p.x[row * p.x_stride + (k.0 - p.k.0)..],
                    n_rows: to - row,
                    k,
                    panels,
                    ..p
                };
                let col = (panels.0 - p.panels.0) * PANEL;
                let out = &mut out[row * out_stride + col..];
                multiply_part(isa, part, k.0 > p.k.0, out, out_stride);
            }
        }
    }
}

/// How a product is cut so that what it reads again and again is in a cache. The
/// cuts change no bit: totals go on where the terms before have left them.
struct Cut {
    /// Terms whose rows and panels stay in the L2 cache; whole blocks of them.
    terms: usize,
    /// Rows that meet the panels one after the other: whole tiles of all kernels.
    rows: usize,
    /// Panels that stay in the L3 cache while the rows pass.
    panels: usize,
}

impl Cut {
    fn of(n_k: usize) -> Self {
        const ROW_BYTES: usize = 384 << 10;
        const PANEL_BYTES: usize = 8 << 20;
        const MOST_TERMS: usize = 2048;
        const TILES: usize = 7 * 3;
        let runs = n_k.div_ceil(MOST_TERMS).max(1);
        let terms = n_k.div_ceil(runs).next_multiple_of(K_BLOCK).max(K_BLOCK);
        Self {
            terms,
            rows: (ROW_BYTES / (terms * TILES * size_of::<f32>())).max(2) * TILES,
            panels: (PANEL_BYTES / (n_k.max(1) * PANEL * size_of::<f32>())).max(1),
        }
    }
}

/// Cuts a range into runs of at most `most`.
fn runs(from: usize, to: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (from..to)
        .step_by(most)
        .map(move |start| (start, (start + most).min(to)))
}

/// A part of a product, whose first output is the first of `out`; it `adds` to the
/// totals there.
fn multiply_part(isa: Isa, p: Product, adds: bool, out: &mut [f32], out_stride: usize) {
    /// Rows from which on it pays to fetch a panel ahead.
    const AHEAD_ROWS: usize = 32;
    let n_k = p.k.1 - p.k.0;
    let terms = |panel: usize| {
        let start = (panel * p.w.n_in + p.k.0) * PANEL;
        &p.w.elements()[start..start + n_k * PANEL]
    };
    for panel in p.panels.0..p.panels.1 {
        // After the last panel the next rows begin with the first.
        let next = match panel + 1 < p.panels.1 {
            true => panel + 1,
            false => p.panels.0,
        };
        let ahead = match p.n_rows >= AHEAD_ROWS {
            true => terms(next),
            false => &[],
        };
        let width = PANEL.min(p.w.n_out - panel * PANEL);
        let tile = Tile {
            x: p.x,
            x_stride: p.x_stride,
            n_rows: p.n_rows,
            w: terms(panel),
            adds,
            ahead,
            lines: 0,
        };
        let out = &mut out[(panel - p.panels.0) * PANEL..];
        match isa.level() {
            Level::Portable => portable::panel(tile, out, out_stride, width),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => in_tiles(
                tile,
                avx2::ROWS,
                out,
                out_stride,
                width,
                |t, out, stride| {
                    avx2::tile(isa, t, out, stride);
                },
            ),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Vnni => in_tiles(
                tile,
                avx512::ROWS,
                out,
                out_stride,
                width,
                |t, out, stride| {
                    avx512::tile(isa, t, out, stride);
                },
            ),
        }
    }
}

/// One panel's share of a product; `w` holds the terms to sum.
#[derive(Clone, Copy)]
struct Tile<'a> {
    x: &'a [f32],
    x_stride: usize,
    n_rows: usize,
    w: &'a [f32],
    /// Whether the totals begin with what is in the output.
    adds: bool,
    /// What will be read next, to be fetched into the L2 cache meanwhile.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    ahead: &'a [f32],
    /// How many cache lines of it in each block of terms.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    lines: usize,
}

/// Cuts a panel's share into even runs of at most `rows` rows for a kernel that
/// always writes whole panels; the columns beyond `width` are dropped.
#[cfg(target_arch = "x86_64")]
fn in_tiles(
    t: Tile,
    rows: usize,
    out: &mut [f32],
    out_stride: usize,
    width: usize,
    kernel: impl Fn(Tile, &mut [f32], usize),
) {
    const MOST_ROWS: usize = 16;
    debug_assert!(rows <= MOST_ROWS);
    let n = t.n_rows.div_ceil(rows);
    let (size, longer) = (t.n_rows / n, t.n_rows % n);
    let n_blocks = t.n_k().div_ceil(K_BLOCK).max(1);
    let lines = t.ahead.len().div_ceil(LINE * n_blocks * n);
    let mut r = 0;
    for i in 0..n {
        let fetched = (i * lines * n_blocks * LINE).min(t.ahead.len());
        let part = Tile {
            x: &t.x[r * t.x_stride..],
            n_rows: size + usize::from(i < longer),
            ahead: &t.ahead[fetched..],
            lines,
            ..t
        };
        let out = &mut out[r * out_stride..];
        r += part.n_rows;
        if width == PANEL {
            kernel(part, out, out_stride);
            continue;
        }
        let mut whole = [0.0f32; MOST_ROWS * PANEL];
        if t.adds {
            for (i, row) in whole.chunks_exact_mut(PANEL).take(part.n_rows).enumerate() {
                row[..width].copy_from_slice(&out[i * out_stride..][..width]);
            }
        }
        kernel(part, &mut whole, PANEL);
        for (i, row) in whole.chunks_exact(PANEL).take(part.n_rows).enumerate() {
            out[i * out_stride..][..width].copy_from_slice(&row[..width]);
        }
    }
}

/// Elements in a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 16;

impl Tile<'_> {
    fn n_k(&self) -> usize {
        self.w.len() / PANEL
    }
}
