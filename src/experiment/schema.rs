//! The sections of an experiment file, key by key.

use std::path::Path;

use figment::value::Value;
use glob::Pattern;

use super::axes::{kld_base, numerics, placement};
use super::decode::{Decoder, Node, Table, is_table, optional};
use super::diagnostics::{Diagnostics, Located, suggest};
use super::layers::{Layers, TOP_KEYS};
use super::{
    Context, CorpusEntry, Exclude, Experiment, ModeSpec, ModelEntry, ModelFiles, Noise, Sweep,
};
use crate::compare::{Axis, Between, Gate, Judge, KeyPair, MaxDelta, Pairing};
use crate::eval::Limits;
use crate::fetch::parse_source;
use crate::results::noise::Component;
use crate::results::{COMPANIONS, formula_character};

const MODE_NAMES: [&str; 4] = [
    "sliding-window",
    "teacher-forced",
    "llama.cpp",
    "llama.cpp-strided",
];

pub(super) fn decode(path: &Path, layers: &Layers) -> Result<Experiment, Diagnostics> {
    let mut d = Decoder::new(layers);
    let top = d.root(&TOP_KEYS);
    let name = match top.get("name") {
        Some(node) => experiment_name(&mut d, &node).unwrap_or_default(),
        None => {
            d.missing("has no 'name': it names the result tables (name = \"wikitext\")");
            String::new()
        }
    };
    let limits = match top.get("limits") {
        Some(node) => d
            .table(&node, "[limits]", &["windows", "max_tokens"])
            .map(|t| limits(&mut d, &t))
            .unwrap_or_default(),
        None => Limits::default(),
    };
    let corpora = elements(&mut d, &top, "corpora", corpus);
    let sweep = match top.get("sweep") {
        Some(node) => sweep(&mut d, &node, &corpora),
        None => Sweep::default(),
    };
    if top.get("models").is_none() {
        d.missing("has no [[models]]: nothing to run");
    }
    let experiment = Experiment {
        path: path.to_owned(),
        name,
        description: optional(&mut d, &top, "description", |d, n| d.string(n)).unwrap_or_default(),
        models: elements(&mut d, &top, "models", model),
        corpora,
        sweep,
        limits,
        excludes: elements(&mut d, &top, "exclude", exclude),
        reference_files: match top.get("reference") {
            Some(node) => d
                .table(&node, "[reference]", &["files"])
                .and_then(|t| t.get("files"))
                .map(|files| strings(&mut d, &files))
                .unwrap_or_default(),
            None => Vec::new(),
        },
        gate: gate(&mut d, &top),
        compare: compare(&mut d, &top),
        noise: noise(&mut d, &top),
        kld_base: kld_base(&mut d, &top),
    };
    d.finish(experiment)
}

/// The elements of an optional list that decode.
fn elements<'a, T>(
    d: &mut Decoder<'a>,
    table: &Table<'a>,
    key: &str,
    decode: impl Fn(&mut Decoder<'a>, &Node<'a>) -> Option<T>,
) -> Vec<Located<T>> {
    let Some(node) = table.get(key) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for element in d.list(&node) {
        if let Some(value) = decode(d, &element) {
            let at = d.at(&element);
            out.push(Located { value, at });
        }
    }
    out
}

fn strings<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Vec<Located<String>> {
    let nodes = d.list(node);
    nodes.iter().filter_map(|n| d.located_string(n)).collect()
}

fn experiment_name(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<String> {
    let name = d.string(node)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.chars().all(plain) || name.starts_with('.') {
        d.error(
            node,
            format!("'{name}' cannot name result files: use letters, digits, '-', '_' and '.'"),
        );
        return None;
    }
    let taken = |c: &&&str| {
        let end = name.rsplit_once('.').map(|(_, end)| end);
        end.is_some_and(|end| end.eq_ignore_ascii_case(c))
    };
    if let Some(companion) = COMPANIONS.iter().find(taken) {
        let of = &name[..name.len() - companion.len() - 1];
        d.error(
            node,
            format!(
                "'{name}' cannot name result files: {name}.csv is a table that belongs to an \
                 experiment '{of}'; take a name that does not end in '.{companion}'"
            ),
        );
        return None;
    }
    Some(name)
}

fn limits(d: &mut Decoder<'_>, table: &Table<'_>) -> Limits {
    Limits {
        windows: table.get("windows").and_then(|n| d.count(&n, 1)),
        max_tokens: table.get("max_tokens").and_then(|n| d.count(&n, 2)),
    }
}

fn sweep<'a>(d: &mut Decoder<'a>, node: &Node<'a>, corpora: &[Located<CorpusEntry>]) -> Sweep {
    let keys = ["corpora", "contexts", "modes", "placements", "numerics"];
    let Some(table) = d.table(node, "[sweep]", &keys) else {
        return Sweep::default();
    };
    let swept = match table.get("corpora") {
        Some(list) => strings(d, &list),
        // Without a list, everything that the file describes.
        None => corpora
            .iter()
            .map(|c| Located {
                value: c.value.name.clone(),
                at: c.at.clone(),
            })
            .collect(),
    };
    if swept.is_empty() && table.get("corpora").is_none() {
        d.error(
            node,
            "[sweep] has no 'corpora', and there are no [[corpora]]",
        );
    }
    if table.get("contexts").is_none() {
        d.error(node, "[sweep] has no 'contexts' (contexts = [512])");
    }
    Sweep {
        corpora: swept,
        contexts: elements(d, &table, "contexts", context),
        modes: elements(d, &table, "modes", mode),
        placements: elements(d, &table, "placements", placement),
        numerics: elements(d, &table, "numerics", numerics),
    }
}

