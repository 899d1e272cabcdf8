//! Rotary position embedding, reduced to a table of cosines and sines.
//!
//! Linear scaling, YaRN (<https://arxiv.org/abs/2309.00071>) and llama3's
//! frequency factors all bend the angles of the pairs. The angles follow ggml's
//! arithmetic (f32, each pair's from the one before it): computed in f64 they
//! differ by up to 1e-4 rad at position 2000, which moves single tokens of
//! Gemma 3 by up to 6e-3 nat and would hide everything smaller.

use std::f32::consts::PI;

use super::error::ModelError;
use super::hparams::Hparams;
use super::tensors::Vector;

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `(2i, 2i + 1)`; ggml's NORM.
    Adjacent,
    /// `(i, i + n_rot/2)`; ggml's NEOX.
    Halves,
}

/// RoPE on the first `2 · bends.len()` elements of each head. Pair `i` at
/// position `p` turns by `bends[i]` of `θ`, where `θ` is `p` for the first pair
/// and `step` times smaller for each next; it grows by `magnitude`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements rotate together.
    pub pairs: RopePairs,
    step: f32,
    bends: Vec<Bend>,
    /// Takes the place of `bends` in runs beyond a context length.
    long: Option<(usize, Vec<Bend>)>,
    magnitude: f32,
}

/// `θ/divisor · (interpolation · (1 − keep) + keep)`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bend {
    divisor: f32,
    interpolation: f32,
    keep: f32,
}

/// A file's RoPE scaling.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scaling {
    None,
    Linear { factor: f32 },
    Yarn(Yarn),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Yarn {
    pub factor: f32,
    pub original_context: f32,
    pub ext_factor: f32,
    pub beta_fast: f32,
    pub beta_slow: f32,
}

impl Scaling {
    /// Reads the `rope.scaling.*` keys as llama.cpp does: the type defaults to
    /// linear and the factor to 1. LongRoPE's factors are tensors: it is known
    /// only to architectures that take them.
    pub fn read(
        hp: &Hparams,
        n_ctx_train: usize,
        has_long_factors: bool,
    ) -> Result<Self, ModelError> {
        // 0 stands for 1; the old key counts where the new one is not there.
        let factor = match hp.has("rope.scaling.factor") {
            true => hp.nonzero_float("rope.scaling.factor")?,
            false => hp.nonzero_float("rope.scale_linear")?,
        };
        let factor = factor.unwrap_or(1.0);
        if !(factor > 0.0 && factor.is_finite()) {
            return Err(hp.bad("rope.scaling.factor", factor, "a positive number is needed"));
        }
        match hp.optional_string("rope.scaling.type")? {
            Some("none") => Ok(Scaling::None),
            Some("longrope") if has_long_factors && factor != 1.0 => {
                let problem = "LongRoPE's factors are tensors";
                Err(hp.bad("rope.scaling.factor", factor, problem))
            }
            Some("longrope") if has_long_factors => Ok(Scaling::None),
            None | Some("linear") if factor == 1.0 => Ok(Scaling::None),
            None | Some("linear") => Ok(Scaling::Linear { factor }),
            Some("yarn") => {
                let or = |key, default: f32| -> Result<f32, ModelError> {
                    Ok(hp.optional_float(key)?.unwrap_or(default))
                };
                let original = hp
                    .optional_count("rope.scaling.original_context_length")?
                    .filter(|&n| n > 0)
                    .unwrap_or(n_ctx_train);
                // Negative means 'not set', and on is then the rule for YaRN.
                let ext_factor = or("rope.scaling.yarn_ext_factor", 1.0)?;
                Ok(Scaling::Yarn(Yarn {
                    factor,
                    original_context: original as f32,
                    ext_factor: if ext_factor < 0.0 { 1.0 } else { ext_factor },
                    beta_fast: or("rope.scaling.yarn_beta_fast", 32.0)?,
                    beta_slow: or("rope.scaling.yarn_beta_slow", 1.0)?,
                }))
            }
            Some(other) => Err(ModelError::RopeScaling(other.to_owned())),
        }
    }
}

