//! A layer's weights, decoded and packed for a product kernel: to f32, or to
//! integers where numerics and block type say so. Those of layers that would take
//! much memory in f32 stay in their blocks, and each product decodes one panel
//! after the other.

use rayon::prelude::*;

use super::exec::Exec;
use super::gemm::{self, PANEL, Packed, Product};
use super::math;
use super::numerics::NAME;
use super::q8::{self, Support};
use super::shelf::{Shelf, Shelved};
use crate::backend::{BackendError, Numerics, SumOrder, Variation};
use crate::gguf::Gguf;
use crate::isa::Isa;
use crate::model::{Linear, Matrix};
use crate::quant;

/// Memory of a model's decoded weights and of a batch's rows.
#[derive(Default)]
pub(super) struct Shelves {
    f32: Shelf<Packed>,
    integers: Shelf<q8::Panels>,
    /// Rows of hidden states.
    pub rows: Shelf<Vec<f32>>,
}

/// Decoding a layer once for all windows of a batch is a few percent faster than
/// once for each; beyond this it is not worth the memory.
pub(super) const LAYER_BYTES: usize = 256 << 20;

/// What becomes of the file's pages that have been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residency {
    /// They stay mapped, as long as the system likes.
    Mapped,
    /// They are released.
    Streamed,
}

/// Where weights come from, and what becomes of them.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub gguf: &'a Gguf,
    /// Where decoded weights get their memory.
    pub shelves: &'a Shelves,
    pub isa: Isa,
    pub numerics: Numerics,
    pub variation: Variation,
    /// Whether weights in f32 are decoded anew for every product.
    pub panel_by_panel: bool,
}

impl Source<'_> {
    /// How a matrix is multiplied in integers; `None` for in f32.
    fn support(self, matrix: &Matrix) -> Result<Option<q8::Kind>, BackendError> {
        match (self.numerics, Support::of(matrix.ty)) {
            (Numerics::Exact, _) | (Numerics::Q8, Support::F32) => Ok(None),
            (Numerics::Q8, Support::Integers(kind)) => Ok(Some(kind)),
            (Numerics::Q8, Support::None) => Err(BackendError::NoIntegerProduct(matrix.ty)),
            (numerics @ (Numerics::F16 | Numerics::Bf16), _) => Err(BackendError::Numerics {
                numerics,
                device: NAME,
            }),
        }
    }

    /// Puts a matrix's terms in the order in which they are to be summed.
    fn order(self, packed: &mut Packed) {
        if self.variation.order == SumOrder::Descending {
            packed.reverse_terms();
        }
    }
}

