use serde_json::Value as Json;

use pplx::gguf::{BlockType, Value};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::project::{Project, number};
use crate::support::tiny::{Random, Tiny, text, vocabulary};

/// Four layers as wide as a small model's: 55 MB of weights.
fn wide() -> Tiny {
    let (d, ff, layers) = (512, 1536, 4);
    let mut tiny = Tiny::new("llama", layers, d as u32, ff as u32)
        .set("attention.head_count", Value::U32(8))
        .set("attention.head_count_kv", Value::U32(8))
        .set("rope.freq_base", Value::F32(10000.0));
    let mut random = Random::new(5);
    let mut add = |name: String, dims: &[u64], norm: bool| {
        let n = dims.iter().product::<u64>() as usize;
        let value = |_| match norm {
            true => 1.0,
            false => 0.05 * (random.next() - 0.5),
        };
        let values = (0..n).map(value).collect();
        tiny.tensors.push((name, dims.to_vec(), values));
    };
    let n_vocab = vocabulary().len() as u64;
    add("token_embd.weight".into(), &[d, n_vocab], false);
    for i in 0..layers {
        for norm in ["attn_norm", "ffn_norm"] {
            add(format!("blk.{i}.{norm}.weight"), &[d], true);
        }
        for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            add(format!("blk.{i}.{name}.weight"), &[d, d], false);
        }
        add(format!("blk.{i}.ffn_gate.weight"), &[d, ff], false);
        add(format!("blk.{i}.ffn_up.weight"), &[d, ff], false);
        add(format!("blk.{i}.ffn_down.weight"), &[ff, d], false);
    }
    add("output_norm.weight".into(), &[d], true);
    tiny
}

#[test]
fn memory_is_what_a_run_takes() {
    let project = Project::new();
    wide().write(project.path("m/wide.gguf"));
    project.write("c/long.txt", &text(3000));
    project.write(
        "experiments/x.toml",
        "name = \"x\"\n[sweep]\ncorpora = [\"c/long.txt\"]\ncontexts = [128]\n\
         placements = [\"cpu\"]\n[limits]\nwindows = 8\n[[models]]\npath = \"m/wide.gguf\"\n",
    );
    let plan = ["plan", "experiments/x.toml", "--format", "json"];
    let plan: Json = serde_json::from_str(&project.pplx(&plan).good()).unwrap();
    let estimate = plan["runs"][0]["memory_bytes_estimate"].as_f64().unwrap() / f64::from(1 << 20);
    project.pplx(&["run", "experiments/x.toml"]).good();
    let timing = &project.lines("results/x.timing.csv")[0];
    // Systems that do not tell have nothing to compare with.
    if timing["peak_rss_mib"].is_empty() {
        return;
    }
    let ratio = estimate / number(timing, "peak_rss_mib");
    assert!(
        (0.75..1.25).contains(&ratio),
        "{ratio}: {estimate} MiB of {timing:?}"
    );
}

/// A llama in exact and q8, of contexts 32 and 64, with a gate of 1 %.
const POWER: &str = "name = \"x\"\n[sweep]\ncorpora = [\"c/t.txt\"]\ncontexts = [32, 64]\n\
    numerics = [\"exact\", \"q8\"]\nplacements = [\"cpu\"]\n[limits]\nwindows = 12\n\
    [[models]]\npath = \"m/wide.gguf\"\n[gate]\nmax_delta_pct = 0.01\nmax_delta = 0.01\n";

fn power_project() -> Project {
    let project = Project::new();
    let model = Tiny::wide_llama().quantized(BlockType::Q4_1);
    model.write(project.path("m/wide.gguf")).unwrap();
    project.write("experiments/x.toml", POWER);
    project
}

/// What `pplx plan --power` says of the run whose key contains `part`: windows of the
/// corpus, and the comparisons.
fn power(project: &Project, more: &[&str], part: &str) -> (Json, Vec<Json>) {
    let plan = [
        "plan",
        "experiments/x.toml",
        "--count-tokens",
        "--power",
        "--format",
        "json",
    ];
    let plan: Json = serde_json::from_str(&project.pplx(&[&plan, more].concat()).good()).unwrap();
    let runs = plan["runs"].as_array().unwrap();
    let of_key = |r: &&Json| r["key"].as_str().unwrap().contains(part);
    let power = &runs.iter().find(of_key).unwrap()["power"];
    let comparisons = power["comparisons"].as_array().unwrap().clone();
    (power["corpus_windows"].clone(), comparisons)
}

