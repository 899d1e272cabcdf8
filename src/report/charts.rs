//! The figures of a report.

use super::axis::Axis;
use super::labels::{self, Anchor, Beside};
use super::plot::{Figure, Ink, Mark};
use super::series::{Differences, Estimate};

/// A model of a sweep: its size, and a figure of which less is better.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub name: String,
    pub size: f64,
    pub value: f64,
    /// Which other one is no larger and no worse.
    pub dominated_by: Option<usize>,
}

/// Figures against sizes, which ascend, each point with its name where there is room.
/// The line joins those that nothing dominates.
pub fn sizes(size: (&str, &str), value: (&str, &str), choices: &[Choice]) -> Figure {
    let values = || choices.iter().map(|c| c.value);
    let least = values().fold(f64::INFINITY, f64::min);
    let is_wide = least > 0.0 && values().fold(0.0, f64::max) > WIDE * least;
    let at = |c: &Choice| match is_wide {
        true => (c.size, c.value.log10()),
        false => (c.size, c.value),
    };
    let y = match is_wide {
        true => {
            let ends = || values().map(f64::log10);
            let (low, high) = (
                ends().fold(f64::MAX, f64::min),
                ends().fold(f64::MIN, f64::max),
            );
            let margin = 0.08 * (high - low);
            Axis::decades(value.0, value.1, low - margin, high + margin)
        }
        false => Axis::over(value.0, value.1, values()),
    };
    let is_front = |c: &&Choice| c.dominated_by.is_none();
    let front: Vec<_> = choices.iter().filter(is_front).map(at).collect();
    let dominated = choices.iter().filter(|c| !is_front(c));
    let mut figure = Figure {
        size: SIZE,
        right: 0,
        x: Axis::over(size.0, size.1, choices.iter().map(|c| c.size)),
        y,
        marks: vec![
            Mark::Line {
                points: front.clone(),
                ink: Ink::Run,
                width: 1.5,
            },
            Mark::Rings {
                points: dominated.map(at).collect(),
                ink: Ink::Run,
            },
            Mark::Dots {
                points: front.clone(),
                ink: Ink::Run,
            },
        ],
    };
    let line: Vec<_> = front.iter().map(|&at| figure.place(at)).collect();
    let names = choices
        .iter()
        .map(|c| (figure.place(at(c)), c.name.as_str()));
    let places = labels::place(&names.collect::<Vec<_>>(), &line, figure.area());
    for (choice, beside) in choices.iter().zip(places) {
        figure.marks.extend(beside.map(|beside| Mark::Label {
            at: at(choice),
            text: choice.name.clone(),
            ink: Ink::Text,
            beside,
        }));
    }
    figure
}

/// Small enough for a telephone, and two stand side by side on a screen.
const SIZE: (u32, u32) = (480, 250);

/// Figures whose largest is more than so many times the least have a logarithmic axis.
const WIDE: f64 = 20.0;

/// The running perplexity of a run, with a band of one standard error; below it
/// the base's, if there is one, and a line for the reference.
pub fn running(run: &[Estimate], base: &[Estimate], reference: Option<f64>) -> Figure {
    let band: Vec<_> = run
        .iter()
        .filter_map(|e| Some((e.windows as f64, e.ppl - e.err?, e.ppl + e.err?)))
        .collect();
    let windows = run.last().map_or(1.0, |e| e.windows as f64);
    // The error of the first windows says little and would fill the figure.
    let settled = band.iter().filter(|(k, ..)| 4.0 * k >= windows);
    let y = Axis::over(
        "PPL",
        "",
        [run, base]
            .into_iter()
            .flatten()
            .map(|e| e.ppl)
            .chain(settled.flat_map(|&(_, low, high)| [low, high]))
            .chain(reference),
    );
    let x = Axis::counts("corpus windows so far", 0.0, windows);
    let curve = |estimates: &[Estimate], ink, width| Mark::Line {
        points: estimates
            .iter()
            .map(|e| (e.windows as f64, e.ppl))
            .collect(),
        ink,
        width,
    };
    let mut marks = vec![Mark::Band {
        points: band,
        ink: Ink::Run,
    }];
    marks.extend(reference.map(|r| Mark::Line {
        points: vec![(0.0, r), (windows, r)],
        ink: Ink::Reference,
        width: 1.0,
    }));
    if !base.is_empty() {
        marks.push(curve(base, Ink::Base, 3.0));
    }
    marks.push(curve(run, Ink::Run, 1.5));
    Figure {
        size: SIZE,
        right: 0,
        x,
        y,
        marks,
    }
}

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Of an estimate that is normally distributed.
    pub fn normal(mean: f64, se: f64) -> Self {
        let half = 1.959_964 * se;
        Interval {
            mean,
            low: mean - half,
            high: mean + half,
        }
    }
}