/// A loaded matrix.
pub(super) enum Weight<'m> {
    F32(Shelved<'m, Packed>),
    Integers(Shelved<'m, q8::Panels>),
    Blocks(Blocks<'m>),
}

impl<'m> Weight<'m> {
    /// Decodes a matrix into panels, on all threads, if it is not to stay as it is.
    pub fn load(source: Source<'m>, matrix: &'m Matrix) -> Result<Self, BackendError> {
        match source.panel_by_panel && source.support(matrix)?.is_none() {
            true => Ok(Self::Blocks(Blocks::new(source, matrix)?)),
            false => Self::decode(source, matrix),
        }
    }

    /// Decodes a matrix into panels, on all threads.
    pub fn decode(source: Source<'m>, matrix: &Matrix) -> Result<Self, BackendError> {
        Ok(match source.support(matrix)? {
            None => Self::F32(packed(source, matrix)?),
            Some(kind) => Self::Integers(integers(source, matrix, kind)?),
        })
    }

    /// Decodes the rows `ids` of a matrix into panels, on one thread.
    pub fn gather(
        source: Source<'m>,
        matrix: &Matrix,
        ids: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Self, BackendError> {
        let n_in = matrix.n_in;
        let blocks = matrix.data(source.gguf);
        let ids: Vec<usize> = ids.collect();
        Ok(match source.support(matrix)? {
            None => {
                let mut rows = vec![0.0f32; PANEL * n_in];
                let mut packed = Packed::zeros(n_in, ids.len());
                for (panel, ids) in packed.panels_mut_serial().zip(ids.chunks(PANEL)) {
                    let blocks = ids.iter().map(|&id| blocks.row(id));
                    decode_panel(matrix, blocks, &mut rows, panel)?;
                }
                source.order(&mut packed);
                Self::F32(packed.into())
            }
            Some(kind) => {
                let mut panels = q8::Panels::zeros(kind, n_in, ids.len());
                let mut row = q8::RowBuffers::new(kind, n_in);
                for (mut panel, ids) in panels.panels_mut().into_iter().zip(ids.chunks(PANEL)) {
                    for (o, &id) in ids.iter().enumerate() {
                        panel.fill(source.isa, matrix.ty, o, blocks.row(id), &mut row)?;
                    }
                }
                Self::Integers(panels.into())
            }
        })
    }

    pub fn n_in(&self) -> usize {
        match self {
            Self::F32(w) => w.n_in(),
            Self::Integers(w) => w.n_in(),
            Self::Blocks(w) => w.matrix.n_in,
        }
    }

    pub fn n_out(&self) -> usize {
        match self {
            Self::F32(w) => w.n_out(),
            Self::Integers(w) => w.n_out(),
            Self::Blocks(w) => w.matrix.n_out,
        }
    }

    /// `out ← x · wᵀ` for the rows of `x`.
    pub fn multiply(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        match self {
            Self::F32(w) => {
                let n_rows = out.len() / w.n_out();
                gemm::multiply(isa, Product::full(x, n_rows, w), out, w.n_out());
            }
            Self::Integers(w) => q8::multiply(isa, x, w, out),
            Self::Blocks(w) => w.each_panel(|panel, col| {
                let n_out = w.matrix.n_out;
                let product = Product::full(x, out.len() / n_out, panel);
                gemm::multiply(isa, product, &mut out[col..], n_out);
            }),
        }
    }

    /// As [`Self::multiply`]; products in f32 are summed in f64, see
    /// [`gemm::multiply_wide`].
    pub fn multiply_wide(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        match self {
            Self::F32(w) => gemm::multiply_wide(isa, x, w, out, w.n_out()),
            Self::Integers(w) => q8::multiply(isa, x, w, out),
            Self::Blocks(w) => w.each_panel(|panel, col| {
                gemm::multiply_wide(isa, x, panel, &mut out[col..], w.matrix.n_out);
            }),
        }
    }
}

/// A matrix as it is stored.
pub(super) struct Blocks<'m> {
    source: Source<'m>,
    matrix: &'m Matrix,
}

impl<'m> Blocks<'m> {
    fn new(source: Source<'m>, matrix: &'m Matrix) -> Result<Self, BackendError> {
        // What cannot be decoded shows now.
        if matrix.n_out > 0 {
            let first = matrix.data(source.gguf).row(0);
            quant::dequantize(matrix.ty, first, &mut vec![0.0; matrix.n_in])?;
        }
        Ok(Self { source, matrix })
    }

    /// Calls `f` with each panel and its first output.
    fn each_panel(&self, mut f: impl FnMut(&Packed, usize)) {
        let (n_in, n_out) = (self.matrix.n_in, self.matrix.n_out);
        let blocks = self.matrix.data(self.source.gguf);
        let mut rows = vec![0.0f32; PANEL * n_in];
        let mut packed = Packed::default();
        for first in (0..n_out).step_by(PANEL) {
            let n_rows = PANEL.min(n_out - first);
            packed.reset(n_in, n_rows);
            for panel in packed.panels_mut_serial() {
                let blocks = (first..first + n_rows).map(|i| blocks.row(i));
                if decode_panel(self.matrix, blocks, &mut rows, panel).is_err() {
                    // `new` has tried the type; this would end the run.
                    panel.fill(f32::NAN);
                }
            }
            self.source.order(&mut packed);
            f(&packed, first);
        }
    }
}

/// Panels of a matrix's outputs.
fn n_panels(matrix: &Matrix) -> usize {
    matrix.n_out.div_ceil(PANEL)
}

fn packed<'a>(source: Source<'a>, matrix: &Matrix) -> Result<Shelved<'a, Packed>, BackendError> {
    let n_in = matrix.n_in;
    let blocks = matrix.data(source.gguf);
    let mut packed = source.shelves.f32.take(n_panels(matrix) * PANEL * n_in);
    packed.reset(n_in, matrix.n_out);
    packed.panels_mut().enumerate().try_for_each_init(
        || vec![0.0f32; PANEL * n_in],
        |rows, (p, panel)| {
            let last = matrix.n_out.min((p + 1) * PANEL);
            let blocks = (p * PANEL..last).map(|i| blocks.row(i));
            decode_panel(matrix, blocks, rows, panel)
        },
    )?;
    source.order(&mut packed);
    Ok(packed)
}

