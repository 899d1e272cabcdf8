//! What the runs of a plan can show, for `pplx plan --power`.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::Failure;
use crate::compare::{
    Differ, Gate, MaxDelta, NoiseFloor, PRIOR_TOKEN_SD, Scatter, between_tables, within_table,
};
use crate::eval::{Limits, WindowPlan};
use crate::plan::{Estimate, Plan, RunSpec, Tokens};
use crate::results::{TablePaths, Tables};
use crate::stats::format::small;
use crate::stats::power::{Sides, detectable, windows_to_pass};

#[derive(clap::Args)]
pub struct PowerArgs {
    /// Say which change of ln PPL each run can show with its windows, and how many
    /// windows [gate] needs.
    #[arg(long)]
    power: bool,

    /// With --power: how much differences scatter, from the runs that two tables of
    /// results share, or from pairs of one [default: the experiment's own table].
    #[arg(long, value_name = "TABLE", num_args = 1..=2, requires = "power")]
    power_from: Vec<PathBuf>,

    /// Directory of the experiment's own table.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
}

/// What a comparison of one run with another can show, by one scatter.
pub struct Power {
    /// Of the windows' mean differences, in nats a token.
    scatter: f64,
    source: Source,
    /// The smallest change of ln PPL that the run's windows show.
    detectable: Option<f64>,
    gate: Vec<Needed>,
}

/// Where a scatter comes from.
enum Source {
    Pair {
        differ: Differ,
        a: String,
        b: String,
        windows: usize,
        tables: String,
    },
    /// [`PRIOR_TOKEN_SD`], since there is no such pair.
    Prior,
}

/// How many windows a bound of the gate needs.
struct Needed {
    bound: String,
    /// The bound, and the windows that it needs, if any number will do; or why the bound is
    /// not known.
    windows: Result<(f64, Option<usize>), String>,
}

/// The power of a run by each scatter that is known for it, and the windows that its
/// corpus has.
pub struct RunPower {
    powers: Vec<Power>,
    corpus_windows: Option<usize>,
}

/// The power of each run; `None` where it is not asked for.
pub fn powers(
    args: &PowerArgs,
    plan: &Plan,
    rows: &[(&RunSpec, Estimate)],
) -> Result<Option<Vec<RunPower>>, Failure> {
    if !args.power {
        return Ok(None);
    }
    let load = |path: &PathBuf| Tables::load_file(path).map_err(Failure::usage);
    let own = TablePaths::new(&args.results, &plan.name).table;
    let own = own.exists().then(|| load(&own)).transpose()?;
    let given = args.power_from.iter().map(load);
    let given = given.collect::<Result<Vec<_>, _>>()?;
    let (tables, scatters) = match (&given[..], &own) {
        ([a, b, ..], _) => (vec![a, b], between_tables(a, b)),
        ([table], _) | ([], Some(table)) => (vec![table], within_table(table)),
        ([], None) => (Vec::new(), Vec::new()),
    };
    let tables = tables.iter().map(|t| t.paths().table.display().to_string());
    let tables = tables.collect::<Vec<_>>().join(" and ");
    let noise = match &own {
        Some(own) => NoiseFloor::beside(&own.paths().table).map_err(Failure::usage)?,
        None => NoiseFloor::Unknown("no noise floor: nothing is measured yet".to_owned()),
    };
    let floor = |run: &RunSpec| match own.as_ref().and_then(|own| own.get(&run.key)) {
        Some(row) => noise.of(row),
        None => Err("no noise floor: the run is not measured yet".to_owned()),
    };
    let of_run = |(run, estimate): &(&RunSpec, Estimate)| {
        let bounds = bounds(&plan.gate, || floor(run));
        RunPower::new(run, estimate, &scatters, &tables, &bounds)
    };
    Ok(Some(rows.iter().map(of_run).collect()))
}

/// A bound of the gate on the size of a change.
struct Bound {
    /// As in experiment files, with its value.
    name: String,
    /// The bound on |Δ ln PPL|, or why it is not known.
    nats: Result<f64, String>,
    sides: Sides,
}

