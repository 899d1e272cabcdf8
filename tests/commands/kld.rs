use serde_json::Value as Json;

use pplx::gguf::BlockType;

use super::project::{Ended, Project, number};
use crate::support::tiny::{Tiny, text};

/// `pplx kld -m m/gemma3.gguf -f c/t.txt -c 32` with more arguments.
fn kld(project: &Project, more: &[&str]) -> Ended {
    kld_at(project, "32", more)
}

fn kld_at(project: &Project, n_ctx: &str, more: &[&str]) -> Ended {
    let mut arguments = vec!["kld", "-m", "m/gemma3.gguf", "-f", "c/t.txt", "-c", n_ctx];
    arguments.extend(more);
    project.pplx(&arguments)
}

fn json(project: &Project, more: &[&str]) -> Json {
    let out = kld(project, &[more, &["--json"]].concat()).good();
    serde_json::from_str(&out).unwrap()
}

/// Stores the llama's distributions.
fn save(project: &Project, more: &[&str]) {
    let mut arguments = vec!["kld", "-m", "m/llama.gguf", "-f", "c/t.txt", "-c", "32"];
    arguments.extend(more);
    project.pplx(&arguments).good();
}

fn mean_kld(json: &Json) -> f64 {
    json["kld"]["mean"]["value"].as_f64().unwrap()
}

#[test]
fn figures_of_a_base_in_three_forms() {
    let project = Project::new();
    let model = ["--base", "m/llama.gguf"];
    let exact = json(&project, &[&model[..], &["--chunks", "9"]].concat());
    assert_eq!(exact["scored_tokens"], 9 * 15);
    assert!(mean_kld(&exact) > 0.01, "{exact}");

    save(
        &project,
        &[
            "--chunks",
            "12",
            "--save-base",
            "whole",
            "--entries",
            "1000000",
        ],
    );
    save(
        &project,
        &[
            "--chunks",
            "12",
            "--save-base",
            "grid",
            "--format",
            "llama.cpp",
        ],
    );
    for (file, off) in [("whole", 1e-9), ("grid", 1e-4)] {
        let stored = json(&project, &["--base", file, "--chunks", "9"]);
        assert!((mean_kld(&stored) - mean_kld(&exact)).abs() < off, "{file}");
        assert_eq!(stored["same_top"], exact["same_top"]);
        // What a file cannot tell is said.
        let text = kld(&project, &["--base", file, "--chunks", "9"]).good();
        let note = "note: llama.cpp's format has no checksum";
        assert_eq!(text.contains(note), file == "grid", "{text}");
        assert_eq!(stored["note"].is_string(), file == "grid");
        // Without --chunks, what the base has.
        assert_eq!(json(&project, &["--base", file])["windows"], 12);
        let more = kld(&project, &["--base", file, "--chunks", "13"]).bad(2);
        let want = format!("pplx: {file}: the base holds 12 windows, 13 are asked for\n");
        assert_eq!(more, want);
    }

    let text = kld(&project, &["--base", "m/llama.gguf", "--chunks", "9"]).good();
    for line in [
        "Mean PPL(Q)                   : ",
        "Mean PPL(base)                : ",
        "Cor(ln(PPL(Q)), ln(PPL(base))): ",
        "Mean ln(PPL(Q)/PPL(base))     : ",
        "Mean PPL(Q)/PPL(base)         : ",
        "Mean PPL(Q)-PPL(base)         : ",
        "Mean    KLD: ",
        "Maximum KLD: ",
        "99.9%   KLD: ",
        "Median  KLD: ",
        " 0.1%   KLD: ",
        "Minimum KLD: ",
        "Mean    Δp: ",
        "75.0%   Δp: ",
        "RMS Δp    : ",
        "Same top p: ",
    ] {
        assert!(text.contains(&format!("\n{line}")), "{line}\n{text}");
    }
}

#[test]
fn other_tokens_and_files_are_refused() {
    let project = Project::new();
    for format in ["pplx", "llama.cpp"] {
        save(
            &project,
            &["--chunks", "4", "--save-base", "base", "--format", format],
        );
        let whole = project.read("c/t.txt");
        project.write("c/t.txt", &whole.replacen("the", "a token", 1));
        let error = kld(&project, &["--base", "base"]).bad(2);
        assert!(
            error.contains("the base reads other tokens: token ")
                && error.contains(" for the base"),
            "{error}"
        );
        project.write("c/t.txt", &whole);
        let error = kld_at(&project, "64", &["--base", "base"]).bad(2);
        assert!(error.contains("context 32, not with context 64"), "{error}");
    }
    let error = kld(&project, &["--base", "c/t.txt"]).bad(2);
    assert!(error.contains("c/t.txt"), "{error}");
    assert!(kld(&project, &[]).bad(2).contains("--base"));
}

const EXPERIMENT: &str = r#"name = "x"
[sweep]
corpora = ["c/t.txt"]
contexts = [32]
[limits]
windows = 6
[[models]]
path = "m/llama.gguf"
[[models]]
path = "m/gemma3.gguf"
"#;

