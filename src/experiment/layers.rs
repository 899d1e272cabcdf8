//! Layering: defaults < file < `PPLX_*` environment < `--set`, and where each
//! merged value was written.
//!
//! figment merges and remembers the layer of every value; line and column of
//! the file's values come from the spans of `toml`.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::providers::Env;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use toml::de::{DeTable, DeValue};

use super::diagnostics::{Diagnostic, Diagnostics, Location};

/// The keys at the top level of an experiment. A variable `PPLX_KEY` sets one.
pub(super) const TOP_KEYS: [&str; 12] = [
    "name",
    "description",
    "sweep",
    "models",
    "corpora",
    "limits",
    "exclude",
    "reference",
    "gate",
    "compare",
    "noise",
    "kld",
];

const ENV_PREFIX: &str = "PPLX_";

const DEFAULTS: &str = r#"
[sweep]
modes = ["llama.cpp"]
placements = ["auto"]
numerics = ["exact"]
"#;

const FILE_LAYER: &str = "file";
const ENV_LAYER: &str = "environment";
const DEFAULT_LAYER: &str = "defaults";

/// The merged settings.
pub struct Layers {
    path: Arc<PathBuf>,
    figment: Figment,
    text: String,
    /// Byte ranges in the file by value path (`models[0].path`).
    spans: HashMap<String, Spans>,
    pub root: Dict,
}

#[derive(Clone)]
struct Spans {
    key: Range<usize>,
    value: Range<usize>,
}

impl Layers {
    /// Reads `path` and merges the layers over it. `sets` are `key=value`
    /// arguments: a value that is TOML is taken as such, any other as a string.
    ///
    /// # Errors
    /// A file that cannot be read or is not TOML, and arguments without `=`.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, Diagnostics> {
        let shared = Arc::new(path.to_owned());
        let whole = Location::WholeFile(shared.clone());
        let text = std::fs::read_to_string(path)
            .map_err(|e| one(&whole, format!("cannot be read: {e}")))?;
        let invalid = |e: toml::de::Error| {
            let at = match e.span() {
                Some(span) => position(&text, &shared, span.start),
                None => whole.clone(),
            };
            one(&at, format!("not valid TOML: {}", e.message()))
        };
        // Twice: once for the places, once for the values. The first pass leaves
        // numbers unread, so the second can fail too.
        let document = DeTable::parse(&text).map_err(invalid)?;
        let mut spans = HashMap::new();
        collect_table(document.get_ref(), "", &mut spans);
        let file: toml::Table = toml::from_str(&text).map_err(invalid)?;
        let defaults: toml::Table =
            toml::from_str(DEFAULTS).map_err(|e| one(&whole, e.to_string()))?;

        let mut figment = Figment::new()
            .merge(Layer::new(DEFAULT_LAYER, &defaults))
            .merge(Layer::new(FILE_LAYER, &file))
            .merge(environment());
        for set in sets {
            let table =
                set_table(set).map_err(|message| one(&Location::Set(set.clone()), message))?;
            figment = figment.merge(Layer::new(&format!("--set {set}"), &table));
        }
        let root = figment
            .data()
            .map_err(|e| one(&whole, e.to_string()))?
            .remove(&Profile::Default)
            .unwrap_or_default();
        Ok(Self {
            path: shared,
            figment,
            text,
            spans,
            root,
        })
    }

    /// The experiment file as a whole.
    pub fn whole_file(&self) -> Location {
        Location::WholeFile(self.path.clone())
    }

    /// Where the value at `path` was written; a default is the business of the
    /// file that did not set it.
    pub fn value_location(&self, path: &str, value: &Value) -> Location {
        self.locate(path, value, |s| s.value.start)
    }

    /// Where the key of the value at `path` was written.
    pub fn key_location(&self, path: &str, value: &Value) -> Location {
        self.locate(path, value, |s| s.key.start)
    }

    fn locate(&self, path: &str, value: &Value, pick: impl Fn(&Spans) -> usize) -> Location {
        // A merged table carries the tag of the last layer that added to it; the
        // header in the file is the better place. Lists replace one another
        // whole, so inside them the tags are right.
        if matches!(value, Value::Dict(..))
            && !path.contains('[')
            && let Some(spans) = self.spans.get(path)
        {
            return position(&self.text, &self.path, pick(spans));
        }
        let layer = self.figment.get_metadata(value.tag()).map(|m| &*m.name);
        match layer {
            Some(ENV_LAYER) => Location::Env(format!(
                "{ENV_PREFIX}{}",
                // An element of a list is part of the variable that holds it.
                path.split('[')
                    .next()
                    .unwrap_or(path)
                    .replace('.', "__")
                    .to_uppercase()
            )),
            Some(name) if name.starts_with("--set ") => {
                Location::Set(name.trim_start_matches("--set ").to_owned())
            }
            _ => match self.spans.get(path) {
                Some(spans) => position(&self.text, &self.path, pick(spans)),
                None => self.whole_file(),
            },
        }
    }
}

