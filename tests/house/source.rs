//! The files of `src`, and which of them import which. Reads text, not syntax: it knows
//! as much of Rust as this crate's style uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module's path within the crate: `["results", "row"]`.
pub type Module = Vec<String>;

/// One file.
pub struct File {
    /// Its path below `src`.
    pub path: PathBuf,
    /// Without comments and without its `mod tests`.
    pub text: String,
    /// Paths in its imports and expressions that begin with `crate`, `super`, `self` or
    /// a module below it.
    paths: Vec<Vec<String>>,
    /// Names that it takes from modules below it, for itself or to re-export, with the
    /// path to each.
    exports: BTreeMap<String, Vec<String>>,
}

/// All files, by the modules that they are.
pub struct Source {
    pub files: BTreeMap<Module, File>,
}

impl Source {
    /// Reads the tree at `root`, less the files of unit tests.
    pub fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut left = vec![root.to_owned()];
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(&directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    left.push(path);
                    continue;
                }
                let within = path.strip_prefix(root).expect("a path below the root");
                let name = within.with_extension("");
                let mut module: Module = name
                    .components()
                    .map(|c| c.as_os_str().to_string_lossy().into_owned())
                    .collect();
                match module.last().map(String::as_str) {
                    Some("tests" | "main") => continue,
                    Some("mod" | "lib") => drop(module.pop()),
                    _ => {}
                }
                if path.extension().is_some_and(|e| e == "rs") {
                    let text = std::fs::read_to_string(&path).expect("a file");
                    files.insert(module, File::new(within, &text));
                }
            }
        }
        let mut source = Self { files };
        source.keep_own_paths();
        source
    }

    /// `use name::X` without `crate` or `super` is ours where `name` is a module below.
    fn keep_own_paths(&mut self) {
        let modules: BTreeSet<Module> = self.files.keys().cloned().collect();
        for (module, file) in &mut self.files {
            let is_child =
                |path: &[String]| modules.contains(&[module.as_slice(), &path[..1]].concat());
            file.exports.retain(|_, path| is_child(path));
            file.paths.retain(|path| match path[0].as_str() {
                "crate" | "super" | "self" => true,
                _ => is_child(path),
            });
        }
    }

    /// The modules that `module` imports from.
    pub fn imports(&self, module: &Module) -> BTreeSet<Module> {
        let file = &self.files[module];
        let found = file
            .paths
            .iter()
            .filter_map(|path| self.resolve(module, path));
        found.filter(|found| found != module).collect()
    }

    /// The rooms that `module` names in its imports.
    pub fn rooms(&self, module: &Module) -> BTreeSet<String> {
        let own = &module[0];
        let file = &self.files[module];
        let absolute = file.paths.iter().map(|path| absolute(module, path));
        let rooms = absolute.filter_map(|path| path.into_iter().next());
        rooms
            .filter(|room| room != own && self.files.contains_key(std::slice::from_ref(room)))
            .collect()
    }

    /// The module that defines what `path`, written in `module`, names.
    fn resolve(&self, module: &Module, path: &[String]) -> Option<Module> {
        let path = absolute(module, path);
        let longest = (1..=path.len())
            .rev()
            .find(|&n| self.files.contains_key(&path[..n]))?;
        let (found, rest) = path.split_at(longest);
        let exported = rest
            .first()
            .and_then(|name| self.files[found].exports.get(name));
        match exported {
            Some(export) => self.resolve(&found.to_vec(), export),
            None => Some(found.to_vec()),
        }
    }
}

/// A path from the crate's root; `crate` itself is left out.
fn absolute(module: &[String], path: &[String]) -> Vec<String> {
    let supers = path.iter().take_while(|p| *p == "super").count();
    let (base, rest) = match path[0].as_str() {
        "crate" => (&module[..0], &path[1..]),
        "super" => (&module[..module.len() - supers], &path[supers..]),
        "self" => (module, &path[1..]),
        _ => (module, path),
    };
    [base, rest].concat()
}