#[test]
fn an_experiment_compares_with_its_base() {
    let project = Project::new();
    project.write("experiments/x.toml", EXPERIMENT);
    let run = |more: &[&str]| project.pplx(&[&["run", "experiments/x.toml"], more].concat());
    run(&[]).good();
    let plain = project.read("results/x.csv");
    assert!(!project.path("results/x.kld.csv").exists());

    project.write(
        "experiments/x.toml",
        &format!("{EXPERIMENT}[kld]\nbase = \"llama\"\n"),
    );
    let out = run(&[]).good();
    assert!(out.contains("mean KLD"), "{out}");
    assert_eq!(project.read("results/x.csv"), plain);
    let kld_csv = project.read("results/x.kld.csv");
    let rows = project.lines("results/x.kld.csv");
    assert_eq!(rows.len(), 1);
    assert!(rows[0]["key"].starts_with("gemma3/"));
    assert_eq!(
        (
            rows[0]["status"].as_str(),
            number(&rows[0], "scored_tokens")
        ),
        ("ok", 90.0)
    );
    let want = json(&project, &["--base", "m/llama.gguf", "--chunks", "6"]);
    assert_eq!(number(&rows[0], "kld"), mean_kld(&want));
    assert_eq!(
        number(&rows[0], "delta_p_p25"),
        want["delta_p"]["25.0%"].as_f64().unwrap()
    );

    // The same bytes, measured again or kept.
    run(&["--threads", "1", "--batch", "1"]).good();
    assert_eq!(project.read("results/x.kld.csv"), kld_csv);
    let resumed = run(&["--resume"]);
    assert!(resumed.stderr.contains("[2/2]") && resumed.stderr.contains("kept"));
    resumed.good();
    assert_eq!(project.read("results/x.kld.csv"), kld_csv);

    // Strictly read.
    project.edit("results/x.kld.csv", |line| {
        line.insert("status".to_owned(), "failed: so".to_owned());
        true
    });
    let error = run(&["--resume"]).bad(2);
    let want = "x.kld.csv:2: column 'kld' holds a number, but the status is 'failed: so'";
    assert!(error.contains(want), "{error}");
}

/// A base has the arithmetic that its key names, not its run's.
#[test]
fn numerics_of_the_base() {
    let project = Project::new();
    let model = Tiny::wide_llama().quantized(BlockType::Q4_1);
    model.write(project.path("m/wide.gguf")).unwrap();
    project.write(
        "experiments/x.toml",
        "name = \"x\"\n[sweep]\ncorpora = [\"c/t.txt\"]\ncontexts = [32]\n\
         numerics = [\"exact\", \"q8\"]\n[limits]\nwindows = 6\n[[models]]\n\
         path = \"m/wide.gguf\"\n[kld]\nbase = \"wide/t.txt/32/sw-s32-p17/cpu/q8/w6\"\n",
    );
    project.pplx(&["run", "experiments/x.toml"]).good();
    let runs = project.lines("results/x.csv");
    let ppl = |numerics: &str| {
        let row = runs.iter().find(|r| r["numerics"] == numerics).unwrap();
        number(row, "ppl")
    };
    let klds = project.lines("results/x.kld.csv");
    assert_eq!(klds.len(), 1);
    assert!(klds[0]["key"].ends_with("/exact/w6"), "{klds:?}");
    let close = |column: &str, want: f64| {
        let got = number(&klds[0], column);
        assert!((got - want).abs() < 1e-9 * want, "{column} {got} {want}");
    };
    close("ppl", ppl("exact"));
    close("ppl_base", ppl("q8"));
    assert_ne!(ppl("exact"), ppl("q8"));
    assert!(number(&klds[0], "kld") > 0.0);
}

/// A base that reads other tokens leaves the run's own figures alone.
#[test]
fn a_base_that_cannot_be_compared_has_a_status() {
    let project = Project::new();
    let other = Tiny::llama().tokenizer("add_bos_token", pplx::gguf::Value::Bool(false));
    other.write(project.path("m/llama.gguf"));
    project.write("c/t.txt", &text(100));
    project.write(
        "experiments/x.toml",
        &format!("{EXPERIMENT}[kld]\nbase = \"llama\"\n"),
    );
    let ended = project.pplx(&["run", "experiments/x.toml"]);
    assert!(
        ended
            .stdout
            .contains("not compared: the base reads other tokens")
    );
    let error = ended.bad(1);
    assert!(
        error.contains("1 run could not be compared with the base"),
        "{error}"
    );
    let rows = project.lines("results/x.csv");
    assert!(rows.iter().all(|row| row["status"] == "ok"));
    let klds = project.lines("results/x.kld.csv");
    assert!(klds[0]["status"].starts_with("failed: the base reads other tokens"));
    assert_eq!(klds[0]["kld"], "");
}
