//! The axes along which runs differ, and which runs of two tables face each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use glob::Pattern;

use crate::results::ResultRow;

/// What tells the runs of an experiment apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// Name of the model.
    Model,
    /// Name of the corpus.
    Corpus,
    /// Context length.
    Context,
    /// The mode with its numbers, as keys have it.
    Mode,
    /// Which device computes which layers.
    Placement,
    /// The arithmetic.
    Numerics,
    /// Name and version of what computes.
    Engine,
}

impl Axis {
    /// All, in the order of a key; the engine last.
    pub const ALL: [Axis; 7] = [
        Axis::Model,
        Axis::Corpus,
        Axis::Context,
        Axis::Mode,
        Axis::Placement,
        Axis::Numerics,
        Axis::Engine,
    ];

    /// As in experiment files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Model => "model",
            Axis::Corpus => "corpus",
            Axis::Context => "context",
            Axis::Mode => "mode",
            Axis::Placement => "placement",
            Axis::Numerics => "numerics",
            Axis::Engine => "engine",
        }
    }

    /// The axis of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Axis::ALL.into_iter().find(|axis| axis.name() == name)
    }

    /// Where on the axis a run lies.
    pub fn of(self, row: &ResultRow) -> String {
        let p = &row.provenance;
        match self {
            Axis::Model => p.model.clone(),
            Axis::Corpus => p.corpus.clone(),
            Axis::Context => p.geometry.n_ctx.to_string(),
            Axis::Mode => p.geometry.mode.label(),
            Axis::Placement => p.placement.clone(),
            Axis::Numerics => p.numerics.clone(),
            Axis::Engine => p.engine.clone(),
        }
    }
}

/// Values of an axis that are to face each other: `numerics=exact,q8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Between {
    /// Which axis.
    pub axis: Axis,
    /// Globs. The first is A; each other one is a B. With one alone, all other values
    /// of the axis are B.
    values: Vec<Pattern>,
}

impl Between {
    /// The globs `values` of an axis.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(axis: Axis, values: &[&str]) -> Result<Self, String> {
        let pattern = |text: &&str| match text.trim() {
            "" => Err(format!("{}: a value is empty", axis.name())),
            text => Pattern::new(text).map_err(|e| format!("'{text}' is not a glob: {}", e.msg)),
        };
        let values: Vec<Pattern> = values.iter().map(pattern).collect::<Result<_, _>>()?;
        match values.is_empty() {
            true => Err(format!("{} has no values", axis.name())),
            false => Ok(Between { axis, values }),
        }
    }

    /// Whether a run can be A.
    fn is_a(&self, row: &ResultRow) -> bool {
        self.values[0].matches(&self.axis.of(row))
    }

    /// Which of the values that can be B a run has, counted from 0.
    fn b(&self, row: &ResultRow) -> Option<usize> {
        let value = self.axis.of(row);
        match self.values.as_slice() {
            [a] => (!a.matches(&value)).then_some(0),
            [_, others @ ..] => others.iter().position(|p| p.matches(&value)),
            [] => None,
        }
    }
}

impl FromStr for Between {
    type Err = String;

    /// Reads `numerics=exact,q8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text
            .split_once('=')
            .ok_or("write AXIS=A,B, such as numerics=exact,q8")?;
        let axis = Axis::by_name(name.trim()).ok_or_else(|| {
            let names = Axis::ALL.map(Axis::name).join(", ");
            format!("'{}' is no axis; the axes are {names}", name.trim())
        })?;
        Between::new(axis, &values.split(',').collect::<Vec<_>>())
    }
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<&str> = self.values.iter().map(Pattern::as_str).collect();
        write!(f, "{}={}", self.axis.name(), values.join(","))
    }
}

/// The keys that face each other, by globs: `*/exact=*/q8`.
#[derive(Clone, Debug)]
pub struct KeyPair {
    a: KeyGlob,
    b: KeyGlob,
}

/// A glob over keys that tells what its wildcards stand for.
#[derive(Clone, Debug)]
struct KeyGlob {
    text: String,
    regex: regex::Regex,
}

