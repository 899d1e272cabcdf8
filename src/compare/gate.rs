//! How far a figure may move.

use serde::Serialize;

use super::noise_floor::MaxDelta;
use crate::stats::format::{probability, signed, small};

/// Bounds on a difference, in either direction: a kernel that makes a model
/// better than it is, is as wrong as one that makes it worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Gate {
    /// Largest `|Δ ln PPL|`.
    pub max_delta: Option<MaxDelta>,
    /// Largest `|Δ PPL|` in percent.
    pub max_delta_pct: Option<f64>,
    /// Largest difference in standard errors of the paired test.
    pub max_sigma: Option<f64>,
    /// A difference fails whose adjusted p is below this: among the rows that
    /// fail, this share at most is expected to have been chance.
    pub significance: Option<f64>,
}

/// What a gate judges.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// `ln PPL_B − ln PPL_A`.
    pub delta_ln_ppl: f64,
    /// What `noise*K` is a multiple of, where that is known.
    pub noise_floor: Option<f64>,
    /// The difference of the perplexities in percent of A.
    pub delta_pct: f64,
    /// Of the paired test.
    pub t: f64,
    /// The p of the paired test, adjusted for the number of rows.
    pub adjusted_p: Option<f64>,
}

impl Gate {
    /// Whether no bound is set.
    pub fn is_empty(&self) -> bool {
        *self == Gate::default()
    }

    /// Checks that the bounds are numbers of the right range.
    pub fn check(&self) -> Result<(), String> {
        self.max_delta.map_or(Ok(()), MaxDelta::check)?;
        for (name, bound) in [
            ("max_delta_pct", self.max_delta_pct),
            ("max_sigma", self.max_sigma),
        ] {
            if let Some(b) = bound.filter(|b| !(b.is_finite() && *b >= 0.0)) {
                return Err(format!("{name} is {b}; it must be a number from 0"));
            }
        }
        if let Some(q) = self.significance.filter(|q| !(*q > 0.0 && *q < 1.0)) {
            return Err(format!(
                "significance is {q}; it must be between 0 and 1, such as 0.05"
            ));
        }
        Ok(())
    }

    /// How a difference breaks [`Gate::max_delta`], in words.
    pub fn max_delta_breach(&self, m: Measured) -> Option<String> {
        let max = self.max_delta?;
        let bound = match max {
            MaxDelta::Nats(nats) => nats,
            MaxDelta::Noise(k) => k * m.noise_floor.unwrap_or(f64::NAN),
        };
        // Not `>`, which a NaN would pass.
        let within = m.delta_ln_ppl.abs() <= bound;
        let times = match max {
            MaxDelta::Nats(_) => String::new(),
            MaxDelta::Noise(_) => format!(" ({max})"),
        };
        (!within).then(|| {
            let delta = signed(m.delta_ln_ppl, 6);
            format!("Δ ln PPL {delta} outside ±{}{times}", small(bound))
        })
    }

    /// The bounds that a difference breaks, in words. A NaN breaks every bound.
    pub fn breaches(&self, m: Measured) -> Vec<String> {
        let mut out = Vec::from_iter(self.max_delta_breach(m));
        let mut check = |what: &str, x: f64, bound: Option<f64>, unit: &str| {
            let Some(bound) = bound else { return };
            // Not `x > bound`, which a NaN would pass.
            let within = x.abs() <= bound;
            if !within {
                out.push(format!(
                    "{what} {}{unit} outside ±{bound}{unit}",
                    signed(x, 6)
                ));
            }
        };
        check("Δ", m.delta_pct, self.max_delta_pct, " %");
        check("paired t", m.t, self.max_sigma, "");
        if let Some(level) = self.significance {
            let p = m.adjusted_p.unwrap_or(f64::NAN);
            let chance = p >= level;
            if !chance {
                out.push(format!("adjusted p {} below {level}", probability(p)));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(delta_pct: f64, t: f64) -> Measured {
        Measured {
            delta_ln_ppl: delta_pct / 100.0,
            noise_floor: None,
            delta_pct,
            t,
            adjusted_p: None,
        }
    }

    #[test]
    fn bounds_hold_in_both_directions_and_at_the_bound() {
        let g = Gate {
            max_delta_pct: Some(0.1),
            max_sigma: Some(3.0),
            ..Gate::default()
        };
        assert!(g.breaches(measured(0.1, -3.0)).is_empty());
        assert!(g.breaches(measured(-0.1, 3.0)).is_empty());
        assert_eq!(g.breaches(measured(-0.11, 0.0)).len(), 1);
        assert_eq!(g.breaches(measured(0.0, 3.01)).len(), 1);
        assert_eq!(g.breaches(measured(0.2, f64::INFINITY)).len(), 2);
    }

    #[test]
    fn significance_judges_the_adjusted_p() {
        let g = Gate {
            significance: Some(0.05),
            ..Gate::default()
        };
        let at = |adjusted_p| {
            g.breaches(Measured {
                adjusted_p,
                ..measured(0.0, 0.0)
            })
        };
        assert!(at(Some(0.05)).is_empty());
        assert_eq!(at(Some(0.01)), ["adjusted p 0.0100 below 0.05"]);
        assert_eq!(at(Some(f64::NAN)).len(), 1);
        assert_eq!(at(None).len(), 1);
        for bad in [0.0, 1.0, -0.1, f64::NAN] {
            let g = Gate {
                significance: Some(bad),
                ..Gate::default()
            };
            assert!(g.check().is_err());
        }
    }

    #[test]
    fn nan_never_passes() {
        let g = Gate {
            max_delta: Some(MaxDelta::Nats(f64::MAX)),
            max_delta_pct: Some(f64::MAX),
            max_sigma: Some(f64::MAX),
            significance: None,
        };
        assert_eq!(g.breaches(measured(f64::NAN, f64::NAN)).len(), 3);
        // A multiple of a floor that is not known.
        let noise = Gate {
            max_delta: Some(MaxDelta::Noise(3.0)),
            ..Gate::default()
        };
        assert_eq!(noise.breaches(measured(0.0, 0.0)).len(), 1);
        let nan = Gate {
            max_delta_pct: Some(f64::NAN),
            ..Gate::default()
        };
        assert_eq!(nan.breaches(measured(0.0, 0.0)).len(), 1);
        assert!(nan.check().is_err());
        assert!(
            Gate {
                max_sigma: Some(-1.0),
                ..g
            }
            .check()
            .is_err()
        );
    }
}
