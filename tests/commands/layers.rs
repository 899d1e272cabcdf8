//! `pplx plan` as a user types it: layers, places in messages, exit codes.

use std::path::Path;
use std::process::{Command, Output};

use pplx::gguf::{Array, GgufWriter, Value};

const EXPERIMENT: &str = r#"name = "x"
description = "two contexts"

[sweep]
corpora = ["c/t.txt"]
contexts = [64, { n_ctx = 128, windows = 5 }]

[[models]]
path = "m/a.gguf"

[limits]
windows = 9
"#;

fn strings(items: &[&str]) -> Value {
    let items = items.iter().map(|s| (*s).to_owned()).collect();
    Value::Array(Array::String(items))
}

struct Project(tempfile::TempDir);

impl Project {
    fn new(experiment: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for directory in ["experiments", "m", "c"] {
            std::fs::create_dir(dir.path().join(directory)).unwrap();
        }
        std::fs::write(dir.path().join("experiments/x.toml"), experiment).unwrap();
        std::fs::write(dir.path().join("c/t.txt"), vec![b'a'; 4000]).unwrap();
        GgufWriter::new("llama")
            .meta("llama.block_count", Value::U32(2))
            .meta("llama.embedding_length", Value::U32(8))
            .meta("llama.context_length", Value::U32(128))
            .meta("tokenizer.ggml.model", Value::String("gpt2".to_owned()))
            .meta("tokenizer.ggml.pre", Value::String("smollm".to_owned()))
            .meta("tokenizer.ggml.tokens", strings(&["a", "aa"]))
            .meta("tokenizer.ggml.merges", strings(&["a a"]))
            .f32_tensor("token_embd.weight", &[8, 10], &[0.0; 80])
            .write(dir.path().join("m/a.gguf"))
            .unwrap();
        Self(dir)
    }

    fn command(&self, directory: &Path, file: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
        // Variables of other parts of pplx and of other programs are no settings.
        command
            .current_dir(directory)
            .args(["plan", file])
            .env("PPLX_SHARED", "/elsewhere")
            .env_remove("PPLX_MODELS")
            .env("PPLX_CACHE", "/elsewhere")
            .env("PPLX_API_KEY", "not ours")
            .env("CUDA_VISIBLE_DEVICES", "");
        command
    }

    fn plan(&self) -> Command {
        self.command(self.0.path(), "experiments/x.toml")
    }
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    text
}

/// The message of a command that must end with exit code 2.
fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_matrix_is_printed() {
    let project = Project::new(EXPERIMENT);
    let text = stdout(&project.plan().output().unwrap());
    // 4,000 bytes are taken for 1,000 tokens: 15 windows of 64, capped at 9.
    for expected in [
        "x: two contexts\n",
        "model   a      llama, 2 layers, ",
        "corpus  t.txt  3.91 KiB",
        "a/t.txt/64/sw-s64-p33/cpu/exact/w9         ~9    ~279",
        "a/t.txt/128/sw-s128-p65/cpu/exact/w5       ~5    ~315",
        "2 runs, about 1 s\n",
        "GFLOP/s",
        "note: placement 'auto' is cpu here: the CUDA driver",
    ] {
        assert!(text.contains(expected), "{expected}\n in\n{text}");
    }
}

#[test]
fn tokens_are_counted_when_asked() {
    let project = Project::new(&EXPERIMENT.replace("windows = 9", "windows = 1000"));
    let text = stdout(&project.plan().arg("--count-tokens").output().unwrap());
    // 4,000 times "a" are 2,000 tokens "aa", and 2,000 / 64 is 31.
    let row = "a/t.txt/64/sw-s64-p33/cpu/exact/w1000       31     961 ";
    assert!(text.contains(row), "{text}");
}

#[test]
fn paths_resolve_from_any_folder() {
    let project = Project::new(EXPERIMENT);
    let directory = project.0.path().join("experiments");
    let output = project.command(&directory, "x.toml").output().unwrap();
    assert!(stdout(&output).contains("a/t.txt/64/"));
}

