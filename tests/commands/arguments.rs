//! What people type: options of llama-perplexity, numbers that mean nothing, pipes,
//! outputs that cannot be written, and the exit code of each.

use std::path::PathBuf;

use super::project::{Ended, Project};

/// An experiment of one model with more lines at its end.
fn experiment(project: &Project, more: &str) {
    let text = "name = \"x\"\n[sweep]\ncorpora = [\"c/t.txt\"]\ncontexts = [32]\n\
                placements = [\"cpu\"]\n[limits]\nwindows = 3\n[[models]]\n\
                path = \"m/llama.gguf\"\n";
    project.write("experiments/x.toml", &format!("{text}{more}"));
}

fn line(project: &Project, line: &str) -> Ended {
    project.pplx(&line.split_whitespace().collect::<Vec<_>>())
}

const SCORE: &str = "score m/llama.gguf -f c/t.txt -c 32";
const KLD: &str = "kld -m m/llama.gguf --base m/gemma3.gguf -f c/t.txt -c 32";

#[test]
fn numbers_that_mean_nothing_are_usage_errors_that_name_the_option() {
    let project = Project::new();
    experiment(&project, "");
    let (run, noise) = ("run experiments/x.toml", "noise experiments/x.toml");
    let attribute = "attribute experiments/x.toml";
    let cases = [
        (SCORE, "--chunks 0"),
        (SCORE, "--chunks -1"),
        (SCORE, "--max-tokens 0"),
        (SCORE, "--max-tokens 1"),
        (SCORE, "--stride 0"),
        (SCORE, "--unscored-prefix 0"),
        (SCORE, "--batch 0"),
        (SCORE, "--threads 100000"),
        (SCORE, "--threads 99999999999999999999"),
        (SCORE, "--gpu-layers 0"),
        (SCORE, "--layers-per-window 0"),
        ("score m/llama.gguf -f c/t.txt", "--ctx-size 0"),
        ("score m/llama.gguf -f c/t.txt", "--ctx-size 1"),
        (
            "kld -m m/llama.gguf --base m/llama.gguf -f c/t.txt",
            "--ctx 1",
        ),
        (KLD, "--chunks 0"),
        (KLD, "--batch 0"),
        (KLD, "--threads 100000"),
        (
            "kld -m m/llama.gguf --save-base b -f c/t.txt",
            "--entries 0",
        ),
        ("tokenize m/llama.gguf -f c/t.txt", "--chunk-bytes 0"),
        (run, "--threads 100000"),
        (run, "--batch 0"),
        (noise, "--threads 100000"),
        (noise, "--seeds 0"),
        (attribute, "--threads 100000"),
    ];
    for (verb, option) in cases {
        let said = line(&project, &format!("{verb} {option}")).bad(2);
        let name = option.split(' ').next().unwrap();
        assert!(said.contains(name), "{verb} {option}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    // As many as anyone has are not refused.
    line(
        &project,
        &format!("{SCORE} -t 64 --batch 100000 --chunks 2"),
    )
    .good();
}

#[test]
fn ppl_stride_is_llama_perplexitys() {
    let project = Project::new();
    let json = |more: &str| line(&project, &format!("{SCORE} --json {more}")).good();
    let figures = |more: &str| {
        let mut json: serde_json::Value = serde_json::from_str(&json(more)).unwrap();
        json.as_object_mut().unwrap().remove("tokens_per_s");
        json
    };
    let strided = figures("--ppl-stride 8");
    assert_eq!(strided, figures("--mode llama.cpp-strided --stride 8"));
    assert_eq!(
        (&strided["n_ctx"], &strided["stride"]),
        (&36.into(), &8.into())
    );
    assert_ne!(strided["ppl"], figures("--stride 8")["ppl"]);
    for other in ["--stride 8", "--mode sliding-window", "--unscored-prefix 9"] {
        let said = line(&project, &format!("{SCORE} --ppl-stride 8 {other}")).bad(2);
        assert!(said.contains("cannot be used with"), "{said}");
    }
    let said = line(&project, &format!("{SCORE} --ppl-stride 64")).bad(2);
    assert!(said.contains("--ppl-stride 64"), "{said}");
}

#[test]
fn habits_of_llama_perplexity_are_answered() {
    let project = Project::new();
    let a = line(&project, &format!("{SCORE} --chunks 3")).good();
    let b = line(
        &project,
        "score -m m/llama.gguf -f c/t.txt -c 32 --chunks 3",
    )
    .good();
    let estimate = |text: &str| text.lines().last().unwrap().to_owned();
    assert_eq!(estimate(&a), estimate(&b));
    let said = line(&project, &format!("{SCORE} -m m/gemma3.gguf")).bad(2);
    assert!(said.contains("cannot be used with"), "{said}");
    let said = line(&project, "score -f c/t.txt -c 32").bad(2);
    assert!(said.contains("MODEL"), "{said}");

    // None is taken for `-f a` or for another option that is spelt alike.
    for habit in [
        "-fa",
        "--batch-size 512",
        "-b 512",
        "-ngl 99",
        "-ctk q8_0",
        "--seed 1",
    ] {
        for verb in [SCORE, KLD] {
            let said = line(&project, &format!("{verb} {habit}")).bad(2);
            let name = habit.split(' ').next().unwrap();
            let wanted = format!("pplx: '{name}' is an option of llama.cpp");
            assert!(said.starts_with(&wanted), "{said}");
            assert!(!said.contains("similar"), "{said}");
        }
    }
}

#[test]
fn a_corpus_may_come_from_a_pipe() {
    let project = Project::new();
    let text = project.read("c/t.txt");
    let without = |out: String| -> Vec<String> {
        let lines = out.lines().filter(|l| !l.starts_with("corpus"));
        lines
            .map(|l| l.split(" tokens/s").next().unwrap().to_owned())
            .collect()
    };
    let scored = |out: String| -> Vec<String> {
        let lines = without(out)
            .into_iter()
            .filter(|l| !l.starts_with("scored"));
        lines.collect()
    };
    for (command, file) in [(SCORE, "c/t.txt"), (KLD, "c/t.txt")] {
        let from_file = line(&project, &format!("{command} --chunks 4")).good();
        // The corpus of a comparison is tokenized for two models.
        for pipe in ["-", "/dev/stdin"] {
            let piped = format!("{command} --chunks 4").replace(file, pipe);
            let piped: Vec<&str> = piped.split_whitespace().collect();
            let out = project.pplx_fed(&piped, &text).good();
            assert_eq!(scored(out), scored(from_file.clone()), "{command} {pipe}");
        }
    }
    let ids = line(&project, "tokenize m/llama.gguf -f c/t.txt --ids").good();
    let piped = ["tokenize", "m/llama.gguf", "-f", "-", "--ids"];
    assert_eq!(project.pplx_fed(&piped, &text).good(), ids);
    let tokens = ["score", "m/llama.gguf", "--tokens-file", "-", "-c", "32"];
    let out = project.pplx_fed(&tokens, &ids).good();
    assert!(out.contains("corpus    "), "{out}");
    let said = project.pplx_fed(&piped, "").code;
    assert_eq!(said, Some(0));
}

#[test]
fn outputs_are_checked_before_the_work() {
    let project = Project::new();
    experiment(&project, "");
    project.write("file", "");
    let refused = |arguments: &str| {
        let ended = line(&project, arguments);
        let said = format!("{arguments}: {}{}", ended.stdout, ended.stderr);
        assert!(matches!(ended.code, Some(1 | 2)), "{said}");
        // No run has begun.
        assert!(!said.contains("[1/1]") && !said.contains("PPL ="), "{said}");
    };
    refused(&format!("{SCORE} --per-token c"));
    refused(&format!("{SCORE} --dump-tokens c"));
    refused("kld -m m/llama.gguf -f c/t.txt -c 32 --save-base c");
    for verb in ["run", "noise"] {
        for results in ["file", "file/x"] {
            refused(&format!("{verb} experiments/x.toml --results {results}"));
        }
    }
    line(&project, "run experiments/x.toml").good();
    refused("report results/x.csv -o c");
    refused("report results/x.csv --markdown file/r.md");
    // Nothing is left behind by looking.
    assert_eq!(project.temporaries(), Vec::<PathBuf>::new());
}

/// The table of the README.
#[test]
fn exit_codes() {
    let project = Project::new();
    experiment(&project, "");
    project.write("ids", &"3\n".repeat(100));
    project.write(
        "ids-out",
        &format!("{}9999\n{}", "3\n".repeat(40), "3\n".repeat(60)),
    );
    project.write("bad.csv", "a,b\n");
    project.write("short.txt", "the model");
    project.write("no.gguf", "no model");
    let codes = |expected: i32, lines: &[&str]| {
        for arguments in lines {
            let ended = line(&project, arguments);
            let said = format!("{arguments}: {}{}", ended.stdout, ended.stderr);
            assert_eq!(ended.code, Some(expected), "{said}");
            assert!(!said.contains("panicked"), "{said}");
        }
    };
    codes(
        0,
        &[
            "score m/llama.gguf --tokens-file ids -c 32",
            "run experiments/x.toml",
            "plan experiments/x.toml",
            "inspect m/llama.gguf",
            "diff results/x.csv results/x.csv",
            "doctor",
            "--help",
        ],
    );
    codes(
        2,
        &[
            "",
            "score m/llama.gguf --tokens-file ids-out -c 32",
            "score m/llama.gguf --tokens-file none -c 32",
            "score m/llama.gguf -f short.txt -c 32",
            "score m/llama.gguf -f c/t.txt -c 4096",
            "score no.gguf -f c/t.txt",
            "score none.gguf -f c/t.txt",
            "kld -m m/llama.gguf --base bad.csv -f c/t.txt -c 32",
            "kld -m m/llama.gguf --base m/llama.gguf -f short.txt -c 32",
            "tokenize m/llama.gguf -f none",
            "inspect no.gguf",
            "diff results/x.csv bad.csv",
            "diff results/x.csv none.csv",
            "report bad.csv -o r.html",
            "run none.toml",
            "run experiments/x.toml --set limits.windows=0",
            "attribute experiments/x.toml --run none",
            "attribute experiments/x.toml --reference bad.csv",
        ],
    );
    codes(1, &["doctor --gpu"]);
    // A malformed table that is to be resumed, and malformed references.
    let table = project.read("results/x.csv");
    project.write("results/x.csv", &table.replace(",ok,", ",okk,"));
    codes(2, &["run experiments/x.toml --resume"]);
    experiment(&project, "[reference]\nfiles = [\"bad.csv\"]\n");
    codes(2, &["run experiments/x.toml"]);
}

#[test]
fn errors_of_the_vocabulary_name_the_file_once() {
    let project = Project::new();
    crate::support::tiny::Tiny::llama()
        .tokenizer("model", pplx::gguf::Value::String("gpt2".into()))
        .write(project.path("m/nopre.gguf"));
    for verb in ["score", "tokenize"] {
        let said = line(&project, &format!("{verb} m/nopre.gguf -f c/t.txt")).bad(2);
        assert_eq!(said.matches("m/nopre.gguf").count(), 1, "{said}");
    }
}

#[test]
fn doctor_says_what_the_machine_has() {
    let project = Project::new();
    let out = project.pplx(&["doctor"]).good();
    for part in [
        "engine   pplx ",
        "CPU      ",
        " kernels, ",
        "memory   ",
        "cache    ",
        "pip      ",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    project.write("file", "");
    let cache = project.path("file/cache");
    let variables = [("PPLX_CACHE", cache.to_str().unwrap())];
    let out = project.pplx_with(&["doctor"], &variables).good();
    assert!(out.contains("cache cannot be written: "), "{out}");
}

#[test]
fn a_url_that_is_taken_for_a_path_is_shown_without_its_password() {
    let project = Project::new();
    let experiment = "name = \"x\"\n[sweep]\ncontexts = [32]\n[[corpora]]\npath = \"c/t.txt\"\n[[models]]\n\
                      path = \"https://u:s3cret@h/x.gguf\"\n";
    project.write("experiments/x.toml", experiment);
    let commands: [&[&str]; 3] = [
        &["run", "experiments/x.toml"],
        &["score", "https://u:s3cret@h/x.gguf", "-f", "c/t.txt"],
        &["inspect", "https://u:s3cret@h/x.gguf"],
    ];
    for arguments in commands {
        let ended = project.pplx(arguments).bad(2);
        assert!(ended.contains("https://***@h/x.gguf"), "{ended}");
    }
}
