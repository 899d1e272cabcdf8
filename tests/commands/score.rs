use serde_json::Value as Json;

use super::project::{Ended, Line, Project, number};
use crate::support::tiny::{BOS, Tiny};

/// `pplx score m/llama.gguf -f c/t.txt -c 32` with more arguments.
fn score(project: &Project, more: &[&str]) -> Ended {
    let mut arguments = vec!["score", "m/llama.gguf", "-f", "c/t.txt", "-c", "32"];
    arguments.extend(more);
    project.pplx(&arguments)
}

fn json(project: &Project, more: &[&str]) -> Json {
    let out = score(project, &[more, &["--json"]].concat()).good();
    serde_json::from_str(&out).unwrap()
}

fn count(json: &Json, key: &str) -> usize {
    json[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {json}")) as usize
}

/// The figures, without what differs from one machine or call to the next.
fn figures(mut json: Json) -> Json {
    for key in ["corpus", "threads", "tokens_per_s"] {
        json.as_object_mut().unwrap().remove(key).expect(key);
    }
    json
}

#[test]
fn json_has_the_figures_of_the_windows_and_tokens() {
    let project = Project::new();
    let json = json(&project, &["--per-window", "--per-token", "nll.csv"]);
    let n = count(&json, "tokens") / 32;
    assert_eq!(count(&json, "windows"), n);
    assert_eq!(count(&json, "scored_tokens"), n * 15);
    assert_eq!(count(&json, "bos"), BOS as usize);
    assert_eq!((count(&json, "n_ctx"), count(&json, "stride")), (32, 32));
    assert_eq!(count(&json, "unscored_prefix"), 17);
    assert_eq!(json["mode"], "sliding-window");
    assert_eq!(json["architecture"], "llama");

    let mean = json["mean_nll"].as_f64().unwrap();
    let tokens = project.lines("nll.csv");
    assert!(
        project
            .read("nll.csv")
            .starts_with("chunk,pos,target,nll\n")
    );
    let places = (0..n).flat_map(|chunk| (17..32).map(move |pos| (chunk, pos)));
    let place = |t: &Line| (number(t, "chunk") as usize, number(t, "pos") as usize);
    assert!(places.eq(tokens.iter().map(place)));
    let all: Vec<f64> = tokens.iter().map(|t| number(t, "nll")).collect();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * b, "{a} {b}");
    close(mean, all.iter().sum::<f64>() / all.len() as f64);
    close(json["ppl"].as_f64().unwrap(), mean.exp());

    let windows = json["per_window"].as_array().unwrap();
    assert_eq!(windows.len(), n);
    for (i, w) in windows.iter().enumerate() {
        assert_eq!((count(w, "window"), count(w, "scored")), (i, 15));
        let sum: f64 = all[i * 15..(i + 1) * 15].iter().sum();
        close(w["nll_sum"].as_f64().unwrap(), sum);
    }
}

#[test]
fn text_has_the_same_figures() {
    let project = Project::new();
    let json = json(&project, &["--chunks", "3"]);
    let text = score(&project, &["--chunks", "3", "--per-window"]).good();
    let ppl = format!(
        "\nFinal estimate: PPL = {:.4} +/- ",
        json["ppl"].as_f64().unwrap()
    );
    assert!(text.contains(&ppl), "{ppl}\n{text}");
    assert!(text.contains("in 3 windows"), "{text}");
    assert!(text.contains("\nnumerics  exact\n"), "{text}");
    assert!(
        text.contains("BOS (1) in place of each window's first"),
        "{text}"
    );
    let windows: Vec<&str> = text.lines().skip(1).take(4).collect();
    let last = windows[2].split_whitespace().collect::<Vec<_>>();
    assert_eq!((last[0], last[1], windows[3]), ("2", "15", ""));
    assert_eq!(last[4], format!("{:.4}", json["ppl"].as_f64().unwrap()));
}

#[test]
fn dumped_tokens_give_the_same_figures() {
    let project = Project::new();
    let from_text = json(&project, &["--dump-tokens", "ids.txt"]);
    let ids = project.read("ids.txt");
    assert_eq!(ids.lines().count(), count(&from_text, "tokens"));
    let array = format!("[{}]", ids.lines().collect::<Vec<_>>().join(", "));
    project.write("ids.json", &array);
    let printed = project.pplx(&["tokenize", "m/llama.gguf", "-f", "c/t.txt", "--ids"]);
    assert_eq!(printed.good(), ids);
    for file in ["ids.txt", "ids.json"] {
        let arguments = [
            "score",
            "m/llama.gguf",
            "--tokens-file",
            file,
            "-c",
            "32",
            "--json",
        ];
        let from_ids = serde_json::from_str(&project.pplx(&arguments).good()).unwrap();
        assert_eq!(figures(from_ids), figures(from_text.clone()), "{file}");
    }
}

