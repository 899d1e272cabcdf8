//! Layer kinds with a convolution or a state: Mamba-1 and -2, gated delta nets,
//! short convolutions. States live in shared memory while a kernel walks along a
//! sequence: every forward pass starts from zero.

use super::error::CudaError;
use super::linear::{LoadedLinear, LoadedNorm};
use super::ops::{Argument, Function, Grid, Normalization, Rows, Scaling, int, launch};
use super::run::Run;
use super::weights::{Packer, Values};
use super::workspace::{Buffer, Scope};
use crate::model::{Activation, CausalConv, DeltaNet, HeadSharing, Mamba1, Mamba2, ShortConv};

/// A grid for a scan: blocks are (sequence, head, run of columns), a thread takes
/// a column of the state, which has `n_rows` rows.
pub(super) fn scan_grid(run: &Run, n_head: usize, n_columns: usize, n_rows: usize) -> Grid {
    /// Columns of a block, whose state must fit into shared memory.
    const COLUMNS: usize = 32;
    Grid {
        blocks: (
            int(run.batch.n_sequences).unsigned_abs(),
            int(n_head).unsigned_abs(),
            int(n_columns.div_ceil(COLUMNS)).unsigned_abs(),
        ),
        threads: int(COLUMNS).unsigned_abs(),
        shared_bytes: int(n_rows * COLUMNS * size_of::<f32>()).unsigned_abs(),
    }
}

pub(super) struct LoadedConv {
    n_channels: usize,
    width: usize,
    weight: Values,
    bias: Option<Values>,
}

impl LoadedConv {
    pub fn pack(packer: &mut Packer, spec: &CausalConv) -> Self {
        Self {
            n_channels: spec.n_channels,
            width: spec.width,
            weight: packer.vector(&spec.weight),
            bias: spec.bias.as_ref().map(|b| packer.vector(b)),
        }
    }

    /// `out ← conv(x)`.
    pub fn apply(&self, run: &Run, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let weight = run.q.values(run.weights, self.weight);
        let bias = self
            .bias
            .map_or(0, |b| run.q.values(run.weights, b).address);
        launch!(
            run.q,
            convolve,
            run.q.each(out.len),
            out.address,
            x.address,
            weight.address,
            bias,
            run.batch.positions.address,
            int(self.width),
            int(self.n_channels),
            out.len as i64,
        )
    }
}

/// Scales runs of `width` values to unit length.
pub(super) fn unit_length(
    run: &Run,
    x: Buffer,
    width: usize,
    eps: f32,
    floor: f32,
) -> Result<(), CudaError> {
    let rows = Rows::dense(x, width);
    let how = Normalization {
        scaling: Scaling::Length { floor },
        eps,
        width,
        weight: None,
        bias: None,
    };
    run.q.normalize(how, rows, rows, x.len / width)
}

pub(super) struct LoadedMamba1<'m> {
    spec: &'m Mamba1,
    input: LoadedLinear,
    gate: LoadedLinear,
    conv: LoadedConv,
    dt_low: LoadedLinear,
    b: LoadedLinear,
    c: LoadedLinear,
    norms: Option<[LoadedNorm; 3]>,
    dt: LoadedLinear,
    a: Values,
    d: Values,
    output: LoadedLinear,
}

