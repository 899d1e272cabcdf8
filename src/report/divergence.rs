//! KL divergences from a base model, where a table has them (`NAME.kld.csv`).

use maud::{Markup, html};

use super::Section;
use super::charts::{self, LEAST_KLD};
use super::elements::{figure, link, name, swatch, table};
use super::plot::PlotError;
use crate::render::markdown::{code, text};
use crate::render::one_line;
use crate::results::{KldOutcome, KldRow, KldSummary};

const HEADERS: [&str; 6] = ["mean KLD", "median", "99 %", "99.9 %", "RMS Δp", "same top"];

/// What stands below [`HEADERS`].
fn cells(s: &KldSummary) -> [String; 6] {
    let nats = |x: f64| format!("{x:.6}");
    let percent = |x: f64, err: f64| format!("{:.3} ± {:.3} %", 100.0 * x, 100.0 * err);
    [
        format!("{:.6} ± {:.6}", s.kld, s.kld_err),
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

/// The table of a section; empty without divergences.
pub(super) fn in_html(s: &Section, number: usize) -> Markup {
    if s.tables.klds().len() == 0 {
        return html! {};
    }
    let caption = html! {
        "KL(base ‖ model) over the vocabulary at each scored token, in nats, ± one standard error; its "
        "percentiles; the change of the targets' probability; how often the likeliest token is the same."
    };
    let rows = html! {
        thead {
            tr {
                th.num scope="col" { "#" } th scope="col" { "run" } th scope="col" { "status" }
                @for header in HEADERS { th.num scope="col" { (header) } }
            }
        }
        tbody { @for row in s.tables.klds() { (html_row(s, row)) } }
    };
    html! {
        h3 { "KL divergence" }
        (table(&format!("divergence-{number}"), caption, rows))
    }
}

fn html_row(s: &Section, row: &KldRow) -> Markup {
    let (status, why) = status(&row.outcome);
    html! {
        tr {
            td.num { (link(s.number(&row.key))) }
            th scope="row" { (name(&row.key)) p.soft { "base " (name(&row.base)) } }
            @match &row.outcome {
                KldOutcome::Ok(summary) => {
                    td { (status) }
                    @for cell in cells(summary) { td.num { (cell) } }
                }
                _ => {
                    td.bad { (status) }
                    td.text colspan="6" { bdi { (one_line(why)) } }
                }
            }
        }
    }
}

/// The table of a section in Markdown; empty without divergences.
pub(super) fn in_markdown(s: &Section) -> String {
    if s.tables.klds().len() == 0 {
        return String::new();
    }
    let mut out = format!("| run | status | {} |\n", HEADERS.join(" | "));
    out += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for row in s.tables.klds() {
        let (status, why) = status(&row.outcome);
        let (status, cells) = match &row.outcome {
            KldOutcome::Ok(summary) => (status.to_owned(), cells(summary)),
            KldOutcome::Failed(_) => (format!("{status}: {}", text(why)), Default::default()),
            KldOutcome::NotRun => (status.to_owned(), Default::default()),
        };
        out += &format!(
            "| {} | {status} | {} |\n",
            code(&row.key),
            cells.join(" | ")
        );
    }
    out
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
