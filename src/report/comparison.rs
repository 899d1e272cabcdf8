//! Comparisons as tables.

use std::collections::BTreeSet;

use super::grid::{Cell, Column, Grid, Line, number, words};
use super::{Comparison, Section};
use crate::compare::diff::{DiffRow, Difference, Verdict};
use crate::render::{delta_ln_ppl, percent, ppl, probability, signed, small};

const COLUMNS: [Column; 9] = [
    words("verdict"),
    number("PPL A"),
    number("PPL B"),
    number("Δ"),
    number("Δ %"),
    number("Δ ln PPL ± se"),
    number("test"),
    number("adjusted p"),
    number("detectable"),
];

/// What the columns are, for below a table.
pub(super) const LEGEND: &str = "t: paired, from the sums of NLL of windows over identical tokens, with windows − 1 degrees of \
     freedom; σ: unpaired, as if the runs were independent. p: two-sided, adjusted for the number of \
     rows (Benjamini and Hochberg). Detectable: the smallest Δ ln PPL that these windows would have \
     shown in four of five repetitions.";

/// A comparison's rows, or some of them.
pub(super) fn grid(s: &Section, c: &Comparison, rows: &[&DiffRow]) -> Grid {
    let common = common_remarks(c);
    let lines = rows.iter().map(|row| line(s, c, row, &common));
    Grid::new(&COLUMNS, lines.collect())
}

/// A perplexity and its error.
pub(super) fn perplexity(value: f64, err: Option<f64>) -> Cell {
    Cell::new(ppl(value, None)).and(err.map_or_else(String::new, |e| format!("± {e:.5}")))
}

fn line(s: &Section, c: &Comparison, row: &DiffRow, common: &BTreeSet<String>) -> Line {
    let class = match row.verdict {
        Verdict::Pass | Verdict::BelowNoiseFloor => "good",
        Verdict::Fail | Verdict::NotMeasured => "bad",
        Verdict::Inconclusive => "open",
        Verdict::Compared => "",
    };
    let mut cells = vec![Cell::new(row.verdict.text()).classed(class)];
    cells.extend(row.difference.iter().flat_map(figures));
    let mut remarks = remarks(row);
    remarks.retain(|remark| !common.contains(remark));
    Line {
        number: s.number(&row.b_key),
        name: c.names.of(&row.key),
        remarks: remarks.join("; "),
        cells,
        why: row.reason.clone(),
    }
}

fn figures(d: &Difference) -> [Cell; 8] {
    let (change, test, detectable) = match &d.paired {
        Ok(p) => (
            Cell::new(delta_ln_ppl(p.mean, p.se)).and(format!("± {}", small(p.se))),
            Cell::new(format!("t {}", signed(p.t(), 2))).and(format!("{} windows", p.windows)),
            Cell::new(small(p.detectable())),
        ),
        Err(_) => {
            let sigma = d.unpaired_sigma.map(|s| format!("σ {}", signed(s, 2)));
            (
                Cell::default(),
                Cell::of(sigma).and("unpaired"),
                Cell::default(),
            )
        }
    };
    [
        perplexity(d.a.0, d.a.1),
        perplexity(d.b.0, d.b.1),
        Cell::new(signed(d.delta, 4)),
        Cell::new(signed(d.delta_pct, 4)),
        change,
        test,
        Cell::of(d.adjusted_p.map(probability)),
        detectable,
    ]
}

/// What must be known of a comparison besides its figures.
fn remarks(row: &DiffRow) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(d) = &row.difference else {
        return remarks;
    };
    if let Some(floor) = row.noise_floor {
        let here = signed(d.delta_ln_ppl, 6);
        remarks.push(format!(
            "noise floor: |Δ ln PPL| {}, here {here}",
            small(floor)
        ));
    }
    remarks.extend(by_token(d));
    if let Err(why) = &d.paired {
        remarks.push(format!("no paired test: {why}"));
    }
    remarks.extend(d.changed.iter().map(|c| format!("changed: {c}")));
    remarks
}

/// The remarks that every row with figures has, if there are several: they are said
/// once, above the table.
pub(super) fn common_remarks(c: &Comparison) -> BTreeSet<String> {
    let mut rows = c.diff.rows.iter().filter(|row| row.difference.is_some());
    let of = |row: &DiffRow| remarks(row).into_iter().collect::<BTreeSet<_>>();
    let Some(first) = rows.next() else {
        return BTreeSet::new();
    };
    let mut others = 0;
    let common = rows.fold(of(first), |common, row| {
        others += 1;
        common.intersection(&of(row)).cloned().collect()
    });
    if others == 0 { BTreeSet::new() } else { common }
}

/// What the records of both sides say.
fn by_token(d: &Difference) -> Option<String> {
    let t = d.tokens.as_ref().ok()?;
    Some(format!(
        "{} tokens: same top {}, Δp RMS {}",
        t.n(),
        percent(t.same_top, 2),
        percent(t.delta_p.rms, 3)
    ))
}