impl<'m> LoadedMamba1<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Mamba1) -> Self {
        let mut linear = |l| LoadedLinear::pack(packer, l);
        let (input, gate, dt_low) = (
            linear(&spec.input),
            linear(&spec.gate),
            linear(&spec.dt_low),
        );
        let (b, c, dt) = (linear(&spec.b), linear(&spec.c), linear(&spec.dt));
        let output = linear(&spec.output);
        let norms = spec.norms.as_ref();
        Self {
            spec,
            input,
            gate,
            conv: LoadedConv::pack(packer, &spec.conv),
            dt_low,
            b,
            c,
            norms: norms.map(|n| n.each_ref().map(|n| LoadedNorm::pack(packer, n))),
            dt,
            a: packer.vector(&spec.a),
            d: packer.vector(&spec.d),
            output,
        }
    }

    /// `out ← mamba(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let (n, n_state, len) = (self.spec.n_inner, self.spec.n_state, run.batch.n_rows);
        let (raw, u) = (scope.buffer(len * n), scope.buffer(len * n));
        run.linear(scope, &self.input, x, raw)?;
        self.conv.apply(run, raw, u)?;
        run.q.activate(u, Activation::Silu)?;
        let low = scope.buffer(len * self.dt_low.n_out());
        let (b, c) = (scope.buffer(len * n_state), scope.buffer(len * n_state));
        run.linear(scope, &self.dt_low, u, low)?;
        run.linear(scope, &self.b, u, b)?;
        run.linear(scope, &self.c, u, c)?;
        if let Some([low_norm, b_norm, c_norm]) = &self.norms {
            run.norm(low_norm, low, low)?;
            run.norm(b_norm, b, b)?;
            run.norm(c_norm, c, c)?;
        }
        let delta = scope.buffer(len * n);
        run.linear(scope, &self.dt, low, delta)?;
        run.q.apply(delta, Function::Softplus)?;
        let (a, d) = (
            run.q.values(run.weights, self.a),
            run.q.values(run.weights, self.d),
        );
        // `raw` has been read.
        let mixed = raw;
        launch!(
            run.q,
            scan_mamba1,
            scan_grid(run, 1, n, n_state),
            mixed.address,
            u.address,
            delta.address,
            b.address,
            c.address,
            a.address,
            d.address,
            run.batch.spans.address,
            int(n),
            int(n_state),
        )?;
        let gate = scope.buffer(len * n);
        run.linear(scope, &self.gate, x, gate)?;
        run.q.gate(gate, mixed, Activation::Silu)?;
        run.linear(scope, &self.output, gate, out)
    }
}

pub(super) struct LoadedMamba2<'m> {
    spec: &'m Mamba2,
    gate: LoadedLinear,
    input: LoadedLinear,
    dt: LoadedLinear,
    conv: LoadedConv,
    a: Values,
    d: Values,
    norm: Option<LoadedNorm>,
    output: LoadedLinear,
}

impl<'m> LoadedMamba2<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Mamba2) -> Self {
        let mut linear = |l| LoadedLinear::pack(packer, l);
        let (gate, input, dt) = (linear(&spec.gate), linear(&spec.input), linear(&spec.dt));
        let output = linear(&spec.output);
        Self {
            spec,
            gate,
            input,
            dt,
            conv: LoadedConv::pack(packer, &spec.conv),
            a: packer.vector(&spec.a),
            d: packer.vector(&spec.d),
            norm: spec.norm.as_ref().map(|n| LoadedNorm::pack(packer, n)),
            output,
        }
    }

    /// `out ← mamba2(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let (m, len) = (self.spec, run.batch.n_rows);
        let (n, width) = (m.n_head * m.head_dim, self.input.n_out());
        let (raw, ubc) = (scope.buffer(len * width), scope.buffer(len * width));
        run.linear(scope, &self.input, x, raw)?;
        self.conv.apply(run, raw, ubc)?;
        run.q.activate(ubc, Activation::Silu)?;
        let delta = scope.buffer(len * m.n_head);
        run.linear(scope, &self.dt, x, delta)?;
        run.q.apply(delta, Function::Softplus)?;
        let (a, d) = (
            run.q.values(run.weights, self.a),
            run.q.values(run.weights, self.d),
        );
        let mixed = scope.buffer(len * n);
        launch!(
            run.q,
            scan_mamba2,
            scan_grid(run, m.n_head, m.head_dim, m.n_state),
            mixed.address,
            ubc.address,
            delta.address,
            a.address,
            d.address,
            run.batch.spans.address,
            int(m.n_head),
            int(m.head_dim),
            int(m.n_group),
            int(m.n_state),
        )?;
        let gate = scope.buffer(len * n);
        run.linear(scope, &self.gate, x, gate)?;
        run.q.gate(gate, mixed, Activation::Silu)?;
        if let Some(norm) = &self.norm {
            run.norm(norm, gate, gate)?;
        }
        run.linear(scope, &self.output, gate, out)
    }
}

pub(super) struct LoadedDeltaNet<'m> {
    spec: &'m DeltaNet,
    /// Queries, keys and values.
    qkv: [(LoadedLinear, LoadedConv); 3],
    alpha: LoadedLinear,
    beta: LoadedLinear,
    a: Values,
    norm: LoadedNorm,
    gate: LoadedLinear,
    output: LoadedLinear,
}