impl KeyGlob {
    fn new(text: &str) -> Result<Self, String> {
        // Checks the brackets.
        Pattern::new(text).map_err(|e| format!("'{text}' is not a glob: {}", e.msg))?;
        let mut regex = "^".to_owned();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '*' => {
                    rest = rest.trim_start_matches('*');
                    regex += "(.*)";
                }
                '?' => regex += "(.)",
                '[' => {
                    let (class, after) = rest.split_once(']').ok_or("a '[' without ']'")?;
                    let (not, class) = match class.strip_prefix('!') {
                        Some(class) => ("^", class),
                        None => ("", class),
                    };
                    let class = regex::escape(class).replace("\\-", "-");
                    regex += &format!("([{not}{class}])");
                    rest = after;
                }
                c => regex += &regex::escape(c.encode_utf8(&mut [0; 4])),
            }
        }
        let regex = regex::Regex::new(&(regex + "$"))
            .map_err(|e| format!("'{text}' is not a glob over keys: {e}"))?;
        Ok(KeyGlob {
            text: text.to_owned(),
            regex,
        })
    }

    /// What the wildcards stand for in `key`; `None` where it does not match.
    fn captures(&self, key: &str) -> Option<Vec<String>> {
        let found = self.regex.captures(key)?;
        let texts = found.iter().skip(1).flatten();
        Some(texts.map(|m| m.as_str().to_owned()).collect())
    }

    fn wildcards(&self) -> usize {
        self.regex.captures_len() - 1
    }
}

impl FromStr for KeyPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (a, b) = text
            .split_once('=')
            .ok_or("write KEYGLOB=KEYGLOB, such as '*/exact=*/q8'")?;
        Ok(KeyPair {
            a: KeyGlob::new(a.trim())?,
            b: KeyGlob::new(b.trim())?,
        })
    }
}

impl fmt::Display for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.a.text, self.b.text)
    }
}

/// Which runs face each other.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    /// Comparisons along axes: those of one list differ together, all others agree, but
    /// for limits.
    pub between: Vec<Vec<Between>>,
    /// Keys by globs, besides.
    pub pairs: Vec<KeyPair>,
}

/// Two runs that face each other, or one that faces none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// The key that both have; where the keys differ, with `A→B` in the places where they do.
    pub name: String,
    /// The key in A; `Err` says why there is none.
    pub a: Result<String, String>,
    /// The key in B.
    pub b: Result<String, String>,
}

impl Pair {
    fn new(a: &str, b: &str) -> Self {
        Pair {
            name: pair_name(a, b),
            a: Ok(a.to_owned()),
            b: Ok(b.to_owned()),
        }
    }
}

impl Pairing {
    /// Whether keys face the same keys.
    pub fn is_by_key(&self) -> bool {
        self.between.is_empty() && self.pairs.is_empty()
    }

    /// The pairs of two tables, or of `one` table with itself, by name.
    ///
    /// # Errors
    /// An axis is asked for twice, or with other numbers of values than another; no
    /// row has a value that is asked for.
    pub fn pairs(
        &self,
        a: &[&ResultRow],
        b: &[&ResultRow],
        one: bool,
    ) -> Result<Vec<Pair>, String> {
        let mut pairs = BTreeSet::new();
        if self.is_by_key() {
            by_key(a, b, &mut pairs);
        }
        for together in &self.between {
            between(together, a, b, one, &mut pairs)?;
        }
        for globs in &self.pairs {
            by_globs(globs, a, b, &mut pairs)?;
        }
        Ok(pairs.into_iter().collect())
    }
}