#[test]
fn geometry_flags() {
    let project = Project::new();
    let all = json(&project, &[]);
    let tokens = count(&all, "tokens");
    let chunks = json(&project, &["--chunks", "5"]);
    assert_eq!(count(&chunks, "windows"), 5);
    assert_eq!(count(&chunks, "tokens"), tokens);
    let cut = json(&project, &["--max-tokens", "170"]);
    assert_eq!(figures(cut), figures(chunks.clone()));
    let strided = json(&project, &["--stride", "10"]);
    assert_eq!(count(&strided, "windows"), (tokens - 32) / 10 + 1);
    assert_eq!(count(&strided, "unscored_prefix"), 22);
    let prefix = json(&project, &["--unscored-prefix", "30"]);
    assert_eq!(count(&prefix, "scored_tokens"), tokens / 32 * 2);
    let llama = json(&project, &["--mode", "llama.cpp-strided", "--stride", "8"]);
    assert_eq!((count(&llama, "n_ctx"), &llama["bos"]), (36, &Json::Null));
    assert_eq!(count(&llama, "windows"), (tokens - 36).div_ceil(8));
    let forced = json(&project, &["--mode", "teacher-forced"]);
    assert_eq!(
        count(&forced, "scored_tokens"),
        tokens - tokens.div_ceil(32)
    );
    assert_eq!(
        (&forced["stride"], &forced["unscored_prefix"]),
        (&Json::Null, &Json::Null)
    );
}

#[test]
fn bos_flags() {
    let project = Project::new();
    let with = json(&project, &["--max-tokens", "320"]);
    assert_eq!(
        figures(json(&project, &["--bos", "--max-tokens", "320"])),
        figures(with.clone())
    );
    let without = json(&project, &["--no-bos", "--max-tokens", "320"]);
    assert_eq!(without["bos"], Json::Null);
    assert_eq!(count(&without, "tokens") + 1, count(&with, "tokens"));
    assert_ne!(without["ppl"], with["ppl"]);
    let silent = Tiny::llama().tokenizer("add_bos_token", pplx::gguf::Value::Bool(false));
    silent.write(project.path("m/llama.gguf"));
    assert_eq!(
        figures(json(&project, &["--max-tokens", "320"])),
        figures(without)
    );
    assert_eq!(
        figures(json(&project, &["--bos", "--max-tokens", "320"])),
        figures(with)
    );
}

#[test]
fn threads_and_batches_change_no_figure() {
    let project = Project::new();
    let want = figures(json(
        &project,
        &["--threads", "1", "--batch", "1", "--per-window"],
    ));
    for (threads, batch) in [("2", "4"), ("3", "7"), ("0", "1000")] {
        let ours = json(&project, &["-t", threads, "--batch", batch, "--per-window"]);
        assert_eq!(figures(ours), want, "{threads} threads, batches of {batch}");
    }
}

#[test]
fn usage_errors() {
    let project = Project::new();
    for (arguments, expected) in [
        (
            &["--mode", "teacher-forced", "--stride", "4"][..],
            "--stride has no meaning in teacher-forced mode",
        ),
        (
            &["--mode", "teacher-forced", "--unscored-prefix", "4"],
            "--unscored-prefix has no meaning in teacher-forced mode",
        ),
        (
            &["--mode", "llama.cpp-strided"],
            "llama.cpp-strided mode needs --stride",
        ),
        (
            &[
                "--mode",
                "llama.cpp-strided",
                "--stride",
                "8",
                "--unscored-prefix",
                "4",
            ],
            "--unscored-prefix has no meaning in llama.cpp-strided mode",
        ),
        (&["--bos", "--no-bos"], "cannot be used with"),
        (&["--tokens-file", "c/t.txt"], "cannot be used with"),
        (&["--stride", "0"], "'--stride <N>': must be at least 1"),
        (
            &["--stride", "33"],
            "stride 33 is larger than the context 32",
        ),
        (&["--unscored-prefix", "32"], "unscored_prefix 32 must be"),
        (&["--mode", "strided"], "invalid value 'strided'"),
        (&["--pre", "gpt-2"], "gpt-2"),
        (
            &["--max-tokens", "63"],
            "the corpus has 63 tokens, context 32 needs at least 64: use a longer corpus or a \
             context of at most 31",
        ),
    ] {
        let error = score(&project, arguments).bad(2);
        assert!(error.contains(expected), "{expected}\n in {error}");
    }
    let error = project.pplx(&["score", "m/llama.gguf", "-f", "c/t.txt", "-c", "129"]);
    assert_eq!(
        error.bad(2),
        "pplx: context 129 is beyond the 128 that the model was trained for\n"
    );
    let error = project.pplx(&["score", "m/llama.gguf"]).bad(2);
    assert!(error.contains("--file"), "{error}");
    let error = project
        .pplx(&["score", "m/llama.gguf", "-f", "c/none.txt"])
        .bad(2);
    assert!(error.contains("c/none.txt"), "{error}");
}