fn one(at: &Location, message: String) -> Diagnostics {
    Diagnostics(vec![Diagnostic {
        at: at.clone(),
        message,
    }])
}

/// Variables with our prefix that have the form of a setting. Others are left
/// alone: `PPLX_CACHE` is not a setting, `PPLX_API_KEY` not even ours.
fn environment() -> impl Provider {
    let env = Env::prefixed(ENV_PREFIX)
        .filter(|key| {
            let key = key.as_str().to_ascii_lowercase();
            key.contains("__") || TOP_KEYS.contains(&key.as_str())
        })
        .split("__");
    Named(ENV_LAYER, env)
}

/// `a.b=value` as nested tables.
fn set_table(set: &str) -> Result<toml::Table, String> {
    let (key, text) = set
        .split_once('=')
        .ok_or("needs the form key=value, for example --set limits.windows=4")?;
    let mut value = toml::from_str::<toml::Table>(&format!("value = {text}"))
        .ok()
        .filter(|t| t.len() == 1)
        .and_then(|mut t| t.remove("value"))
        .unwrap_or_else(|| toml::Value::String(text.to_owned()));
    let parts: Vec<&str> = key.split('.').map(str::trim).collect();
    if parts.iter().any(|p| p.is_empty()) {
        return Err(format!("'{key}' is not a key: write section.key=value"));
    }
    for part in parts.into_iter().rev() {
        value = toml::Value::Table(toml::Table::from_iter([(part.to_owned(), value)]));
    }
    match value {
        toml::Value::Table(table) => Ok(table),
        _ => Err(format!("'{key}' is not a key")),
    }
}

/// A named layer of TOML.
struct Layer<'a> {
    name: String,
    table: &'a toml::Table,
}

impl<'a> Layer<'a> {
    fn new(name: &str, table: &'a toml::Table) -> Self {
        Self {
            name: name.to_owned(),
            table,
        }
    }
}

impl Provider for Layer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = match Value::serialize(self.table)? {
            Value::Dict(_, dict) => dict,
            _ => Dict::new(),
        };
        Ok(Map::from([(Profile::Default, dict)]))
    }
}

/// A provider under a name of our own.
struct Named<P>(&'static str, P);

impl<P: Provider> Provider for Named<P> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        self.1.data()
    }
}

fn collect_table(table: &DeTable<'_>, prefix: &str, out: &mut HashMap<String, Spans>) {
    for (key, value) in table {
        let path = join(prefix, key.get_ref());
        let spans = Spans {
            key: key.span(),
            value: value.span(),
        };
        collect_value(value.get_ref(), &path, out);
        out.insert(path, spans);
    }
}

fn collect_value(value: &DeValue<'_>, path: &str, out: &mut HashMap<String, Spans>) {
    if let Some(table) = value.as_table() {
        collect_table(table, path, out);
    } else if let Some(array) = value.as_array() {
        for (i, element) in array.iter().enumerate() {
            let path = format!("{path}[{i}]");
            collect_value(element.get_ref(), &path, out);
            let span = element.span();
            out.insert(
                path,
                Spans {
                    key: span.clone(),
                    value: span,
                },
            );
        }
    }
}

/// The path of `key` in the table at `prefix`.
pub fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() {
        key.to_owned()
    } else {
        format!("{prefix}.{key}")
    }
}

/// The line and column of a byte offset; columns count characters.
fn position(text: &str, path: &Arc<PathBuf>, offset: usize) -> Location {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    Location::File {
        path: path.clone(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}
