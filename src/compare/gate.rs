//! How far a figure may move.

use serde::Serialize;

use super::noise_floor::MaxDelta;
use super::paired::Paired;
use crate::stats::format::{probability, signed, small};

/// Bounds on a difference. Those on its size are judged by what was shown, the 95 %
/// interval of the paired test: within them it passes, beyond them it fails, and
/// otherwise it is open. `docs/methodology.md` derives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Gate {
    /// Largest `|Δ ln PPL|`, in either direction: a kernel that makes a model better
    /// than it is, is as wrong as one that makes it worse.
    pub max_delta: Option<MaxDelta>,
    /// Largest `|Δ PPL|` in percent.
    pub max_delta_pct: Option<f64>,
    /// Largest Δ ln PPL; any decrease is within it.
    pub max_increase: Option<MaxDelta>,
    /// Largest Δ PPL in percent; any decrease is within it.
    pub max_increase_pct: Option<f64>,
    /// Largest difference in standard errors of the paired test.
    pub max_sigma: Option<f64>,
    /// A difference fails whose adjusted p is below this: among the rows that
    /// fail, this share at most is expected to have been chance.
    pub significance: Option<f64>,
    /// What bounds on the size are held against.
    pub judge: Judge,
    /// Whether a table with rows that are open passes.
    pub allow_inconclusive: bool,
}

/// What bounds on the size of a difference are held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judge {
    /// The 95 % interval of the paired test.
    #[default]
    Interval,
    /// The difference itself, however uncertain it is.
    Point,
}

impl Judge {
    /// All.
    pub const ALL: [Judge; 2] = [Judge::Interval, Judge::Point];

    /// As in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Judge::Interval => "interval",
            Judge::Point => "point",
        }
    }

    /// The one of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Judge::ALL.into_iter().find(|j| j.name() == name)
    }
}

/// What a gate judges.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// `ln PPL_B − ln PPL_A`.
    pub delta_ln_ppl: f64,
    /// The difference of the perplexities in percent of A.
    pub delta_pct: f64,
    /// Whose interval bounds on the size are held against; `None`: against the
    /// difference itself.
    pub paired: Option<&'a Paired>,
    /// What `noise*K` is a multiple of, where that is known.
    pub noise_floor: Option<f64>,
    /// Of the paired test.
    pub t: f64,
    /// The p of the paired test, adjusted for the number of rows.
    pub adjusted_p: Option<f64>,
    /// Windows that the corpus has.
    pub corpus_windows: Option<usize>,
}

/// What a gate says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Bounds that are broken, in words.
    pub broken: Vec<String>,
    /// Bounds of which the interval shows neither, in words, and what would.
    pub undecided: Vec<String>,
    /// Whether the bound on ln PPL is not kept.
    pub breaks_max_delta: bool,
}

/// A bound on the size of a difference.
struct SizeBound {
    what: &'static str,
    /// In percent of PPL; in nats of ln PPL otherwise.
    in_percent: bool,
    /// Whether a decrease is bounded, too.
    both_ways: bool,
    largest: f64,
    /// The bound in words.
    text: String,
}

impl SizeBound {
    /// The least and the largest Δ ln PPL that it lets pass, in nats.
    fn nats(&self) -> (f64, f64) {
        let nats = |x: f64| match self.in_percent {
            // Nothing falls by more than 100 %.
            true if x <= -100.0 => f64::NEG_INFINITY,
            true => (x / 100.0).ln_1p(),
            false => x,
        };
        let low = match self.both_ways {
            true => nats(-self.largest),
            false => f64::NEG_INFINITY,
        };
        (low, nats(self.largest))
    }

    /// A difference as the bound has it.
    fn shown(&self, nats: f64) -> String {
        match self.in_percent {
            true => format!("{} %", signed(100.0 * nats.exp_m1(), 4)),
            false => signed(nats, 6),
        }
    }
}

impl Gate {
    /// Whether no bound is set.
    pub fn is_empty(&self) -> bool {
        !self.has_size() && self.max_sigma.is_none() && self.significance.is_none()
    }

    /// Whether the size of a difference is bounded.
    pub fn has_size(&self) -> bool {
        let nats = self.max_delta.or(self.max_increase);
        nats.is_some() || self.max_delta_pct.or(self.max_increase_pct).is_some()
    }

    /// Whether a bound is a multiple of the noise floor.
    pub fn needs_noise(&self) -> bool {
        let is_noise = |bound: Option<MaxDelta>| matches!(bound, Some(MaxDelta::Noise(_)));
        is_noise(self.max_delta) || is_noise(self.max_increase)
    }

