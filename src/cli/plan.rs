//! `pplx plan`: print the runs an experiment expands to. Reads headers and file
//! sizes, and tokenizes where asked to; nothing is fetched, no weight is read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::Failure;
use super::power::{self, PowerArgs, RunPower};
use crate::corpus::{DEFAULT_CHUNK, tokenize_file};
use crate::experiment::Experiment;
use crate::fetch::masked_source;
use crate::gguf::Gguf;
use crate::isa::Isa;
use crate::plan::{Estimate, Numerics, Pace, Plan, RunSpec, Tokens, Work};
use crate::say;
use crate::tokenizer::Tokenizer;

#[derive(clap::Args)]
pub struct Args {
    /// The experiment file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Override a setting, for example --set limits.windows=4.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Tokenize the corpora that are on disk, for exact numbers of windows and
    /// scored tokens.
    #[arg(long)]
    count_tokens: bool,
    #[command(flatten)]
    power: PowerArgs,

    /// How to print the plan.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let experiment = Experiment::load(&args.file, &args.sets).map_err(Failure::usage)?;
    let plan = Plan::new(&experiment).map_err(Failure::usage)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pace = Pace::measured(threads);
    let counts = match args.count_tokens {
        true => token_counts(&plan)?,
        false => HashMap::new(),
    };
    let estimate = |run: &RunSpec| {
        let tokens = counts.get(&names(run)).copied();
        Estimate::new(run, tokens, pace)
    };
    let rows: Vec<(&RunSpec, Estimate)> =
        plan.runs.iter().map(|run| (run, estimate(run))).collect();
    let powers = power::powers(&args.power, &plan, &rows)?;
    let powers = powers.as_deref();
    let out = match args.format {
        Format::Text => text(&plan, &rows, powers, pace),
        Format::Json => json(&plan, &rows, powers, pace)?,
    };
    let printed = match args.format {
        Format::Text => say::text(&out),
        Format::Json => say::data(out.as_bytes()),
    };
    Ok(printed?)
}

/// Model and corpus: what the number of tokens depends on.
fn names(run: &RunSpec) -> (String, String) {
    (run.model.name.clone(), run.corpus.name.clone())
}

/// The tokens of each corpus for each model, where both are on disk.
fn token_counts(plan: &Plan) -> Result<HashMap<(String, String), usize>, Failure> {
    let mut counts = HashMap::new();
    for model in plan.models().into_iter().filter(|m| m.facts.is_some()) {
        let gguf = Gguf::open(&model.path).map_err(Failure::usage)?;
        let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &model.tokenizer_options())
            .map_err(Failure::usage)?;
        let runs = plan.runs.iter().filter(|r| Arc::ptr_eq(&r.model, model));
        for run in runs.filter(|r| r.corpus.bytes.is_some()) {
            if counts.contains_key(&names(run)) {
                continue;
            }
            let tokens = tokenize_file(&run.corpus.path, &tokenizer, DEFAULT_CHUNK)
                .map_err(Failure::usage)?;
            counts.insert(names(run), tokens.ids.len());
        }
    }
    Ok(counts)
}

fn text(
    plan: &Plan,
    rows: &[(&RunSpec, Estimate)],
    powers: Option<&[RunPower]>,
    pace: Pace,
) -> String {
    let mut out = plan.name.clone();
    if !plan.description.is_empty() {
        out += &format!(": {}", plan.description);
    }
    out += "\n\n";
    out += &align(&inputs(plan), &[]);
    out += "\n";

    let mut columns = vec!["run", "windows", "scored", "memory", "time"];
    let cycles = rows.iter().any(|(_, e)| e.checkpoint_bytes != Some(0));
    if cycles {
        columns.push("hidden states");
    }
    let on_gpu = rows.iter().any(|(_, e)| e.device_bytes.is_some());
    if on_gpu {
        columns.push("GPU memory");
    }
    let mut table = vec![columns.into_iter().map(str::to_owned).collect()];
    for (run, estimate) in rows {
        let mut cells = row(run, estimate);
        if cycles {
            cells.push(match estimate.checkpoint_bytes {
                Some(0) => "-".to_owned(),
                Some(bytes) => format!("{}{}", about(estimate), HumanBytes(bytes)),
                None => "?".to_owned(),
            });
        }
        if on_gpu {
            let bytes = estimate.device_bytes;
            cells.push(bytes.map_or("-".to_owned(), |b| HumanBytes(b).to_string()));
        }
        table.push(cells);
    }
    out += &align(&table, &[1, 2, 3, 4, 5, 6]);
    let bases = bases(rows);
    if bases.len() > 1 {
        out += "\nKL divergences, whose bases are evaluated beside the runs (counted above):\n";
        out += &align(&bases, &[2, 3]);
    }
    if let Some(powers) = powers {
        out += &power_text(plan, rows, powers);
    }

    let plural = if plan.runs.len() == 1 { "" } else { "s" };
    out += &format!("\n{} run{plural}", plan.runs.len());
    if plan.excluded > 0 {
        out += &format!(", {} combinations excluded", plan.excluded);
    }
    if plan.merged > 0 {
        out += &format!(", {} merged with a run of the same key", plan.merged);
    }
    let total: Option<f64> = rows.iter().map(|(_, e)| e.seconds).sum();
    if let Some(total) = total {
        out += &format!(", about {}", duration(total));
    }
    out += "\n";
    out += &format!(
        "~ is an estimate: tokens as bytes/4 (--count-tokens counts them); memory at its peak, pages \
         of the file\nincluded; time at {}, which {} threads\non {} reach at the moment.\n",
        speeds(rows, pace),
        pace.threads,
        Isa::detect().name()
    );
    for note in &plan.notes {
        out += &format!("note: {note}\n");
    }
    out
}