impl<'m> LoadedDeltaNet<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m DeltaNet) -> Self {
        let mut part = |linear, conv| {
            (
                LoadedLinear::pack(packer, linear),
                LoadedConv::pack(packer, conv),
            )
        };
        let qkv = [
            part(&spec.q, &spec.q_conv),
            part(&spec.k, &spec.k_conv),
            part(&spec.v, &spec.v_conv),
        ];
        Self {
            spec,
            qkv,
            alpha: LoadedLinear::pack(packer, &spec.alpha),
            beta: LoadedLinear::pack(packer, &spec.beta),
            a: packer.vector(&spec.a),
            norm: LoadedNorm::pack(packer, &spec.norm),
            gate: LoadedLinear::pack(packer, &spec.gate),
            output: LoadedLinear::pack(packer, &spec.output),
        }
    }

    /// `out ← delta_net(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let (m, len) = (self.spec, run.batch.n_rows);
        let dim = m.head_dim;
        let convolved = |(linear, conv): &(LoadedLinear, LoadedConv)| {
            let part = scope.buffer(len * linear.n_out());
            let inner = scope.scope();
            let raw = inner.buffer(len * linear.n_out());
            run.linear(&inner, linear, x, raw)?;
            conv.apply(run, raw, part)?;
            run.q.activate(part, Activation::Silu)?;
            Ok::<_, CudaError>(part)
        };
        let (q, k, v) = (
            convolved(&self.qkv[0])?,
            convolved(&self.qkv[1])?,
            convolved(&self.qkv[2])?,
        );
        unit_length(run, q, dim, m.length_eps, 0.0)?;
        unit_length(run, k, dim, m.length_eps, 0.0)?;
        run.q.scale(q, 1.0 / (dim as f32).sqrt())?;
        let log_decay = scope.buffer(len * m.n_v_head);
        run.linear(scope, &self.alpha, x, log_decay)?;
        run.q.apply(log_decay, Function::Softplus)?;
        run.q
            .multiply_row(log_decay, run.q.values(run.weights, self.a))?;
        let beta = scope.buffer(len * m.n_v_head);
        run.linear(scope, &self.beta, x, beta)?;
        run.q.apply(beta, Function::Sigmoid)?;
        let mixed = scope.buffer(v.len);
        launch!(
            run.q,
            scan_delta_net,
            scan_grid(run, m.n_v_head, dim, dim),
            mixed.address,
            q.address,
            k.address,
            v.address,
            log_decay.address,
            beta.address,
            run.batch.spans.address,
            int(m.n_k_head),
            int(m.n_v_head),
            int(dim),
            i32::from(m.sharing == HeadSharing::Cyclic),
        )?;
        run.norm(&self.norm, mixed, mixed)?;
        let gate = scope.buffer(v.len);
        run.linear(scope, &self.gate, x, gate)?;
        run.q.gate(gate, mixed, Activation::Silu)?;
        run.linear(scope, &self.output, gate, out)
    }
}

pub(super) struct LoadedShortConv {
    b: LoadedLinear,
    c: LoadedLinear,
    input: LoadedLinear,
    conv: LoadedConv,
    output: LoadedLinear,
}

impl LoadedShortConv {
    pub fn pack(packer: &mut Packer, spec: &ShortConv) -> Self {
        Self {
            b: LoadedLinear::pack(packer, &spec.b),
            c: LoadedLinear::pack(packer, &spec.c),
            input: LoadedLinear::pack(packer, &spec.input),
            conv: LoadedConv::pack(packer, &spec.conv),
            output: LoadedLinear::pack(packer, &spec.output),
        }
    }

    /// `out ← short_conv(x)`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let n = run.batch.n_rows * self.output.n_in();
        let (gated, factor) = (scope.buffer(n), scope.buffer(n));
        run.linear(scope, &self.input, x, gated)?;
        run.linear(scope, &self.b, x, factor)?;
        run.q.multiply_by(gated, factor)?;
        let mixed = scope.buffer(n);
        self.conv.apply(run, gated, mixed)?;
        run.linear(scope, &self.c, x, factor)?;
        run.q.multiply_by(mixed, factor)?;
        run.linear(scope, &self.output, mixed, out)
    }
}
