//! Mixtures of experts: rows are routed, then each expert meets its rows
//! together.

use super::exec::Exec;
use super::ffn::LoadedFfn;
use super::math;
use super::scratch::{ExpertScratch, Scratch, room};
use super::weights::{LoadedLinear, Source};
use crate::backend::BackendError;
use crate::isa::Isa;
use crate::model::{Gating, Groups, Moe};

pub(super) struct LoadedMoe<'m> {
    spec: &'m Moe,
    router: LoadedLinear<'m>,
    experts: Vec<LoadedFfn<'m>>,
    shared: Option<(LoadedFfn<'m>, Option<LoadedLinear<'m>>)>,
}

/// A row that goes to an expert, and its weight.
type Routed = (usize, f32);

impl<'m> LoadedMoe<'m> {
    pub fn load(source: Source<'m>, spec: &'m Moe) -> Result<Self, BackendError> {
        let experts = spec.experts.iter().map(|e| LoadedFfn::load(source, e));
        let shared = match &spec.shared {
            None => None,
            Some(shared) => {
                let gate = shared.gate.as_ref().map(|g| LoadedLinear::load(source, g));
                Some((LoadedFfn::load(source, &shared.ffn)?, gate.transpose()?))
            }
        };
        Ok(Self {
            spec,
            router: LoadedLinear::load(source, &spec.router)?,
            experts: experts.collect::<Result<_, _>>()?,
            shared,
        })
    }

    /// `out ← moe(x)` for the rows of `x`. The experts' outputs are added in the
    /// order of the experts.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let width = self.router.n_in();
        let n_out = self.experts.first().map_or(1, LoadedFfn::n_out);
        let ExpertScratch {
            logits,
            rows,
            out: expert_out,
        } = &mut s.experts;
        let logits = room(logits, x.len() / width * self.experts.len());
        self.router.apply(exec, x, logits);
        let mut by_expert: Vec<Vec<Routed>> = vec![Vec::new(); self.experts.len()];
        for (t, logits) in logits.chunks_exact_mut(self.experts.len()).enumerate() {
            for (e, weight) in route(isa, self.spec, logits) {
                by_expert[e].push((t, weight));
            }
        }

        out.fill(0.0);
        for (expert, routed) in self.experts.iter().zip(&by_expert) {
            if routed.is_empty() {
                continue;
            }
            let rows = room(rows, routed.len() * width);
            for (row, (t, weight)) in rows.chunks_exact_mut(width).zip(routed) {
                row.copy_from_slice(&x[t * width..][..width]);
                if self.spec.weigh_input {
                    math::scale(isa, row, *weight);
                }
            }
            let expert_out = room(expert_out, routed.len() * n_out);
            expert.apply(exec, rows, &mut s.gate, &mut s.up, expert_out);
            for (y, (t, weight)) in expert_out.chunks_exact(n_out).zip(routed) {
                let out = &mut out[t * n_out..][..n_out];
                match self.spec.weigh_input {
                    true => math::add(isa, out, y),
                    false => math::add_scaled(isa, out, y, *weight),
                }
            }
        }
        if let Some((ffn, gate)) = &self.shared {
            let shared_out = room(expert_out, out.len());
            ffn.apply(exec, x, &mut s.gate, &mut s.up, shared_out);
            if let Some(gate) = gate {
                let gates = room(rows, out.len() / n_out);
                gate.apply(exec, x, gates);
                math::sigmoid_in_place(isa, gates);
                for (y, g) in shared_out.chunks_exact_mut(n_out).zip(gates) {
                    math::scale(isa, y, *g);
                }
            }
            math::add(isa, out, shared_out);
        }
    }
}

/// The experts of a row and their weights, most wanted first. Ties go to the
/// lower number.
fn route(isa: Isa, moe: &Moe, logits: &mut [f32]) -> Vec<(usize, f32)> {
    match moe.gating {
        Gating::Softmax => {
            let inverse = math::softmax_numerators(isa, logits, f32::NEG_INFINITY);
            math::scale(isa, logits, inverse);
        }
        Gating::Sigmoid => math::sigmoid_in_place(isa, logits),
        Gating::SoftmaxOfChosen => {}
    }
    let weights = &*logits;
    let mut wanted = weights.to_vec();
    if let Some(bias) = &moe.selection_bias {
        math::add(isa, &mut wanted, &bias.values);
    }
    if let Some(groups) = moe.groups {
        drop_groups(&mut wanted, groups);
    }
    let mut chosen = best(&wanted);
    chosen.truncate(moe.n_used);
    let mut out: Vec<(usize, f32)> = chosen.into_iter().map(|e| (e, weights[e])).collect();
    if moe.gating == Gating::SoftmaxOfChosen {
        let mut ws: Vec<f32> = out.iter().map(|c| c.1).collect();
        let inverse = math::softmax_numerators(isa, &mut ws, f32::NEG_INFINITY);
        out.iter_mut().zip(ws).for_each(|(c, w)| c.1 = w * inverse);
    }
    if moe.normalize {
        // llama.cpp's bound against a division by zero.
        const LEAST: f32 = 6.103_515_6e-5;
        let sum: f32 = out.iter().map(|c| c.1).sum();
        out.iter_mut().for_each(|c| c.1 /= sum.max(LEAST));
    }
    if moe.scale != 1.0 {
        out.iter_mut().for_each(|c| c.1 *= moe.scale);
    }
    out
}

/// Numbers of the values, the largest first.
fn best(values: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    order
}

/// Rules out the experts of all groups but the best.
fn drop_groups(wanted: &mut [f32], groups: Groups) {
    let size = wanted.len() / groups.n;
    let scores: Vec<f32> = wanted
        .chunks_exact(size)
        .map(|g| best(g).iter().take(2).map(|&e| g[e]).sum())
        .collect();
    for &group in &best(&scores)[groups.n_used..] {
        wanted[group * size..][..size].fill(f32::NEG_INFINITY);
    }
}