/// The bounds of a gate on the size of a change.
fn bounds(gate: &Gate, floor: impl Fn() -> Result<f64, String>) -> Vec<Bound> {
    let bound = |name: String, nats, sides| Bound { name, nats, sides };
    // The nearer end of ±x % in nats.
    let percent = |x: f64| Ok((x / 100.0).ln_1p());
    let nats = |max: MaxDelta| match max {
        MaxDelta::Nats(nats) => Ok(nats),
        MaxDelta::Noise(factor) => floor().map(|floor| factor * floor),
    };
    let both = Sides::Both;
    let max_delta = gate.max_delta;
    let max_delta = max_delta.map(|x| bound(format!("max_delta {x}"), nats(x), both));
    let pct = gate.max_delta_pct;
    let pct = pct.map(|x| bound(format!("max_delta_pct {x}"), percent(x), both));
    let one = Sides::One;
    let increase = gate.max_increase;
    let increase = increase.map(|x| bound(format!("max_increase {x}"), nats(x), one));
    let increase_pct = gate.max_increase_pct;
    let increase_pct =
        increase_pct.map(|x| bound(format!("max_increase_pct {x}"), percent(x), one));
    let bounds = [max_delta, pct, increase, increase_pct];
    bounds.into_iter().flatten().collect()
}

impl RunPower {
    fn new(
        run: &RunSpec,
        estimate: &Estimate,
        scatters: &[Scatter],
        tables: &str,
        bounds: &[Bound],
    ) -> Self {
        let all = |tokens| WindowPlan::new(tokens, run.geometry, Limits::default()).ok();
        let corpus_windows = match estimate.tokens {
            Tokens::Exact(tokens) | Tokens::Estimated(tokens) => all(tokens),
            Tokens::Unknown => None,
        };
        let work = estimate.work.as_ref().and_then(|w| w.as_ref().ok());
        let mut known: Vec<(f64, Source)> = chosen(run, scatters)
            .map(|s| {
                let source = Source::Pair {
                    differ: s.differ,
                    a: s.a.key.clone(),
                    b: s.b.key.clone(),
                    windows: s.windows,
                    tables: tables.to_owned(),
                };
                (s.sd, source)
            })
            .collect();
        if let (true, Some(work)) = (known.is_empty(), work) {
            let scored = work.scored as f64 / work.windows.max(1) as f64;
            known.push((PRIOR_TOKEN_SD / scored.sqrt(), Source::Prior));
        }
        let powers = known.into_iter().map(|(scatter, source)| Power {
            scatter,
            source,
            detectable: work.and_then(|work| detectable(scatter, work.windows)),
            gate: bounds.iter().map(|bound| bound.needed(scatter)).collect(),
        });
        Self {
            powers: powers.collect(),
            corpus_windows: corpus_windows.map(|plan| plan.windows().len()),
        }
    }
}

impl Bound {
    fn needed(&self, scatter: f64) -> Needed {
        let windows = |nats| (nats, windows_to_pass(scatter, nats, self.sides));
        Needed {
            bound: self.name.clone(),
            windows: self.nats.clone().map(windows),
        }
    }
}

/// The scatters that are taken for a run, one for each way to differ: of runs of its
/// model, corpus, context and mode, in its own numerics and placement where there are
/// such, the largest.
fn chosen<'s>(run: &RunSpec, scatters: &'s [Scatter]) -> impl Iterator<Item = &'s Scatter<'s>> {
    let (numerics, placement) = (run.numerics.to_string(), run.placement.to_string());
    let of_model = |s: &&Scatter| {
        let (a, b) = (&s.a.provenance, &s.b.provenance);
        (&a.corpus, a.geometry) == (&run.corpus.name, run.geometry)
            && [a, b].iter().any(|side| side.model == run.model.name)
    };
    let is_own = |s: &Scatter| {
        [s.a, s.b].iter().any(|side| {
            let p = &side.provenance;
            (&p.model, &p.numerics, &p.placement) == (&run.model.name, &numerics, &placement)
        })
    };
    let best = |differ: Differ| {
        let those = scatters.iter().filter(of_model);
        let those = those.filter(|s| s.differ == differ);
        those.max_by(|x, y| is_own(x).cmp(&is_own(y)).then(x.sd.total_cmp(&y.sd)))
    };
    let kinds = [Differ::Tables, Differ::Numerics, Differ::Model];
    kinds.map(best).into_iter().flatten()
}