impl Rope {
    /// RoPE over `n_rot` elements with the base `base`. `factors`, one a pair,
    /// divide the angles (llama3).
    pub(super) fn new(
        pairs: RopePairs,
        n_rot: usize,
        base: f32,
        scaling: &Scaling,
        factors: Option<&Vector>,
        attn_factor: f32,
    ) -> Self {
        let bend = |i: usize| Bend {
            divisor: factors.map_or(1.0, |v| v.values[i]),
            interpolation: match scaling {
                Scaling::None => 1.0,
                Scaling::Linear { factor } => 1.0 / factor,
                Scaling::Yarn(y) => 1.0 / y.factor,
            },
            keep: match scaling {
                Scaling::Yarn(y) => y.keep(i, n_rot, base),
                _ => 0.0,
            },
        };
        let magnitude = match scaling {
            Scaling::Yarn(y) if y.ext_factor != 0.0 => 1.0 + 0.1 * y.factor.ln(),
            _ => 1.0,
        };
        Rope {
            pairs,
            step: base.powf(-2.0 / n_rot as f32),
            bends: (0..n_rot / 2).map(bend).collect(),
            long: None,
            magnitude: attn_factor * magnitude,
        }
    }

    /// Uses `factors` in place of its own in runs whose context, rounded up to
    /// 256 as llama.cpp rounds it, is above `original_context` (LongRoPE).
    pub(super) fn with_long_factors(mut self, original_context: usize, factors: &Vector) -> Self {
        let long = self.bends.iter().zip(&factors.values);
        let long = long.map(|(&bend, &divisor)| Bend { divisor, ..bend });
        self.long = Some((original_context, long.collect()));
        self
    }

    /// Keeps the pairs of which `is_still` holds from turning.
    pub(super) fn with_stilled(mut self, is_still: impl Fn(usize) -> bool) -> Self {
        for (i, bend) in self.bends.iter_mut().enumerate() {
            if is_still(i) {
                (bend.interpolation, bend.keep) = (0.0, 0.0);
            }
        }
        self
    }

    /// Pairs that rotate.
    pub fn n_pairs(&self) -> usize {
        self.bends.len()
    }

    /// Cosines and sines, times the magnitude, of all pairs at the positions
    /// `0..len`: `len × n_pairs` each. `n_ctx` is the run's context length.
    pub fn table(&self, len: usize, n_ctx: usize) -> (Vec<f32>, Vec<f32>) {
        const CONTEXT_STEP: usize = 256;
        let bends = match &self.long {
            Some((original, long)) if n_ctx.next_multiple_of(CONTEXT_STEP) > *original => long,
            _ => &self.bends,
        };
        let mut cos = Vec::with_capacity(len * self.n_pairs());
        let mut sin = Vec::with_capacity(len * self.n_pairs());
        for position in 0..len {
            let mut theta = position as f32;
            for b in bends {
                let full = theta / b.divisor;
                let angle = b.interpolation * full * (1.0 - b.keep) + full * b.keep;
                cos.push(angle.cos() * self.magnitude);
                sin.push(angle.sin() * self.magnitude);
                theta *= self.step;
            }
        }
        (cos, sin)
    }
}

impl Yarn {
    /// The share of pair `i`'s own angle that is kept: 1 for pairs that turn
    /// more than `beta_fast` times within the original context, 0 below
    /// `beta_slow` turns, a ramp between.
    fn keep(&self, i: usize, n_rot: usize, base: f32) -> f32 {
        // The pair that makes `turns` turns over the original context.
        let pair_of = |turns: f32| {
            n_rot as f32 * (self.original_context / (turns * 2.0 * PI)).ln() / (2.0 * base.ln())
        };
        let low = pair_of(self.beta_fast).floor().max(0.0);
        let high = pair_of(self.beta_slow).ceil().min(n_rot as f32 - 1.0);
        let ramp = (i as f32 - low) / (high - low).max(0.001);
        (1.0 - ramp.clamp(0.0, 1.0)) * self.ext_factor
    }
}