/// The differences of two runs window by window, and their mean with its interval.
pub fn paired(differences: &Differences, windows: usize, mean: Interval) -> Figure {
    let Interval { mean, low, high } = mean;
    let dots: Vec<_> = differences
        .points
        .iter()
        .map(|p| {
            let middle = p.window as f64 + 0.5 * (differences.group - 1) as f64;
            (middle, p.mean)
        })
        .collect();
    let y = Axis::over(
        "Δ NLL a token",
        "nat",
        dots.iter().map(|d| d.1).chain([0.0, low, high]),
    );
    let (first, last) = (-0.5, windows as f64 - 0.5);
    let x = Axis::counts("corpus window", first, last);
    let across = |y: f64, ink, width| Mark::Line {
        points: vec![(first, y), (last, y)],
        ink,
        width,
    };
    Figure {
        size: SIZE,
        right: 0,
        marks: vec![
            across(0.0, Ink::Text, 1.0),
            Mark::Band {
                points: vec![(first, low, high), (last, low, high)],
                ink: Ink::Run,
            },
            across(mean, Ink::Run, 1.5),
            Mark::Dots {
                points: dots,
                ink: Ink::Run,
            },
        ],
        x,
        y,
    }
}

/// The difference of one run, as a line of [`effects`].
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// What stands at its left: the number and name of its run.
    pub name: String,
    pub value: Interval,
    /// What stands at its right: its size in standard errors.
    pub label: String,
    /// Whether it breaks a bound.
    pub broken: bool,
}

/// Differences with their 95 % intervals, one a line, and bounds in both
/// directions.
pub fn effects(label: &str, unit: &str, effects: &[Effect], bound: Option<f64>) -> Figure {
    let ends = effects.iter().flat_map(|e| [e.value.low, e.value.high]);
    let x = Axis::over(label, unit, ends.chain([0.0]));
    let y = Axis::list(effects.iter().map(|e| e.name.clone()));
    let (top, bottom) = (y.range().end, y.range().start);
    let vertical = |at: f64, ink| Mark::Line {
        points: vec![(at, bottom), (at, top)],
        ink,
        width: 1.0,
    };
    let mut marks = vec![vertical(0.0, Ink::Text)];
    marks.extend(
        bound
            .into_iter()
            .flat_map(|b| [-b, b])
            .filter(|b| x.range().contains(b))
            .map(|b| vertical(b, Ink::Broken)),
    );
    for (i, e) in effects.iter().enumerate() {
        let line = -(i as f64);
        let ink = if e.broken { Ink::Broken } else { Ink::Run };
        marks.extend([
            Mark::Line {
                points: vec![(e.value.low, line), (e.value.high, line)],
                ink,
                width: 1.5,
            },
            Mark::Dots {
                points: vec![(e.value.mean, line)],
                ink,
            },
            Mark::Label {
                at: (x.range().end, line),
                text: e.label.clone(),
                ink,
                beside: Beside {
                    dx: 6.0,
                    dy: 0.0,
                    anchor: Anchor::Start,
                },
            },
        ]);
    }
    Figure {
        size: (SIZE.0, 60 + 20 * effects.len() as u32),
        right: 84,
        x,
        y,
        marks,
    }
}

/// KL divergences below this are drawn at it: rounding makes them, and a
/// logarithm has no place for 0.
pub const LEAST_KLD: f64 = 1e-9;