impl File {
    fn new(path: &Path, text: &str) -> Self {
        let text: Vec<&str> = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect();
        let text = text.join("\n");
        let text = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or_default();
        let mut file = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            paths: Vec::new(),
            exports: BTreeMap::new(),
        };
        let mut rest = String::new();
        let mut statement: Option<String> = None;
        for line in text.lines() {
            let start = line.trim_start();
            if statement.is_none() && is_use(start) {
                statement = Some(String::new());
            }
            let Some(found) = &mut statement else {
                rest += line;
                rest.push('\n');
                continue;
            };
            *found += line.trim();
            found.push(' ');
            if line.contains(';') {
                let found = statement.take().unwrap_or_default();
                file.add_use(found.trim().trim_end_matches(';'));
            }
        }
        file.add_expressions(&rest);
        file
    }

    fn add_use(&mut self, statement: &str) {
        let public = statement.starts_with("pub");
        let (_, tree) = statement.split_once("use ").expect("an import");
        for path in expand(tree) {
            let (path, alias) = match path.split_once(" as ") {
                Some((path, alias)) => (path.to_owned(), Some(alias.trim().to_owned())),
                None => (path, None),
            };
            let path: Vec<String> = path.split("::").map(|p| p.trim().to_owned()).collect();
            let is_relative = !["crate", "super"].contains(&path[0].as_str());
            if is_relative {
                // Modules below see a private import, too.
                let name = alias.unwrap_or_else(|| path.last().expect("a name").clone());
                self.exports.insert(name, path.clone());
            }
            if !(public && is_relative) {
                self.paths.push(path);
            }
        }
    }

    /// Paths that stand in code: `crate::say::text`.
    fn add_expressions(&mut self, text: &str) {
        for root in ["crate::", "super::", "self::"] {
            for (at, _) in text.match_indices(root) {
                let before = text[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
                    continue;
                }
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                let path: String = text[at..].chars().take_while(|&c| is_part(c)).collect();
                let parts = path.split("::").filter(|p| !p.is_empty());
                self.paths.push(parts.map(str::to_owned).collect());
            }
        }
    }
}

fn is_use(line: &str) -> bool {
    let after_visibility = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or("", |(_, r)| r),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    after_visibility.starts_with("use ")
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let inner = &rest[..rest.rfind('}').expect("a closing brace")];
    let mut depth = 0;
    let items = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let items: Vec<&str> = items.map(str::trim).filter(|i| !i.is_empty()).collect();
    let each = items.into_iter().flat_map(expand);
    each.map(|item| format!("{head}{item}")).collect()
}

/// Groups of modules that import each other in a circle.
pub fn circles(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = graph
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut left = vec![from];
            while let Some(at) = left.pop() {
                for next in graph.get(at).into_iter().flatten() {
                    if seen.insert(next) {
                        left.push(next);
                    }
                }
            }
            (from, seen)
        })
        .collect();
    let mut found: Vec<BTreeSet<Module>> = Vec::new();
    for (&module, seen) in &reach {
        if !seen.contains(module) || found.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let back = |other: &&&Module| reach.get(**other).is_some_and(|s| s.contains(module));
        found.push(seen.iter().filter(back).map(|m| (*m).clone()).collect());
    }
    found
}

#[test]
fn import_trees_are_read() {
    assert_eq!(
        expand("crate::{a, b::{self, c::D}, e as f}"),
        [
            "crate::a",
            "crate::b::self",
            "crate::b::c::D",
            "crate::e as f"
        ]
    );
    let text = "pub use child::{A, B as C};\nuse super::x; // use crate::no;\nfn f() { crate::say::text() }";
    let file = File::new(Path::new("m.rs"), text);
    assert_eq!(file.exports["C"], ["child", "B"]);
    assert_eq!(
        file.paths,
        [vec!["super", "x"], vec!["crate", "say", "text"]]
    );
    let module = |name: &str| vec![name.to_owned()];
    let edges = [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["b"])];
    let graph = edges.map(|(m, to)| (module(m), to.into_iter().map(module).collect()));
    let circles = circles(&graph.into());
    assert_eq!(circles, [BTreeSet::from([module("b"), module("c")])]);
}
