//! How far a figure may move.

use serde::{Deserialize, Serialize};

use super::render::signed;

/// Bounds on a difference, in either direction: a kernel that makes a model
/// better than it is, is as wrong as one that makes it worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// Largest `|Δ PPL|` in percent.
    pub max_delta_pct: Option<f64>,
    /// Largest difference in standard errors.
    pub max_sigma: Option<f64>,
}

impl Gate {
    /// Whether no bound is set.
    pub fn is_empty(&self) -> bool {
        *self == Gate::default()
    }

    /// Checks that the bounds are finite and not negative.
    pub fn check(&self) -> Result<(), String> {
        for (name, bound) in [
            ("max_delta_pct", self.max_delta_pct),
            ("max_sigma", self.max_sigma),
        ] {
            if let Some(b) = bound.filter(|b| !(b.is_finite() && *b >= 0.0)) {
                return Err(format!("{name} is {b}; it must be a number from 0"));
            }
        }
        Ok(())
    }

    /// The bounds that a difference breaks, in words; `sigma_name` says what
    /// `sigma` is. A NaN breaks every bound.
    pub fn breaches(&self, delta_pct: f64, sigma_name: &str, sigma: f64) -> Vec<String> {
        let mut out = Vec::new();
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
        check("Δ", delta_pct, self.max_delta_pct, " %");
        check(sigma_name, sigma, self.max_sigma, "");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_in_both_directions_and_at_the_bound() {
        let g = Gate {
            max_delta_pct: Some(0.1),
            max_sigma: Some(3.0),
        };
        assert!(g.breaches(0.1, "σ", -3.0).is_empty());
        assert!(g.breaches(-0.1, "σ", 3.0).is_empty());
        assert_eq!(g.breaches(-0.11, "σ", 0.0).len(), 1);
        assert_eq!(g.breaches(0.0, "σ", 3.01).len(), 1);
        assert_eq!(g.breaches(0.2, "σ", f64::INFINITY).len(), 2);
    }

    #[test]
    fn nan_never_passes() {
        let g = Gate {
            max_delta_pct: Some(f64::MAX),
            max_sigma: Some(f64::MAX),
        };
        assert_eq!(g.breaches(f64::NAN, "σ", f64::NAN).len(), 2);
        let nan = Gate {
            max_delta_pct: Some(f64::NAN),
            max_sigma: None,
        };
        assert_eq!(nan.breaches(0.0, "σ", 0.0).len(), 1);
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
