//! The house rules that docs/architecture.md states, against the source: which room may
//! import which, where files of a room may import each other in a circle, and which
//! files may have unsafe code.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use source::{Module, Source, circles};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source() -> Source {
    Source::read(&root().join("src"))
}

/// The lines of docs/architecture.md below a heading, up to the next one.
fn section(heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let mut lines = text
        .lines()
        .skip_while(|l| !l.ends_with(&format!("# {heading}")));
    assert!(
        lines.next().is_some(),
        "docs/architecture.md has no '{heading}'"
    );
    lines
        .take_while(|l| !l.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// The names in backticks.
fn names(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The two columns of the rows of a table whose first cell begins with a name.
fn table(heading: &str) -> Vec<(String, String)> {
    let rows = section(heading)
        .into_iter()
        .filter(|l| l.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split(" | ");
        let mut cell = || cells.next().expect("a cell").trim().to_owned();
        (cell(), cell())
    })
    .collect()
}

#[test]
fn rooms_import_what_the_table_says_and_no_entry_is_unused() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let source = source();
    for module in source.files.keys().filter(|m| !m.is_empty()) {
        let rooms = source.rooms(module);
        found.entry(module[0].clone()).or_default().extend(rooms);
    }
    let stated: BTreeMap<String, BTreeSet<String>> = table("What imports what")
        .into_iter()
        .map(|(room, may)| (names(&room).remove(0), names(&may).into_iter().collect()))
        .collect();
    let mut wrong = Vec::new();
    for room in found.keys().chain(stated.keys()).collect::<BTreeSet<_>>() {
        let none = BTreeSet::new();
        let (does, may) = (found.get(room), stated.get(room));
        if does.is_none() || may.is_none() {
            wrong.push(format!("'{room}' is a room or has a row, not both"));
        }
        let (does, may) = (does.unwrap_or(&none), may.unwrap_or(&none));
        wrong.extend(
            does.difference(may)
                .map(|r| format!("{room} imports {r}, which the table does not allow")),
        );
        wrong.extend(
            may.difference(does)
                .map(|r| format!("the table lets {room} import {r}, which it does not")),
        );
    }
    assert!(
        wrong.is_empty(),
        "docs/architecture.md:\n{}",
        wrong.join("\n")
    );
    // The table itself has an order: no circle between rooms.
    let module = |room: &String| vec![room.clone()];
    let graph = found
        .iter()
        .map(|(room, to)| (module(room), to.iter().map(module).collect()));
    assert_eq!(circles(&graph.collect()), []);
}

#[test]
fn files_import_each_other_in_no_circle_but_those_argued_for() {
    let source = source();
    let is_file = |m: &&Module| !m.is_empty();
    let graph = source.files.keys().filter(is_file).map(|module| {
        let same_room = |m: &Module| m.first() == module.first();
        let imports = source.imports(module).into_iter().filter(same_room);
        (module.clone(), imports.collect())
    });
    let found = circles(&graph.collect());
    let mut argued: Vec<(Vec<String>, bool)> = section("Circles")
        .iter()
        .filter(|line| line.starts_with("- "))
        .map(|line| (names(line.split(": ").next().expect("names")), false))
        .collect();
    let mut wrong = Vec::new();
    for circle in found {
        let files: Vec<String> = circle.iter().map(|m| m.join("/")).collect();
        let covers = |name: &String, file: &String| match name.strip_suffix('/') {
            Some(directory) => file == directory || file.starts_with(name),
            None => file == name,
        };
        let fits = |names: &[String]| files.iter().all(|f| names.iter().any(|n| covers(n, f)));
        match argued.iter_mut().find(|(names, _)| fits(names)) {
            Some((_, used)) => *used = true,
            None => wrong.push(format!(
                "a circle that nobody argues for: {}",
                files.join(", ")
            )),
        }
    }
    let unused = argued.iter().filter(|(_, used)| !used);
    wrong.extend(unused.map(|(names, _)| format!("no circle any more: {}", names.join(", "))));
    assert!(
        wrong.is_empty(),
        "docs/architecture.md:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn files_with_unsafe_code_are_those_of_the_table() {
    let forms = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
    let is_unsafe = |text: &str| forms.iter().any(|form| text.contains(form));
    let files = source().files;
    let with = files.values().filter(|file| is_unsafe(&file.text));
    let found: BTreeSet<String> = with.map(|file| file.path.display().to_string()).collect();
    let stated: BTreeSet<String> = table("Unsafe code")
        .iter()
        .flat_map(|(files, _)| names(files))
        .collect();
    let missing: Vec<&String> = found.difference(&stated).collect();
    let gone: Vec<&String> = stated.difference(&found).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/architecture.md: unsafe code that the table lacks: {missing:?}; files of the table \
         without any: {gone:?}"
    );
}
