//! Reading merged settings into Rust types, collecting every error on the way.
//!
//! serde stops at the first error and knows no places; a file with three
//! mistakes should be mended in one go.

use figment::value::{Dict, Num, Value};

use super::diagnostics::{Collector, Diagnostics, Located, Location, suggest};
use super::layers::{Layers, join};

/// A value and its path in the settings.
#[derive(Clone)]
pub struct Node<'a> {
    pub path: String,
    pub value: &'a Value,
}

/// A table whose keys are all known.
pub struct Table<'a> {
    path: String,
    dict: &'a Dict,
}

impl<'a> Table<'a> {
    pub fn get(&self, key: &str) -> Option<Node<'a>> {
        self.dict.get(key).map(|value| Node {
            path: join(&self.path, key),
            value,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.dict.is_empty()
    }
}

/// The value of an optional key.
pub fn optional<'a, T>(
    d: &mut Decoder<'a>,
    table: &Table<'a>,
    key: &str,
    decode: impl FnOnce(&mut Decoder<'a>, &Node<'a>) -> Option<T>,
) -> Option<T> {
    table.get(key).and_then(|node| decode(d, &node))
}

/// Whether the value is a table.
pub fn is_table(node: &Node<'_>) -> bool {
    matches!(node.value, Value::Dict(..))
}

/// Decodes and collects. Each method answers `None` after it has reported why.
pub struct Decoder<'a> {
    layers: &'a Layers,
    errors: Collector,
}

impl<'a> Decoder<'a> {
    pub fn new(layers: &'a Layers) -> Self {
        Self {
            layers,
            errors: Collector::default(),
        }
    }

    pub fn finish<T>(self, value: T) -> Result<T, Diagnostics> {
        self.errors.finish(value)
    }

    pub fn at(&self, node: &Node<'_>) -> Location {
        self.layers.value_location(&node.path, node.value)
    }

    pub fn error(&mut self, node: &Node<'_>, message: impl Into<String>) {
        let at = self.at(node);
        self.errors.push(&at, message);
    }

    /// An error about something that the whole file lacks.
    pub fn missing(&mut self, message: impl Into<String>) {
        let at = self.layers.whole_file();
        self.errors.push(&at, message);
    }

    fn wrong_type(&mut self, node: &Node<'_>, wanted: &str) {
        let found = describe(node.value);
        self.error(
            node,
            format!("'{}' must be {wanted}, found {found}", last_key(&node.path)),
        );
    }

    /// The top level of the settings.
    pub fn root(&mut self, keys: &[&str]) -> Table<'a> {
        let dict = &self.layers.root;
        self.check_keys("", "at the top level", dict, keys);
        Table {
            path: String::new(),
            dict,
        }
    }

    /// A table that may have `keys`; `title` is how a message calls it.
    pub fn table(&mut self, node: &Node<'a>, title: &str, keys: &[&str]) -> Option<Table<'a>> {
        let Value::Dict(_, dict) = node.value else {
            self.wrong_type(node, "a table");
            return None;
        };
        self.check_keys(&node.path, &format!("in {title}"), dict, keys);
        Some(Table {
            path: node.path.clone(),
            dict,
        })
    }

    fn check_keys(&mut self, path: &str, place: &str, dict: &Dict, keys: &[&str]) {
        for (key, value) in dict {
            if !keys.contains(&key.as_str()) {
                let at = self.layers.key_location(&join(path, key), value);
                let hint = suggest(key, keys.iter().copied());
                self.errors
                    .push(&at, format!("unknown key '{key}' {place}{hint}"));
            }
        }
    }

    /// The elements of a list that must not be empty.
    pub fn list(&mut self, node: &Node<'a>) -> Vec<Node<'a>> {
        let Value::Array(_, elements) = node.value else {
            self.wrong_type(node, "a list");
            return Vec::new();
        };
        if elements.is_empty() {
            self.error(
                node,
                format!("'{}' must not be empty", last_key(&node.path)),
            );
        }
        elements
            .iter()
            .enumerate()
            .map(|(i, value)| Node {
                path: format!("{}[{i}]", node.path),
                value,
            })
            .collect()
    }

    pub fn string(&mut self, node: &Node<'_>) -> Option<String> {
        match node.value {
            Value::String(_, s) if s.trim().is_empty() => {
                self.error(
                    node,
                    format!("'{}' must not be empty", last_key(&node.path)),
                );
                None
            }
            Value::String(_, s) => Some(s.clone()),
            Value::Char(_, c) => Some(c.to_string()),
            _ => {
                self.wrong_type(node, "a string");
                None
            }
        }
    }

    pub fn located_string(&mut self, node: &Node<'_>) -> Option<Located<String>> {
        let value = self.string(node)?;
        Some(Located {
            value,
            at: self.at(node),
        })
    }

    pub fn bool(&mut self, node: &Node<'_>) -> Option<bool> {
        match node.value {
            Value::Bool(_, b) => Some(*b),
            _ => {
                self.wrong_type(node, "true or false");
                None
            }
        }
    }

    /// A whole number of at least `min`.
    pub fn count(&mut self, node: &Node<'_>, min: usize) -> Option<usize> {
        let number = match node.value {
            Value::Num(_, n) => integer(*n),
            _ => None,
        };
        let Some(number) = number else {
            self.wrong_type(node, "a whole number");
            return None;
        };
        // Counts of tokens and layers; beyond this a sum could overflow.
        const MAX: usize = 1 << 40;
        match usize::try_from(number) {
            Ok(n) if (min..=MAX).contains(&n) => Some(n),
            _ => {
                let key = last_key(&node.path);
                self.error(
                    node,
                    format!("'{key}' must be from {min} to {MAX}, found {number}"),
                );
                None
            }
        }
    }

    /// A finite number from zero.
    pub fn non_negative(&mut self, node: &Node<'_>) -> Option<f64> {
        self.number(node, "from 0 up", |x| x.is_finite() && x >= 0.0)
    }

    /// A number between 0 and 1.
    pub fn level(&mut self, node: &Node<'_>) -> Option<f64> {
        self.number(node, "between 0 and 1", |x| x > 0.0 && x < 1.0)
    }

    fn number(
        &mut self,
        node: &Node<'_>,
        range: &str,
        in_range: impl Fn(f64) -> bool,
    ) -> Option<f64> {
        let number = match node.value {
            Value::Num(_, n) => n.to_f64().or_else(|| integer(*n).map(|n| n as f64)),
            _ => None,
        };
        let Some(number) = number else {
            self.wrong_type(node, "a number");
            return None;
        };
        if in_range(number) {
            return Some(number);
        }
        let key = last_key(&node.path);
        self.error(node, format!("'{key}' must be {range}, found {number}"));
        None
    }
}

fn integer(n: Num) -> Option<i128> {
    n.to_i128()
        .or_else(|| n.to_u128().and_then(|n| i128::try_from(n).ok()))
}

/// The key that a path ends in: `contexts[1]` is an element of `contexts`.
fn last_key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn describe(value: &Value) -> String {
    match value {
        Value::String(_, s) => format!("the string \"{s}\""),
        Value::Char(_, c) => format!("the string \"{c}\""),
        Value::Bool(_, b) => format!("{b}"),
        Value::Num(_, n) => match (integer(*n), n.to_f64()) {
            (Some(i), _) => format!("the number {i}"),
            (_, Some(x)) => format!("the number {x}"),
            _ => "a number".to_owned(),
        },
        Value::Empty(..) => "nothing".to_owned(),
        Value::Dict(..) => "a table".to_owned(),
        Value::Array(..) => "a list".to_owned(),
    }
}
