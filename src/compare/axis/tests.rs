use super::*;
use crate::eval::Geometry;
use crate::results::{Identity, Outcome};

/// Rows with keys of the form that plans give them.
fn rows(keys: &[&str]) -> Vec<ResultRow> {
    let row = |key: &&str| {
        let parts: Vec<&str> = key.split('/').collect();
        let n_ctx = parts[2].parse().unwrap();
        let identity = Identity {
            model: parts[0].into(),
            corpus: parts[1].into(),
            placement: parts[4].into(),
            numerics: parts[5].into(),
            engine: "pplx".into(),
            ..Identity::default()
        };
        ResultRow {
            key: (*key).to_owned(),
            provenance: identity.unread(Geometry::llama_cpp(n_ctx)),
            outcome: Outcome::NotRun,
            ref_note: String::new(),
            note: String::new(),
        }
    };
    keys.iter().map(row).collect()
}

fn pairs(pairing: &Pairing, a: &[&str], b: Option<&[&str]>) -> Result<Vec<Pair>, String> {
    let (a, other) = (rows(a), b.map(rows));
    let of_a: Vec<&ResultRow> = a.iter().collect();
    match &other {
        None => pairing.pairs(&of_a, &of_a, true),
        Some(b) => pairing.pairs(&of_a, &b.iter().collect::<Vec<_>>(), false),
    }
}

fn along(axes: &[&str]) -> Pairing {
    Pairing {
        between: vec![axes.iter().map(|a| a.parse().unwrap()).collect()],
        pairs: Vec::new(),
    }
}

/// `A → B` where there are both, else what is missing.
fn shown(pairs: Vec<Pair>) -> Vec<String> {
    let side = |s: Result<String, String>| s.unwrap_or_else(|why| format!("({why})"));
    pairs
        .into_iter()
        .map(|p| format!("{} | {}", side(p.a), side(p.b)))
        .collect()
}

const TABLE: [&str; 6] = [
    "m-q4/c/256/sw/cpu/exact",
    "m-q4/c/256/sw/cpu/q8",
    "m-q4/c/512/sw/cpu/exact",
    "m-q4/c/512/sw/cpu/q8",
    "m-q8/c/256/sw/cpu/exact",
    "m-q8/c/512/sw/cpu/q8",
];

#[test]
fn rows_that_differ_along_an_axis_alone_face_each_other() {
    let found = pairs(&along(&["numerics=exact,q8"]), &TABLE, None).unwrap();
    assert_eq!(found[0].name, "m-q4/c/256/sw/cpu/exact→q8");
    assert_eq!(
        shown(found),
        [
            "m-q4/c/256/sw/cpu/exact | m-q4/c/256/sw/cpu/q8",
            "m-q4/c/512/sw/cpu/exact | m-q4/c/512/sw/cpu/q8",
            "m-q8/c/256/sw/cpu/exact | (B has no such row (numerics=exact,q8))",
            "(A has no such row with numerics exact) | m-q8/c/512/sw/cpu/q8",
        ]
    );
    let found = pairs(&along(&["model=*-q8,*-q4"]), &TABLE, None).unwrap();
    let names: Vec<String> = found.iter().map(|p| p.name.clone()).collect();
    assert!(names.contains(&"m-q8→m-q4/c/256/sw/cpu/exact".to_owned()));
    assert!(names.contains(&"m-q8→m-q4/c/512/sw/cpu/q8".to_owned()));
    assert_eq!(found.iter().filter(|p| p.a.is_ok()).count(), 2);
}

#[test]
fn several_axes_differ_together_and_one_value_faces_all_others() {
    let both = along(&["model=m-q4,m-q8", "numerics=exact,q8"]);
    let found = pairs(&both, &TABLE, None).unwrap();
    let found: Vec<&Pair> = found
        .iter()
        .filter(|p| p.a.is_ok() && p.b.is_ok())
        .collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "m-q4→m-q8/c/512/sw/cpu/exact→q8");
    let one = pairs(&along(&["numerics=exact"]), &TABLE[..4], None).unwrap();
    assert_eq!(one.len(), 2);
    assert!(one.iter().all(|p| p.a.is_ok() && p.b.is_ok()));
    let three = [
        "m-f16/c/8/sw/cpu/exact",
        "m-q4/c/8/sw/cpu/exact",
        "m-q8/c/8/sw/cpu/exact",
    ];
    let found = pairs(&along(&["model=*f16,*q4,*q8"]), &three, None).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|p| p.a.as_deref() == Ok(three[0])));
}

#[test]
fn what_is_asked_for_must_be_there_and_be_one() {
    let error = |axes: &[&str]| pairs(&along(axes), &TABLE, None).unwrap_err();
    assert_eq!(
        error(&["numerics=exact,q9"]),
        "no row of B has numerics 'q9'; there is exact, q8"
    );
    assert!(error(&["numerics=exact,q8", "numerics=exact,q8"]).contains("twice"));
    assert!(error(&["numerics=exact,q8", "model=*"]).contains("as many values"));
    // Two rows of A: which is meant is not said.
    let found = pairs(&along(&["model=*,m-q8"]), &TABLE, None).unwrap();
    let open: Vec<String> = shown(found);
    assert!(
        open.iter()
            .any(|p| p.contains("A has 2 such rows with model *")),
        "{open:?}"
    );
    for bad in ["numerics", "colour=a,b", "model=[", "model=a,"] {
        assert!(bad.parse::<Between>().is_err(), "{bad}");
    }
}

