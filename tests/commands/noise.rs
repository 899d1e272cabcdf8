//! `pplx noise` and `pplx attribute`.

use super::project::{Project, number};

const EXPERIMENT: &str = r#"name = "x"

[sweep]
corpora = ["c/t.txt"]
contexts = [32]

[limits]
windows = 6

[[models]]
path = "m/llama.gguf"
bos = false
"#;

const FILE: &str = "experiments/x.toml";
const NOISE: &str = "results/x.noise.csv";
const KEY: &str = "llama/t.txt/32/sw-s32-p17/cpu/exact/w6";

fn project() -> Project {
    let project = Project::new();
    project.write(FILE, EXPERIMENT);
    project
}

#[test]
fn every_component_is_measured_and_files_are_the_same_bytes() {
    let project = project();
    let out = project.pplx(&["noise", FILE, "--seeds", "2"]).good();
    let first = project.read(NOISE);
    let lines = project.lines(NOISE);
    let names: Vec<String> = lines
        .iter()
        .map(|l| format!("{} {} {}", l["component"], l["seed"], l["in_floor"]))
        .collect();
    assert_eq!(
        names,
        [
            "summation-order  true",
            "jitter 1 true",
            "jitter 2 true",
            "kv-f16  false",
            "attention-f16  false",
            "q8  false",
            "batch-shape  false",
        ]
    );
    for line in &lines {
        let size = number(line, "max_delta_nll");
        match line["component"].as_str() {
            "batch-shape" => assert_eq!(size, 0.0),
            // A model of f32 weights, whose products are not in integers.
            "q8" => assert_eq!(size, 0.0),
            component => assert!(size > 0.0 && size < 0.02, "{component}: {size:e}"),
        }
        assert_eq!(line["key"], KEY);
    }
    assert_ne!(lines[1]["delta_ln_ppl"], lines[2]["delta_ln_ppl"]);
    assert!(
        out.contains("noise floor") && out.ends_with("results/x.noise.csv\n"),
        "{out}"
    );
    project
        .pplx(&["noise", FILE, "--seeds", "2", "--threads", "3"])
        .good();
    assert_eq!(project.read(NOISE), first);

    // What it is for.
    project.pplx(&["run", FILE]).good();
    let table = "results/x.csv";
    project
        .pplx(&["diff", table, table, "--max-delta", "noise*3"])
        .good();
}

#[test]
fn an_experiment_says_what_counts() {
    let project = project();
    let noise = "[noise]\ncomponents = [\"kv-f16\"]\nseeds = 1\n";
    project.write(FILE, &format!("{EXPERIMENT}{noise}"));
    project.pplx(&["noise", FILE]).good();
    let counted: Vec<String> = project
        .lines(NOISE)
        .into_iter()
        .filter(|l| l["in_floor"] == "true")
        .map(|l| l["component"].clone())
        .collect();
    assert_eq!(counted, ["kv-f16"]);
    assert_eq!(project.lines(NOISE).len(), 6);
    project.write(
        FILE,
        &format!("{EXPERIMENT}[noise]\ncomponents = [\"kv-f8\"]\n"),
    );
    let message = project.pplx(&["noise", FILE]).bad(2);
    assert!(
        message.contains("experiments/x.toml:14:15: unknown component 'kv-f8'"),
        "{message}"
    );
}

/// The reference is the run with BOS: nothing else than BOS explains the residual,
/// and it explains all of it.
#[test]
fn a_residual_is_attributed_to_what_makes_it() {
    let project = project();
    let windows = ["-c", "32", "--chunks", "6"];
    let model = ["score", "m/llama.gguf"];
    let ids = ["-f", "c/t.txt", "--no-bos", "--dump-tokens", "ids.txt"];
    project.pplx(&[&model[..], &ids, &windows].concat()).good();
    // On the same ids: BOS in the stream would move the windows by one.
    let with_bos = [
        "--tokens-file",
        "ids.txt",
        "--bos",
        "--per-token",
        "ref.csv",
    ];
    project
        .pplx(&[&model[..], &with_bos, &windows].concat())
        .good();
    let attribute = ["attribute", FILE, "--reference", "ref.csv"];
    let out = project.pplx(&attribute).good();
    let line = |name: &str| {
        let line = out.lines().find(|l| l.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {out}"))
            .trim_end()
            .to_owned()
    };
    let bos = line("bos");
    let cells: Vec<&str> = bos.split_whitespace().collect();
    assert!(cells.ends_with(&["0", "±", "0", "0", "1.000"]), "{out}");
    // f32 weights have no products in integers.
    assert!(line("q8").ends_with("  -"), "{out}");
    assert!(line("all-targets").contains("other targets"), "{out}");
    assert!(
        line("together").contains(" ± ") && line("jittered").contains(" ± "),
        "{out}"
    );

    // Other windows, other tokens.
    let message = project
        .pplx(&[&attribute[..], &["--set", "limits.windows=7"]].concat())
        .bad(2);
    assert!(
        message.contains("ref.csv has no chunk 6, position 17"),
        "{message}"
    );
    project.edit("ref.csv", |line| {
        line.insert("target".into(), "3".into());
        true
    });
    let message = project.pplx(&attribute).bad(2);
    assert!(message.contains("other tokens were scored"), "{message}");
    let message = project
        .pplx(&["attribute", FILE, "--causes", "kv-f8"])
        .bad(2);
    assert!(message.contains("unknown cause 'kv-f8'"), "{message}");
    let message = project.pplx(&["attribute", FILE, "--run", "x"]).bad(2);
    assert!(
        message.contains("no run 'x'") && message.contains(KEY),
        "{message}"
    );
}
