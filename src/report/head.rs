//! What a report says first: what it is of, and what is wrong.

use super::{Comparison, Report, Section};
use crate::compare::diff::Verdict;
use crate::render::one_line;
use crate::results::{KldOutcome, Outcome};

/// Troubles that are listed at most; the tables have all of them.
const LISTED: usize = 12;

/// Something that a reviewer must look at.
pub(super) struct Trouble {
    /// The run that it is of, where the report has it.
    pub number: Option<usize>,
    /// What the run is called.
    pub name: String,
    /// `failed`, or a verdict.
    pub what: &'static str,
    /// The reason; may be empty.
    pub why: String,
}

/// The worst troubles, and how many there are besides.
pub(super) struct Troubles {
    pub listed: Vec<Trouble>,
    pub others: usize,
}

impl Report {
    /// The names of its experiments.
    pub(super) fn title(&self) -> String {
        let names: Vec<String> = self.sections.iter().map(Section::name).collect();
        one_line(&names.join(", "))
    }

    /// What measured the tables, and when: the commit, or the engine where that is not
    /// known, and the day on which the last run began, where the timings have it.
    pub(super) fn origin(&self) -> Vec<String> {
        let mut origins: Vec<String> = Vec::new();
        for row in self.sections.iter().flat_map(|s| s.tables.rows()) {
            let origin = origin(&row.provenance.engine);
            if !origin.is_empty() && !origins.contains(&origin) {
                origins.push(origin);
            }
        }
        let days = self.sections.iter().filter_map(|s| s.tables.last_started());
        origins.extend(days.filter_map(day).max());
        origins
    }

    /// Runs without a figure, comparisons that fail or cannot be made or decided, and
    /// divergences that are missing.
    pub(super) fn troubles(&self) -> Troubles {
        let mut all: Vec<Trouble> = self.sections.iter().flat_map(Section::troubles).collect();
        let others = all.len().saturating_sub(LISTED);
        all.truncate(LISTED);
        Troubles {
            listed: all,
            others,
        }
    }
}

impl Section {
    fn troubles(&self) -> Vec<Trouble> {
        let mut all = Vec::new();
        for entry in self.entries() {
            let (what, why) = match &entry.row.outcome {
                Outcome::Ok(_) => continue,
                Outcome::Failed(why) => ("failed", why.clone()),
                Outcome::NotRun => ("not run", String::new()),
            };
            all.push(Trouble {
                number: Some(entry.number),
                name: entry.name,
                what,
                why,
            });
        }
        for comparison in &self.comparisons {
            all.extend(self.troubles_of(comparison));
        }
        for row in self.tables.klds() {
            if let KldOutcome::Failed(why) = &row.outcome
                && self.has_figures(&row.key)
            {
                all.push(Trouble {
                    number: self.number(&row.key),
                    name: self.names.of(&row.key),
                    what: "no KL divergence",
                    why: why.clone(),
                });
            }
        }
        all
    }

    fn troubles_of(&self, comparison: &Comparison) -> Vec<Trouble> {
        let mut all = Vec::new();
        for row in comparison.rows() {
            let is_trouble = match row.verdict {
                // The run has said so itself.
                Verdict::NotMeasured => row.b_key.is_empty() || self.has_figures(&row.b_key),
                Verdict::Fail | Verdict::Inconclusive => true,
                Verdict::Compared | Verdict::Pass | Verdict::BelowNoiseFloor => false,
            };
            if is_trouble {
                all.push(Trouble {
                    number: self.number(&row.b_key),
                    name: comparison.names.of(&row.key),
                    what: row.verdict.text(),
                    why: row.reason.clone(),
                });
            }
        }
        all
    }

    fn has_figures(&self, key: &str) -> bool {
        let row = self.tables.get(key);
        row.is_some_and(|row| row.figures().is_some())
    }
}

/// The commit of an engine, or all of it where that is not known.
fn origin(engine: &str) -> String {
    let commit = engine.split(", ").find(|part| part.starts_with("commit "));
    one_line(commit.unwrap_or(engine))
}

/// The day of a time in RFC 3339.
fn day(time: &str) -> Option<String> {
    let day = time.get(..10)?;
    let is_day = day.bytes().enumerate().all(|(i, b)| match i {
        4 | 7 => b == b'-',
        _ => b.is_ascii_digit(),
    });
    is_day.then(|| day.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_and_days_are_found() {
        let engine = "pplx 0.1.0, arithmetic 1, commit c3d5dd1a3c, NVIDIA H200";
        assert_eq!(origin(engine), "commit c3d5dd1a3c");
        assert_eq!(origin("llama.cpp b9999"), "llama.cpp b9999");
        assert_eq!(day("2026-11-29T21:52:53Z").as_deref(), Some("2026-11-29"));
        assert_eq!(day("yesterday, or so"), None);
    }
}
