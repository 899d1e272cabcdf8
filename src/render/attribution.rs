//! An [`Attribution`] as text.

use super::{one_line, signed, small};
use crate::compare::{Attribution, Residual};

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