fn context<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<Context> {
    if !is_table(node) {
        return Some(Context {
            n_ctx: d.count(node, 2)?,
            limits: Limits::default(),
        });
    }
    let table = d.table(node, "a context", &["n_ctx", "windows", "max_tokens"])?;
    let limits = limits(d, &table);
    let Some(n_ctx) = table.get("n_ctx") else {
        d.error(node, "this context has no 'n_ctx'");
        return None;
    };
    Some(Context {
        n_ctx: d.count(&n_ctx, 2)?,
        limits,
    })
}

fn mode<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<ModeSpec> {
    if !is_table(node) {
        let name = d.string(node)?;
        return named_mode(d, node, node, &name, None, None);
    }
    let table = d.table(node, "a mode", &["mode", "stride", "unscored_prefix"])?;
    let stride = optional(d, &table, "stride", |d, n| d.count(n, 1));
    let prefix = optional(d, &table, "unscored_prefix", |d, n| d.count(n, 1));
    let Some(name_node) = table.get("mode") else {
        d.error(node, "this mode has no 'mode' (mode = \"sliding-window\")");
        return None;
    };
    let name = d.string(&name_node)?;
    if table.get("stride").is_some() != stride.is_some() {
        return None; // Reported already; do not report it as missing too.
    }
    let (allowed_stride, allowed_prefix) = match name.as_str() {
        "sliding-window" => (true, true),
        "llama.cpp-strided" => (true, false),
        _ => (false, false),
    };
    for (key, allowed) in [
        ("stride", allowed_stride),
        ("unscored_prefix", allowed_prefix),
    ] {
        if let Some(n) = table.get(key).filter(|_| !allowed && known_mode(&name)) {
            d.error(&n, format!("'{key}' has no meaning in mode '{name}'"));
        }
    }
    named_mode(d, node, &name_node, &name, stride, prefix)
}

fn known_mode(name: &str) -> bool {
    MODE_NAMES.contains(&name)
}

fn named_mode(
    d: &mut Decoder<'_>,
    node: &Node<'_>,
    name_node: &Node<'_>,
    name: &str,
    stride: Option<usize>,
    unscored_prefix: Option<usize>,
) -> Option<ModeSpec> {
    match name {
        "sliding-window" => Some(ModeSpec::SlidingWindow {
            stride,
            unscored_prefix,
        }),
        "llama.cpp" => Some(ModeSpec::SlidingWindow {
            stride: None,
            unscored_prefix: None,
        }),
        "teacher-forced" => Some(ModeSpec::TeacherForced),
        "llama.cpp-strided" => {
            if stride.is_none() {
                d.error(
                    node,
                    "mode 'llama.cpp-strided' needs a stride: { mode = \"llama.cpp-strided\", stride = 128 }",
                );
            }
            Some(ModeSpec::LlamaCppStrided { stride: stride? })
        }
        other => {
            let hint = suggest(other, MODE_NAMES);
            d.error(name_node, format!("unknown mode '{other}'{hint}"));
            None
        }
    }
}