/// The distribution of KL divergences over tokens, from their percentiles: the
/// share of tokens that lie below each, ascending, and its value in nats. A bar
/// between two percentiles has the area of the share between them over log10 KLD;
/// it is a twentieth of a decade wide at least.
pub fn divergences(percentiles: &[(f64, f64)], mean: f64) -> Figure {
    let place = |kld: f64| kld.max(LEAST_KLD).log10();
    let bars: Vec<(f64, f64, f64)> = percentiles
        .windows(2)
        .map(|pair| {
            let (from, to) = (place(pair[0].1), place(pair[1].1));
            let to = to.max(from + 0.05);
            (from, to, 100.0 * (pair[1].0 - pair[0].0) / (to - from))
        })
        .collect();
    let low = bars.first().map_or(-1.0, |b| b.0).min(place(mean));
    let high = bars.iter().map(|b| b.1).fold(place(mean), f64::max);
    let top = bars.iter().map(|b| b.2).fold(0.0, f64::max);
    let mut marks: Vec<Mark> = bars
        .iter()
        .flat_map(|&(from, to, height)| {
            [
                Mark::Band {
                    points: vec![(from, 0.0, height), (to, 0.0, height)],
                    ink: Ink::Run,
                },
                Mark::Line {
                    points: vec![(from, 0.0), (from, height), (to, height), (to, 0.0)],
                    ink: Ink::Run,
                    width: 1.0,
                },
            ]
        })
        .collect();
    marks.push(Mark::Line {
        points: vec![(place(mean), 0.0), (place(mean), top)],
        ink: Ink::Reference,
        width: 1.5,
    });
    Figure {
        size: SIZE,
        right: 0,
        x: Axis::decades("KLD", "nat", low - 0.1, high + 0.1),
        y: Axis::over("tokens per decade", "%", [0.0, top]),
        marks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::series::{self, WindowDifference};
    use crate::results::WindowRow;

    fn line(figure: &Figure, ink: Ink) -> &[(f64, f64)] {
        let mut lines = figure.marks.iter().rev().filter_map(|m| match m {
            Mark::Line { points, ink: i, .. } if *i == ink => Some(points),
            _ => None,
        });
        lines.next().unwrap()
    }

    fn band(figure: &Figure) -> &[(f64, f64, f64)] {
        let mut bands = figure.marks.iter().filter_map(|m| match m {
            Mark::Band { points, .. } => Some(points),
            _ => None,
        });
        bands.next().unwrap()
    }

    #[test]
    fn the_running_curve_ends_at_the_figure_and_its_band_at_its_error() {
        let windows: Vec<WindowRow> = (0..9)
            .map(|window| WindowRow {
                window,
                scored: 10,
                nll_sum: 30.0 + [2.0, -1.0, 0.5][window % 3],
                target_bytes: 40,
            })
            .collect();
        let run = series::running(&windows);
        let last = *run.last().unwrap();
        let f = running(&run, &run, Some(19.0));
        assert_eq!(line(&f, Ink::Run).last(), Some(&(9.0, last.ppl)));
        assert_eq!(line(&f, Ink::Base).len(), 9);
        assert_eq!(line(&f, Ink::Reference), [(0.0, 19.0), (9.0, 19.0)]);
        // From the second window on: one has no error.
        assert_eq!(band(&f).len(), 8);
        let err = last.err.unwrap();
        assert_eq!(
            band(&f).last(),
            Some(&(9.0, last.ppl - err, last.ppl + err))
        );
        assert!(run.iter().all(|e| f.y.range().contains(&e.ppl)));
        f.draw().unwrap();
    }

    #[test]
    fn the_paired_figure_has_a_dot_a_window_and_the_interval() {
        let points = [1e-3, -2e-3, 4e-3].into_iter().enumerate();
        let points = points.map(|(window, mean)| WindowDifference { window, mean });
        let differences = Differences {
            group: 1,
            points: points.collect(),
        };
        let (mean, low, high) = (1e-3, -6e-3, 8e-3);
        let f = paired(&differences, 3, Interval { mean, low, high });
        assert_eq!(band(&f), [(-0.5, low, high), (2.5, low, high)]);
        assert_eq!(line(&f, Ink::Run), [(-0.5, 1e-3), (2.5, 1e-3)]);
        let dots = vec![(0.0, 1e-3), (1.0, -2e-3), (2.0, 4e-3)];
        assert!(f.marks.contains(&Mark::Dots {
            points: dots,
            ink: Ink::Run
        }));
        assert_eq!(f.y.title(), "Δ NLL a token (10⁻³ nat)");
        f.draw().unwrap();
    }

    #[test]
    fn bars_of_divergences_have_the_area_of_their_share() {
        let percentiles = [(0.0, 0.0), (0.5, 1e-4), (0.9, 1e-2), (1.0, 1e-2)];
        let f = divergences(&percentiles, 2e-3);
        let bars = f.marks.iter().filter_map(|m| match m {
            Mark::Band { points, .. } => Some((points[0].0, points[1].0, points[0].2)),
            _ => None,
        });
        let bars: Vec<(f64, f64, f64)> = bars.collect();
        assert_eq!(bars.len(), 3);
        // What rounds to nothing lies at the floor.
        assert!((bars[0].0 + 9.0).abs() < 1e-12);
        for ((from, to, height), share) in bars.iter().zip([50.0, 40.0, 10.0]) {
            assert!(((to - from) * height - share).abs() < 1e-9);
        }
        // Equal percentiles still have a bar.
        assert!((bars[2].1 - bars[2].0 - 0.05).abs() < 1e-12);
        assert_eq!(line(&f, Ink::Reference)[0].0, 2e-3f64.log10());
        f.draw().unwrap();
    }

    #[test]
    fn effects_stand_in_their_order_with_visible_bounds() {
        let effect = |name: &str, mean, broken| Effect {
            name: name.to_owned(),
            value: Interval {
                mean,
                low: mean - 0.1,
                high: mean + 0.1,
            },
            label: String::new(),
            broken,
        };
        let list = [effect("3", 0.5, true), effect("7", 0.0, false)];
        let f = effects("Δ PPL", "%", &list, Some(0.2));
        assert_eq!((f.y.text(0.0), f.y.text(-1.0)), ("3", "7"));
        assert_eq!(line(&f, Ink::Run), [(-0.1, -1.0), (0.1, -1.0)]);
        assert_eq!(line(&f, Ink::Broken), [(0.5 - 0.1, 0.0), (0.5 + 0.1, 0.0)]);
        // +0.2 is within the figure, -0.2 is not.
        let verticals = f.marks.iter().filter(
            |m| matches!(m, Mark::Line { points, ink: Ink::Broken, .. } if points[0].0 == points[1].0),
        );
        assert_eq!(verticals.count(), 1);
        f.draw().unwrap();
    }
}
