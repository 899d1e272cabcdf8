//! Products of quantized weights with activations in 8 bits, as engines compute
//! them that multiply integers: ggml's formulas, see [`Format`].
//!
//! With codes `w` and `x`, group `g` of an output `o` and a row `r` contributes
//!
//! ```text
//! scale[o, g] · scale[r, block of g] · Σ w·x + minimum[o, g] · sum[r, g].
//! ```
//!
//! Sums of a group are exact integers. Groups are added in order, in f32, by the
//! same fused operations in every kernel; so results are the same bits however the
//! work is cut, as in [`super::gemm`].

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use super::gemm::PANEL;
use super::shelf::Reusable;
use crate::gguf::BlockType;
use crate::isa::{Isa, Level};
use crate::quant::{self, IntegerLayout, Minimum, QuantError, Scale};

pub use activations::{Activations, Format};

/// Elements of `k` that meet in one lane of a dot product.
const QUAD: usize = 4;

/// How products with a type of weights run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// How activations are quantized.
    pub format: Format,
    /// How weights are stored as integers.
    pub layout: IntegerLayout,
}

impl Kind {
    /// `None` for types that are not multiplied in integers.
    pub fn of(ty: BlockType) -> Option<Self> {
        Some(Self {
            format: Format::of(ty)?,
            layout: IntegerLayout::of(ty)?,
        })
    }
}

/// How weights of a type are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As integers of this kind.
    Integers(Kind),
    /// Weights that are floats: in f32, see [`super::gemm`].
    F32,
    /// Not at all: ggml has no product for them.
    None,
}

impl Support {
    /// How weights of a block type are multiplied.
    pub fn of(ty: BlockType) -> Self {
        match Kind::of(ty) {
            Some(kind) => Self::Integers(kind),
            None if matches!(ty, BlockType::F32 | BlockType::F16 | BlockType::BF16) => Self::F32,
            None => Self::None,
        }
    }
}

/// A matrix of integers in panels of 32 outputs.
pub struct Panels {
    kind: Kind,
    n_in: usize,
    n_out: usize,
    /// For each panel and each four `k`: four codes of each output, plus 128.
    codes: Vec<u8>,
    /// For each panel and group: a scale for each output; minima likewise.
    scales: Vec<f32>,
    minima: Vec<f32>,
}

/// The part of a matrix that [`Panels::panels_mut`] yields.
pub struct PanelMut<'a> {
    kind: Kind,
    n_in: usize,
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    minima: &'a mut [f32],
}

/// What decoding a row needs.
pub struct RowBuffers {
    codes: Vec<i8>,
    scales: Vec<Scale>,
    minima: Vec<Minimum>,
}

impl Default for Panels {
    /// An empty matrix.
    fn default() -> Self {
        let layout = IntegerLayout {
            group: 32,
            minima: false,
        };
        Self {
            kind: Kind {
                format: Format::Q8_0,
                layout,
            },
            n_in: 0,
            n_out: 0,
            codes: Vec::new(),
            scales: Vec::new(),
            minima: Vec::new(),
        }
    }
}

impl Reusable for Panels {
    fn capacity(&self) -> usize {
        self.codes.capacity()
    }
}

impl Panels {
    /// An all-zero matrix.
    pub fn zeros(kind: Kind, n_in: usize, n_out: usize) -> Self {
        let mut panels = Self::default();
        panels.reset(kind, n_in, n_out);
        panels
    }

    /// A matrix to be filled: reuses the memory of `self`, and holds what that held.
    /// Outputs that do not exist are zero.
    pub fn reset(&mut self, kind: Kind, n_in: usize, n_out: usize) {
        (self.kind, self.n_in, self.n_out) = (kind, n_in, n_out);
        let n_groups = n_in / kind.layout.group;
        let n_minima = if kind.layout.minima { n_groups } else { 0 };
        reset(&mut self.codes, n_in * PANEL, n_out);
        reset(&mut self.scales, n_groups * PANEL, n_out);
        reset(&mut self.minima, n_minima * PANEL, n_out);
    }

    /// Terms of a product: columns.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// Outputs: rows.
    pub fn n_out(&self) -> usize {
        self.n_out
    }

    /// The panels, to be filled.
    pub fn panels_mut(&mut self) -> Vec<PanelMut<'_>> {
        let Self { kind, n_in, .. } = *self;
        let n_groups = n_in / kind.layout.group;
        let mut minima = self.minima.chunks_exact_mut((n_groups * PANEL).max(1));
        let codes = self.codes.chunks_exact_mut((n_in * PANEL).max(1));
        let scales = self.scales.chunks_exact_mut((n_groups * PANEL).max(1));
        let panel = |(codes, scales)| PanelMut {
            kind,
            n_in,
            codes,
            scales,
            minima: minima.next().unwrap_or_default(),
        };
        codes.zip(scales).map(panel).collect()
    }
}