fn close(x: &Json, want: f64) {
    let x = x.as_f64().unwrap();
    assert!((x / want - 1.0).abs() < 1e-9, "{x}, not {want}");
}

/// Student's quantile, of another making than the program's loop.
fn t(windows: usize, p: f64) -> f64 {
    let t = StudentsT::new(0.0, 1.0, (windows - 1) as f64).unwrap();
    t.inverse_cdf(p)
}

/// `(t(0.975) + t(0.8)) · sd / √n` from the windows tables, and the first number of
/// windows that fits the gate.
#[test]
fn power_by_hand_from_pairs_of_a_table() {
    let project = power_project();
    // Nothing is measured yet: tokens scatter by 0.08 nat.
    let (_, prior) = power(&project, &[], "/32/sw-s32-p17/cpu/q8");
    assert_eq!(prior.len(), 1);
    close(&prior[0]["scatter_from"]["prior_nats_per_token"], 0.08);
    close(&prior[0]["scatter_nats"], 0.08 / 15f64.sqrt());

    project.pplx(&["run", "experiments/x.toml"]).good();
    let windows = project.lines("results/x.windows.csv");
    let of = |part: &str| -> Vec<f64> {
        let those = windows.iter().filter(|w| w["key"].contains(part));
        those
            .map(|w| number(w, "nll_sum") / number(w, "scored"))
            .collect()
    };
    let (exact, q8) = (of("/32/sw-s32-p17/cpu/exact"), of("/32/sw-s32-p17/cpu/q8"));
    assert_eq!((exact.len(), q8.len()), (12, 12));
    let moved: Vec<f64> = exact.iter().zip(&q8).map(|(a, b)| b - a).collect();
    let mean = moved.iter().sum::<f64>() / 12.0;
    let sd = (moved.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 11.0).sqrt();

    for numerics in ["exact", "q8"] {
        let part = format!("/32/sw-s32-p17/cpu/{numerics}/w12");
        let (corpus, found) = power(&project, &[], &part);
        let [found] = &found[..] else {
            panic!("{found:?}");
        };
        close(&found["scatter_nats"], sd);
        let detectable = (t(12, 0.975) + t(12, 0.8)) * sd / 12f64.sqrt();
        close(&found["detectable_ln_ppl"], detectable);
        close(&found["detectable_pct"], 100.0 * (detectable.exp() - 1.0));
        let from = &found["scatter_from"];
        assert_eq!(
            (&from["differ"], &from["windows"]),
            (&"numerics".into(), &12.into())
        );
        assert_eq!(from["tables"], "results/x.csv");
        let gates = [
            ("max_delta 0.01", 0.01),
            ("max_delta_pct 0.01", 1.0001f64.ln()),
        ];
        for (gate, (bound, nats)) in found["gate"].as_array().unwrap().iter().zip(gates) {
            assert_eq!(gate["bound"], bound);
            close(&gate["nats"], nats);
            let enough =
                |n: &usize| (t(*n, 0.975) + 1.281_551_565_544_6) * sd <= nats * (*n as f64).sqrt();
            let needed = gate["windows_needed"].as_u64().unwrap() as usize;
            match needed {
                ..1000 => assert_eq!((2..1000).find(enough), Some(needed), "{bound}"),
                _ => assert!(needed.abs_diff(((3.241_516 * sd / nats).powi(2)) as usize) < 4),
            }
        }
        // The text has some 1,700 tokens.
        let corpus = corpus.as_u64().unwrap();
        assert!((40..80).contains(&corpus), "{corpus}");
    }
    // The other context has its own scatter.
    let (_, other) = power(&project, &[], "/64/");
    assert_ne!(other[0]["scatter_nats"].as_f64().unwrap(), sd);

    let text = project
        .pplx(&["plan", "experiments/x.toml", "--power"])
        .good();
    let table = text.split("\nPower: ").nth(1).unwrap();
    assert!(
        table.contains("  max_delta 0.01  max_delta_pct 0.01  scatter of\n"),
        "{text}"
    );
    assert!(
        table.contains("  numerics exact and q8, 12 windows of results/x.csv\n"),
        "{text}"
    );
    assert!(
        table.contains(" windows for max_delta_pct 0.01, its corpus has ~"),
        "{text}"
    );
    let plain = project.pplx(&["plan", "experiments/x.toml"]).good();
    assert!(!plain.contains("Power: "));
}