    /// Checks that the bounds are numbers of the right range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), String> {
        for bound in [self.max_delta, self.max_increase] {
            bound.map_or(Ok(()), MaxDelta::check)?;
        }
        for (name, bound) in [
            ("max_delta_pct", self.max_delta_pct),
            ("max_increase_pct", self.max_increase_pct),
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

    /// The bounds, in words.
    pub fn texts(&self) -> Vec<String> {
        let sizes = self.size_bounds(None).into_iter();
        let mut texts: Vec<String> = sizes.map(|b| format!("{} {}", b.what, b.text)).collect();
        if let Some(b) = self.max_sigma {
            texts.push(format!("σ ±{b}"));
        }
        if let Some(q) = self.significance {
            texts.push(format!("adjusted p from {q}"));
        }
        if self.has_size() && self.judge == Judge::Point {
            texts.push("judged by the point".to_owned());
        }
        texts
    }

    /// The bounds on the size; without `noise_floor` the words name multiples of it
    /// alone.
    fn size_bounds(&self, noise_floor: Option<f64>) -> Vec<SizeBound> {
        let nats = |bound: MaxDelta, both_ways| {
            let sign = if both_ways { "±" } else { "+" };
            let (largest, text) = match (bound, noise_floor) {
                (MaxDelta::Nats(x), _) => (x, small(x)),
                (MaxDelta::Noise(k), Some(floor)) => {
                    (k * floor, format!("{} ({bound})", small(k * floor)))
                }
                (MaxDelta::Noise(_), None) => (f64::NAN, bound.to_string()),
            };
            SizeBound {
                what: "Δ ln PPL",
                in_percent: false,
                both_ways,
                largest,
                text: format!("{sign}{text}"),
            }
        };
        let percent = |bound: f64, both_ways| SizeBound {
            what: "Δ",
            in_percent: true,
            both_ways,
            largest: bound,
            text: format!("{}{bound} %", if both_ways { "±" } else { "+" }),
        };
        let mut bounds = Vec::new();
        bounds.extend(self.max_delta.map(|b| nats(b, true)));
        bounds.extend(self.max_delta_pct.map(|b| percent(b, true)));
        bounds.extend(self.max_increase.map(|b| nats(b, false)));
        bounds.extend(self.max_increase_pct.map(|b| percent(b, false)));
        bounds
    }

    /// Judges a difference. A NaN breaks every bound.
    pub fn judge(&self, m: Measured<'_>) -> Judgement {
        let mut out = Judgement::default();
        for bound in self.size_bounds(m.noise_floor) {
            let (kept, broken) = match m.paired {
                None => bound.judge_point(&m),
                Some(paired) => bound.judge_interval(paired, &m),
            };
            let is_max_delta = !bound.in_percent && bound.both_ways;
            out.breaks_max_delta |= is_max_delta && !kept;
            match (kept, broken) {
                (true, _) => {}
                (false, Ok(text)) => out.broken.push(text),
                (false, Err(text)) => out.undecided.push(text),
            }
        }
        if let Some(max) = self.max_sigma {
            // Not `>`, which a NaN would pass.
            let within = m.t.abs() <= max;
            if !within {
                out.broken
                    .push(format!("paired t {} outside ±{max}", signed(m.t, 6)));
            }
        }
        if let Some(level) = self.significance {
            let p = m.adjusted_p.unwrap_or(f64::NAN);
            let chance = p >= level;
            if !chance {
                out.broken
                    .push(format!("adjusted p {} below {level}", probability(p)));
            }
        }
        out
    }
}

impl SizeBound {
    /// Whether the difference itself is within the bound; if not, it is broken.
    fn judge_point(&self, m: &Measured<'_>) -> (bool, Result<String, String>) {
        let (x, shown) = match self.in_percent {
            true => (m.delta_pct, format!("{} %", signed(m.delta_pct, 6))),
            false => (m.delta_ln_ppl, signed(m.delta_ln_ppl, 6)),
        };
        let size = if self.both_ways { x.abs() } else { x };
        let within = size <= self.largest;
        let text = format!("{} {shown} outside {}", self.what, self.text);
        (within, Ok(text))
    }

    /// Whether the interval is within the bound; if not, whether it is beyond it
    /// (`Ok`) or reaches across (`Err`).
    fn judge_interval(&self, p: &Paired, m: &Measured<'_>) -> (bool, Result<String, String>) {
        let (low, high) = p.interval();
        let (least, most) = self.nats();
        let within = least <= low && high <= most;
        let text = format!(
            "{} from {} to {} (95 %)",
            self.what,
            self.shown(low),
            self.shown(high)
        );
        let reaches = low <= most && high >= least;
        if !reaches {
            return (within, Ok(format!("{text}, outside {}", self.text)));
        }
        let advice = match p.windows_to_decide(least, most) {
            None => "no number of windows would decide it: Δ is on the bound".to_owned(),
            Some(n) => {
                let has = m
                    .corpus_windows
                    .map_or_else(String::new, |has| format!("; the corpus has {has}"));
                format!("some {n} windows would decide it{has}")
            }
        };
        (
            within,
            Err(format!("{text}, across {}: {advice}", self.text)),
        )
    }
}

#[cfg(test)]
mod tests;