/// What each run can show.
fn power_text(plan: &Plan, rows: &[(&RunSpec, Estimate)], powers: &[RunPower]) -> String {
    let (table, notes) = power::table(rows, powers);
    let mut out = "\nPower: the smallest change that the windows show at 5 % in four of five \
                   repetitions"
        .to_owned();
    let gate = &plan.gate;
    out += match gate.has_size() {
        false => " ([gate] has no bound on it)\n",
        true => ",\nand the windows that a change of zero needs to pass the gate as often\n",
    };
    let right: Vec<usize> = (1..table[0].len() - 1).collect();
    out += &align(&table, &right);
    for note in notes {
        out += &format!("note: {note}\n");
    }
    out
}

/// The speeds of the numerics that runs on the CPU have.
fn speeds(rows: &[(&RunSpec, Estimate)], pace: Pace) -> String {
    let mut speeds: Vec<String> = Vec::new();
    for (run, _) in rows
        .iter()
        .filter(|(run, _)| run.placement.accelerator().is_none())
    {
        let unit = match run.numerics {
            Numerics::Q8 => "GOP/s",
            _ => "GFLOP/s",
        };
        let speed = pace.gflops(run.numerics);
        let speed = format!("{speed:.0} {unit} ({})", run.numerics);
        if !speeds.contains(&speed) {
            speeds.push(speed);
        }
    }
    match speeds.is_empty() {
        true => "no speed of a GPU".to_owned(),
        false => speeds.join(", "),
    }
}

/// The models and corpora, once each.
fn inputs(plan: &Plan) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for model in plan.models() {
        let size = match &model.facts {
            Some(facts) => format!(
                "{}, {} layers, {}",
                facts.architecture,
                facts.n_layers,
                HumanBytes(facts.file_bytes)
            ),
            None => "not fetched".to_owned(),
        };
        let path = model.path.display().to_string();
        lines.push(vec!["model".to_owned(), model.name.clone(), size, path]);
    }
    for corpus in plan.corpora() {
        let size = match corpus.bytes {
            Some(bytes) => HumanBytes(bytes).to_string(),
            None => "not fetched".to_owned(),
        };
        let path = corpus.path.display().to_string();
        lines.push(vec!["corpus".to_owned(), corpus.name.clone(), size, path]);
    }
    lines
}

/// A mark for counts that depend on an estimated number of tokens.
fn about(estimate: &Estimate) -> &'static str {
    match estimate.tokens {
        Tokens::Exact(_) => "",
        Tokens::Estimated(_) | Tokens::Unknown => "~",
    }
}

fn row(run: &RunSpec, estimate: &Estimate) -> Vec<String> {
    let about = about(estimate);
    let (windows, scored) = match &estimate.work {
        None => ("?".to_owned(), "?".to_owned()),
        Some(Err(_)) => (format!("{about}0 (corpus too short)"), format!("{about}0")),
        Some(Ok(Work {
            windows, scored, ..
        })) => (
            format!("{about}{}", HumanCount(*windows as u64)),
            format!("{about}{}", HumanCount(*scored as u64)),
        ),
    };
    let (memory, time) = (memory(estimate.memory_bytes), time(estimate.seconds));
    vec![run.key.clone(), windows, scored, memory, time]
}

fn memory(bytes: Option<u64>) -> String {
    bytes.map_or("?".to_owned(), |b| format!("~{}", HumanBytes(b)))
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or("?".to_owned(), |s| format!("~{}", duration(s)))
}