/// A table below its heading, and what its figures are of.
pub fn table(
    rows: &[(&RunSpec, Estimate)],
    powers: &[RunPower],
) -> (Vec<Vec<String>>, Vec<String>) {
    let columns = ["run", "windows", "of", "scatter", "Δ ln PPL", "Δ %"];
    let mut heading = columns.map(str::to_owned).to_vec();
    let first = powers.iter().flat_map(|p| &p.powers).next();
    heading.extend(first.iter().flat_map(|p| &p.gate).map(|n| n.bound.clone()));
    heading.push("scatter of".to_owned());
    let (mut table, mut notes) = (vec![heading], Vec::new());
    let mut note = |text: String| {
        if !notes.contains(&text) {
            notes.push(text);
        }
    };
    for ((run, estimate), of_run) in rows.iter().zip(powers) {
        let about = match estimate.tokens {
            Tokens::Exact(_) => "",
            Tokens::Estimated(_) | Tokens::Unknown => "~",
        };
        let count = |n: Option<usize>| n.map_or("?".to_owned(), |n| format!("{about}{n}"));
        let work = estimate.work.as_ref().and_then(|w| w.as_ref().ok());
        if of_run.powers.is_empty() {
            note(format!("{}: nothing is known of its windows", run.key));
        }
        for power in &of_run.powers {
            let mut cells = vec![
                run.key.clone(),
                count(work.map(|w| w.windows)),
                count(of_run.corpus_windows),
                small(power.scatter),
            ];
            let shown = power.detectable;
            cells.push(shown.map_or("-".to_owned(), small));
            cells.push(shown.map_or("-".to_owned(), |x| small(percent(x))));
            for needed in &power.gate {
                cells.push(match &needed.windows {
                    Ok((_, Some(windows))) => windows.to_string(),
                    Ok((_, None)) => "never".to_owned(),
                    Err(_) => "?".to_owned(),
                });
                match (&needed.windows, of_run.corpus_windows) {
                    (Err(why), _) => note(format!("{}: {why}", needed.bound)),
                    (Ok((_, Some(windows))), Some(corpus)) if *windows > corpus => note(format!(
                        "{} needs {windows} windows for {}, its corpus has {about}{corpus}",
                        run.key, needed.bound
                    )),
                    _ => {}
                }
            }
            cells.push(power.source.to_text());
            table.push(cells);
        }
    }
    (table, notes)
}

/// A change of ln PPL in percent of the perplexity.
fn percent(nats: f64) -> f64 {
    100.0 * nats.exp_m1()
}

impl Source {
    fn to_text(&self) -> String {
        match self {
            Source::Pair {
                differ,
                a,
                b,
                windows,
                tables,
            } => {
                // In a key, the model is first and the numerics are sixth.
                let part = |key: &str, i| key.split('/').nth(i).unwrap_or_default().to_owned();
                let what = match differ {
                    Differ::Tables => a.clone(),
                    Differ::Numerics => format!("numerics {} and {}", part(a, 5), part(b, 5)),
                    Differ::Model => format!("models {} and {}", part(a, 0), part(b, 0)),
                };
                format!("{what}, {windows} windows of {tables}")
            }
            Source::Prior => format!(
                "no pair that was measured: {PRIOR_TOKEN_SD} nat a token, independently (q8 against exact)"
            ),
        }
    }
}

/// What [`table`] shows, for one run.
pub fn json(of_run: &RunPower) -> Value {
    let powers = of_run.powers.iter().map(|power| {
        let gate = power.gate.iter().map(|needed| match &needed.windows {
            Ok((nats, windows)) => {
                json!({ "bound": needed.bound, "nats": nats, "windows_needed": windows })
            }
            Err(why) => json!({ "bound": needed.bound, "unknown": why }),
        });
        let from = match &power.source {
            Source::Pair {
                differ,
                a,
                b,
                windows,
                tables,
            } => json!({ "differ": differ, "a": a, "b": b, "windows": windows, "tables": tables }),
            Source::Prior => json!({ "prior_nats_per_token": PRIOR_TOKEN_SD }),
        };
        json!({
            "scatter_nats": power.scatter,
            "scatter_from": from,
            "detectable_ln_ppl": power.detectable,
            "detectable_pct": power.detectable.map(percent),
            "gate": Vec::from_iter(gate),
        })
    });
    json!({
        "corpus_windows": of_run.corpus_windows,
        "comparisons": Vec::from_iter(powers),
    })
}