fn model<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<ModelEntry> {
    let file_keys = ["name", "path", "source", "sha256"];
    let other_keys = ["glob", "pre", "bos", "parse_special"];
    let table = d.table(node, "[[models]]", &[file_keys, other_keys].concat())?;
    let pre = optional(d, &table, "pre", |d, n| d.string(n));
    let bos = optional(d, &table, "bos", |d, n| d.bool(n));
    let parse_special = optional(d, &table, "parse_special", |d, n| d.bool(n)).unwrap_or(false);
    let files = match (table.get("glob"), table.get("path")) {
        (Some(glob), _) => {
            for key in file_keys {
                if let Some(n) = table.get(key) {
                    d.error(
                        &n,
                        format!("'{key}' does not go with 'glob': a glob names several files"),
                    );
                }
            }
            let text = d.string(&glob)?;
            pattern(d, &glob, &text)?;
            ModelFiles::Glob(text)
        }
        (None, Some(path)) => {
            let name = optional(d, &table, "name", run_name);
            let source = sources(d, &table);
            let sha256 = optional(d, &table, "sha256", sha256);
            ModelFiles::File {
                name,
                path: d.string(&path)?,
                source,
                sha256,
            }
        }
        (None, None) => {
            d.error(node, "this model has neither 'path' nor 'glob'");
            return None;
        }
    };
    Some(ModelEntry {
        files,
        pre,
        bos,
        parse_special,
    })
}

fn corpus<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<CorpusEntry> {
    let table = d.table(node, "[[corpora]]", &["name", "path", "source", "sha256"])?;
    let name = optional(d, &table, "name", run_name);
    let source = sources(d, &table);
    let sha256 = optional(d, &table, "sha256", sha256);
    let Some(path_node) = table.get("path") else {
        d.error(node, "this corpus has no 'path'");
        return None;
    };
    let path = d.string(&path_node)?;
    let name = match (name, table.get("name")) {
        (Some(name), _) => name,
        (None, Some(_)) => return None,
        (None, None) => {
            let name = file_name(&path);
            if let Err(message) = check_run_name(&name) {
                d.error(&path_node, message);
                return None;
            }
            name
        }
    };
    Some(CorpusEntry {
        name,
        path,
        source,
        sha256,
    })
}

/// The last component of a path.
pub fn file_name(path: &str) -> String {
    let path = Path::new(path);
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn run_name(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<String> {
    let name = d.string(node)?;
    match check_run_name(&name) {
        Ok(()) => Some(name),
        Err(message) => {
            d.error(node, message);
            None
        }
    }
}

/// Names are parts of run keys, which are split at '/'.
pub fn check_run_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    if name.is_empty() || name.chars().any(bad) {
        return Err(format!(
            "'{name}' cannot be part of a run key: give it a 'name' without white space and '/'"
        ));
    }
    if let Some(c) = formula_character(name) {
        return Err(format!(
            "'{name}' cannot begin a run key: spreadsheets take what begins with '{c}' for a \
             formula; give it a 'name' that begins with a letter or a digit"
        ));
    }
    Ok(())
}

/// A source, or a list of sources whose contents are concatenated.
fn sources<'a>(d: &mut Decoder<'a>, table: &Table<'a>) -> Vec<String> {
    let Some(node) = table.get("source") else {
        return Vec::new();
    };
    let nodes = match node.value {
        Value::Array(..) => d.list(&node),
        _ => vec![node],
    };
    nodes.iter().filter_map(|n| source(d, n)).collect()
}

fn source(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<String> {
    let text = d.string(node)?;
    match parse_source(&text) {
        Ok(_) => Some(text),
        Err(e) => {
            d.error(node, e.to_string());
            None
        }
    }
}

fn sha256(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<String> {
    let hash = d.string(node)?.to_ascii_lowercase();
    if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
        d.error(
            node,
            format!(
                "'sha256' must be 64 hexadecimal digits, found {}",
                hash.chars().count()
            ),
        );
        return None;
    }
    Some(hash)
}

fn pattern(d: &mut Decoder<'_>, node: &Node<'_>, text: &str) -> Option<Pattern> {
    Pattern::new(text)
        .map_err(|e| d.error(node, format!("'{text}' is not a glob pattern: {}", e.msg)))
        .ok()
}

fn exclude<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<Exclude> {
    let keys = [
        "model",
        "corpus",
        "context",
        "mode",
        "placement",
        "numerics",
    ];
    let table = d.table(node, "[[exclude]]", &keys)?;
    if table.is_empty() {
        d.error(node, "an empty [[exclude]] would exclude every run");
        return None;
    }
    let get = |d: &mut Decoder<'a>, key: &str| {
        let n = table.get(key)?;
        let text = match n.value {
            Value::Num(..) if key == "context" => d.count(&n, 1)?.to_string(),
            _ => d.string(&n)?,
        };
        pattern(d, &n, &text)
    };
    Some(Exclude {
        model: get(d, "model"),
        corpus: get(d, "corpus"),
        context: get(d, "context"),
        mode: get(d, "mode"),
        placement: get(d, "placement"),
        numerics: get(d, "numerics"),
    })
}

