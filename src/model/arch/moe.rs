//! Mixtures of experts, as the metadata describes them.

use super::Context;
use crate::model::{
    Activation, Ffn, Gating, Groups, Linear, ModelError, Moe, SharedExpert, Vector,
};

/// What an architecture fixes; the file's keys say the rest.
pub(super) struct MoeRules {
    pub n_ff: usize,
    pub activation: Activation,
    /// Whether experts have a gate.
    pub gated: bool,
    pub gating: Gating,
    pub normalize: bool,
    pub scale: f32,
}

impl MoeRules {
    /// Softmax routing, weights renormalized.
    pub fn softmax(n_ff: usize) -> Self {
        Self {
            n_ff,
            activation: Activation::Silu,
            gated: true,
            gating: Gating::Softmax,
            normalize: true,
            scale: 1.0,
        }
    }
}

impl Context<'_> {
    /// The gating function that the file names, else `default`.
    pub(super) fn gating(&self, default: Gating) -> Result<Gating, ModelError> {
        const KEY: &str = "expert_gating_func";
        match self.hp.optional_count(KEY)? {
            None | Some(0) => Ok(default),
            Some(1) => Ok(Gating::Softmax),
            Some(2) => Ok(Gating::Sigmoid),
            Some(3) => Ok(Gating::SoftmaxOfChosen),
            Some(n) => Err(self.hp.bad(
                KEY,
                n,
                "supported are 1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen)",
            )),
        }
    }

    /// `expert_feed_forward_length`, one number or one a layer.
    pub(super) fn n_ff_exp(&self) -> Result<Vec<usize>, ModelError> {
        self.hp
            .per_layer("expert_feed_forward_length", self.n_layer)
    }

    /// The width of layer `i`'s experts: what `expert_feed_forward_length` says,
    /// else the chosen experts share `feed_forward_length`.
    pub(super) fn expert_width(&self, i: usize) -> Result<usize, ModelError> {
        if self.hp.has("expert_feed_forward_length") {
            let stated = self.n_ff_exp()?[i];
            if stated > 0 {
                return Ok(stated);
            }
        }
        Ok(self.n_ff()?[i] / self.hp.count("expert_used_count")?)
    }

    /// What the file says of the experts' weights.
    pub(super) fn weights_norm(&self) -> Result<bool, ModelError> {
        self.hp.bool("expert_weights_norm", false)
    }

    pub(super) fn weights_scale(&self) -> Result<f32, ModelError> {
        Ok(self
            .hp
            .nonzero_float("expert_weights_scale")?
            .unwrap_or(1.0))
    }

    /// Refuses a file whose keys ask for other routing than the architecture does.
    fn require_routing(&self, rules: &MoeRules) -> Result<(), ModelError> {
        const GATING: &str = "expert_gating_func";
        const SCALE: &str = "expert_weights_scale";
        if self.gating(rules.gating)? != rules.gating {
            let found = self.hp.optional_count(GATING)?.unwrap_or(0);
            let problem = format!("the architecture knows {:?} only", rules.gating);
            return Err(self.hp.bad(GATING, found, problem));
        }
        self.require_flag("expert_weights_norm", rules.normalize)?;
        match self.hp.nonzero_float(SCALE)? {
            Some(scale) if scale != rules.scale => {
                let problem = format!("the architecture knows {} only", rules.scale);
                Err(self.hp.bad(SCALE, scale, problem))
            }
            _ => Ok(()),
        }
    }

    /// The experts of layer `i` with their router. There is no shared expert
    /// yet.
    pub(super) fn moe(&mut self, i: usize, rules: &MoeRules) -> Result<Moe, ModelError> {
        let d = self.n_embd;
        let n_expert = self.hp.count("expert_count")?;
        let n_used = self.hp.count("expert_used_count")?;
        if n_used > n_expert {
            let problem = format!("the model has {n_expert} experts");
            return Err(self.hp.bad("expert_used_count", n_used, problem));
        }
        self.require_routing(rules)?;
        let router = self
            .tensors
            .linear(&format!("blk.{i}.ffn_gate_inp"), d, n_expert)?;
        let selection_bias = self
            .tensors
            .optional_vector(&format!("blk.{i}.exp_probs_b.bias"), n_expert)?;
        let n_ff = rules.n_ff;
        let fused = format!("blk.{i}.ffn_gate_up_exps.weight");
        let (gate, up) = if rules.gated && self.tensors.has(&fused) {
            let both = self.tensors.stacked(&fused, d, 2 * n_ff, n_expert)?;
            let half = |first: usize| -> Vec<Linear> {
                both.iter()
                    .map(|m| Linear::unbiased(m.rows(first, n_ff)))
                    .collect()
            };
            (Some(half(0)), half(n_ff))
        } else {
            let gate = match rules.gated {
                true => Some(self.experts(i, "gate", d, n_ff, n_expert)?),
                false => None,
            };
            (gate, self.experts(i, "up", d, n_ff, n_expert)?)
        };
        let down = self.experts(i, "down", n_ff, d, n_expert)?;
        let mut gate = gate.map(Vec::into_iter);
        let experts = up.into_iter().zip(down).map(|(up, down)| Ffn {
            n_ff,
            activation: rules.activation,
            gate: gate.as_mut().and_then(Iterator::next),
            up,
            down,
            sub_norm: None,
        });
        Ok(Moe {
            router,
            n_used,
            gating: rules.gating,
            selection_bias,
            groups: self.groups(n_expert)?,
            normalize: rules.normalize,
            scale: rules.scale,
            weigh_input: false,
            experts: experts.collect(),
            shared: None,
        })
    }

    /// One matrix for each expert, with biases where the file has them.
    fn experts(
        &mut self,
        i: usize,
        part: &str,
        n_in: usize,
        n_out: usize,
        n: usize,
    ) -> Result<Vec<Linear>, ModelError> {
        let name = format!("blk.{i}.ffn_{part}_exps");
        let matrices = self
            .tensors
            .stacked(&format!("{name}.weight"), n_in, n_out, n)?;
        let bias = format!("{name}.bias");
        let biases = match self.tensors.offers(&bias) {
            true => Some(self.tensors.shaped(&bias, &[n_out, n])?),
            false => None,
        };
        let linear = |(e, weight)| Linear {
            weight,
            bias: biases.as_ref().map(|b| Vector {
                tensor: b.tensor.clone(),
                values: b.values[e * n_out..(e + 1) * n_out].to_vec(),
            }),
            scale: 1.0,
        };
        Ok(matrices.into_iter().enumerate().map(linear).collect())
    }

    fn groups(&self, n_expert: usize) -> Result<Option<Groups>, ModelError> {
        const KEY: &str = "expert_group_count";
        let Some(n) = self.hp.optional_count(KEY)?.filter(|&n| n > 1) else {
            return Ok(None);
        };
        let n_used = self.hp.count("expert_group_used_count")?;
        if !n_expert.is_multiple_of(n) || n_expert / n < 2 || n_used > n {
            let problem = format!("{n_used} groups of {n_expert} experts cannot be chosen from it");
            return Err(self.hp.bad(KEY, n, problem));
        }
        Ok(Some(Groups { n, n_used }))
    }

    /// The shared expert of layer `i`, a gated network, times a gate of its own
    /// where the file has one.
    pub(super) fn shared_expert(
        &mut self,
        i: usize,
        n_ff: usize,
        activation: Activation,
    ) -> Result<SharedExpert, ModelError> {
        let gate = format!("blk.{i}.ffn_gate_inp_shexp.weight");
        Ok(SharedExpert {
            ffn: self.ffn_named(&format!("blk.{i}.ffn"), "_shexp", n_ff, activation, true)?,
            gate: match self.tensors.offers(&gate) {
                true => Some(Linear::unbiased(self.tensors.matrix(
                    &gate,
                    self.n_embd,
                    1,
                )?)),
                false => None,
            },
        })
    }
}
