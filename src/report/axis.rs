//! Axes: their range, round ticks, and a power of ten where numbers are long.

use std::ops::Range;

/// Ticks that an axis has about.
const TICKS: f64 = 5.0;

/// An axis: its range, ticks and label.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    title: String,
    low: f64,
    high: f64,
    /// With their text.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis that shows all `values`, which are finite, with a small margin.
    pub fn over(label: &str, unit: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = values
            .into_iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            });
        let (low, high) = if low <= high { (low, high) } else { (0.0, 0.0) };
        let largest = low.abs().max(high.abs());
        // A range whose ends f64 can still tell apart.
        let margin = match largest < 1e-300 {
            true => 1.0,
            false => (0.05 * (high - low)).max(1e-6 * largest),
        };
        Self::new(label, unit, low - margin, high + margin, 0.0)
    }

    /// An axis for whole numbers.
    pub fn counts(label: &str, low: f64, high: f64) -> Self {
        Self::new(label, "", low, high, 1.0)
    }

    /// A logarithmic axis: x lies at log10(x), and whole decades have ticks.
    pub fn decades(label: &str, unit: &str, low: f64, high: f64) -> Self {
        let (first, last) = (low.ceil() as i32, high.floor() as i32);
        let step = 1 + (last - first).max(0) / 8;
        let decade = |e| (f64::from(e), format!("10{}", superscript(e)));
        Axis {
            title: format!("{label} ({unit})"),
            low,
            high,
            ticks: (first..=last).step_by(step as usize).map(decade).collect(),
        }
    }

    /// An axis for the lines of a list, downwards: the line of `names[i]` lies at
    /// `-i`.
    pub fn list(names: impl IntoIterator<Item = String>) -> Self {
        let ticks: Vec<_> = names
            .into_iter()
            .enumerate()
            .map(|(i, name)| (-(i as f64), name))
            .collect();
        Axis {
            title: String::new(),
            low: 0.25 - ticks.len().max(1) as f64,
            high: 0.75,
            ticks,
        }
    }

    fn new(label: &str, unit: &str, low: f64, high: f64, smallest_step: f64) -> Self {
        let magnitude = low.abs().max(high.abs()).log10().floor() as i32;
        // Numbers from 0.01 to 99,999 need no power.
        let exponent = match magnitude {
            -2..=4 => 0,
            m => (m.div_euclid(3) * 3).max(-306),
        };
        let power = 10f64.powi(exponent);
        let step = round_step((high - low) / power / TICKS).max(smallest_step);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let first = (low / power / step).ceil() as i64;
        let last = (high / power / step).floor() as i64;
        let tick = |i| {
            let at = i as f64 * step;
            (at * power, format!("{at:.decimals$}"))
        };
        let unit = match (exponent, unit) {
            (0, "") => String::new(),
            (0, unit) => format!(" ({unit})"),
            (e, unit) => format!(" ({})", format!("10{} {unit}", superscript(e)).trim_end()),
        };
        Axis {
            title: format!("{label}{unit}"),
            low,
            high,
            ticks: (first..=last).map(tick).collect(),
        }
    }

    pub fn range(&self) -> Range<f64> {
        self.low..self.high
    }

    pub fn ticks(&self) -> impl Iterator<Item = f64> {
        self.ticks.iter().map(|(at, _)| *at)
    }

    /// The text of a tick.
    pub fn text(&self, tick: f64) -> &str {
        let tick = self.ticks.iter().find(|(at, _)| *at == tick);
        tick.map_or("", |(_, text)| text)
    }

    /// What it shows, with the power of ten and the unit of its numbers.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Room for the text of its ticks, in CSS pixels.
    pub fn label_width(&self) -> u32 {
        let lengths = self.ticks.iter().map(|(_, text)| text.chars().count());
        7 * lengths.max().unwrap_or(0) as u32
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 5.0].into_iter().find(|r| r * power >= step);
    round.unwrap_or(10.0) * power
}

fn superscript(exponent: i32) -> String {
    let digit = |c: char| match c {
        '-' => '⁻',
        _ => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][c as usize - '0' as usize],
    };
    exponent.to_string().chars().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(a: &Axis) -> Vec<&str> {
        a.ticks().map(|t| a.text(t)).collect()
    }

    #[test]
    fn ticks_are_round_and_carry_their_power() {
        let a = Axis::over("PPL", "", [20.0, 28.0]);
        assert_eq!(texts(&a), ["20", "22", "24", "26", "28"]);
        assert_eq!(a.title(), "PPL");
        let a = Axis::over("Δ", "nat", [-2e-5, 3e-5]);
        assert_eq!(a.title(), "Δ (10⁻⁶ nat)");
        assert_eq!(texts(&a), ["-20", "0", "20"]);
        assert_eq!(Axis::over("PPL", "", [2e7, 3e7]).title(), "PPL (10⁶)");
        assert_eq!(
            texts(&Axis::counts("window", -0.5, 3.5)),
            ["0", "1", "2", "3"]
        );
        let a = Axis::decades("KLD", "nat", -3.2, 0.5);
        assert_eq!(texts(&a), ["10⁻³", "10⁻²", "10⁻¹", "10⁰"]);
        let a = Axis::list(["4", "7"].map(str::to_owned));
        assert_eq!((texts(&a), a.range()), (vec!["4", "7"], -1.75..0.75));
    }

    proptest! {
        /// plotters must be given ranges and ticks that it can draw.
        #[test]
        fn any_values_have_an_axis(
            values in prop::collection::vec(-1e300f64..1e300, 0..5),
            e in -307i32..0,
        ) {
            let values: Vec<f64> = values.iter().map(|v| v * 10f64.powi(e)).collect();
            let a = Axis::over("x", "", values.iter().copied());
            let range = a.range();
            prop_assert!(range.start.is_finite() && range.end.is_finite());
            prop_assert!(range.start < range.end);
            prop_assert!((1..=12).contains(&a.ticks().count()), "{a:?}");
            prop_assert!(values.iter().all(|v| range.contains(v)), "{a:?}");
        }
    }
}
