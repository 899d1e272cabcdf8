//! Kernels as functions of buffers, queued in order on the compute stream.

use super::error::CudaError;
use super::gpu::Gpu;
pub(super) use super::gpu::{Argument, Grid};
use super::precision::Precision;
use super::weights::Values;
use super::workspace::{Buffer, Workspace};
use crate::model::Activation;

/// Work for a device, or for none: then nothing is queued, and only the sizes of
/// workspaces are found.
pub(super) struct Queue<'g> {
    pub gpu: Option<&'g Gpu>,
    pub precision: Precision,
}

/// Where layers or a head are run.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub q: &'p Queue<'p>,
    pub workspace: &'p Workspace,
    /// Where the allocation with their weights begins.
    pub weights: u64,
}

/// Columns of rows that come in groups, `step` apart.
#[derive(Clone, Copy)]
pub(super) struct Groups<'s> {
    pub rows: Rows<'s>,
    pub step: usize,
}

/// How runs of `width` values are normalized; weight and bias are as long as a run or
/// as several that differ.
#[derive(Clone, Copy)]
pub(super) struct Normalization<'s> {
    pub scaling: Scaling,
    pub eps: f32,
    pub width: usize,
    pub weight: Option<Buffer<'s>>,
    pub bias: Option<Buffer<'s>>,
}

/// Rows of values, `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'s> {
    pub data: Buffer<'s>,
    pub stride: usize,
}

impl<'s> Rows<'s> {
    /// Rows side by side.
    pub fn dense(data: Buffer<'s>, width: usize) -> Self {
        Self {
            data,
            stride: width,
        }
    }

    /// The rows' columns in groups that are `step` apart.
    pub fn every(self, step: usize) -> Groups<'s> {
        Groups { rows: self, step }
    }

    /// The rows' columns from `at` on.
    pub fn from(self, at: usize) -> Self {
        Self {
            data: self.data.part(at, self.data.len.saturating_sub(at)),
            ..self
        }
    }
}

/// Functions of one value, by their numbers in `elementwise.cu`.
#[derive(Clone, Copy)]
pub(super) enum Function {
    Sigmoid,
    Softplus,
    Tanh,
    /// `e^(a · e^x)`.
    ExpScaledExp(f32),
    /// `e^(a · σ(x))`.
    ExpScaledSigmoid(f32),
}

/// How a run of values is normalized, by its number in `norm.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scaling {
    Rms,
    Layer,
    /// To unit length, the length being at least `floor`.
    Length {
        floor: f32,
    },
}

/// Threads of a block.
const THREADS: u32 = 256;
const LANES: u32 = 32;
/// Queues a kernel where there is a device.
macro_rules! launch {
    ($queue:expr, $kernel:ident, $grid:expr, $($argument:expr),* $(,)?) => {
        match $queue.gpu {
            None => Ok(()),
            Some(gpu) => {
                let arguments = [$(Argument::word($argument)),*];
                gpu.launch(&gpu.kernels.$kernel, $grid, &arguments)
            }
        }
    };
}
pub(super) use launch;

/// An activation's number in `elementwise.cu`, and its parameters.
fn numbered(activation: Activation) -> (i32, [f32; 4]) {
    match activation {
        Activation::Silu => (0, [0.0; 4]),
        Activation::GeluTanh => (1, [0.0; 4]),
        Activation::ReluSquared => (2, [0.0; 4]),
        Activation::ClampedSwiglu => (3, [0.0; 4]),
        Activation::Xielu(a) => (4, [a.positive, a.negative, a.beta, a.eps]),
    }
}

/// A size as the kernels take it. Sizes of models and batches are far below.
pub(super) fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

