//! KL divergences from a base model, where a table has them (`NAME.kld.csv`).

use maud::{Markup, html};

use super::Section;
use super::charts::{self, LEAST_KLD};
use super::elements::{figure, name, swatch};
use super::grid::{Cell, Column, Grid, Line, number, words};
use super::names::{Names, natural};
use super::plot::PlotError;
use crate::render::markdown::code;
use crate::render::one_line;
use crate::results::{KldOutcome, KldRow, KldSummary};

const COLUMNS: [Column; 7] = [
    words("status"),
    number("mean KLD"),
    number("median"),
    number("99 %"),
    number("99.9 %"),
    number("RMS Δp"),
    number("same top"),
];

/// What stands in all columns but the first.
fn figures(s: &KldSummary) -> [Cell; 6] {
    let nats = |x: f64| Cell::new(format!("{x:.6}"));
    let percent = |x: f64, err: f64| {
        Cell::new(format!("{:.3} %", 100.0 * x)).and(format!("± {:.3} %", 100.0 * err))
    };
    [
        nats(s.kld).and(format!("± {:.6}", s.kld_err)),
        nats(s.kld_median),
        nats(s.kld_p99),
        nats(s.kld_p99_9),
        percent(s.rms_delta_p, s.rms_delta_p_err),
        percent(s.same_top, s.same_top_err),
    ]
}

/// The status of a comparison, and why it has no figures.
fn status(outcome: &KldOutcome) -> (&'static str, &str) {
    match outcome {
        KldOutcome::Ok(_) => ("ok", ""),
        KldOutcome::Failed(why) => ("failed", why),
        KldOutcome::NotRun => ("not run", "no figure"),
    }
}

/// The rows of a section, those without figures first; `None` without divergences.
fn grid(s: &Section) -> Option<(Grid, Option<String>)> {
    let mut rows: Vec<&KldRow> = s.tables.klds().collect();
    let urgency = |row: &KldRow| match row.outcome {
        KldOutcome::Failed(_) => 0,
        KldOutcome::NotRun => 1,
        KldOutcome::Ok(_) => 2,
    };
    rows.sort_by(|a, b| {
        let by_urgency = urgency(a).cmp(&urgency(b));
        by_urgency.then_with(|| natural(&a.key, &b.key))
    });
    let base = rows.first()?.base.clone();
    let base = Some(base).filter(|base| rows.iter().all(|row| row.base == *base));
    let names = Names::new(rows.iter().map(|row| row.key.as_str()));
    let all_ok = rows.iter().all(|row| urgency(row) == 2);
    let lines = rows.into_iter().map(|row| {
        let (status, why) = status(&row.outcome);
        let class = if status == "ok" { "" } else { "bad" };
        let shown = if all_ok { "" } else { status };
        let mut cells = vec![Cell::new(shown).classed(class)];
        if let KldOutcome::Ok(summary) = &row.outcome {
            cells.extend(figures(summary));
        }
        Line {
            number: s.number(&row.key),
            name: names.of(&row.key),
            remarks: match base {
                Some(_) => String::new(),
                None => format!("base {}", row.base),
            },
            cells,
            why: why.to_owned(),
        }
    });
    Some((Grid::new(&COLUMNS, lines.collect()), base))
}

/// The table of a section; empty without divergences.
pub(super) fn in_html(s: &Section, number: usize) -> Markup {
    let Some((grid, base)) = grid(s) else {
        return html! {};
    };
    let caption = html! {
        "KL(base ‖ model) over the vocabulary at each scored token, in nats, ± one standard error; its "
        "percentiles; the change of the targets' probability; how often the likeliest token is the same."
        @if let Some(base) = base { " The base of all is " (name(&base)) "." }
    };
    html! {
        h3 { "KL divergence" }
        (grid.to_html(&format!("divergence-{number}"), caption))
    }
}

/// The table of a section in Markdown; empty without divergences.
pub(super) fn in_markdown(s: &Section) -> String {
    let Some((grid, base)) = grid(s) else {
        return String::new();
    };
    let base = base.map_or_else(String::new, |base| format!("Base: {}\n\n", code(&base)));
    base + &grid.to_markdown()
}

/// The distribution over the tokens of one run.
pub(super) fn of_run(id: &str, row: &KldRow) -> Result<Markup, PlotError> {
    let KldOutcome::Ok(s) = &row.outcome else {
        let (status, why) = status(&row.outcome);
        return Ok(html! { p.bad { "KL divergence " (status) ": " bdi { (one_line(why)) } } });
    };
    let percentiles = [
        (0.0, s.kld_min),
        (0.001, s.kld_p0_1),
        (0.01, s.kld_p1),
        (0.05, s.kld_p5),
        (0.1, s.kld_p10),
        (0.5, s.kld_median),
        (0.9, s.kld_p90),
        (0.95, s.kld_p95),
        (0.99, s.kld_p99),
        (0.999, s.kld_p99_9),
        (1.0, s.kld_max),
    ];
    if s.kld_max <= LEAST_KLD {
        return Ok(
            html! { p.soft { "No token's KL divergence from the base is above " (LEAST_KLD) " nat." } },
        );
    }
    let mean = format!("{:.6} ± {:.6}", s.kld, s.kld_err);
    figure(
        &format!("{id}-divergence"),
        &charts::divergences(&percentiles, s.kld),
        "KL divergence",
        &format!(
            "Distribution of the KL divergence from the base over tokens; its mean is {mean} nat."
        ),
        html! {
            (swatch("run")) "KL(base ‖ model) of " (s.scored_tokens) " tokens: bars between the percentiles of "
            "the table, area is the share of tokens. " (swatch("reference")) "Mean " (mean) " nat."
        },
    )
}
