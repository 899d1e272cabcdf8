//! Finding the files that an experiment names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::Pattern;

use super::{CorpusSpec, ModelFacts, ModelSpec};
use crate::experiment::{
    Collector, CorpusEntry, Experiment, Located, Location, ModelFiles, check_run_name, file_name,
    suggest,
};
use crate::gguf::first_part;

/// Resolves paths against the working directory first, then against the directory
/// that holds the experiment's directory (`PROJECT/experiments/x.toml`).
pub(super) struct Paths {
    project: Option<PathBuf>,
}

impl Paths {
    pub fn new(experiment: &Path) -> Self {
        let absolute = std::path::absolute(experiment).ok();
        let project = absolute
            .as_deref()
            .and_then(|p| p.parent()?.parent())
            .map(Path::to_owned);
        Self { project }
    }

    /// The file that `written` means. If there is none, `written` itself: that
    /// is where a fetched file goes.
    pub fn resolve(&self, written: &str) -> PathBuf {
        let path = PathBuf::from(written);
        if path.is_absolute() || path.exists() {
            return path;
        }
        match self.project.as_ref().map(|p| p.join(written)) {
            Some(in_project) if in_project.exists() => in_project,
            _ => path,
        }
    }

    /// The files that a glob matches, sorted.
    ///
    /// # Errors
    /// A pattern that is none, or a directory that cannot be read.
    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let here = files_matching(pattern)?;
        match &self.project {
            Some(project) if here.is_empty() && !Path::new(pattern).is_absolute() => {
                let project = glob::Pattern::escape(&project.to_string_lossy());
                files_matching(&format!("{project}/{pattern}"))
            }
            _ => Ok(here),
        }
    }
}

/// The files that a pattern matches; directories are left out.
fn files_matching(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let paths = glob::glob(pattern).map_err(|e| format!("'{pattern}' is not a glob: {}", e.msg))?;
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|e| format!("'{pattern}': {e}"))?;
        let kind = path.metadata().map_err(|e| {
            let path = path.display();
            format!("'{pattern}' matches {path}, which cannot be read: {e}")
        })?;
        if kind.is_file() {
            files.push(path);
        } else if !kind.is_dir() {
            let path = path.display();
            return Err(format!("'{pattern}' matches {path}, which is not a file"));
        }
    }
    match unnamable(pattern) {
        None => Ok(files),
        Some(path) => Err(format!(
            "'{pattern}' matches \"{}\", whose name is not UTF-8, so that no run can be named after \
             it; rename the file, or give the pattern another form",
            path.as_os_str().as_encoded_bytes().escape_ascii()
        )),
    }
}

/// A file or directory that a pattern would match if its name were UTF-8: `glob` leaves
/// such names out without a word.
fn unnamable(pattern: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let is_glob = |part: &str| part.contains(['*', '?', '[']);
    let globs = (0..parts.len()).filter(|&i| is_glob(parts[i]));
    globs.into_iter().find_map(|i| {
        let (last, any_folder) = (i + 1 == parts.len(), parts[i] == "**");
        let directories = directories(&parts[..i + usize::from(any_folder)]);
        let named = Pattern::new(parts[i]).ok()?;
        let entries = directories.into_iter().filter_map(|f| f.read_dir().ok());
        let mut paths = entries.flatten().flatten().map(|entry| entry.path());
        paths.find(|path| {
            let name = path.file_name().unwrap_or_default();
            let matches = any_folder || named.matches(&name.to_string_lossy());
            // What comes before the last part is a directory, and the last is a file.
            name.to_str().is_none() && matches && (last != path.is_dir())
        })
    })
}

/// The directories that the first parts of a pattern match.
fn directories(parts: &[&str]) -> Vec<PathBuf> {
    let Some((last, before)) = parts.split_last() else {
        return vec![PathBuf::from(".")];
    };
    if parts == [""] {
        return vec![PathBuf::from("/")];
    }
    // `a/**` stands for the directory `a` too.
    let mut found = match *last {
        "**" => directories(before),
        _ => Vec::new(),
    };
    if let Ok(paths) = glob::glob(&parts.join("/")) {
        found.extend(paths.flatten());
    }
    found
}