#[test]
fn models_that_cannot_be_scored() {
    let project = Project::new();
    let model = project.path("m/llama.gguf");
    let mut other = Tiny::llama();
    other.architecture = "t5";
    other.write(&model);
    assert_eq!(
        score(&project, &[]).bad(2),
        format!(
            "pplx: m/llama.gguf: architecture 't5' is not supported; supported are {}\n",
            pplx::model::supported_architectures().join(", ")
        )
    );
    Tiny::llama().without("output_norm.weight").write(&model);
    let error = score(&project, &[]).bad(2);
    assert!(
        error.contains("m/llama.gguf: tensor 'output_norm.weight' is missing"),
        "{error}"
    );
    Tiny::llama()
        .edit("blk.2.ffn_down.weight", |w| w[0] = f32::NAN)
        .write(&model);
    let ended = score(&project, &["--per-token", "nll.csv"]);
    assert_eq!(ended.stdout, "");
    assert_eq!(
        ended.bad(1),
        "pplx: layer 2 yields a value that is not finite (NaN or infinite), first in window 0 at \
         position 16: the weights or the arithmetic are broken there, so there is no perplexity\n"
    );
    assert!(!project.path("nll.csv").exists());
}

#[test]
fn token_files_that_do_not_fit() {
    let project = Project::new();
    let score = |ids: &str| {
        project.write("ids.txt", ids);
        project.pplx(&[
            "score",
            "m/llama.gguf",
            "--tokens-file",
            "ids.txt",
            "-c",
            "8",
        ])
    };
    let ids = |last: u32| {
        let ids = (0..24).map(|t| if t == 21 { last } else { t + 3 });
        ids.map(|id| format!("{id}\n")).collect::<String>()
    };
    score(&ids(55)).good();
    let error = score(&ids(56)).bad(2);
    assert!(
        error.contains("window 2, position 5: token id 56 is outside the model's vocabulary of 56"),
        "{error}"
    );
    let error = score("1\n2\nx\n").bad(2);
    assert!(error.contains("line 3: \"x\" is not a token id"), "{error}");
    let error = score("[1, -2]").bad(2);
    assert!(error.contains("not a JSON array of token ids"), "{error}");
}

/// A cycle yields the figures of the whole device, and says how it did.
#[test]
fn placements() {
    let project = Project::new();
    let want = json(&project, &["--per-window"]);
    assert_eq!(want["layer_placement"], "cpu[0,3)");
    let cycle = ["--device", "cpu", "--layers-per-window", "2", "--cycle"];
    let more = ["--per-window", "--checkpoint-memory", "0"];
    let mut ours = json(&project, &[&cycle[..], &more].concat());
    assert_eq!(ours["layer_placement"], "cycle cpu[0,2)+cpu[2,3)");
    assert_eq!(ours["placement"], "cpu_layers=2+cycle");
    for key in ["placement", "layer_placement"] {
        ours[key] = want[key].clone();
    }
    assert_eq!(figures(ours), figures(want));
    for (arguments, expected) in [
        (
            &["--device", "cuda"][..],
            "placement 'cuda' cannot be run: the CUDA driver",
        ),
        (
            &["--gpu-layers", "8", "--cycle"],
            "placement 'gpu_layers=8+cycle' cannot be run",
        ),
        (
            &["--gpu-layers", "8", "--first-layer", "1", "--cycle"],
            "--first-layer has no meaning in a cycle",
        ),
        (
            &["--layers-per-window", "2", "--cycle"],
            "--layers-per-window is for cycles on the CPU",
        ),
        (
            &["--device", "cpu", "--layers-per-window", "0", "--cycle"],
            "'--layers-per-window <N>': must be at least 1",
        ),
        (
            &["--checkpoint-dir", "nowhere"],
            "--checkpoint-dir nowhere is not a directory",
        ),
    ] {
        let error = score(&project, arguments).bad(2);
        assert!(error.contains(expected), "{expected}\n in {error}");
    }
}
