use sha2::{Digest, Sha256};

use super::project::Project;
use crate::support::tiny::{Tiny, write_parts};

const EXPERIMENT: &str = r#"name = "x"

[sweep]
corpora = ["c/t.txt"]
contexts = [32]

[[models]]
glob = "m/big*.gguf"

[[models]]
path = "m/llama.gguf"
"#;

fn hex(bytes: impl AsRef<[u8]>) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn a_split_model_is_measured_as_the_whole_one() {
    let project = Project::new();
    let mut parts = Tiny::llama().parts(3, |i| 2 - i / 12);
    let paths = write_parts(&project.path("m"), "big", &parts);
    project.write("experiments/x.toml", EXPERIMENT);
    project.pplx(&["run", "experiments/x.toml"]).good();
    let rows = project.lines("results/x.csv");
    let [split, whole] = &rows[..] else {
        panic!("{} rows, not 2", rows.len());
    };
    assert_eq!(split["model"], "big-00001-of-00003");
    assert_eq!(split["ppl"], whole["ppl"]);
    // What docs/fetching.md says that it is.
    let hashes = paths.iter().map(|p| hex(std::fs::read(p).unwrap()) + "\n");
    assert_eq!(split["model_sha256"], hex(hashes.collect::<String>()));

    // Another last part is another model.
    parts[2] = parts[2].clone().edit("attn_q.weight", |w| w[0] += 1.0);
    write_parts(&project.path("m"), "big", &parts);
    let again = ["run", "experiments/x.toml", "--resume"];
    project.pplx(&again).good();
    let after = project.lines("results/x.csv");
    assert_ne!(after[0]["model_sha256"], split["model_sha256"]);
    assert_ne!(after[0]["ppl"], split["ppl"]);
    assert_eq!(after[1], *whole);
}

#[test]
fn inspect_counts_the_parts_and_names_one_that_is_missing() {
    let project = Project::new();
    let parts = Tiny::llama().parts(2, |i| i % 2);
    let paths = write_parts(&project.path("m"), "big", &parts);
    let inspect = ["inspect", "m/big-00001-of-00002.gguf"];
    let text = project.pplx(&inspect).good();
    assert!(text.contains(", 2 parts)\n"), "{text}");
    assert!(text.contains("This file can be scored.\n"), "{text}");
    std::fs::remove_file(&paths[1]).unwrap();
    assert_eq!(
        project.pplx(&inspect).bad(2),
        "pplx: m/big-00002-of-00002.gguf: is missing: it is part 2 of the 2 files of \
         m/big-00001-of-00002.gguf\n"
    );
}
