//! A [`Calibration`] as text.

use super::{one_line, signed, small};
use crate::results::noise::{Calibration, NoiseRow, RunNoise};

impl Calibration {
    /// A table a run, for a terminal of 100 columns.
    pub fn to_text(&self) -> String {
        let runs = self.runs().map(|(key, run)| run_text(key, run));
        runs.collect::<Vec<_>>().join("\n")
    }
}

fn run_text(key: &str, run: &RunNoise) -> String {
    let subject = &run.subject;
    let mut out = format!(
        "{}\n    {} tokens in {} windows\n    {:<18} {:>11} {:>9} {:>12} {:>12}\n",
        one_line(key),
        subject.scored_tokens,
        subject.windows,
        "component",
        "Δ ln PPL",
        "± se",
        "RMS Δ NLL",
        "max |Δ NLL|"
    );
    for row in &run.rows {
        out += &format!("    {}\n", row_text(row));
    }
    let counted = run.rows.iter().filter(|r| r.in_floor).count();
    out + &match run.floor() {
        Some(floor) => format!(
            "    noise floor {}: RMS of the {counted} marked * (Δ ln PPL)\n",
            small(floor)
        ),
        None => "    no noise floor: no component counts\n".to_owned(),
    }
}

fn row_text(row: &NoiseRow) -> String {
    let mut name = row.component.name().to_owned();
    if let Some(seed) = row.seed {
        name += &format!(" {seed}");
    }
    if row.in_floor {
        name += " *";
    }
    let s = &row.shift;
    format!(
        "{name:<18} {:>11} {:>9} {:>12} {:>12}",
        // More digits than these are never seen.
        signed(s.mean, 6),
        s.se.map_or_else(|| "-".to_owned(), small),
        small(s.rms),
        small(s.max)
    )
}
