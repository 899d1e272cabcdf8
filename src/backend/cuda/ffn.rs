//! Feed-forward networks.

use super::error::CudaError;
use super::linear::{LoadedLinear, LoadedNorm};
use super::run::Run;
use super::weights::Packer;
use super::workspace::{Buffer, Scope};
use crate::model::{Activation, Ffn};

pub(super) struct LoadedFfn {
    activation: Activation,
    gate: Option<LoadedLinear>,
    up: LoadedLinear,
    down: LoadedLinear,
    sub_norm: Option<LoadedNorm>,
}

impl LoadedFfn {
    pub fn pack(packer: &mut Packer, spec: &Ffn) -> Self {
        let mut linear = |l| LoadedLinear::pack(packer, l);
        let gate = spec.gate.as_ref().map(&mut linear);
        let (up, down) = (linear(&spec.up), linear(&spec.down));
        Self {
            activation: spec.activation,
            gate,
            up,
            down,
            sub_norm: spec.sub_norm.as_ref().map(|n| LoadedNorm::pack(packer, n)),
        }
    }

    /// Width of the output.
    pub fn n_out(&self) -> usize {
        self.down.n_out()
    }

    /// `out ← ffn(x)` for the rows of `x`.
    pub fn apply(&self, run: &Run, scope: &Scope, x: Buffer, out: Buffer) -> Result<(), CudaError> {
        let scope = scope.scope();
        let n_rows = out.len / self.n_out().max(1);
        let up = scope.buffer(n_rows * self.up.n_out());
        run.linear(&scope, &self.up, x, up)?;
        let inner = match &self.gate {
            Some(gate_map) => {
                let gate = scope.buffer(up.len);
                run.linear(&scope, gate_map, x, gate)?;
                run.q.gate(gate, up, self.activation)?;
                gate
            }
            None => {
                run.q.activate(up, self.activation)?;
                up
            }
        };
        if let Some(norm) = &self.sub_norm {
            run.norm(norm, inner, inner)?;
        }
        run.linear(&scope, &self.down, inner, out)
    }
}
