//! Rotary position embedding, reduced to what a backend needs: an angle per
//! position for each pair, and a magnitude.
//!
//! Linear scaling, YaRN (<https://arxiv.org/abs/2309.00071>) and llama3's
//! frequency factors all make angles that are linear in the position, so each is
//! a choice of the pairs' frequencies.

use std::f64::consts::PI;

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

/// RoPE on the first `2 · frequencies.len()` elements of each head: pair `i` at
/// position `p` turns by `p · frequencies[i]` radians and grows by `magnitude`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub pairs: RopePairs,
    pub frequencies: Vec<f64>,
    pub magnitude: f32,
}

/// A file's RoPE scaling.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scaling {
    None,
    Linear { factor: f64 },
    Yarn(Yarn),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Yarn {
    pub factor: f64,
    pub original_context: f64,
    pub ext_factor: f64,
    pub beta_fast: f64,
    pub beta_slow: f64,
}

impl Scaling {
    /// Reads the `rope.scaling.*` keys as llama.cpp does: the type defaults to
    /// linear and the factor to 1.
    pub fn read(hp: &Hparams, n_ctx_train: usize) -> Result<Self, ModelError> {
        let factor = match hp.nonzero_float("rope.scaling.factor")? {
            Some(f) => f,
            None => hp.nonzero_float("rope.scale_linear")?.unwrap_or(1.0),
        };
        if !(factor > 0.0 && factor.is_finite()) {
            return Err(hp.bad("rope.scaling.factor", factor, "a positive number is needed"));
        }
        let factor = f64::from(factor);
        match hp.optional_string("rope.scaling.type")? {
            Some("none") => Ok(Scaling::None),
            None | Some("linear") if factor == 1.0 => Ok(Scaling::None),
            None | Some("linear") => Ok(Scaling::Linear { factor }),
            Some("yarn") => {
                let or = |key, default: f32| -> Result<f64, ModelError> {
                    Ok(f64::from(hp.optional_float(key)?.unwrap_or(default)))
                };
                let original = hp
                    .optional_count("rope.scaling.original_context_length")?
                    .filter(|&n| n > 0)
                    .unwrap_or(n_ctx_train);
                // Negative means 'not set', and on is then the rule for YaRN.
                let ext_factor = or("rope.scaling.yarn_ext_factor", 1.0)?;
                Ok(Scaling::Yarn(Yarn {
                    factor,
                    original_context: original as f64,
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
    /// divide the frequencies (llama3).
    pub(super) fn new(
        pairs: RopePairs,
        n_rot: usize,
        base: f32,
        scaling: &Scaling,
        factors: Option<&Vector>,
        attn_factor: f32,
    ) -> Self {
        let base = f64::from(base);
        let plain = (0..n_rot / 2).map(|i| {
            let f = base.powf(-2.0 * i as f64 / n_rot as f64);
            factors.map_or(f, |v| f / f64::from(v.values[i]))
        });
        let mut magnitude = f64::from(attn_factor);
        let frequencies = match scaling {
            Scaling::None => plain.collect(),
            Scaling::Linear { factor } => plain.map(|f| f / factor).collect(),
            Scaling::Yarn(y) => {
                if y.ext_factor != 0.0 {
                    magnitude *= 1.0 + 0.1 * y.factor.ln();
                }
                plain
                    .enumerate()
                    .map(|(i, f)| {
                        let keep = y.keep(i, n_rot, base);
                        f / y.factor * (1.0 - keep) + f * keep
                    })
                    .collect()
            }
        };
        Rope {
            pairs,
            frequencies,
            magnitude: magnitude as f32,
        }
    }
}

impl Yarn {
    /// The share of pair `i`'s own frequency that is kept: 1 for pairs that turn
    /// more than `beta_fast` times within the original context, 0 below
    /// `beta_slow` turns, a ramp between.
    fn keep(&self, i: usize, n_rot: usize, base: f64) -> f64 {
        // The pair that makes `turns` turns over the original context.
        let pair_of = |turns: f64| {
            n_rot as f64 * (self.original_context / (turns * 2.0 * PI)).ln() / (2.0 * base.ln())
        };
        let low = pair_of(self.beta_fast).floor().max(0.0);
        let high = pair_of(self.beta_slow).ceil().min(n_rot as f64 - 1.0);
        let ramp = (i as f64 - low) / (high - low).max(0.001);
        (1.0 - ramp.clamp(0.0, 1.0)) * self.ext_factor
    }
}
