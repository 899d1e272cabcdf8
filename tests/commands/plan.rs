use serde_json::Value as Json;

use pplx::gguf::Value;

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
