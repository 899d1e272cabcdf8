//! Gated feed-forward networks, alone and as experts.

use super::isa::Isa;
use super::math;
use super::scratch::{ExpertScratch, Scratch, room};
use super::spread;
use super::weights::LoadedLinear;
use crate::backend::BackendError;
use crate::gguf::Gguf;
use crate::model::{Activation, Ffn, Moe};

pub(super) struct LoadedFfn<'m> {
    spec: &'m Ffn,
    gate: LoadedLinear<'m>,
    up: LoadedLinear<'m>,
    down: LoadedLinear<'m>,
}

impl<'m> LoadedFfn<'m> {
    pub fn load(gguf: &Gguf, spec: &'m Ffn) -> Result<Self, BackendError> {
        Ok(Self {
            spec,
            gate: LoadedLinear::load(gguf, &spec.gate)?,
            up: LoadedLinear::load(gguf, &spec.up)?,
            down: LoadedLinear::load(gguf, &spec.down)?,
        })
    }

    /// `out ← ffn(x)` for the rows of `x`.
    pub fn apply(
        &self,
        isa: Isa,
        spread: bool,
        x: &[f32],
        gate: &mut Vec<f32>,
        up: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        const CHUNK: usize = 1 << 16;
        let len = out.len() / self.down.n_out();
        let gate = room(gate, len * self.spec.n_ff);
        let up = room(up, len * self.spec.n_ff);
        self.gate.apply(isa, spread, x, gate);
        self.up.apply(isa, spread, x, up);
        let up = &*up;
        spread::chunks_mut(spread, gate, CHUNK, |i, gate| {
            let up = &up[i * CHUNK..][..gate.len()];
            match self.spec.activation {
                Activation::Silu => math::silu_mul(isa, gate, up),
                Activation::GeluTanh => math::gelu_tanh_mul(isa, gate, up),
            }
        });
        self.down.apply(isa, spread, gate, out);
    }
}

pub(super) struct LoadedMoe<'m> {
    spec: &'m Moe,
    router: LoadedLinear<'m>,
    experts: Vec<LoadedFfn<'m>>,
}

impl<'m> LoadedMoe<'m> {
    pub fn load(gguf: &Gguf, spec: &'m Moe) -> Result<Self, BackendError> {
        Ok(Self {
            spec,
            router: LoadedLinear::load(gguf, &spec.router)?,
            experts: spec
                .experts
                .iter()
                .map(|e| LoadedFfn::load(gguf, e))
                .collect::<Result<_, _>>()?,
        })
    }

    /// `out ← moe(x)` for the rows of `x`: the rows of each expert together,
    /// their outputs added in the order of the experts.
    pub fn apply(&self, isa: Isa, spread: bool, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let n_expert = self.experts.len();
        let ExpertScratch {
            logits,
            rows,
            out: expert_out,
        } = &mut s.experts;
        let width = x.len() / (out.len() / self.width()).max(1);
        let logits = room(logits, x.len() / width * n_expert);
        self.router.apply(isa, spread, x, logits);
        let chosen: Vec<Vec<(usize, f32)>> = logits
            .chunks_exact_mut(n_expert)
            .map(|logits| route(isa, logits, self.spec.n_used))
            .collect();

        out.fill(0.0);
        for (e, expert) in self.experts.iter().enumerate() {
            let of_expert = |c: &Vec<(usize, f32)>| c.iter().find(|(i, _)| *i == e).map(|c| c.1);
            let routed: Vec<(usize, f32)> = chosen
                .iter()
                .enumerate()
                .filter_map(|(t, c)| of_expert(c).map(|weight| (t, weight)))
                .collect();
            if routed.is_empty() {
                continue;
            }
            let rows = room(rows, routed.len() * width);
            for (row, (t, _)) in rows.chunks_exact_mut(width).zip(&routed) {
                row.copy_from_slice(&x[t * width..][..width]);
            }
            let expert_out = room(expert_out, routed.len() * self.width());
            expert.apply(isa, spread, rows, &mut s.gate, &mut s.up, expert_out);
            for (y, (t, weight)) in expert_out.chunks_exact(self.width()).zip(&routed) {
                let out = &mut out[t * self.width()..][..self.width()];
                math::add_scaled(isa, out, y, *weight);
            }
        }
    }

    /// Width of the output.
    fn width(&self) -> usize {
        self.experts.first().map_or(1, |e| e.down.n_out())
    }
}

/// The `n_used` most probable experts and their weights, which sum to 1. Ties go
/// to the lower number.
fn route(isa: Isa, logits: &mut [f32], n_used: usize) -> Vec<(usize, f32)> {
    math::softmax_numerators(isa, logits);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(n_used);
    let sum: f32 = order.iter().map(|&e| logits[e]).sum();
    order.into_iter().map(|e| (e, logits[e] / sum)).collect()
}