/// The base of each run that has one, with its share of the cost, below a heading.
fn bases(rows: &[(&RunSpec, Estimate)]) -> Vec<Vec<String>> {
    let mut table = vec![
        ["run", "base", "memory", "time"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (run, estimate) in rows {
        if let (Some(base), Some(cost)) = (&run.base, estimate.base) {
            let (memory, time) = (memory(cost.memory_bytes), time(cost.seconds));
            table.push(vec![run.key.clone(), base.key.clone(), memory, time]);
        }
    }
    table
}

fn duration(seconds: f64) -> String {
    if seconds < 1.0 {
        "1 s".to_owned()
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// Pads columns to their widest cell; those in `right` are right-aligned.
fn align(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        let cells = rows.iter().filter_map(|r| r.get(c));
        cells.map(|s| s.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if c > 0 {
                line += "  ";
            }
            if right.contains(&c) {
                line += &format!("{cell:>width$}");
            } else {
                line += &format!("{cell:<width$}");
            }
        }
        out += line.trim_end();
        out += "\n";
    }
    out
}

fn json(
    plan: &Plan,
    rows: &[(&RunSpec, Estimate)],
    powers: Option<&[RunPower]>,
    pace: Pace,
) -> Result<String, Failure> {
    let mut runs: Vec<Value> = rows.iter().map(|(run, e)| run_json(run, e)).collect();
    for (run, power) in runs.iter_mut().zip(powers.unwrap_or_default()) {
        run["power"] = power::json(power);
    }
    let reference_files: Vec<String> = plan.reference_files.iter().map(|p| path_text(p)).collect();
    let value = json!({
        "name": plan.name,
        "description": plan.description,
        "experiment": path_text(&plan.experiment_path),
        "runs": runs,
        "excluded": plan.excluded,
        "merged": plan.merged,
        "notes": plan.notes,
        "reference_files": reference_files,
        "assumed_gflops": pace.gflops(Numerics::Exact),
        "assumed_gops_q8": pace.gflops(Numerics::Q8),
    });
    let mut out = serde_json::to_string_pretty(&value).map_err(Failure::failed)?;
    out.push('\n');
    Ok(out)
}

/// JSON holds no paths that are not UTF-8.
fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Sources without the credentials that URLs may hold.
fn masked(sources: &[String]) -> Vec<String> {
    sources.iter().map(|s| masked_source(s)).collect()
}

fn run_json(run: &RunSpec, estimate: &Estimate) -> Value {
    let (tokens, exact) = match estimate.tokens {
        Tokens::Exact(n) => (Some(n), true),
        Tokens::Estimated(n) => (Some(n), false),
        Tokens::Unknown => (None, false),
    };
    let work = estimate.work.as_ref().and_then(|w| w.as_ref().ok());
    json!({
        "key": run.key,
        "model": {
            "name": run.model.name,
            "path": path_text(&run.model.path),
            "bytes": run.model.facts.as_ref().map(|f| f.file_bytes),
            "sha256": run.model.sha256,
            "source": masked(&run.model.source),
        },
        "corpus": {
            "name": run.corpus.name,
            "path": path_text(&run.corpus.path),
            "bytes": run.corpus.bytes,
            "sha256": run.corpus.sha256,
            "source": masked(&run.corpus.source),
        },
        "n_ctx": run.geometry.n_ctx,
        "mode": run.mode_name,
        "geometry": run.geometry.mode,
        "placement": run.placement.to_string(),
        "numerics": run.numerics.name(),
        "limits": run.limits,
        "base": base_json(run, estimate),
        "tokens": tokens,
        "tokens_exact": exact,
        "windows": work.map(|w| w.windows),
        "scored": work.map(|w| w.scored),
        "memory_bytes_estimate": estimate.memory_bytes,
        "device_memory_bytes": estimate.device_bytes,
        "checkpoint_bytes_estimate": estimate.checkpoint_bytes,
        "seconds_estimate": estimate.seconds,
    })
}

/// What the run is compared with, and what of the estimates is its; null without one.
fn base_json(run: &RunSpec, estimate: &Estimate) -> Option<Value> {
    let (base, cost) = (run.base.as_ref()?, estimate.base?);
    Some(json!({
        "key": base.key,
        "model": base.model.name,
        "placement": base.placement.to_string(),
        "numerics": base.numerics.name(),
        "memory_bytes_estimate": cost.memory_bytes,
        "device_memory_bytes": cost.device_bytes,
        "checkpoint_bytes_estimate": cost.checkpoint_bytes,
        "seconds_estimate": cost.seconds,
    }))
}