/// Decodes up to a panel's worth of a matrix's rows into `panel`, by way of `rows`.
fn decode_panel<'b>(
    matrix: &Matrix,
    blocks: impl Iterator<Item = &'b [u8]>,
    rows: &mut [f32],
    panel: &mut [f32],
) -> Result<(), BackendError> {
    let n_in = matrix.n_in;
    let mut n_rows = 0;
    for (row, blocks) in rows.chunks_exact_mut(n_in).zip(blocks) {
        quant::dequantize(matrix.ty, blocks, row)?;
        n_rows += 1;
    }
    gemm::pack_rows(panel, &rows[..n_rows * n_in], n_in, n_in);
    Ok(())
}

fn integers<'a>(
    source: Source<'a>,
    matrix: &Matrix,
    kind: q8::Kind,
) -> Result<Shelved<'a, q8::Panels>, BackendError> {
    let n_in = matrix.n_in;
    let blocks = matrix.data(source.gguf);
    let mut panels = source
        .shelves
        .integers
        .take(n_panels(matrix) * PANEL * n_in);
    panels.reset(kind, n_in, matrix.n_out);
    panels
        .panels_mut()
        .into_par_iter()
        .enumerate()
        .try_for_each_init(
            || q8::RowBuffers::new(kind, n_in),
            |row, (p, mut panel)| {
                for o in 0..PANEL.min(matrix.n_out - p * PANEL) {
                    let blocks = blocks.row(p * PANEL + o);
                    panel.fill(source.isa, matrix.ty, o, blocks, row)?;
                }
                Ok::<(), BackendError>(())
            },
        )?;
    Ok(panels)
}

/// A loaded matrix with its bias.
pub(super) struct LoadedLinear<'m> {
    weight: Weight<'m>,
    bias: Option<&'m [f32]>,
    scale: f32,
}

impl<'m> LoadedLinear<'m> {
    pub fn load(source: Source<'m>, linear: &'m Linear) -> Result<Self, BackendError> {
        Ok(Self {
            weight: Weight::load(source, &linear.weight)?,
            bias: linear.bias.as_ref().map(|b| b.values.as_slice()),
            scale: linear.scale,
        })
    }

    pub fn n_in(&self) -> usize {
        self.weight.n_in()
    }

    pub fn n_out(&self) -> usize {
        self.weight.n_out()
    }

    /// `out ← scale · (x · wᵀ) + b` for the rows of `x`; on all threads if rows are spread.
    pub fn apply(&self, exec: &Exec, x: &[f32], out: &mut [f32]) {
        self.apply_with(exec, x, out, Weight::multiply);
    }

    /// As [`Self::apply`]; products in f32 are summed in f64.
    pub fn apply_wide(&self, exec: &Exec, x: &[f32], out: &mut [f32]) {
        self.apply_with(exec, x, out, Weight::multiply_wide);
    }

    fn apply_with(
        &self,
        exec: &Exec,
        x: &[f32],
        out: &mut [f32],
        multiply: impl Fn(&Weight<'m>, Isa, &[f32], &mut [f32]) + Sync,
    ) {
        let isa = exec.isa;
        /// Enough rows to reuse a panel, few enough to share out.
        const ROWS: usize = 112;
        let (n_in, n_out) = (self.n_in(), self.n_out());
        let rows = match self.weight {
            // As few times as can be.
            Weight::Blocks(_) => (out.len() / n_out).div_ceil(rayon::current_num_threads()),
            _ => ROWS,
        };
        exec.chunks_mut(out, rows.max(1) * n_out, |i, out| {
            let n_rows = out.len() / n_out;
            let x = &x[i * rows * n_in..][..n_rows * n_in];
            multiply(&self.weight, isa, x, out);
            if self.scale != 1.0 {
                math::scale(isa, out, self.scale);
            }
            if let Some(bias) = self.bias {
                math::add_bias(isa, out, bias);
            }
        });
    }
}
