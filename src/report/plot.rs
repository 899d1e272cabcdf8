//! Charts as data, and their SVG.
//!
//! A [`Figure`] is axes and marks: plain numbers, which tests can read. plotters
//! turns it into SVG here and nowhere else. It escapes text; names from files stand
//! in a figure shortened, on one line and without invisible characters.

use std::io;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::labels::{Anchor, Area, Beside};

/// Why a figure could not be drawn.
pub type PlotError = DrawingAreaErrorKind<io::Error>;

/// Coordinates of the SVG to a CSS pixel: plotters rounds to whole ones.
const UNIT: u32 = 10;

/// Room above the marks, at their right and below them, in CSS pixels.
const MARGIN: (u32, u32, u32) = (10, 14, 40);

/// What a mark stands for. Its colour is written for light pages, and replaced
/// by a custom property through [`Ink::css`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Axes and text.
    Text,
    Grid,
    /// The run that the figure is about.
    Run,
    /// What it is compared with: the base.
    Base,
    /// A reference row.
    Reference,
    /// A bound, or a mark outside of one.
    Broken,
    /// What is behind all marks.
    Page,
}

impl Ink {
    const ALL: [(Ink, &'static str, RGBColor, &'static str); 7] = [
        (Ink::Text, "text", RGBColor(0x3B, 0x42, 0x4A), "#b4bcc6"),
        (Ink::Grid, "grid", RGBColor(0xE2, 0xE5, 0xE9), "#2d333b"),
        (Ink::Run, "run", RGBColor(0x09, 0x55, 0xB3), "#6cb0ff"),
        (Ink::Base, "base", RGBColor(0x6B, 0x6F, 0x76), "#9aa3ad"),
        (
            Ink::Reference,
            "reference",
            RGBColor(0x95, 0x5F, 0x00),
            "#e0a43c",
        ),
        (Ink::Broken, "broken", RGBColor(0xC0, 0x1F, 0x2E), "#ff8080"),
        (Ink::Page, "page", RGBColor(0xFF, 0xFF, 0xFF), "#0f1318"),
    ];

    fn color(self) -> RGBColor {
        Self::ALL[self as usize].2
    }

    /// Rules that give the marks of SVG below `.plot` their colours on light and
    /// dark pages. Colours of attributes yield to rules, so plotters' output is
    /// used as it is.
    pub fn css() -> String {
        let (mut light, mut dark, mut rules) = (String::new(), String::new(), String::new());
        for (_, name, RGBColor(r, g, b), on_dark) in Self::ALL {
            let color = format!("#{r:02X}{g:02X}{b:02X}");
            light += &format!("--{name}:{color};");
            dark += &format!("--{name}:{on_dark};");
            for property in ["fill", "stroke"] {
                rules += &format!(".plot [{property}=\"{color}\"]{{{property}:var(--{name})}}\n");
            }
        }
        format!(
            ":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{rules}"
        )
    }
}

/// Something drawn at data coordinates.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// Its width is in CSS pixels.
    Line {
        points: Vec<(f64, f64)>,
        ink: Ink,
        width: f64,
    },
    /// The area between two curves: `(x, lower, upper)`.
    Band {
        points: Vec<(f64, f64, f64)>,
        ink: Ink,
    },
    Dots {
        points: Vec<(f64, f64)>,
        ink: Ink,
    },
    /// Dots with the page's colour within.
    Rings {
        points: Vec<(f64, f64)>,
        ink: Ink,
    },
    /// Text beside a point.
    Label {
        at: (f64, f64),
        text: String,
        ink: Ink,
        beside: Beside,
    },
}

/// A chart: axes and the marks within them.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Width and height in CSS pixels.
    pub size: (u32, u32),
    /// Room for labels to the right of the marks, in CSS pixels.
    pub right: u32,
    pub x: Axis,
    pub y: Axis,
    /// From back to front.
    pub marks: Vec<Mark>,
}

/// A drawn figure.
pub struct Drawing {
    /// Of its coordinates.
    pub view_box: String,
    /// An `<svg>` element that fills the view box.
    pub svg: String,
}

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

impl Figure {
    /// Where marks are drawn, in CSS pixels.
    pub fn area(&self) -> Area {
        Area {
            left: f64::from(self.left()),
            top: f64::from(MARGIN.0),
            right: f64::from(self.size.0.saturating_sub(MARGIN.1 + self.right)),
            bottom: f64::from(self.size.1.saturating_sub(MARGIN.2)),
        }
    }