impl Queue<'_> {
    /// A grid for kernels that run over `n` elements.
    pub fn each(&self, n: usize) -> Grid {
        const BLOCKS_EACH: usize = 32;
        let most = self.gpu.map_or(1, |g| g.n_multiprocessors as usize) * BLOCKS_EACH;
        let blocks = n.div_ceil(THREADS as usize).clamp(1, most);
        Grid {
            blocks: (int(blocks).unsigned_abs(), 1, 1),
            threads: THREADS,
            shared_bytes: 0,
        }
    }

    /// A grid for kernels that give each of `n` runs a warp.
    pub fn warps(&self, n: usize) -> Grid {
        const WARPS: u32 = 4;
        Grid {
            blocks: (int(n.div_ceil(WARPS as usize).max(1)).unsigned_abs(), 1, 1),
            threads: WARPS * LANES,
            shared_bytes: 0,
        }
    }

    pub fn upload<T: bytemuck::Pod>(&self, to: Buffer<T>, values: &[T]) -> Result<(), CudaError> {
        assert!(values.len() <= to.len, "more values than room");
        match self.gpu {
            Some(gpu) if !values.is_empty() => gpu.upload(to.address, values),
            _ => Ok(()),
        }
    }

    pub fn download<T: bytemuck::Pod>(
        &self,
        from: Buffer<T>,
        values: &mut [T],
    ) -> Result<(), CudaError> {
        assert!(values.len() <= from.len, "more values than there are");
        match self.gpu {
            Some(gpu) if !values.is_empty() => gpu.download(from.address, values),
            _ => Ok(()),
        }
    }

    /// `x ← x + y`.
    pub fn add(&self, x: Buffer, y: Buffer) -> Result<(), CudaError> {
        launch!(
            self,
            add,
            self.each(x.len),
            x.address,
            y.address,
            x.len as i64
        )
    }

    /// `x ← x · y`.
    pub fn multiply_by(&self, x: Buffer, y: Buffer) -> Result<(), CudaError> {
        launch!(
            self,
            multiply_by,
            self.each(x.len),
            x.address,
            y.address,
            x.len as i64
        )
    }

    /// `x ← a·x`.
    pub fn scale(&self, x: Buffer, a: f32) -> Result<(), CudaError> {
        match a {
            1.0 => Ok(()),
            a => launch!(self, scale, self.each(x.len), x.address, a, x.len as i64),
        }
    }

    /// `x ← 0`.
    pub fn clear(&self, x: Buffer) -> Result<(), CudaError> {
        match self.gpu {
            Some(gpu) => gpu.clear(x.address, x.len * size_of::<f32>()),
            None => Ok(()),
        }
    }

    /// `to ← from`.
    pub fn copy(&self, to: Buffer, from: Buffer) -> Result<(), CudaError> {
        let n = to.len.min(from.len);
        let (to, from) = (Rows::dense(to, n), Rows::dense(from, n));
        self.copy_columns(to.every(0), from.every(0), 1, 1, n)
    }

    /// Adds `row` to each row of `x`.
    pub fn add_row(&self, x: Buffer, row: Buffer) -> Result<(), CudaError> {
        let grid = self.each(x.len);
        launch!(
            self,
            add_row,
            grid,
            x.address,
            row.address,
            int(row.len),
            x.len as i64
        )
    }

    /// Multiplies each row of `x` by `row`, element by element.
    pub fn multiply_row(&self, x: Buffer, row: Buffer) -> Result<(), CudaError> {
        let grid = self.each(x.len);
        launch!(
            self,
            multiply_row,
            grid,
            x.address,
            row.address,
            int(row.len),
            x.len as i64
        )
    }

    /// Multiplies each row of `width` values by a factor: that of its number, or of
    /// its position where `positions` are given.
    pub fn scale_rows(
        &self,
        x: Buffer,
        factors: Buffer,
        positions: Option<Buffer<i32>>,
        width: usize,
    ) -> Result<(), CudaError> {
        let positions = positions.map_or(0, |p| p.address);
        let grid = self.each(x.len);
        launch!(
            self,
            scale_rows,
            grid,
            x.address,
            factors.address,
            positions,
            int(width),
            x.len as i64
        )
    }

    /// `x ← σ(gate) · x`.
    pub fn sigmoid_gate(&self, x: Buffer, gate: Buffer) -> Result<(), CudaError> {
        launch!(
            self,
            sigmoid_gate,
            self.each(x.len),
            x.address,
            gate.address,
            x.len as i64
        )
    }

    /// `x ← act(x)`.
    pub fn activate(&self, x: Buffer, act: Activation) -> Result<(), CudaError> {
        let (number, [a, b, c, d]) = numbered(act);
        launch!(
            self,
            activation,
            self.each(x.len),
            x.address,
            number,
            a,
            b,
            c,
            d,
            x.len as i64
        )
    }

    /// `gate ← act(gate) · up`.
    pub fn gate(&self, gate: Buffer, up: Buffer, act: Activation) -> Result<(), CudaError> {
        let (number, [a, b, c, d]) = numbered(act);
        let grid = self.each(gate.len);
        launch!(
            self,
            gated_activation,
            grid,
            gate.address,
            up.address,
            number,
            a,
            b,
            c,
            d,
            gate.len as i64
        )
    }

    /// `x ← f(x)`.
    pub fn apply(&self, x: Buffer, function: Function) -> Result<(), CudaError> {
        let (number, a) = match function {
            Function::Sigmoid => (0, 0.0),
            Function::Softplus => (1, 0.0),
            Function::Tanh => (2, 0.0),
            Function::ExpScaledExp(a) => (3, a),
            Function::ExpScaledSigmoid(a) => (4, a),
        };
        launch!(
            self,
            apply_function,
            self.each(x.len),
            x.address,
            number,
            a,
            x.len as i64
        )
    }

    /// Normalizes runs of values from `x` to `out`, which may be the same.
    pub fn normalize(
        &self,
        how: Normalization,
        x: Rows,
        out: Rows,
        n_runs: usize,
    ) -> Result<(), CudaError> {
        let Normalization {
            scaling,
            eps,
            width,
            weight,
            bias,
        } = how;
        let (kind, floor) = match scaling {
            Scaling::Rms => (0, 0.0),
            Scaling::Layer => (1, 0.0),
            Scaling::Length { floor } => (2, floor),
        };
        let n_weights = weight.or(bias).map_or(1, |w| w.len / width);
        launch!(
            self,
            normalize,
            self.warps(n_runs),
            out.data.address,
            out.stride as i64,
            x.data.address,
            x.stride as i64,
            weight.map_or(0, |w| w.address),
            bias.map_or(0, |b| b.address),
            int(n_weights),
            kind,
            int(width),
            eps,
            floor,
            n_runs as i64,
        )
    }

    /// Copies `n` columns of each of `n_group` groups of each row, from one step to
    /// another.
    pub fn copy_columns(
        &self,
        to: Groups,
        from: Groups,
        n_rows: usize,
        n_group: usize,
        n: usize,
    ) -> Result<(), CudaError> {
        let grid = self.each(n_rows * n_group * n);
        launch!(
            self,
            copy_columns,
            grid,
            to.rows.data.address,
            to.rows.stride as i64,
            int(to.step),
            from.rows.data.address,
            from.rows.stride as i64,
            int(from.step),
            int(n_group),
            int(n),
            n_rows as i64,
        )
    }

    /// `out[i] ← factors[i] · x[rows[i]]` for rows of `width` values.
    pub fn gather_rows(
        &self,
        out: Buffer,
        x: Buffer,
        rows: Buffer<i32>,
        factors: Option<Buffer>,
        width: usize,
    ) -> Result<(), CudaError> {
        let n = rows.len * width;
        let factors = factors.map_or(0, |f| f.address);
        launch!(
            self,
            gather_rows,
            self.each(n),
            out.address,
            x.address,
            rows.address,
            factors,
            int(width),
            n as i64,
        )
    }

    /// `out[rows[i]] ← out[rows[i]] + factors[i] · x[i]`; no row twice.
    pub fn scatter_add_rows(
        &self,
        out: Buffer,
        x: Buffer,
        rows: Buffer<i32>,
        factors: Option<Buffer>,
        width: usize,
    ) -> Result<(), CudaError> {
        let n = rows.len * width;
        let factors = factors.map_or(0, |f| f.address);
        launch!(
            self,
            scatter_add_rows,
            self.each(n),
            out.address,
            x.address,
            rows.address,
            factors,
            int(width),
            n as i64,
        )
    }

    /// Lowers `*first` to the lowest number of a row, at position `from` or later,
    /// with a value that is not finite.
    pub fn find_not_finite(
        &self,
        first: Buffer<i32>,
        x: Buffer,
        positions: Buffer<i32>,
        from: usize,
        width: usize,
    ) -> Result<(), CudaError> {
        launch!(
            self,
            find_not_finite,
            self.each(x.len),
            first.address,
            x.address,
            positions.address,
            int(from),
            int(width),
            x.len as i64,
        )
    }

    /// The codebooks of the IQ types.
    pub fn codebooks(&self) -> u64 {
        self.gpu.map_or(0, Gpu::grids)
    }

    /// Values of a layer's weights as a buffer.
    pub fn values(&self, weights: u64, v: Values) -> Buffer<'_> {
        Buffer::at(weights + v.at, v.len)
    }
}