/// Room for the panels of `n_out` outputs, `len` elements each; the last is zero where
/// not all its outputs exist.
fn reset<T: Copy + Default>(panels: &mut Vec<T>, len: usize, n_out: usize) {
    let n = n_out.div_ceil(PANEL) * len;
    panels.resize(n, T::default());
    if !n_out.is_multiple_of(PANEL) {
        panels[n - len..].fill(T::default());
    }
}

impl RowBuffers {
    /// For rows of `n_in` elements.
    pub fn new(kind: Kind, n_in: usize) -> Self {
        Self {
            codes: vec![0; n_in],
            scales: vec![Scale::default(); n_in],
            minima: vec![Minimum::default(); if kind.layout.minima { n_in } else { 0 }],
        }
    }
}

impl PanelMut<'_> {
    /// Fills output `o` of the panel from a row of blocks.
    ///
    /// # Errors
    /// Blocks that do not fit the type or the row's length.
    pub fn fill(
        &mut self,
        isa: Isa,
        ty: BlockType,
        o: usize,
        blocks: &[u8],
        row: &mut RowBuffers,
    ) -> Result<(), QuantError> {
        let RowBuffers {
            codes,
            scales,
            minima,
        } = row;
        quant::decode_integers(isa, ty, blocks, codes, scales, minima)?;
        let quads = codes.as_chunks::<QUAD>().0;
        let lanes = self.codes.as_chunks_mut::<{ PANEL * QUAD }>().0;
        for (quad, lanes) in quads.iter().zip(lanes) {
            let unsigned = quad.map(|c| (c as u8) ^ 0x80);
            lanes[o * QUAD..][..QUAD].copy_from_slice(&unsigned);
        }
        let group = self.kind.layout.group;
        let lanes = self.scales.as_chunks_mut::<PANEL>().0;
        for (scale, lanes) in scales.iter().step_by(group).zip(lanes) {
            lanes[o] = scale.0;
        }
        let lanes = self.minima.as_chunks_mut::<PANEL>().0;
        for (minimum, lanes) in minima.iter().step_by(group).zip(lanes) {
            lanes[o] = minimum.0;
        }
        debug_assert!(quads.len() * QUAD == self.n_in);
        Ok(())
    }
}

/// `out ← x · wᵀ` with `x` quantized; `x` has rows of `w.n_in()` elements, `out` rows
/// of `w.n_out()`.
///
/// # Panics
/// If a slice is too short for the shape.
pub fn multiply(isa: Isa, x: &[f32], w: &Panels, out: &mut [f32]) {
    /// Codes of so many rows stay in the L2 cache with a panel and its outputs.
    const CODES: usize = 1 << 18;
    thread_local! {
        /// Kept from product to product.
        static ACTIVATIONS: RefCell<Activations> = RefCell::default();
    }
    let (n_in, n_out) = (w.n_in, w.n_out);
    if n_in == 0 || n_out == 0 {
        return;
    }
    let rows = (CODES / n_in).max(1).next_multiple_of(MOST_ROWS);
    ACTIVATIONS.with_borrow_mut(|activations| {
        for (x, out) in x.chunks(rows * n_in).zip(out.chunks_mut(rows * n_out)) {
            activations.quantize(isa, w.kind.format, w.kind.layout.group, x, n_in);
            multiply_quantized(isa, activations, w, out);
        }
    });
}