    /// Where a point is drawn, in CSS pixels.
    pub fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let part = |axis: &Axis, at: f64| {
            let range = axis.range();
            (at - range.start) / (range.end - range.start)
        };
        let area = self.area();
        (
            area.left + part(&self.x, x) * (area.right - area.left),
            area.bottom - part(&self.y, y) * (area.bottom - area.top),
        )
    }

    /// Room for what stands at the left of the marks.
    fn left(&self) -> u32 {
        26 + self.y.label_width()
    }

    pub fn draw(&self) -> Result<Drawing, PlotError> {
        let (width, height) = (self.size.0 * UNIT, self.size.1 * UNIT);
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
            self.draw_on(&root)?;
            root.present()?;
        }
        Ok(Drawing {
            view_box: format!("0 0 {width} {height}"),
            svg,
        })
    }

    fn draw_on(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), PlotError> {
        let mut plot = ChartBuilder::on(root)
            .margin_top(MARGIN.0 * UNIT)
            .margin_right((MARGIN.1 + self.right) * UNIT)
            .x_label_area_size(MARGIN.2 * UNIT)
            .y_label_area_size(self.left() * UNIT)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        plot.configure_mesh()
            .axis_style(stroke(Ink::Text, 1.0))
            .bold_line_style(stroke(Ink::Grid, 1.0))
            .set_all_tick_mark_size(4 * UNIT)
            .label_style(font().color(&Ink::Text.color()))
            .axis_desc_style(font().color(&Ink::Text.color()))
            .x_desc(self.x.title())
            .y_desc(self.y.title())
            .draw()?;
        for mark in &self.marks {
            self.draw_mark(&mut plot, mark)?;
        }
        Ok(())
    }

    fn draw_mark(&self, plot: &mut Plot<'_, '_>, mark: &Mark) -> Result<(), PlotError> {
        match mark {
            Mark::Line { points, ink, width } => {
                plot.draw_series([PathElement::new(points.clone(), stroke(*ink, *width))])?;
            }
            Mark::Band { points, ink } => {
                let lower = points.iter().map(|&(x, low, _)| (x, low));
                let upper = points.iter().rev().map(|&(x, _, high)| (x, high));
                let outline: Vec<_> = lower.chain(upper).collect();
                plot.draw_series([Polygon::new(outline, ink.color().mix(0.2))])?;
            }
            Mark::Dots { points, ink } => {
                let radius = 26 * UNIT / 10;
                let dot = |&at| Circle::new(at, radius, ink.color().filled());
                plot.draw_series(points.iter().map(dot))?;
            }
            Mark::Rings { points, ink } => {
                let radius = 26 * UNIT / 10;
                let ring = |&at| {
                    let inside = Circle::new((0, 0), radius, Ink::Page.color().filled());
                    let rim = Circle::new((0, 0), radius, stroke(*ink, 1.2));
                    EmptyElement::at(at) + inside + rim
                };
                plot.draw_series(points.iter().map(ring))?;
            }
            Mark::Label {
                at,
                text,
                ink,
                beside,
            } => {
                let end = match beside.anchor {
                    Anchor::Start => HPos::Left,
                    Anchor::Middle => HPos::Center,
                    Anchor::End => HPos::Right,
                };
                let style = font().color(&ink.color());
                let style = style.pos(Pos::new(end, VPos::Center));
                let units = |pixels: f64| (pixels * f64::from(UNIT)).round() as i32;
                let offset = (units(beside.dx), units(beside.dy));
                let text = Text::new(text.clone(), offset, style);
                plot.draw_series([EmptyElement::at(*at) + text])?;
            }
        }
        Ok(())
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let Range {
            start: low,
            end: high,
        } = self.range();
        let part = (value - low) / (high - low);
        (f64::from(start) + part * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks().collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, tick: &f64) -> String {
        self.text(*tick).to_owned()
    }
}

fn font() -> FontDesc<'static> {
    // 12 CSS pixels: plotters writes sizes divided by this factor.
    ("sans-serif", f64::from(12 * UNIT) * 1.24).into_font()
}

fn stroke(ink: Ink, width: f64) -> ShapeStyle {
    ink.color().stroke_width((width * f64::from(UNIT)) as u32)
}
