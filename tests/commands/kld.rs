use std::path::Path;

use serde_json::Value as Json;

use pplx::gguf::{Array, BlockType, Value};

use super::project::{Ended, Project, number};
use crate::support::tiny::{Tiny, text, vocabulary};
use crate::support::{SMOLLM2, model};

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

/// Each run against itself in other numerics, to the bit what `pplx kld` says.
#[test]
fn a_base_by_numerics() {
    let project = Project::new();
    let model = Tiny::wide_llama().quantized(BlockType::Q4_1);
    model.write(project.path("m/wide.gguf")).unwrap();
    project.write(
        "experiments/x.toml",
        "name = \"x\"\n[sweep]\ncorpora = [\"c/t.txt\"]\ncontexts = [32]\n\
         numerics = [\"exact\", \"q8\"]\n[limits]\nwindows = 6\n[[models]]\n\
         path = \"m/wide.gguf\"\n[kld]\nbase = { numerics = \"exact\" }\n",
    );
    let run = |more: &[&str]| project.pplx(&[&["run", "experiments/x.toml"], more].concat());
    let kld = |chunks: &str| {
        let out = project.pplx(&[
            "kld",
            "-m",
            "m/wide.gguf",
            "--base",
            "m/wide.gguf",
            "-f",
            "c/t.txt",
            "-c",
            "32",
            "--numerics",
            "q8",
            "--chunks",
            chunks,
            "--json",
        ]);
        serde_json::from_str::<Json>(&out.good()).unwrap()
    };
    for (windows, more) in [("6", None), ("2", Some("limits.windows=2"))] {
        let set: Vec<&str> = more
            .iter()
            .flat_map(|set| ["--prune", "--set", set])
            .collect();
        run(&set).good();
        let klds = project.lines("results/x.kld.csv");
        assert_eq!(klds.len(), 1);
        let key = |numerics: &str| format!("wide/t.txt/32/sw-s32-p17/cpu/{numerics}/w{windows}");
        let named = (klds[0]["key"].as_str(), klds[0]["base"].as_str());
        assert_eq!(named, (key("q8").as_str(), key("exact").as_str()));
        let by_hand = kld(windows);
        assert_eq!(by_hand["numerics"], "q8");
        assert_eq!(by_hand["base_numerics"], "exact");
        let bits = |x: f64| x.to_bits();
        assert_eq!(bits(number(&klds[0], "kld")), bits(mean_kld(&by_hand)));
        let largest = by_hand["kld"]["maximum"].as_f64();
        assert_eq!(bits(number(&klds[0], "kld_max")), bits(largest.unwrap()));
    }
    // Kept where nothing has changed.
    let kept = run(&["--set", "limits.windows=2", "--resume"]);
    assert!(
        kept.stderr.contains("[2/2]") && kept.stderr.contains("kept"),
        "{}",
        kept.stderr
    );
    kept.good();
}

/// The same of a model that people use.
#[test]
fn smollm2_in_q8_against_exact() {
    let Some(path) = model(SMOLLM2) else { return };
    let path = path.to_str().unwrap();
    let project = Project::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora/on-measuring.txt");
    let corpus = corpus.to_str().unwrap();
    project.write(
        "experiments/x.toml",
        &format!(
            "name = \"x\"\n[sweep]\ncorpora = [\"{corpus}\"]\ncontexts = [128]\n\
             placements = [\"cpu\"]\nnumerics = [\"q8\"]\n[limits]\nwindows = 2\n[[models]]\n\
             path = \"{path}\"\n[kld]\nbase = {{ numerics = \"exact\" }}\n"
        ),
    );
    project.pplx(&["run", "experiments/x.toml"]).good();
    let found = &project.lines("results/x.kld.csv")[0];
    assert!(found["base"].ends_with("/cpu/exact/w2"), "{found:?}");
    let by_hand = project.pplx(&[
        "kld",
        "-m",
        path,
        "--numerics",
        "q8",
        "--base",
        path,
        "-f",
        corpus,
        "-c",
        "128",
        "--chunks",
        "2",
        "--json",
    ]);
    let by_hand: Json = serde_json::from_str(&by_hand.good()).unwrap();
    let mean = mean_kld(&by_hand);
    assert_eq!(number(found, "kld").to_bits(), mean.to_bits());
    assert!((1e-3..1e-2).contains(&mean), "{mean}");
}

/// What a plan says of bases, and what of the sum they are.
#[test]
fn a_plan_shows_bases_and_their_cost() {
    let project = Project::new();
    project.write(
        "experiments/x.toml",
        &format!("{EXPERIMENT}[kld]\nbase = \"llama\"\n[[exclude]]\nmodel = \"llama\"\n"),
    );
    let text = project.pplx(&["plan", "experiments/x.toml"]).good();
    let base = "llama/t.txt/32/sw-s32-p17/cpu/exact/w6";
    let line = text.lines().find(|l| l.contains(base)).unwrap();
    assert!(
        line.starts_with("gemma3/t.txt/32/sw-s32-p17/cpu/exact/w6 "),
        "{text}"
    );
    assert!(line.contains('~'), "{text}");
    // Its file is named too, though it has no run.
    assert!(text.contains("\nmodel   llama "), "{text}");
    let out = project.pplx(&["plan", "experiments/x.toml", "--format", "json"]);
    let plan: Json = serde_json::from_str(&out.good()).unwrap();
    let run = &plan["runs"][0];
    assert_eq!(run["base"]["key"], base);
    assert_eq!(run["base"]["numerics"], "exact");
    let number = |x: &Json| x.as_f64().unwrap();
    for what in ["memory_bytes_estimate", "seconds_estimate"] {
        let (all, base) = (number(&run[what]), number(&run["base"][what]));
        assert!(0.0 < base && base < all, "{what}: {base} of {all}");
    }
}

