//! Feed-forward networks.

use super::exec::Exec;
use super::scratch::room;
use super::weights::{LoadedLinear, Source};
use super::{math, norm};
use crate::backend::BackendError;
use crate::isa::multiversion;
use crate::model::{Activation, Ffn, Xielu};

pub(super) struct LoadedFfn<'m> {
    spec: &'m Ffn,
    gate: Option<LoadedLinear<'m>>,
    up: LoadedLinear<'m>,
    down: LoadedLinear<'m>,
}

impl<'m> LoadedFfn<'m> {
    pub fn load(source: Source<'m>, spec: &'m Ffn) -> Result<Self, BackendError> {
        let gate = spec.gate.as_ref().map(|g| LoadedLinear::load(source, g));
        Ok(Self {
            spec,
            gate: gate.transpose()?,
            up: LoadedLinear::load(source, &spec.up)?,
            down: LoadedLinear::load(source, &spec.down)?,
        })
    }

    /// Width of the output.
    pub fn n_out(&self) -> usize {
        self.down.n_out()
    }

    /// `out ← ffn(x)` for the rows of `x`.
    pub fn apply(
        &self,
        exec: &Exec,
        x: &[f32],
        gate: &mut Vec<f32>,
        up: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        let isa = exec.isa;
        const CHUNK: usize = 1 << 16;
        let len = out.len() / self.n_out() * self.spec.n_ff;
        let up = room(up, len);
        self.up.apply(exec, x, up);
        let inner = match &self.gate {
            Some(gate_map) => {
                let gate = room(gate, len);
                gate_map.apply(exec, x, gate);
                let up = &*up;
                exec.chunks_mut(gate, CHUNK, |i, gate| {
                    let up = &up[i * CHUNK..][..gate.len()];
                    match self.spec.activation {
                        Activation::Silu => math::silu_mul(isa, gate, up),
                        Activation::GeluTanh => math::gelu_tanh_mul(isa, gate, up),
                        Activation::ClampedSwiglu => math::clamped_swiglu(isa, gate, up),
                        Activation::ReluSquared => {
                            math::relu_squared(isa, gate);
                            math::mul(isa, gate, up);
                        }
                        Activation::Xielu(a) => {
                            xielu(isa, gate, a);
                            math::mul(isa, gate, up);
                        }
                    }
                });
                gate
            }
            None => {
                exec.chunks_mut(up, CHUNK, |_, up| match self.spec.activation {
                    Activation::Silu => math::silu(isa, up),
                    Activation::GeluTanh => math::gelu_tanh(isa, up),
                    Activation::ReluSquared => math::relu_squared(isa, up),
                    Activation::Xielu(a) => xielu(isa, up, a),
                    // The architectures that have it always have a gate.
                    Activation::ClampedSwiglu => unreachable!("clamped SwiGLU without a gate"),
                });
                up
            }
        };
        if let Some(sub_norm) = &self.spec.sub_norm {
            norm::apply(isa, sub_norm, inner);
        }
        self.down.apply(exec, inner, out);
    }
}

multiversion! {
    /// `x ← xIELU(x)`; NaN stays NaN.
    fn xielu(xs: &mut [f32], a: Xielu) {
        for x in xs {
            let bounded = if *x > a.eps { a.eps } else { *x };
            let below = a.negative * (math::exp32(bounded) - 1.0 - *x);
            let above = a.positive * *x * *x;
            *x = a.beta.mul_add(*x, if *x > 0.0 { above } else { below });
        }
    }
}
