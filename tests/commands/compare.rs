//! `[compare]`: comparisons that an experiment makes permanent.

use super::project::Project;

const FILE: &str = "experiments/x.toml";
const COMPARE: &str = "results/x.compare.csv";

fn project(compare: &str) -> Project {
    let project = Project::new();
    let experiment = r#"name = "x"

[sweep]
corpora = ["c/t.txt"]
contexts = [32, 48]
placements = ["cpu"]

[[models]]
path = "m/llama.gguf"

[[models]]
path = "m/gemma3.gguf"

[gate]
max_delta_pct = 0.1
"#;
    project.write(FILE, &format!("{experiment}\n{compare}"));
    project
}

#[test]
fn they_land_in_a_table_that_is_the_same_each_time() {
    let project = project("[compare]\nbetween = { model = [\"llama\", \"gemma3\"] }\n");
    let out = project.pplx(&["run", FILE]).good();
    assert!(out.contains("results/x.compare.csv\n"), "{out}");
    let first = project.read(COMPARE);
    let rows = project.lines(COMPARE);
    let keys: Vec<&str> = rows.iter().map(|row| row["key"].as_str()).collect();
    assert_eq!(
        keys,
        [
            "llama→gemma3/t.txt/32/sw-s32-p17/cpu/exact",
            "llama→gemma3/t.txt/48/sw-s48-p25/cpu/exact"
        ]
    );
    for row in &rows {
        assert_eq!(
            (row["verdict"].as_str(), row["basis"].as_str()),
            ("fail", "windows")
        );
    }
    // Kept rows and lost records change no byte.
    std::fs::remove_dir_all(project.path("results/.records")).unwrap();
    std::fs::remove_file(project.path(COMPARE)).unwrap();
    project
        .pplx(&["run", FILE, "--resume", "--threads", "1"])
        .good();
    assert_eq!(project.read(COMPARE), first);
    // The same by hand, and through the experiment; the columns are those of diff.
    let by_hand = ["--between", "model=llama,gemma3", "--format", "csv"];
    let declared = ["--experiment", FILE, "--format", "csv"];
    let of = |flags: &[&str]| {
        let ended = project.pplx(&[&["diff", "results/x.csv"], flags].concat());
        (ended.code, ended.stdout)
    };
    let (code, out) = of(&declared);
    assert_eq!((code, out.lines().next()), (Some(1), first.lines().next()));
    let (code, out) = of(&[&by_hand[..], &["--max-delta-pct", "0.1"]].concat());
    assert_eq!((code, out.lines().count()), (Some(1), 3));
}

#[test]
fn what_they_ask_for_is_checked_before_anything_runs() {
    for (compare, problem) in [
        (
            "[compare]\nbetween = { model = [\"llama\", \"gemma9\"] }\n",
            "[compare]: no row of B has model 'gemma9'; there is gemma3, llama",
        ),
        (
            "[compare]\npairs = [\"llama/*=gemma9/*\"]\n",
            "[compare]: no key of B matches 'gemma9/*'",
        ),
        (
            "[compare]\nbetween = { colour = [\"a\", \"b\"] }\n",
            "experiments/x.toml:18:13: unknown key 'colour' in 'between'",
        ),
        (
            "[compare]\npairs = [\"llama\"]\n",
            "experiments/x.toml:18:10: write KEYGLOB=KEYGLOB",
        ),
        ("[compare]\n", "experiments/x.toml:17:"),
        (
            "[compare]\nbetween = { model = [\"[\", \"b\"] }\n",
            "'[' is not a glob",
        ),
    ] {
        let project = project(compare);
        let error = project.pplx(&["run", FILE]).bad(2);
        assert!(error.contains(problem), "{error} / {problem}");
        assert!(!project.path("results/x.csv").exists());
    }
}