/// Another tokenizer is known from the headers: nothing runs, whatever the form.
#[test]
fn a_base_with_another_tokenizer_is_refused_before_anything_runs() {
    let project = Project::new();
    let mut words = vocabulary();
    words[40].push('x');
    let words = Value::Array(Array::String(words));
    let shorter = || {
        let mut tiny = Tiny::llama();
        for (key, value) in &mut tiny.meta {
            match value {
                Value::Array(Array::String(v)) if key.ends_with(".tokens") => _ = v.pop(),
                Value::Array(Array::F32(v)) if key.ends_with(".scores") => _ = v.pop(),
                Value::Array(Array::I32(v)) if key.ends_with(".token_type") => _ = v.pop(),
                _ => {}
            }
        }
        tiny
    };
    let llama = Tiny::llama;
    let cases = [
        (llama().tokenizer("tokens", words), "token 40 is \""),
        (shorter(), "vocabularies of 55 and of 56 tokens"),
        (
            llama().tokenizer("add_bos_token", Value::Bool(false)),
            "a text has none before and none behind it for one, token 1 before and none behind it \
             for the other",
        ),
    ];
    for (other, why) in cases {
        other.write(project.path("m/llama.gguf"));
        for base in ["\"llama\"", "{ model = \"llama\" }"] {
            project.write(
                "experiments/x.toml",
                &format!("{EXPERIMENT}[kld]\nbase = {base}\n"),
            );
            for verb in ["plan", "run"] {
                let error = project.pplx(&[verb, "experiments/x.toml"]).bad(2);
                let column = if base.starts_with('{') { 18 } else { 8 };
                let want = format!(
                    "experiments/x.toml:12:{column}: the base of run gemma3/t.txt/32/sw-s32-p17/cpu/\
                     exact/w6: 'llama' and 'gemma3' do not read a text as the same tokens: {why}"
                );
                assert!(error.contains(&want), "{error}\n{want}");
            }
        }
        assert!(!project.path("results").exists());
    }
}

/// A base that cannot be evaluated leaves the run's own figures alone.
#[test]
fn a_base_that_cannot_be_compared_has_a_status() {
    let project = Project::new();
    let mut other = Tiny::llama();
    let last = other.tensors.last_mut().unwrap();
    last.2.fill(f32::NAN);
    other.write(project.path("m/llama.gguf"));
    project.write("c/t.txt", &text(100));
    project.write(
        "experiments/x.toml",
        &format!("{EXPERIMENT}[kld]\nbase = \"llama\"\n[[exclude]]\nmodel = \"llama\"\n"),
    );
    let ended = project.pplx(&["run", "experiments/x.toml"]);
    assert!(
        ended.stdout.contains("not compared: "),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    let error = ended.bad(1);
    assert!(
        error.contains("1 run could not be compared with the base"),
        "{error}"
    );
    let rows = project.lines("results/x.csv");
    assert!(rows.iter().all(|row| row["status"] == "ok"));
    let klds = project.lines("results/x.kld.csv");
    assert!(klds[0]["status"].starts_with("failed: "), "{klds:?}");
    assert_eq!(klds[0]["kld"], "");
}

/// What is printed says of both sides what they are.
#[test]
fn both_sides_are_named() {
    let project = Project::new();
    let model = Tiny::wide_llama().quantized(BlockType::Q4_1);
    model.write(project.path("m/wide.gguf")).unwrap();
    let wide = |more: &[&str]| {
        let mut arguments = vec!["kld", "-m", "m/wide.gguf", "-f", "c/t.txt", "-c", "32"];
        arguments.extend(more);
        project.pplx(&arguments)
    };
    let model = "model     m/wide.gguf, numerics q8, placement cpu\n";
    let with = ["--numerics", "q8", "--chunks", "2", "--base"];
    let text = wide(&[&with[..], &["m/wide.gguf"]].concat()).good();
    let base = "base      m/wide.gguf, numerics exact, placement cpu\n";
    assert!(text.contains(&format!("{model}{base}")), "{text}");

    for (file, format, said) in [
        (
            "top",
            "pplx",
            "base      top, numerics q8, placement cpu, of wide.gguf by pplx ",
        ),
        (
            "grid",
            "llama.cpp",
            "base      grid, numerics not recorded, placement not recorded\n",
        ),
    ] {
        wide(&[
            "--save-base",
            file,
            "--format",
            format,
            "--numerics",
            "q8",
            "--chunks",
            "2",
        ])
        .good();
        let text = wide(&[&with[..], &[file]].concat()).good();
        assert!(text.contains(&format!("{model}{said}")), "{text}");
        let out = wide(&[&with[..], &[file, "--json"]].concat()).good();
        let json: Json = serde_json::from_str(&out).unwrap();
        // The same model in the same arithmetic.
        assert!(file == "grid" || mean_kld(&json).abs() < 1e-12, "{json}");
        assert_eq!(json["numerics"], "q8");
        let known = file == "top";
        assert_eq!(
            json["base_numerics"],
            if known { "q8".into() } else { Json::Null }
        );
        assert_eq!(json["base_engine"].is_string(), known);
    }
    let error = wide(&["--base", "top", "--base-numerics", "exact"]).bad(2);
    assert!(
        error.contains("top: a stored base has the numerics that it was made with"),
        "{error}"
    );
}
