//! What a residual is made of.

use std::path::PathBuf;

use super::noise::Shift;
use super::render::{one_line, signed, small};
use crate::stats::Estimate;

/// One change, by itself or with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub name: String,
    /// Δ ln PPL against the run as it is, its error clustered by window.
    pub delta: Estimate,
    /// RMS of the NLL differences; `None` where other targets are scored.
    pub rms: Option<f64>,
    /// `None` without a reference, and where other targets are scored.
    pub residual: Option<Residual>,
}

/// A reference beside a changed run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// The reference against the run with the change.
    pub left: Shift,
    /// Of the change's NLL differences with those of the reference, both against the
    /// run as it is; `None` where one of them does not vary.
    pub correlation: Option<f64>,
}

/// The effects on one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribution {
    pub key: String,
    pub windows: usize,
    pub scored_tokens: usize,
    /// Another engine's NLLs, and how far they are from the run as it is.
    pub reference: Option<(PathBuf, Shift)>,
    pub effects: Vec<Effect>,
    /// How far the run with all changes of the arithmetic moves when its inputs
    /// jitter; `None` if none was changed.
    pub chance: Option<Shift>,
}

impl Attribution {
    /// A table for a terminal of 100 columns.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "{}\n    {} tokens in {} windows\n",
            one_line(&self.key),
            self.scored_tokens,
            self.windows
        );
        let mut lines = vec![["", "Δ ln PPL", "RMS Δ NLL"].map(str::to_owned).to_vec()];
        if let Some((path, before)) = &self.reference {
            out += &format!("    reference: {}\n", path.display());
            let header = ["left: Δ ln PPL", "RMS Δ NLL", "r"];
            lines[0].extend(header.map(str::to_owned));
            let mut line = vec!["(as it is)".to_owned(), String::new(), String::new()];
            line.extend([plus_minus(before.mean, before.se), small(before.rms)]);
            line.push(String::new());
            lines.push(line);
        }
        for e in &self.effects {
            let mut line = vec![
                e.name.clone(),
                plus_minus(e.delta.value, e.delta.se),
                e.rms.map_or_else(|| "-".to_owned(), small),
            ];
            if self.reference.is_some() {
                line.extend(match &e.residual {
                    Some(Residual { left, correlation }) => [
                        plus_minus(left.mean, left.se),
                        small(left.rms),
                        correlation.map_or_else(|| "-".to_owned(), |r| format!("{r:.3}")),
                    ],
                    None => ["other targets", "-", "-"].map(str::to_owned),
                });
            }
            lines.push(line);
        }
        if let Some(s) = &self.chance {
            let moved = plus_minus(s.mean, s.se);
            lines.push(vec!["  jittered".to_owned(), moved, small(s.rms)]);
        }
        out + &aligned(&lines)
    }
}

/// Columns: the first to the left, the others to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = lines.iter().filter_map(|l| l.get(i));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let mut out = String::new();
    for line in lines {
        let mut text = format!("    {:<w$}", line[0], w = width(0));
        for (i, cell) in line.iter().enumerate().skip(1) {
            text += &format!("  {cell:>w$}", w = width(i));
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

fn plus_minus(x: f64, se: Option<f64>) -> String {
    match se {
        Some(se) => format!("{} ± {}", signed(x, 6), small(se)),
        None => signed(x, 6),
    }
}