/// The pairs of runs that differ in the axes `together` and agree in the others.
fn between(
    together: &[Between],
    a: &[&ResultRow],
    b: &[&ResultRow],
    one: bool,
    pairs: &mut BTreeSet<Pair>,
) -> Result<(), String> {
    for (i, between) in together.iter().enumerate() {
        let name = between.axis.name();
        if together[..i].iter().any(|o| o.axis == between.axis) {
            return Err(format!("the axis {name} is asked for twice"));
        }
        let first = &together[0];
        if between.values.len() != first.values.len() {
            return Err(format!(
                "'{first}' and '{between}' go together, so they need as many values each"
            ));
        }
        occurs(between, between.values.first(), a, "A")?;
        for value in between.values.iter().skip(1) {
            occurs(between, Some(value), b, "B")?;
        }
    }
    let is_a = |row: &ResultRow| together.iter().all(|x| x.is_a(row));
    let which_b = |row: &ResultRow| {
        let mut which = together.iter().map(|x| x.b(row));
        let first = which.next().flatten()?;
        which.all(|w| w == Some(first)).then_some(first)
    };
    // What else a run is: it must agree.
    let rest = |row: &ResultRow| -> Vec<String> {
        let asked = |axis| together.iter().any(|x| x.axis == axis);
        let agrees = |axis: &Axis| match axis {
            Axis::Engine => false,
            // A mode's numbers follow the context.
            Axis::Mode => !asked(Axis::Mode) && !asked(Axis::Context),
            axis => !asked(*axis),
        };
        let others = Axis::ALL.into_iter().filter(agrees);
        others.map(|axis| axis.of(row)).collect()
    };
    let mut of_a: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for row in a.iter().filter(|row| is_a(row)) {
        of_a.entry(rest(row)).or_default().push(&row.key);
    }
    let mut faced = BTreeSet::new();
    for row in b.iter().filter(|row| which_b(row).is_some()) {
        let found = of_a.get(&rest(row)).map_or(&[][..], Vec::as_slice);
        match partner(&row.key, found) {
            Some(key) if one && key == row.key => {}
            Some(key) => {
                faced.insert(key);
                pairs.insert(Pair::new(key, &row.key));
            }
            None => {
                let wanted: Vec<String> = together
                    .iter()
                    .map(|x| format!("{} {}", x.axis.name(), x.values[0]))
                    .collect();
                let why = none_or_many("A", &wanted.join(" and "), found);
                pairs.insert(Pair {
                    name: row.key.clone(),
                    a: Err(why),
                    b: Ok(row.key.clone()),
                });
                faced.extend(found);
            }
        }
    }
    let wanted: Vec<String> = together.iter().map(Between::to_string).collect();
    for key in of_a.into_values().flatten().filter(|k| !faced.contains(k)) {
        pairs.insert(Pair {
            name: key.to_owned(),
            a: Ok(key.to_owned()),
            b: Err(format!("B has no such row ({})", wanted.join(", "))),
        });
    }
    Ok(())
}

/// That some row has a value.
fn occurs(
    between: &Between,
    value: Option<&Pattern>,
    rows: &[&ResultRow],
    side: &str,
) -> Result<(), String> {
    let values: BTreeSet<String> = rows.iter().map(|row| between.axis.of(row)).collect();
    match value.filter(|p| !values.iter().any(|v| p.matches(v))) {
        None => Ok(()),
        Some(value) => Err(format!(
            "no row of {side} has {} '{value}'; there is {}",
            between.axis.name(),
            Vec::from_iter(values).join(", ")
        )),
    }
}

fn none_or_many(side: &str, wanted: &str, found: &[&str]) -> String {
    match found {
        [] => format!("{side} has no such row with {wanted}"),
        many => format!(
            "{side} has {} such rows with {wanted}, and which is meant is not said: {}",
            many.len(),
            many.join(", ")
        ),
    }
}

/// Same keys face each other, and what is left, where only limits differ.
fn by_key(a: &[&ResultRow], b: &[&ResultRow], pairs: &mut BTreeSet<Pair>) {
    let keys = |rows: &[&ResultRow]| -> BTreeSet<String> {
        rows.iter().map(|row| row.key.clone()).collect()
    };
    let (of_a, of_b) = (keys(a), keys(b));
    pairs.extend(of_a.intersection(&of_b).map(|key| Pair::new(key, key)));
    let alone = |own: &BTreeSet<String>, other: &BTreeSet<String>| {
        let mut by_rest: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for key in own.difference(other) {
            let (rest, _) = split_limits(key);
            by_rest
                .entry(rest.to_owned())
                .or_default()
                .push(key.clone());
        }
        by_rest
    };
    let (left_a, mut left_b) = (alone(&of_a, &of_b), alone(&of_b, &of_a));
    for (rest, keys) in left_a {
        let others = left_b.remove(&rest).unwrap_or_default();
        match (keys.as_slice(), others.as_slice()) {
            ([a], [b]) => {
                pairs.insert(Pair::new(a, b));
            }
            (keys, others) => {
                pairs.extend(keys.iter().map(|key| Pair {
                    name: key.clone(),
                    a: Ok(key.clone()),
                    b: Err("B has no such row".to_owned()),
                }));
                left_b.insert(rest, others.to_vec());
            }
        }
    }
    pairs.extend(left_b.into_values().flatten().map(|key| Pair {
        name: key.clone(),
        a: Err("A has no such row".to_owned()),
        b: Ok(key),
    }));
}