/// Of two tables, what `pplx diff` calls detectable of them afterwards.
#[test]
fn power_of_two_tables_is_what_diff_says() {
    let project = power_project();
    project.pplx(&["run", "experiments/x.toml"]).good();
    let mut other = Tiny::wide_llama();
    for (_, _, values) in &mut other.tensors {
        values.iter_mut().for_each(|v| *v *= 1.01);
    }
    let other = other.quantized(BlockType::Q4_1);
    other.write(project.path("m/wide.gguf")).unwrap();
    project
        .pplx(&["run", "experiments/x.toml", "--results", "other"])
        .good();
    let tables = ["results/x.csv", "other/x.csv"];
    let diff = project.pplx(&["diff", tables[0], tables[1], "--format", "csv"]);
    project.write("diff.csv", &diff.stdout);
    let lines = project.lines("diff.csv");
    assert_eq!(lines.len(), 4);
    for line in lines {
        let more = ["--power-from", tables[0], tables[1]];
        let (_, found) = power(&project, &more, &line["key"]);
        assert_eq!(found.len(), 1);
        close(&found[0]["detectable_ln_ppl"], number(&line, "detectable"));
        assert_eq!(found[0]["scatter_from"]["a"], line["key"].as_str());
    }
    // The same bits say nothing of a change.
    let more = ["--power-from", tables[0], tables[0]];
    let (_, found) = power(&project, &more, "/32/");
    assert!(
        found[0]["scatter_from"]["prior_nats_per_token"].is_number(),
        "{found:?}"
    );
    // Fewer windows than were measured show less.
    let set = [
        "--set",
        "limits.windows=3",
        "--power-from",
        tables[0],
        tables[1],
    ];
    let (_, fewer) = power(&project, &set, "/32/sw-s32-p17/cpu/q8/w3");
    let (_, all) = power(&project, &set[2..], "/32/sw-s32-p17/cpu/q8/w12");
    let shown = |p: &[Json]| p[0]["detectable_ln_ppl"].as_f64().unwrap();
    let ratio = (t(3, 0.975) + t(3, 0.8)) * 2.0 / (t(12, 0.975) + t(12, 0.8));
    assert!((shown(&fewer) / shown(&all) / ratio - 1.0).abs() < 1e-9);
    let missing = [
        "plan",
        "experiments/x.toml",
        "--power",
        "--power-from",
        "none.csv",
    ];
    assert!(project.pplx(&missing).bad(2).contains("none.csv"));
}

/// Pairs of models, and of a run's own numerics before others; windows come from
/// records where the table of windows is gone.
#[test]
fn power_from_models_and_from_records() {
    let project = power_project();
    let model = Tiny::wide_llama().quantized(BlockType::Q8_0);
    model.write(project.path("m/other.gguf")).unwrap();
    let text = format!("{POWER}[[models]]\npath = \"m/other.gguf\"\n").replace("[32, 64]", "[32]");
    project.write("experiments/x.toml", &text);
    project.pplx(&["run", "experiments/x.toml"]).good();
    let windows = project.lines("results/x.windows.csv");
    let key =
        |model: &str, numerics: &str| format!("{model}/t.txt/32/sw-s32-p17/cpu/{numerics}/w12");
    let sd = |a: String, b: String| {
        let of = |key: String| {
            let those = windows.iter().filter(move |w| w["key"] == key);
            those.map(|w| number(w, "nll_sum") / number(w, "scored"))
        };
        let moved: Vec<f64> = of(a).zip(of(b)).map(|(a, b)| b - a).collect();
        assert_eq!(moved.len(), 12);
        let mean = moved.iter().sum::<f64>() / 12.0;
        (moved.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 11.0).sqrt()
    };
    for gone in [false, true] {
        if gone {
            std::fs::remove_file(project.path("results/x.windows.csv")).unwrap();
        }
        for numerics in ["exact", "q8"] {
            let (_, found) = power(&project, &[], &key("wide", numerics));
            let [by_numerics, by_model] = &found[..] else {
                panic!("{found:?}");
            };
            let differ = |found: &Json| found["scatter_from"]["differ"].clone();
            assert_eq!(
                (differ(by_numerics), differ(by_model)),
                ("numerics".into(), "model".into())
            );
            close(
                &by_numerics["scatter_nats"],
                sd(key("wide", "exact"), key("wide", "q8")),
            );
            close(
                &by_model["scatter_nats"],
                sd(key("wide", numerics), key("other", numerics)),
            );
        }
    }
}
