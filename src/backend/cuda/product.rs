//! Products with weights, which are decoded on the way.

use super::blas::Product;
use super::error::CudaError;
use super::ops::{Argument, Grid, Queue, Rows, int, launch};
use super::precision::Precision;
use super::weights::Mat;
use super::workspace::{Buffer, Scope};
use crate::gguf::BlockType;

/// Bytes of a decoded tile of weights, at most (but a row's at least).
const TILE_BYTES: usize = 64 << 20;
/// Threads of a block of our own product.
const THREADS: u32 = 256;

impl Queue<'_> {
    /// `out ← scale · (x · wᵀ)` for `n_rows` rows; `w` is at an address. Weights are decoded in tiles of
    /// output rows; inputs are narrowed where products have 16-bit inputs.
    pub fn multiply(
        &self,
        scope: &Scope,
        w: &Mat,
        x: Rows,
        n_rows: usize,
        out: Rows,
        scale: f32,
    ) -> Result<(), CudaError> {
        assert!(
            n_rows == 0 || (n_rows - 1) * x.stride + w.n_in <= x.data.len,
            "input rows"
        );
        assert!(
            n_rows == 0 || (n_rows - 1) * out.stride + w.n_out <= out.data.len,
            "output rows"
        );
        let scope = scope.scope();
        let (x, x_row) = match self.precision.narrow() {
            false => (x.data.address, x.stride),
            true => {
                let narrowed = scope.buffer::<u16>(n_rows * w.n_in);
                self.narrow(narrowed, x, w.n_in, n_rows)?;
                (narrowed.address, w.n_in)
            }
        };
        let width = self.precision.bytes();
        let as_stored = match self.precision {
            Precision::F32 => w.ty == BlockType::F32,
            Precision::F16 => w.ty == BlockType::F16,
            Precision::Bf16 => w.ty == BlockType::BF16,
        };
        let n_tile = (TILE_BYTES / (w.n_in * width).max(1)).clamp(1, w.n_out.max(1));
        let tile = match as_stored {
            true => None,
            false => Some(scope.buffer::<u8>(n_tile * w.n_in * width)),
        };
        let step = if as_stored { w.n_out } else { n_tile };
        for first in (0..w.n_out).step_by(step.max(1)) {
            let n_out = step.min(w.n_out - first);
            let rows = w.at + (first * w.row_bytes()) as u64;
            let decoded = match tile {
                None => rows,
                Some(tile) => {
                    self.decode(tile, w.ty, rows, n_out * w.n_in)?;
                    tile.address
                }
            };
            self.product(Product {
                precision: self.precision,
                n_rows: int(n_rows),
                n_out: int(n_out),
                n_in: int(w.n_in),
                scale,
                x,
                x_row: int(x_row),
                w: decoded,
                out: out.data.address + (first * size_of::<f32>()) as u64,
                out_row: int(out.stride),
            })?;
        }
        Ok(())
    }

    /// Decodes `n` elements of blocks to the width of products.
    fn decode(
        &self,
        out: Buffer<u8>,
        ty: BlockType,
        blocks: u64,
        n: usize,
    ) -> Result<(), CudaError> {
        let grids = self.codebooks();
        let (number, grid, out, n) = (int(ty.id() as usize), self.each(n), out.address, n as i64);
        match self.precision {
            Precision::F32 => launch!(self, dequantize_f32, grid, out, blocks, number, n, grids),
            Precision::F16 => launch!(self, dequantize_f16, grid, out, blocks, number, n, grids),
            Precision::Bf16 => launch!(self, dequantize_bf16, grid, out, blocks, number, n, grids),
        }
    }

    fn narrow(&self, out: Buffer<u16>, x: Rows, n: usize, n_rows: usize) -> Result<(), CudaError> {
        let (grid, to, from) = (self.each(n * n_rows), out.address, x.data.address);
        let (stride, n, n_rows) = (x.stride as i64, int(n), n_rows as i64);
        match self.precision {
            Precision::Bf16 => launch!(self, narrow_bf16, grid, to, from, stride, n, n_rows),
            Precision::F32 | Precision::F16 => {
                launch!(self, narrow_f16, grid, to, from, stride, n, n_rows)
            }
        }
    }

    fn product(&self, p: Product) -> Result<(), CudaError> {
        const SIDE: u32 = 64;
        let Some(gpu) = self.gpu.filter(|_| p.n_rows > 0) else {
            return Ok(());
        };
        if let Some(blas) = &gpu.blas {
            return blas.multiply(p);
        }
        let tiles = |n: i32| n.unsigned_abs().div_ceil(SIDE);
        let grid = Grid {
            blocks: (tiles(p.n_out), tiles(p.n_rows), 1),
            threads: THREADS,
            shared_bytes: 0,
        };
        let kernel = match p.precision {
            Precision::F32 => &gpu.kernels.multiply_f32,
            Precision::F16 => &gpu.kernels.multiply_f16,
            Precision::Bf16 => &gpu.kernels.multiply_bf16,
        };
        let arguments = [
            p.out.word(),
            i64::from(p.out_row).word(),
            p.x.word(),
            i64::from(p.x_row).word(),
            p.w.word(),
            p.n_rows.word(),
            p.n_out.word(),
            p.n_in.word(),
            p.scale.word(),
        ];
        gpu.launch(kernel, grid, &arguments)
    }
}