/// One file, however it is spelt.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Names that must mean one file each.
struct Names {
    kind: &'static str,
    paths: HashMap<String, PathBuf>,
}

impl Names {
    /// Takes `name` for `path`. Reports a name that is taken or unusable.
    fn take(&mut self, name: &str, path: &Path, at: &Location, errors: &mut Collector) -> bool {
        if let Err(message) = check_run_name(name) {
            errors.push(at, message);
            return false;
        }
        match self.paths.insert(name.to_owned(), path.to_owned()) {
            None => true,
            Some(other) => {
                errors.push(
                    at,
                    format!(
                        "two {} are named '{name}': {} and {}; give one another 'name'",
                        self.kind,
                        other.display(),
                        path.display()
                    ),
                );
                false
            }
        }
    }
}

/// Reports a file that is missing and cannot be fetched, or is not a file.
fn check_file(path: &Path, source: &[String], at: &Location, errors: &mut Collector) {
    if path.exists() {
        if !path.is_file() {
            errors.push(at, format!("'{}' is not a file", path.display()));
        }
    } else if source.is_empty() {
        errors.push(
            at,
            format!(
                "'{}' does not exist and has no 'source' to fetch it from",
                path.display()
            ),
        );
    }
}

/// The models of an experiment, in file order.
pub(super) fn models(
    experiment: &Experiment,
    paths: &Paths,
    errors: &mut Collector,
) -> Vec<Arc<ModelSpec>> {
    // A file with a table of its own is not added again by a glob.
    let mut seen: Vec<PathBuf> = experiment
        .models
        .iter()
        .filter_map(|m| match &m.value.files {
            ModelFiles::File { path, .. } => Some(identity(&paths.resolve(path))),
            ModelFiles::Glob(_) => None,
        })
        .collect();
    let mut names = Names {
        kind: "models",
        paths: HashMap::new(),
    };
    let mut specs = Vec::new();
    for Located { value: entry, at } in &experiment.models {
        let spec = |name: String, path: PathBuf| ModelSpec {
            name,
            path,
            source: Vec::new(),
            sha256: None,
            pre: entry.pre.clone(),
            bos: entry.bos,
            parse_special: entry.parse_special,
            facts: None,
        };
        let mut found = Vec::new();
        match &entry.files {
            ModelFiles::File {
                name,
                path,
                source,
                sha256,
            } => {
                let path = paths.resolve(path);
                check_file(&path, source, at, errors);
                found.push(ModelSpec {
                    source: source.clone(),
                    sha256: sha256.clone(),
                    ..spec(name.clone().unwrap_or_else(|| stem(&path)), path)
                });
            }
            ModelFiles::Glob(pattern) => match paths.glob(pattern) {
                Err(message) => errors.push(at, message),
                Ok(files) if files.is_empty() => {
                    errors.push(at, format!("glob '{pattern}' matches no file"));
                }
                Ok(files) => {
                    // Later parts of split models belong to the first one.
                    let later = |p: &Path| first_part(p).is_some_and(|first| first.exists());
                    for path in files.into_iter().filter(|p| !later(p)) {
                        let id = identity(&path);
                        if !seen.contains(&id) {
                            seen.push(id);
                            found.push(spec(stem(&path), path));
                        }
                    }
                }
            },
        }
        for mut model in found {
            if !names.take(&model.name, &model.path, at, errors) {
                continue;
            }
            if model.path.is_file() {
                match ModelFacts::read(&model.path) {
                    Ok(facts) if facts.context_length < 2 => {
                        errors.push(at, no_context(&model.path, &facts));
                    }
                    Ok(facts) => model.facts = Some(facts),
                    Err(e) => errors.push(at, e.to_string()),
                }
            }
            specs.push(Arc::new(model));
        }
    }
    specs
}

