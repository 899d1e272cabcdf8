//! What runs are called within a table: the parts of their keys in which they differ.

use std::cmp::Ordering;

/// Puts keys in order: digits compare as the numbers that they write, so that context
/// 256 comes before 2048.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let by_piece = pieces(a).cmp(pieces(b));
    by_piece.then_with(|| a.cmp(b))
}

/// A run of digits, or a character.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Piece<'a> {
    /// Without leading zeros: more digits are a larger number.
    Number(usize, &'a str),
    Character(char),
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (piece, after) = rest.split_at(digits.max(first.len_utf8()));
        rest = after;
        Some(match digits {
            0 => Piece::Character(first),
            _ => {
                let number = piece.trim_start_matches('0');
                Piece::Number(number.len(), number)
            }
        })
    })
}

/// The names of runs that stand in one list: of the parts of their keys between
/// slashes, those that not all of them share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// By place in a key: what all have there; `None` where they differ.
    shared: Vec<Option<String>>,
}

impl Names {
    /// The names of the runs with these keys.
    pub fn new<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        let keys: Vec<Vec<&str>> = keys.into_iter().map(|k| k.split('/').collect()).collect();
        let (Some(first), true) = (keys.first(), keys.len() > 1) else {
            return Names { shared: Vec::new() };
        };
        let shared = |(place, part): (usize, &&str)| {
            let same = keys.iter().all(|key| key.get(place) == Some(part));
            if same {
                return Some((*part).to_owned());
            }
            // A window geometry that follows from the context, as llama.cpp's does, tells
            // nothing that the context does not.
            let follows = place > 0 && keys.iter().all(|key| is_default(key, place));
            follows.then(|| "sw".to_owned())
        };
        let shared: Vec<_> = first.iter().enumerate().map(shared).collect();
        let names = Names { shared };
        // A run that has nothing of its own keeps its key, and so do the others.
        match keys.iter().any(|key| names.parts(key).next().is_none()) {
            true => Names { shared: Vec::new() },
            false => names,
        }
    }

    fn parts<'k>(&self, key: &'k [&'k str]) -> impl Iterator<Item = &'k str> {
        let own = |place: usize| self.shared.get(place).is_none_or(Option::is_none);
        let parts = key.iter().enumerate();
        parts
            .filter(move |(place, _)| own(*place))
            .map(|(_, part)| *part)
    }

    /// What the run `key` is called here.
    pub fn of(&self, key: &str) -> String {
        let key: Vec<&str> = key.split('/').collect();
        self.parts(&key).collect::<Vec<_>>().join("/")
    }

    /// The parts that all keys share, with `…` for those that names have; `None` if
    /// names are keys.
    pub fn shared(&self) -> Option<String> {
        let parts = self.shared.iter();
        let parts: Vec<&str> = parts.map(|part| part.as_deref().unwrap_or("…")).collect();
        let any = self.shared.iter().any(Option::is_some);
        any.then(|| parts.join("/"))
    }
}

/// Whether the part at `place` is llama.cpp's sliding window of the context before it.
fn is_default(key: &[&str], place: usize) -> bool {
    let context = key.get(place - 1).and_then(|part| part.parse::<u64>().ok());
    context.is_some_and(|n| key.get(place) == Some(&format!("sw-s{n}-p{}", n / 2 + 1).as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_sort_as_numbers() {
        let mut keys = [
            "m/2048/w8",
            "m/256/w24",
            "m/256/w8",
            "l/9",
            "m/0256/w8",
            "m",
        ];
        keys.sort_by(|a, b| natural(a, b));
        assert_eq!(
            keys,
            [
                "l/9",
                "m",
                "m/0256/w8",
                "m/256/w8",
                "m/256/w24",
                "m/2048/w8"
            ]
        );
    }

    fn names(keys: &[&str]) -> (Option<String>, Vec<String>) {
        let names = Names::new(keys.iter().copied());
        (names.shared(), keys.iter().map(|k| names.of(k)).collect())
    }

    #[test]
    fn names_have_what_distinguishes_runs() {
        let (shared, short) = names(&[
            "m/c/256/sw-s256-p129/cpu/exact",
            "m/c/256/sw-s256-p129/cpu/q8",
            "m/c/2048/sw-s2048-p1025/cpu/q8/w8",
        ]);
        assert_eq!(shared.as_deref(), Some("m/c/…/sw/cpu/…"));
        assert_eq!(short, ["256/exact", "256/q8", "2048/q8/w8"]);
        // Windows that were chosen are told.
        let (shared, short) = names(&["m/c/256/sw-s128-p129", "m/c/512/sw-s512-p257"]);
        assert_eq!(shared.as_deref(), Some("m/c/…/…"));
        assert_eq!(short, ["256/sw-s128-p129", "512/sw-s512-p257"]);
    }

    #[test]
    fn what_has_nothing_of_its_own_keeps_its_key() {
        assert_eq!(names(&["a/b"]), (None, vec!["a/b".to_owned()]));
        assert_eq!(names(&["a/b", "a/b/w8"]).1, ["a/b", "a/b/w8"]);
        assert_eq!(
            names(&["a", "b"]),
            (None, vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(names(&[]), (None, vec![]));
    }
}
