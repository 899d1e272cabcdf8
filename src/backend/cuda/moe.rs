//! Mixtures of experts: rows are routed on the device, then each expert meets its
//! rows together.

use super::error::CudaError;
use super::ffn::LoadedFfn;
use super::linear::LoadedLinear;
use super::ops::{Argument, Function, Grid, int, launch};
use super::run::Run;
use super::weights::{Packer, Values};
use super::workspace::{Buffer, Scope};
use crate::model::{Gating, Moe};

pub(super) struct LoadedMoe<'m> {
    spec: &'m Moe,
    router: LoadedLinear,
    selection_bias: Option<Values>,
    experts: Vec<LoadedFfn>,
    shared: Option<(LoadedFfn, Option<LoadedLinear>)>,
}

/// Rows that go to an expert, in order, and their weights.
type Routed = (Vec<i32>, Vec<f32>);

impl<'m> LoadedMoe<'m> {
    pub fn pack(packer: &mut Packer, spec: &'m Moe) -> Self {
        Self {
            spec,
            router: LoadedLinear::pack(packer, &spec.router),
            selection_bias: spec.selection_bias.as_ref().map(|b| packer.vector(b)),
            experts: spec
                .experts
                .iter()
                .map(|e| LoadedFfn::pack(packer, e))
                .collect(),
            shared: spec.shared.as_ref().map(|s| {
                let gate = s.gate.as_ref().map(|g| LoadedLinear::pack(packer, g));
                (LoadedFfn::pack(packer, &s.ffn), gate)
            }),
        }
    }

    /// `out ← moe(x)`. The experts' outputs are added in the order of the experts.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let (n_rows, width) = (run.batch.n_rows, self.router.n_in());
        let Some(n_out) = self.experts.first().map(LoadedFfn::n_out) else {
            return run.q.clear(out);
        };
        let by_expert = self.route(run, &scope.scope(), x)?;
        run.q.clear(out)?;
        let scope = scope.scope();
        // As many as all rows, in case that one expert gets them all.
        let (rows, weights) = (scope.buffer(n_rows), scope.buffer(n_rows));
        let (inputs, outputs) = (scope.buffer(n_rows * width), scope.buffer(n_rows * n_out));
        for (expert, (chosen, shares)) in self.experts.iter().zip(&by_expert) {
            let n = chosen.len();
            if n == 0 {
                continue;
            }
            run.q.upload(rows, chosen)?;
            run.q.upload(weights, shares)?;
            let (rows, weights) = (rows.part(0, n), weights.part(0, n));
            let (inputs, outputs) = (inputs.part(0, n * width), outputs.part(0, n * n_out));
            let (before, after) = match self.spec.weigh_input {
                true => (Some(weights), None),
                false => (None, Some(weights)),
            };
            run.q.gather_rows(inputs, x, rows, before, width)?;
            expert.apply(run, &scope, inputs, outputs)?;
            run.q.scatter_add_rows(out, outputs, rows, after, n_out)?;
        }
        if let Some((ffn, gate)) = &self.shared {
            ffn.apply(run, &scope, x, outputs)?;
            if let Some(gate) = gate {
                let gates = weights.part(0, n_rows);
                run.linear(&scope, gate, x, gates)?;
                run.q.apply(gates, Function::Sigmoid)?;
                run.q.scale_rows(outputs, gates, None, n_out)?;
            }
            run.q.add(out, outputs)?;
        }
        Ok(())
    }

    /// The rows of each expert.
    fn route(&self, run: &Run, scope: &Scope, x: Buffer) -> Result<Vec<Routed>, CudaError> {
        const LANES: u32 = 32;
        let (m, n_rows) = (self.spec, run.batch.n_rows);
        let (n_expert, n_used) = (self.experts.len(), m.n_used.min(self.experts.len()));
        let logits = scope.buffer(n_rows * n_expert);
        run.linear(scope, &self.router, x, logits)?;
        let (chosen, weights) = (scope.buffer(n_rows * n_used), scope.buffer(n_rows * n_used));
        let bias = self
            .selection_bias
            .map_or(0, |b| run.q.values(run.weights, b).address);
        let (n_group, n_group_used) = m.groups.map_or((0, 0), |g| (g.n, g.n_used));
        let gating = match m.gating {
            Gating::Softmax => 0,
            Gating::Sigmoid => 1,
            Gating::SoftmaxOfChosen => 2,
        };
        let grid = Grid {
            blocks: (int(n_rows).unsigned_abs(), 1, 1),
            threads: LANES,
            shared_bytes: int((n_expert + n_group) * (size_of::<f32>() + 1)).unsigned_abs(),
        };
        launch!(
            run.q,
            route,
            grid,
            chosen.address,
            weights.address,
            logits.address,
            bias,
            int(n_expert),
            int(n_used),
            gating,
            int(n_group),
            int(n_group_used),
            i32::from(m.normalize),
            m.scale,
        )?;
        let mut experts = vec![0i32; chosen.len];
        let mut shares = vec![0.0f32; weights.len];
        run.q.download(chosen, &mut experts)?;
        run.q.download(weights, &mut shares)?;
        let mut by_expert = vec![Routed::default(); n_expert];
        if let (None, Some(first)) = (run.q.gpu, by_expert.first_mut()) {
            // Only sizes are wanted: those of an expert that gets all rows.
            *first = ((0..int(n_rows)).collect(), vec![0.0; n_rows]);
            return Ok(by_expert);
        }
        for (i, (&expert, &share)) in experts.iter().zip(&shares).enumerate() {
            let Some((rows, weights)) = usize::try_from(expert)
                .ok()
                .and_then(|e| by_expert.get_mut(e))
            else {
                let why = format!("row {} was routed to expert {expert}", i / n_used);
                return Err(CudaError::Unsupported("this mixture of experts", why));
            };
            rows.push(int(i / n_used));
            weights.push(share);
        }
        Ok(by_expert)
    }
}