fn gate<'a>(d: &mut Decoder<'a>, top: &Table<'a>) -> Gate {
    let Some(table) = top.get("gate").and_then(|n| {
        d.table(
            &n,
            "[gate]",
            &[
                "max_delta",
                "max_delta_pct",
                "max_increase",
                "max_increase_pct",
                "max_sigma",
                "significance",
                "judge",
            ],
        )
    }) else {
        return Gate::default();
    };
    Gate {
        max_delta: optional(d, &table, "max_delta", max_delta),
        max_delta_pct: optional(d, &table, "max_delta_pct", |d, n| d.non_negative(n)),
        max_increase: optional(d, &table, "max_increase", max_delta),
        max_increase_pct: optional(d, &table, "max_increase_pct", |d, n| d.non_negative(n)),
        max_sigma: optional(d, &table, "max_sigma", |d, n| d.non_negative(n)),
        significance: optional(d, &table, "significance", |d, n| d.level(n)),
        judge: optional(d, &table, "judge", judge).unwrap_or_default(),
        allow_inconclusive: false,
    }
}

fn judge(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<Judge> {
    let name = d.string(node)?;
    let found = Judge::by_name(&name);
    if found.is_none() {
        let hint = suggest(&name, Judge::ALL.map(Judge::name));
        d.error(node, format!("unknown judge '{name}'{hint}"));
    }
    found
}

/// Which runs are compared with each other.
fn compare<'a>(d: &mut Decoder<'a>, top: &Table<'a>) -> Option<Pairing> {
    let node = top.get("compare")?;
    let table = d.table(&node, "[compare]", &["between", "pairs"])?;
    let groups = match table.get("between") {
        Some(n) if matches!(n.value, Value::Array(..)) => d.list(&n),
        Some(n) => vec![n],
        None => Vec::new(),
    };
    let between: Vec<Vec<Between>> = groups.iter().filter_map(|n| together(d, n)).collect();
    let pairs = elements(d, &table, "pairs", |d, n| {
        let text = d.string(n)?;
        let pair = text.parse();
        pair.map_err(|problem: String| d.error(n, problem)).ok()
    });
    let pairs: Vec<KeyPair> = pairs.into_iter().map(|p| p.value).collect();
    if table.get("between").is_none() && table.get("pairs").is_none() {
        d.error(
            &node,
            "[compare] has neither 'between' nor 'pairs': they say which runs are compared",
        );
        return None;
    }
    Some(Pairing { between, pairs })
}

/// Axes that differ together: `{ numerics = ["exact", "q8"] }`.
fn together<'a>(d: &mut Decoder<'a>, node: &Node<'a>) -> Option<Vec<Between>> {
    let names = Axis::ALL.map(Axis::name);
    let table = d.table(node, "'between'", &names)?;
    if table.is_empty() {
        d.error(node, "'between' names no axis");
        return None;
    }
    let mut out = Vec::new();
    for axis in Axis::ALL {
        let Some(n) = table.get(axis.name()) else {
            continue;
        };
        let values: Vec<String> = strings(d, &n).into_iter().map(|v| v.value).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        match Between::new(axis, &values) {
            Ok(between) => out.push(between),
            Err(problem) => d.error(&n, problem),
        }
    }
    Some(out)
}

/// A number of nats, or noise floors as `"noise*3"`.
fn max_delta(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<MaxDelta> {
    if !matches!(node.value, Value::String(..)) {
        return d.non_negative(node).map(MaxDelta::Nats);
    }
    let text = d.string(node)?;
    let bound = text.parse();
    bound.map_err(|problem: String| d.error(node, problem)).ok()
}

fn noise<'a>(d: &mut Decoder<'a>, top: &Table<'a>) -> Noise {
    let mut noise = Noise::default();
    let table = top.get("noise");
    let table = table.and_then(|n| d.table(&n, "[noise]", &["components", "seeds"]));
    let Some(table) = table else {
        return noise;
    };
    if table.get("components").is_some() {
        let components = elements(d, &table, "components", component);
        noise.components = components.into_iter().map(|c| c.value).collect();
    }
    if let Some(seeds) = optional(d, &table, "seeds", |d, n| d.count(n, 1)) {
        noise.seeds = seeds;
    }
    noise
}

fn component(d: &mut Decoder<'_>, node: &Node<'_>) -> Option<Component> {
    let name = d.string(node)?;
    let found = Component::named(&name);
    if found.is_none() {
        let hint = suggest(&name, Component::ALL.map(Component::name));
        d.error(node, format!("unknown component '{name}'{hint}"));
    }
    found
}