/// A limit is not an axis: the same one is preferred, and another one is compared.
#[test]
fn limits_need_not_be_the_same() {
    let keys = [
        "m/c/8/sw/cpu/exact/w8",
        "m/c/8/sw/cpu/exact/w24",
        "m/c/8/sw/cpu/q8/w8",
        "m/c/8/sw/cpu/q8/w24",
    ];
    let found = pairs(&along(&["numerics=exact,q8"]), &keys, None).unwrap();
    let names: Vec<&str> = found.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names,
        ["m/c/8/sw/cpu/exact→q8/w24", "m/c/8/sw/cpu/exact→q8/w8"]
    );
    let found = pairs(&along(&["numerics=exact,q8"]), &keys[1..3], None).unwrap();
    assert_eq!(found[0].name, "m/c/8/sw/cpu/exact→q8/w24→w8");
    // By key, too.
    let by_key = Pairing::default();
    let found = pairs(&by_key, &keys[..1], Some(&keys[1..2])).unwrap();
    assert_eq!(found[0].name, "m/c/8/sw/cpu/exact/w8→w24");
    let found = pairs(&by_key, &keys[..1], Some(&["m/c/8/sw/cpu/exact"])).unwrap();
    assert_eq!(found[0].name, "m/c/8/sw/cpu/exact/w8→all");
    // But not where it is not said which.
    let found = pairs(&by_key, &["m/c/8/sw/cpu/exact"], Some(&keys[..2])).unwrap();
    assert_eq!(found.len(), 3);
}

#[test]
fn globs_of_keys_stand_for_the_same_text() {
    let globs = |text: &str| Pairing {
        between: Vec::new(),
        pairs: vec![text.parse().unwrap()],
    };
    let found = pairs(&globs("*/exact=*/q8"), &TABLE, None).unwrap();
    assert_eq!(
        shown(found),
        [
            "m-q4/c/256/sw/cpu/exact | m-q4/c/256/sw/cpu/q8",
            "m-q4/c/512/sw/cpu/exact | m-q4/c/512/sw/cpu/q8",
            "m-q8/c/256/sw/cpu/exact | (B has no such row (*/exact=*/q8))",
            "(A has no such row (*/exact=*/q8)) | m-q8/c/512/sw/cpu/q8",
        ]
    );
    // One key each.
    let found = pairs(&globs("m-q4/*/256/*/exact=m-q8/c/512/?*/q8"), &TABLE, None).unwrap();
    assert_eq!(found[0].name, "m-q4→m-q8/c/256→512/sw/cpu/exact→q8");
    let error = |text: &str| pairs(&globs(text), &TABLE, None).unwrap_err();
    assert!(error("*/exact=*/f16").contains("no key of B matches '*/f16'"));
    assert!(error("*/exact=m*/*/q8").contains("as many wildcards"));
    for bad in ["*", "a[=b", "[a-=b"] {
        assert!(bad.parse::<KeyPair>().is_err(), "{bad}");
    }
}

/// Whatever the keys, every row is in some pair by key, and none faces itself along an
/// axis.
#[test]
fn no_row_is_lost() {
    let mut rng = crate::stats::SplitMix64(5);
    for _ in 0..200 {
        let mut key = || {
            let mut pick = |of: &[&str]| of[(rng.next() % of.len() as u64) as usize].to_owned();
            let limit = pick(&["", "/w8", "/w24", "/t99"]);
            format!(
                "{}/c/8/sw/cpu/{}{limit}",
                pick(&["m", "n"]),
                pick(&["exact", "q8"])
            )
        };
        let mut side = || BTreeSet::from_iter((0..4).map(|_| key()));
        let (a, b) = (side(), side());
        let of = |s: &BTreeSet<String>| -> Vec<String> { s.iter().cloned().collect() };
        let (a_keys, b_keys) = (of(&a), of(&b));
        let a_keys: Vec<&str> = a_keys.iter().map(String::as_str).collect();
        let b_keys: Vec<&str> = b_keys.iter().map(String::as_str).collect();
        let found = pairs(&Pairing::default(), &a_keys, Some(&b_keys)).unwrap();
        let of_side = |side: fn(&Pair) -> &Result<String, String>| -> BTreeSet<String> {
            found
                .iter()
                .filter_map(|p| side(p).as_ref().ok().cloned())
                .collect()
        };
        assert_eq!(of_side(|p| &p.a), a);
        assert_eq!(of_side(|p| &p.b), b);
        if let Ok(found) = pairs(&along(&["numerics=exact"]), &a_keys, None) {
            assert!(found.iter().all(|p| p.a != p.b));
        }
    }
}