/// What to say of a model that was trained on windows of no use.
fn no_context(path: &Path, facts: &ModelFacts) -> String {
    format!(
        "{}: metadata key '{}.context_length' is {}, so that no window fits the model; fetch the \
         file again, or write the number of tokens there that the model was trained on",
        path.display(),
        facts.architecture,
        facts.context_length
    )
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}

/// The swept corpora, in the order of `sweep.corpora`.
pub(super) fn corpora(
    experiment: &Experiment,
    paths: &Paths,
    errors: &mut Collector,
) -> Vec<Arc<CorpusSpec>> {
    let mut names = Names {
        kind: "corpora",
        paths: HashMap::new(),
    };
    for entry in &experiment.corpora {
        let path = PathBuf::from(&entry.value.path);
        names.take(&entry.value.name, &path, &entry.at, errors);
    }
    let mut specs: Vec<Arc<CorpusSpec>> = Vec::new();
    for Located { value: text, at } in &experiment.sweep.corpora {
        for spec in swept(text, at, experiment, paths, errors) {
            if specs
                .iter()
                .any(|s| identity(&s.path) == identity(&spec.path))
            {
                continue;
            }
            let described = experiment.corpora.iter().any(|c| c.value.name == spec.name);
            if described || names.take(&spec.name, &spec.path, at, errors) {
                specs.push(Arc::new(spec));
            }
        }
    }
    specs
}

/// What one element of `sweep.corpora` means.
fn swept(
    text: &str,
    at: &Location,
    experiment: &Experiment,
    paths: &Paths,
    errors: &mut Collector,
) -> Vec<CorpusSpec> {
    let entries = || experiment.corpora.iter();
    if let Some(entry) = entries().find(|c| c.value.name == text) {
        return vec![described(&entry.value, &entry.at, paths, errors)];
    }
    let path = paths.resolve(text);
    let files = if path.exists() {
        check_file(&path, &[], at, errors);
        vec![path]
    } else if let Some(entry) = entries().find(|c| c.value.path == text) {
        return vec![described(&entry.value, &entry.at, paths, errors)];
    } else if text.contains(['*', '?', '[']) {
        match paths.glob(text) {
            Ok(files) if files.is_empty() => {
                errors.push(at, format!("glob '{text}' matches no file"));
                return Vec::new();
            }
            Ok(files) => files,
            Err(message) => {
                errors.push(at, message);
                return Vec::new();
            }
        }
    } else {
        let names: Vec<&str> = entries().map(|c| c.value.name.as_str()).collect();
        let hint = match names.is_empty() {
            true => "; describe it in [[corpora]] with a 'source' to have it fetched".to_owned(),
            false => suggest(text, names),
        };
        errors.push(
            at,
            format!("'{text}' is neither a file nor the name of a [[corpora]] table{hint}"),
        );
        return Vec::new();
    };
    files
        .into_iter()
        .map(|path| {
            let id = identity(&path);
            match entries().find(|c| identity(&paths.resolve(&c.value.path)) == id) {
                Some(entry) => described(&entry.value, &entry.at, paths, errors),
                None => CorpusSpec {
                    name: file_name(&path.to_string_lossy()),
                    bytes: file_len(&path),
                    path,
                    source: Vec::new(),
                    sha256: None,
                },
            }
        })
        .collect()
}

fn described(
    entry: &CorpusEntry,
    at: &Location,
    paths: &Paths,
    errors: &mut Collector,
) -> CorpusSpec {
    let path = paths.resolve(&entry.path);
    check_file(&path, &entry.source, at, errors);
    CorpusSpec {
        name: entry.name.clone(),
        bytes: file_len(&path),
        path,
        source: entry.source.clone(),
        sha256: entry.sha256.clone(),
    }
}

fn file_len(path: &Path) -> Option<u64> {
    let meta = std::fs::metadata(path).ok()?;
    meta.is_file().then_some(meta.len())
}
