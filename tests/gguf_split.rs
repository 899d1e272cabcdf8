//! Models split into several files: every partition is the same model, and
//! every part that does not fit is named.

use std::path::{Path, PathBuf};

use crate::support::tiny::{Tiny, write_parts};
use pplx::gguf::{Gguf, GgufError, Problem, Value, first_part};
use proptest::prelude::*;

/// llama's 30 tensors in three parts.
fn thirds() -> Vec<Tiny> {
    Tiny::llama().parts(3, |i| i % 3)
}

/// Writes the parts and opens the first one; the error with its paths.
fn refusal(parts: &[Tiny]) -> (GgufError, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let paths = write_parts(dir.path(), "m", parts);
    let error = Gguf::open(&paths[0]).err().expect("a refusal");
    (error, paths)
}

fn same_model(split: &Gguf, whole: &Gguf) -> Result<(), TestCaseError> {
    prop_assert_eq!(split.tensors().len(), whole.tensors().len());
    for t in whole.tensors() {
        let found = split.tensor(&t.name).expect("the tensor is in a part");
        prop_assert_eq!((&found.dims, found.ty), (&t.dims, t.ty));
        prop_assert_eq!(split.data(found), whole.data(t));
    }
    for (key, value) in whole.metadata().iter() {
        prop_assert_eq!(split.metadata().get(key), Some(value));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_partition_is_the_same_model(
        n in 1usize..6,
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 30),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole.gguf");
        Tiny::llama().write(&whole);
        let parts = Tiny::llama().parts(n, |i| picks[i].index(n));
        let paths = write_parts(dir.path(), "m", &parts);
        let split = Gguf::open(&paths[0]).unwrap();
        same_model(&split, &Gguf::open(&whole).unwrap())?;
        prop_assert_eq!(split.paths(), &paths[..]);
        prop_assert_eq!(split.path(), &paths[0]);
        let bytes: u64 = paths.iter().map(|p| p.metadata().unwrap().len()).sum();
        prop_assert_eq!(split.file_len() as u64, bytes);
    }
}

#[test]
fn counts_of_merged_files_mean_nothing() {
    for count in [0, 1] {
        let whole = Tiny::llama().set_raw("split.count", Value::U16(count));
        assert!(whole.model().is_ok());
    }
}

#[test]
fn a_part_that_is_not_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write_parts(dir.path(), "m", &thirds());
    let error = Gguf::open(&paths[2]).err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "{}: is part 3 of a model in 3 files; name the first one instead, {}",
            paths[2].display(),
            paths[0].display()
        )
    );
    let renamed = dir.path().join("third.gguf");
    std::fs::rename(&paths[2], &renamed).unwrap();
    let error = Gguf::open(&renamed).err().unwrap();
    assert!(matches!(
        error.problem,
        Problem::NotFirstPart {
            part: 3,
            count: 3,
            first: None
        }
    ));
}

#[test]
fn a_first_part_that_is_not_named_so() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "first.gguf",
        "m-00001-of-00004.gguf",
        "-00001-of-00003.gguf",
    ] {
        let path = dir.path().join(name);
        thirds()[0].write(&path);
        let error = Gguf::open(&path).err().unwrap().to_string();
        assert_eq!(
            error,
            format!(
                "{}: is the first part of a model in 3 files; its name must end in \
                 '-00001-of-00003.gguf' for the others to be found",
                path.display()
            )
        );
    }
}

#[test]
fn a_part_that_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write_parts(dir.path(), "m", &thirds());
    std::fs::remove_file(&paths[1]).unwrap();
    let error = Gguf::open(&paths[0]).err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "{}: is missing: it is part 2 of the 3 files of {}",
            paths[1].display(),
            paths[0].display()
        )
    );
    // There, but no file: another problem.
    std::fs::create_dir(&paths[1]).unwrap();
    let error = Gguf::open(&paths[0]).err().unwrap();
    assert!(matches!(error.problem, Problem::Io(_)));
    assert_eq!(error.path, paths[1]);
}

#[test]
fn parts_that_say_something_else() {
    for (key, wrong, expected) in [
        ("split.no", Value::U16(2), 1),
        ("split.count", Value::U16(4), 3),
        ("split.tensors.count", Value::I32(31), 30),
    ] {
        let mut parts = thirds();
        parts[1] = parts[1].clone().set_raw(key, wrong.clone());
        let (error, paths) = refusal(&parts);
        let found = wrong.to_u64().unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "{}: metadata key '{key}' is {found}; as part 2 of {} it must be {expected}",
                paths[1].display(),
                paths[0].display()
            )
        );
    }
    // Only the number is in every part.
    let without = |part: usize, key: &str| {
        let mut parts = thirds();
        parts[part].meta.retain(|(k, _)| k != key);
        parts
    };
    for (part, key) in [(0, "split.no"), (0, "split.tensors.count"), (2, "split.no")] {
        let (error, paths) = refusal(&without(part, key));
        assert_eq!(error.path, paths[part]);
        assert!(matches!(error.problem, Problem::MissingKey(k) if k == key));
    }
    let dir = tempfile::tempdir().unwrap();
    let paths = write_parts(dir.path(), "m", &without(2, "split.count"));
    assert!(Gguf::open(&paths[0]).is_ok());
}

#[test]
fn tensors_that_do_not_add_up() {
    let mut parts = thirds();
    let lost = parts[2].tensors.pop().unwrap();
    let (error, paths) = refusal(&parts);
    assert_eq!(
        error.to_string(),
        format!(
            "{}: its 3 parts hold 29 tensors; split.tensors.count declares 30",
            paths[0].display()
        )
    );
    // The right number, but one of them twice.
    let twin = parts[0].tensors[4].clone();
    assert_ne!(twin.0, lost.0);
    parts[2].tensors.push(twin.clone());
    let (error, paths) = refusal(&parts);
    assert_eq!(
        error.to_string(),
        format!(
            "{}: tensor '{}' occurs in {} too",
            paths[2].display(),
            twin.0,
            paths[0].display()
        )
    );
}

#[test]
fn a_part_in_memory_has_no_neighbours() {
    let bytes = thirds()[0].writer().to_bytes();
    let error = Gguf::from_bytes("m-00001-of-00003.gguf", bytes).err();
    let problem = error.expect("a refusal").problem;
    assert!(matches!(problem, Problem::PartInMemory { count: 3 }));
}

#[test]
fn a_malformed_part_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write_parts(dir.path(), "m", &thirds());
    std::fs::write(&paths[2], b"GGML").unwrap();
    let error = Gguf::open(&paths[0]).err().unwrap();
    assert!(matches!(error.problem, Problem::BadMagic { .. }));
    assert_eq!(error.path, paths[2]);
}

#[test]
fn names_of_later_parts() {
    let first = |name: &str| first_part(Path::new(name));
    let expected = Some(PathBuf::from("a/m-of-00001-of-00012.gguf"));
    assert_eq!(first("a/m-of-00012-of-00012.gguf"), expected);
    for other in [
        "m.gguf",
        "m-00001-of-00012.gguf",
        "m-2-of-3.gguf",
        "m-00002-of-3.gguf",
        "m-00002-of-00003.bin",
        "-00002-of-00003.gguf",
        "..",
    ] {
        assert_eq!(first(other), None, "{other}");
    }
}