/// Keys that match, where the wildcards stand for the same on both sides. Where the
/// sides have other numbers of wildcards, each must mean one key.
fn by_globs(
    globs: &KeyPair,
    a: &[&ResultRow],
    b: &[&ResultRow],
    pairs: &mut BTreeSet<Pair>,
) -> Result<(), String> {
    fn found<'r>(glob: &KeyGlob, rows: &[&'r ResultRow]) -> Vec<(Vec<String>, &'r str)> {
        let keys = rows.iter().map(|row| row.key.as_str());
        keys.filter_map(|key| Some((glob.captures(key)?, key)))
            .collect()
    }
    let (of_a, of_b) = (found(&globs.a, a), found(&globs.b, b));
    for (side, glob, found) in [("A", &globs.a, &of_a), ("B", &globs.b, &of_b)] {
        if found.is_empty() {
            return Err(format!("no key of {side} matches '{}'", glob.text));
        }
    }
    if let ([(_, a)], [(_, b)]) = (of_a.as_slice(), of_b.as_slice()) {
        pairs.insert(Pair::new(a, b));
        return Ok(());
    }
    if globs.a.wildcards() != globs.b.wildcards() {
        return Err(format!(
            "'{}' matches {} keys and '{}' {}: write as many wildcards on both sides, each stands \
             for the same text, or one key each",
            globs.a.text,
            of_a.len(),
            globs.b.text,
            of_b.len()
        ));
    }
    let mut faced = BTreeSet::new();
    for (texts, b) in &of_b {
        let partner = of_a.iter().find(|(t, _)| t == texts);
        match partner {
            Some((_, a)) => {
                faced.insert(*a);
                pairs.insert(Pair::new(a, b));
            }
            None => {
                pairs.insert(Pair {
                    name: (*b).to_owned(),
                    a: Err(format!("A has no such row ({globs})")),
                    b: Ok((*b).to_owned()),
                });
            }
        }
    }
    for (_, a) in of_a.iter().filter(|(_, a)| !faced.contains(a)) {
        pairs.insert(Pair {
            name: (*a).to_owned(),
            a: Ok((*a).to_owned()),
            b: Err(format!("B has no such row ({globs})")),
        });
    }
    Ok(())
}

/// The one of `found` that `key` is compared with: that of the same limits, or the
/// only one.
fn partner<'k>(key: &str, found: &[&'k str]) -> Option<&'k str> {
    let (_, limits) = split_limits(key);
    let mut same = found.iter().filter(|k| split_limits(k).1 == limits);
    match (same.next(), same.next(), found) {
        (Some(one), None, _) => Some(one),
        (None, _, [one]) => Some(one),
        _ => None,
    }
}

/// A key without its limits, and these: `…/q8/w8` is `…/q8` and `w8`.
fn split_limits(key: &str) -> (&str, &str) {
    let is_limit = |part: &str| {
        let digits = part.strip_prefix(['w', 't']).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let mut rest = key;
    while let Some((front, part)) = rest.rsplit_once('/') {
        if !is_limit(part) {
            break;
        }
        rest = front;
    }
    (rest, key[rest.len()..].trim_start_matches('/'))
}

/// What a pair is called: the parts that both keys have, and `A→B` for the others.
fn pair_name(a: &str, b: &str) -> String {
    if a == b {
        return a.to_owned();
    }
    let ((a_rest, a_limits), (b_rest, b_limits)) = (split_limits(a), split_limits(b));
    let (x, y): (Vec<&str>, Vec<&str>) = (a_rest.split('/').collect(), b_rest.split('/').collect());
    if x.len() != y.len() {
        return format!("{a}→{b}");
    }
    let part = |(x, y): (&str, &str)| match x == y {
        true => x.to_owned(),
        false => format!("{x}→{y}"),
    };
    let mut parts: Vec<String> = x.into_iter().zip(y).map(part).collect();
    match (a_limits, b_limits) {
        ("", "") => {}
        (a, b) if a == b => parts.push(a.to_owned()),
        (a, b) => {
            let name = |limits: &str| match limits {
                "" => "all".to_owned(),
                limits => limits.replace('/', "+"),
            };
            parts.push(format!("{}→{}", name(a), name(b)));
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests;
