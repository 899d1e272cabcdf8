//! What is wrong with an experiment, and where it was written.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a setting was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the experiment file; line and column count from 1.
    File {
        /// The experiment file.
        path: Arc<PathBuf>,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
    },
    /// In the experiment file as a whole: what is wrong is what is not there.
    WholeFile(Arc<PathBuf>),
    /// In this environment variable.
    Env(String),
    /// In this `--set` argument.
    Set(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Location::WholeFile(path) => write!(f, "{}", path.display()),
            Location::Env(variable) => write!(f, "environment variable {variable}"),
            Location::Set(argument) => write!(f, "--set {argument}"),
        }
    }
}

/// A setting with the place that a message about it should name.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub at: Location,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct Diagnostic {
    /// Where the cause was written.
    pub at: Location,
    /// What is wrong.
    pub message: String,
}

/// Everything that is wrong with an experiment; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    fn lines(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(Diagnostic::to_string).collect();
        match lines.len() {
            1 => lines.concat(),
            n => format!("{n} errors\n{}", lines.join("\n")),
        }
    }
}

/// Collects diagnostics until it is known whether there are any.
#[derive(Debug, Default)]
pub struct Collector(Vec<Diagnostic>);

impl Collector {
    /// Adds an error.
    pub fn push(&mut self, at: &Location, message: impl Into<String>) {
        self.0.push(Diagnostic {
            at: at.clone(),
            message: message.into(),
        });
    }

    /// `value`, or everything that was collected.
    pub fn finish<T>(self, value: T) -> Result<T, Diagnostics> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(Diagnostics(self.0))
        }
    }
}

/// The candidate that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&word.to_lowercase(), c), c))
        .min()
        .filter(|&(distance, c)| distance <= c.chars().count().div_ceil(3).max(1))
        .map(|(_, c)| c)
}

/// `; did you mean 'x'?` where something is near, and the list of what is valid.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let list: Vec<&str> = candidates.clone().into_iter().collect();
    let list = list.join(", ");
    match nearest(word, candidates) {
        Some(c) => format!("; did you mean '{c}'? (valid: {list})"),
        None => format!(" (valid: {list})"),
    }
}
