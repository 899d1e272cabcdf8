//! A cache that cannot be written costs time, and nothing else.

use super::project::Project;

const EXPERIMENT: &str = r#"
name = "x"
[sweep]
corpora = ["c/t.txt"]
contexts = [32, 64]
placements = ["cpu"]
[limits]
windows = 2
[[models]]
path = "m/llama.gguf"
[[models]]
path = "m/gemma3.gguf"
"#;

#[test]
fn sweeps_measure_without_it_and_write_the_same_bytes() {
    let project = Project::new();
    project.write("x.toml", EXPERIMENT);
    let run = |results: &str, variables: &[(&str, &str)]| {
        let ended = project.pplx_with(&["run", "x.toml", "--results", results], variables);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        // Names of temporary files differ from run to run.
        assert!(!ended.stderr.contains(".pplx-"), "{}", ended.stderr);
        let notes = ended.stderr.matches("note: the cache").count();
        (project.read(&format!("{results}/x.csv")), notes)
    };
    let (table, notes) = run("with", &[]);
    assert_eq!(notes, 0);
    // Directories that cannot be made, not even by root.
    project.write("file", "");
    let below = project.path("file/cache");
    let below = below.to_str().unwrap();
    let once = (table, 1);
    assert_eq!(run("below", &[("PPLX_CACHE", below)]), once);
    let homeless = [
        ("PPLX_CACHE", ""),
        ("XDG_CACHE_HOME", ""),
        ("HOME", "/dev/null/nobody"),
    ];
    assert_eq!(run("homeless", &homeless), once);
    // One that takes hashes and no tokens, as a disk that is almost full.
    std::fs::remove_dir_all(project.path("cache/tokens")).unwrap();
    project.write("cache/tokens", "");
    assert_eq!(run("tokens", &[]), once);

    let text = project.path("c/t.txt");
    let model = project.path("m/llama.gguf");
    let args = [
        "score",
        model.to_str().unwrap(),
        "-f",
        text.to_str().unwrap(),
        "-c",
        "32",
    ];
    let figures = |out: String| {
        let lines = out.lines().filter(|l| !l.starts_with("scored"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let with = figures(project.pplx(&args).good());
    assert_eq!(figures(project.pplx_with(&args, &homeless).good()), with);
    project
        .pplx_with(
            &["noise", "x.toml", "--seeds", "2", "--results", "n"],
            &homeless,
        )
        .good();
    project.pplx_with(&["plan", "x.toml"], &homeless).good();
}