#[test]
fn json_has_the_runs() {
    let project = Project::new(EXPERIMENT);
    let text = stdout(&project.plan().args(["--format", "json"]).output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
    let run = &json["runs"][0];
    assert_eq!(run["key"], "a/t.txt/64/sw-s64-p33/cpu/exact/w9");
    assert_eq!(run["windows"], 9);
    assert_eq!(run["scored"], 279);
    assert_eq!(run["tokens_exact"], false);
}

#[test]
fn set_overrides_the_environment_which_overrides_the_file() {
    let project = Project::new(EXPERIMENT);
    let windows = |n: &str| {
        let mut command = project.plan();
        command.env("PPLX_LIMITS__WINDOWS", n);
        command
    };
    let text = stdout(&windows("4").output().unwrap());
    assert!(text.contains("/64/sw-s64-p33/cpu/exact/w4 "), "{text}");
    // A context's own limit does not loosen the experiment's.
    assert!(text.contains("/128/sw-s128-p65/cpu/exact/w4 "), "{text}");
    let sets = ["--set", "limits.windows=3", "--set", "description=short"];
    let text = stdout(
        &windows("4")
            .env("PPLX_SWEEP__CONTEXTS", "[32]")
            .args(sets)
            .output()
            .unwrap(),
    );
    assert!(text.starts_with("x: short\n"), "{text}");
    assert!(
        text.contains("a/t.txt/32/sw-s32-p17/cpu/exact/w3 "),
        "{text}"
    );
    assert!(text.contains("\n1 run, about"), "{text}");
}

#[test]
fn mistakes_name_their_layer() {
    let project = Project::new(&EXPERIMENT.replace("windows = 9", "window = 9"));
    assert_eq!(
        refusal(&mut project.plan()),
        "pplx: experiments/x.toml:12:1: unknown key 'window' in [limits]; did you mean 'windows'? \
         (valid: windows, max_tokens)\n"
    );
    let project = Project::new(EXPERIMENT);
    let env = |name: &str, value: &str| refusal(project.plan().env(name, value));
    let error = env("PPLX_LIMITS__WINDOWS", "many");
    assert_eq!(
        error,
        "pplx: environment variable PPLX_LIMITS__WINDOWS: 'windows' must be a whole number, found \
         the string \"many\"\n"
    );
    let error = env("PPLX_NAME", "a/b");
    assert!(
        error.contains("environment variable PPLX_NAME: 'a/b' cannot name result files"),
        "{error}"
    );
    let error = env("PPLX_SWEEP__CONTXTS", "[4]");
    assert!(
        error
            .contains("environment variable PPLX_SWEEP__CONTXTS: unknown key 'contxts' in [sweep]"),
        "{error}"
    );
    let set = |argument: &str| refusal(project.plan().args(["--set", argument]));
    let error = set("sweep.contexts=[64, 256]");
    assert!(
        error.contains("--set sweep.contexts=[64, 256]: run a/t.txt/256/")
            && error.contains("beyond the 128"),
        "{error}"
    );
    let error = set("sweep.placements=[\"cuda\"]");
    assert!(
        error.contains("placement 'cuda' cannot be run: the CUDA driver"),
        "{error}"
    );
}

/// What a cycle keeps between its passes is told before anything runs.
#[test]
fn hidden_states_of_a_cycle_are_counted() {
    let project = Project::new(EXPERIMENT);
    let cycle =
        "sweep.placements=[\"cpu\", { device = \"cpu\", layers_per_window = 1, cycle = true }]";
    let text = stdout(&project.plan().args(["--set", cycle]).output().unwrap());
    assert!(text.contains("hidden states\n"), "{text}");
    let line = |key: &str| {
        let found = text.lines().find(|l| l.starts_with(key));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    assert!(line("a/t.txt/64/sw-s64-p33/cpu/exact/w9").ends_with(" -"));
    // 9 windows of 64 tokens, 8 channels of 4 bytes.
    let cycled = line("a/t.txt/64/sw-s64-p33/cpu_layers=1+cycle/exact/w9");
    assert!(cycled.ends_with(" ~18.00 KiB"), "{cycled}");
    for (placement, expected) in [
        (
            "{ layers_per_window = 1, cycle = true }",
            "'layers_per_window' is for cycles on the CPU",
        ),
        (
            "{ device = \"cpu\", layers_per_window = 1 }",
            "'layers_per_window' is for cycles only",
        ),
        (
            "{ device = \"cpu\", gpu_layers = 1 }",
            "'gpu_layers' has no meaning on the CPU",
        ),
        (
            "{ device = \"cpu\", cycle = true }",
            "'cycle' needs the layers of a window",
        ),
        ("{ device = \"gpu\" }", "unknown device 'gpu'"),
        (
            "{ first_layer = 1 }",
            "'first_layer' goes with a number of GPU layers only",
        ),
    ] {
        let set = format!("sweep.placements=[{placement}]");
        let error = refusal(project.plan().args(["--set", &set]));
        assert!(error.contains(expected), "{placement}: {error}");
    }
}