/// As [`multiply`], of rows that [`Activations::quantize`] has made for the format
/// and the groups of `w`.
///
/// # Panics
/// If shapes do not fit each other.
pub fn multiply_quantized(isa: Isa, x: &Activations, w: &Panels, out: &mut [f32]) {
    let (n_in, n_out) = (w.n_in, w.n_out);
    let IntegerLayout { group, minima } = w.kind.layout;
    let (n_groups, n_blocks) = (n_in / group, n_in / w.kind.format.block());
    // Everything that the kernels read and write lies within these bounds.
    assert!(x.codes.len() >= x.n_rows * n_in && x.scales.len() >= x.n_rows * n_blocks);
    assert!(x.starts.len() >= x.n_rows * n_groups && x.sums.len() >= x.n_rows * n_groups);
    assert!(out.len() >= x.n_rows * n_out);
    for panel in 0..n_out.div_ceil(PANEL) {
        let span = n_groups * PANEL;
        let codes = &w.codes[panel * n_in * PANEL..][..n_in * PANEL];
        let scales = &w.scales[panel * span..][..span];
        let minima = match minima {
            true => &w.minima[panel * span..][..span],
            false => &[],
        };
        let width = PANEL.min(n_out - panel * PANEL);
        let whole = Tile {
            kind: w.kind,
            n_groups,
            codes,
            scales,
            minima,
            x_codes: &x.codes,
            x_scales: &x.scales,
            x_starts: &x.starts,
            x_sums: &x.sums,
            n_rows: 0,
        };
        let rows = match isa.level() {
            Level::Portable => 1,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => avx2::ROWS,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => avx512::ROWS,
        };
        for r in (0..x.n_rows).step_by(rows) {
            let tile = Tile {
                x_codes: &x.codes[r * n_in..],
                x_scales: &x.scales[r * n_blocks..],
                x_starts: &x.starts[r * n_groups..],
                x_sums: &x.sums[r * n_groups..],
                n_rows: rows.min(x.n_rows - r),
                ..whole
            };
            let out = &mut out[r * n_out + panel * PANEL..];
            if width == PANEL {
                tile.compute(isa, out, n_out);
                continue;
            }
            let mut panel = [0.0; MOST_ROWS * PANEL];
            tile.compute(isa, &mut panel, PANEL);
            for (i, row) in panel.chunks_exact(PANEL).take(tile.n_rows).enumerate() {
                out[i * n_out..][..width].copy_from_slice(&row[..width]);
            }
        }
    }
}

/// Rows of the largest tile.
const MOST_ROWS: usize = 6;

/// Some rows and one panel.
#[derive(Clone, Copy)]
struct Tile<'a> {
    kind: Kind,
    n_groups: usize,
    codes: &'a [u8],
    scales: &'a [f32],
    minima: &'a [f32],
    x_codes: &'a [i8],
    x_scales: &'a [f32],
    x_starts: &'a [i32],
    x_sums: &'a [f32],
    n_rows: usize,
}

impl Tile<'_> {
    /// Writes 32 columns of each row; rows of `out` are `stride` apart.
    fn compute(&self, isa: Isa, out: &mut [f32], stride: usize) {
        match isa.level() {
            Level::Portable => portable::tile(self, out, stride),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => avx2::tile(isa, self, out, stride),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => avx512::tile(isa, self, out, stride),
        }
    }

    fn n_in(&self) -> usize {
        self.n_groups * self.kind.layout.group
    }

    fn n_blocks(&self) -> usize {
        self.n_in() / self.kind.format.block()
    }

    /// Whether all slices hold what the rows and groups of the tile need.
    #[cfg(target_arch = "x86_64")]
    fn fits(&self, out: &[f32], stride: usize) -> bool {
        let groups = self.n_rows * self.n_groups;
        let minima = self.kind.layout.minima;
        self.codes.len() >= self.n_in() * PANEL
            && self.scales.len() >= self.n_groups * PANEL
            && (!minima || self.minima.len() >= self.n_groups * PANEL)
            && self.x_codes.len() >= self.n_rows * self.n_in()
            && self.x_scales.len() >= self.n_rows * self.n_blocks()
            && self.x_starts.len() >= groups
            && self.x_sums.len() >= groups
            && (self.n_rows == 0 || out.len() >= (self.n_rows - 1) * stride + PANEL)
    }
}

/// Calls `$rows::<ROWS, GROUP, BLOCK, MINIMA>` for a tile's kind and one of the
/// numbers of rows.
#[cfg(target_arch = "x86_64")]
macro_rules! by_kind {
    ($tile:expr, $rows:ident $args:tt, [$($n:literal)*]) => {
        match ($tile.n_rows, $tile.kind.layout.group, $tile.kind.format.block(), $tile.kind.layout.minima) {
            $(
                ($n, 16, 32, false) => $rows::<$n, 16, 32, false>$args,
                ($n, 32, 32, false) => $rows::<$n, 32, 32, false>$args,
                ($n, 32, 32, true) => $rows::<$n, 32, 32, true>$args,
                ($n, 16, 256, false) => $rows::<$n, 16, 256, false>$args,
                ($n, 16, 256, true) => $rows::<$n, 16, 256, true>$args,
                ($n, 32, 256, false) => $rows::<$n, 32, 256, false>$args,
                ($n, 32, 256, true) => $rows::<$n, 32, 256, true>$args,
            )*
            _ => unreachable!("no block type has this layout"),
        }
    };
}
#[cfg(target_arch = "x86_64")]
use by_kind;
