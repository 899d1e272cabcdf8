//! What a file's keys and tensors declare is used, or the file is refused: no
//! declaration makes a layer or a tensor drop out, or the arithmetic another one,
//! unseen. (What is merely malformed is in `refusals.rs`.)

use pplx::gguf::{Array, Value};

use crate::cases::{CASES, GEOMETRY, N_WINDOWS, bos, by_name, tokens};
use crate::support::tiny::Tiny;
use crate::support::{bits, score};

fn nlls(tiny: &Tiny) -> Vec<u64> {
    bits(&score(
        &tiny.cpu(1),
        &tokens(),
        GEOMETRY,
        N_WINDOWS,
        bos(tiny),
        1,
    ))
}

fn case(name: &str) -> Tiny {
    (by_name(name).build)()
}

fn refusal(tiny: &Tiny) -> String {
    match tiny.model() {
        Ok(_) => "the file was taken".to_owned(),
        Err(e) => e.to_string(),
    }
}

fn flags(flags: &[bool]) -> Value {
    Value::Array(Array::Bool(flags.to_vec()))
}

fn counts(counts: &[u32]) -> Value {
    Value::Array(Array::U32(counts.to_vec()))
}

/// In whatever architecture it is that knows no such block, and in those that do: a
/// layer is never taken for a block for multi-token prediction.
#[test]
fn no_layer_is_dropped_as_a_block_for_multi_token_prediction() {
    for case in CASES {
        let tiny = (case.build)();
        let declared = tiny.set("nextn_predict_layers", Value::U32(1));
        let has_block = declared.tensors.iter().any(|t| t.0.contains("nextn"));
        if has_block {
            continue;
        }
        let last = declared.model().map(|m| m.n_layer());
        assert!(last.is_err(), "{}: {last:?}", case.name);
        let message = refusal(&declared);
        let key = format!(
            "metadata key '{}.nextn_predict_layers' is 1: block ",
            declared.architecture
        );
        let what = " is none for multi-token prediction, since it has no tensor 'blk.";
        // One-layer models have no layer left.
        let ok = message.starts_with(&key) && message.contains(what);
        assert!(ok || message.contains("blocks"), "{}: {message}", case.name);
    }
}

#[test]
fn a_block_for_multi_token_prediction_holds_what_such_blocks_hold() {
    let with = |change: fn(Tiny) -> Tiny| refusal(&change(case("qwen35_mtp")));
    let key = "metadata key 'qwen35.nextn_predict_layers' is 1: block 2 is none for multi-token \
               prediction, since it ";
    for part in ["eh_proj", "enorm", "hnorm"] {
        let name = format!("blk.2.nextn.{part}.weight");
        let message = refusal(&case("qwen35_mtp").without(&name));
        assert_eq!(message, format!("{key}has no tensor '{name}'"));
    }
    assert_eq!(
        with(|t| t.tensor("blk.2.nextn.eh_proj.weight", &[32, 32], vec![0.0; 1024])),
        "tensor 'blk.2.nextn.eh_proj.weight' has the shape [32, 32]; the hyper-parameters ask for \
         [64, 32]"
    );
    let emptied = |name: &str, block: &str| {
        let mut tiny = case(name);
        tiny.tensors.retain(|t| !t.0.starts_with(block));
        tiny
    };
    assert_eq!(
        refusal(&emptied("qwen35_mtp", "blk.2.")),
        format!("{key}holds no tensors")
    );
    // llama.cpp takes these without their block, which then lies in another file.
    let apart = emptied("glm4moe", "blk.2.");
    assert_eq!(apart.model().ok().map(|m| m.absent_mtp_blocks), Some(1));
    assert_eq!(nlls(&apart), nlls(&case("glm4moe")));
    // More blocks than are declared, and layers that are declared away.
    assert!(
        refusal(&case("qwen35_mtp").set("nextn_predict_layers", Value::U32(2)))
            .contains("block 1 is none for multi-token prediction")
    );
    assert!(
        refusal(&case("llama").set("block_count", Value::U32(1)))
            .contains("tensors that architecture 'llama' does not use")
    );
}

/// A tensor that hides behind a name that only looks like a block's.
#[test]
fn names_are_taken_to_the_letter() {
    for name in [
        "blk.02.attn_q.weight",
        "blk.+2.attn_q.weight",
        "blk.2x.attn_q.weight",
    ] {
        let tiny = case("qwen35_mtp").tensor(name, &[4], vec![1.0; 4]);
        assert!(refusal(&tiny).contains("does not use"), "{name}");
    }
    let tiny = case("rwkv7").tensor("blk.0.time_mix_v0x.weight", &[4], vec![1.0; 4]);
    assert!(refusal(&tiny).contains("does not use"));
    let tiny = case("rwkv7").tensor("blk.0.time_mix_v0.weight", &[4], vec![1.0; 4]);
    assert!(refusal(&tiny).contains("the hyper-parameters ask for"));
}

/// Keys that change the arithmetic where an architecture knows them. With a value
/// that changes nothing they are taken, with any other they are refused.
#[test]
fn a_key_that_the_architecture_does_not_know_is_refused() {
    let f = Value::F32;
    let n = Value::U32;
    let b = Value::Bool;
    let s = |s: &str| Value::String(s.to_owned());
    let keys: Vec<(&str, &str, Value, Option<Value>)> = vec![
        ("llama", "attention.causal", b(false), Some(b(true))),
        ("llama", "attention.scale", f(0.5), Some(f(0.35355338))),
        ("qwen3", "attention.scale", f(0.5), Some(f(0.0))),
        ("llama", "attention.clamp_kqv", f(8.0), Some(f(0.0))),
        ("llama", "attention.max_alibi_bias", f(8.0), Some(f(0.0))),
        ("llama", "attention.sliding_window", n(8), Some(n(128))),
        ("qwen2", "attention.sliding_window", n(127), Some(n(0))),
        ("llama", "attention.shared_kv_layers", n(1), Some(n(0))),
        (
            "llama",
            "attention.rope_pattern",
            flags(&[true, false]),
            None,
        ),
        ("llama", "attention.value_scale", f(0.5), Some(f(1.0))),
        ("llama", "attention.temperature_scale", f(0.1), Some(f(0.0))),
        ("llama", "attention.indexer.head_count", n(4), Some(n(0))),
        ("gemma3", "attention.key_length_swa", n(4), Some(n(8))),
        ("llama", "attn_logit_softcapping", f(30.0), Some(f(0.0))),
        ("llama", "final_logit_softcapping", f(30.0), Some(f(0.0))),
        ("gpt_oss", "router_logit_softcapping", f(30.0), Some(f(0.0))),
        ("llama", "logit_scale", f(0.5), Some(f(1.0))),
        ("llama", "embedding_scale", f(12.0), Some(f(1.0))),
        ("llama", "residual_scale", f(0.2), Some(f(1.0))),
        ("qwen3", "expert_count", n(8), Some(n(0))),
        ("qwen3", "expert_group_count", n(4), Some(n(1))),
        ("qwen3moe", "leading_dense_block_count", n(1), Some(n(0))),
        ("qwen3moe", "interleave_moe_layer_step", n(2), Some(n(1))),
        ("qwen3moe", "expert_gating_func", n(2), Some(n(1))),
        ("qwen3moe", "expert_weights_norm", b(false), Some(b(true))),
        ("qwen3moe", "expert_weights_scale", f(2.5), Some(f(1.0))),
        ("qwen2moe", "expert_weights_norm", b(true), Some(b(false))),
        ("gpt_oss", "expert_gating_func", n(1), Some(n(3))),
        ("gpt_oss", "swiglu_clamp_exp", f(7.0), Some(f(0.0))),
        ("llama", "hidden_activation", s("gelu"), None),
        ("llama", "use_parallel_residual", b(true), Some(b(false))),
        ("falcon", "use_parallel_residual", b(false), Some(b(true))),
        (
            "command_r",
            "use_parallel_residual",
            b(false),
            Some(b(true)),
        ),
        ("llama", "swin_norm", b(true), Some(b(false))),
        ("rwkv7", "rescale_every_n_layers", n(2), Some(n(0))),
        ("llama", "num_loops", n(2), Some(n(1))),
        ("llama", "moe_latent_size", n(16), Some(n(0))),
        ("llama", "embedding_length_out", n(16), Some(n(32))),
        ("cohere2", "rope.freq_base_swa", f(5e5), Some(f(10000.0))),
        (
            "llama",
            "rope.dimension_sections",
            counts(&[1, 1, 1, 1]),
            Some(counts(&[0, 0, 0, 0])),
        ),
        ("llama", "rope.scaling.alpha", f(50.0), Some(f(0.0))),
        (
            "llama",
            "rope.scaling.yarn_log_multiplier",
            f(0.1),
            Some(f(0.0)),
        ),
        (
            "llama_rope_yarn",
            "rope.scaling.yarn_attn_factor",
            f(1.2),
            Some(f(1.0)),
        ),
        ("gpt2", "rope.scaling.type", s("yarn"), Some(s("none"))),
        ("gpt2", "rope.scaling.factor", f(4.0), Some(f(1.0))),
        (
            "llama_rope_linear",
            "rope.scale_linear",
            f(8.0),
            Some(f(1.0)),
        ),
        ("mamba2", "ssm.dt_b_c_rms", b(true), Some(b(false))),
        ("llama4", "attention.sliding_window", n(4096), Some(n(8192))),
        ("llama", "rope.dimension_count", n(4), Some(n(8))),
    ];
    let mut wrong = Vec::new();
    for (name, key, bad, harmless) in keys {
        let tiny = case(name);
        let key_is = format!("metadata key '{}.{key}' is ", tiny.architecture);
        let message = refusal(&tiny.clone().set(key, bad));
        if !message.starts_with(&key_is) {
            wrong.push(format!("{name}, {key}: {message}"));
        }
        let Some(harmless) = harmless else { continue };
        let same = tiny.clone().set(key, harmless);
        if same.model().is_err() || nlls(&same) != nlls(&tiny) {
            wrong.push(format!("{name}, {key}, harmless: {}", refusal(&same)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lists_are_as_long_as_the_layers() {
    for (name, key, list) in [
        ("qwen3", "attention.head_count_kv", counts(&[2, 2, 2])),
        ("qwen3", "feed_forward_length", counts(&[48])),
        (
            "gemma3",
            "attention.sliding_window_pattern",
            flags(&[true; 9]),
        ),
        (
            "qwen35",
            "attention.recurrent_layers",
            flags(&[true, false, false]),
        ),
        ("qwen35", "rope.dimension_sections", counts(&[2, 1, 1])),
    ] {
        let message = refusal(&case(name).set(key, list));
        let expected = message.contains(key) && message.contains("array");
        assert!(expected, "{name}, {key}: {message}");
    }
    // Those of multi-token prediction may be counted or not.
    for n in [2, 3] {
        let list = flags(&[true, false, false][..n]);
        let tiny = case("qwen35_mtp").set("attention.recurrent_layers", list);
        assert_eq!(nlls(&tiny), nlls(&case("qwen35_mtp")), "{n}");
    }
}

/// Which norm a model has is the architecture's, not that of an epsilon that is
/// there by mistake.
#[test]
fn an_epsilon_does_not_choose_the_norm() {
    const RMS: &str = "attention.layer_norm_rms_epsilon";
    const LAYER: &str = "attention.layer_norm_epsilon";
    for name in ["gpt2", "cohere2", "rwkv6", "stablelm"] {
        let tiny = case(name).set(RMS, Value::F32(1e-5));
        assert_eq!(nlls(&tiny), nlls(&case(name)), "{name}");
        let message = refusal(&tiny.unset(LAYER));
        assert!(message.contains(LAYER), "{name}: {message}");
    }
    for name in ["llama", "qwen3moe", "mamba"] {
        let tiny = case(name).set(LAYER, Value::F32(1e-5));
        assert_eq!(nlls(&tiny), nlls(&case(name)), "{name}");
        let message = refusal(&tiny.unset(RMS));
        assert!(message.contains(RMS), "{name}: {message}");
    }
    for eps in [f32::NAN, -1e-5, f32::INFINITY] {
        let message = refusal(&case("llama").set(RMS, Value::F32(eps)));
        assert!(message.contains("a number of at least 0"), "{message}");
    }
}

/// What a file lost is not taken for what it never had.
#[test]
fn lost_tensors_are_missed() {
    let lost = |name: &str, tensor: &str| refusal(&case(name).without(tensor));
    // The embedding's table would do as a head.
    for name in ["gptneox", "olmo2", "gpt_oss", "stablelm", "qwen2moe"] {
        let message = lost(name, "output.weight");
        let missing = message.starts_with("tensor 'output.weight' is missing");
        assert!(missing, "{name}: {message}");
    }
    // No bias would do as a bias of 0, in one layer or in all.
    assert_eq!(
        lost("qwen2", "blk.1.attn_k.bias"),
        "tensor 'blk.1.attn_k.bias' is missing, while 'blk.0.attn_k.bias' is there: without it one \
         layer would be computed differently from the others"
    );
    for (name, tensor) in [
        ("glm4moe", "blk.1.attn_q_norm.weight"),
        ("bitnet", "blk.0.ffn_down.scale"),
        ("falcon_40b", "blk.0.attn_norm_2.weight"),
        ("stablelm", "blk.0.ffn_norm.weight"),
    ] {
        let n = case(name).tensors.iter().filter(|t| t.0 == tensor).count();
        assert_eq!(n, 1, "{name} has {tensor}");
        let message = lost(name, tensor);
        assert!(
            message.contains(&format!("'{tensor}' is missing")),
            "{name}: {message}"
        );
    }
    for (name, part) in [
        ("gpt2", "attn_qkv.bias"),
        ("gptneox", "ffn_norm.bias"),
        ("falcon", "attn_norm.bias"),
        ("gpt_oss", "ffn_gate_inp.bias"),
        ("rwkv6", "attn_norm_2.bias"),
        ("mamba2", "ssm_conv1d.bias"),
        ("minimax_m2", "exp_probs_b.bias"),
        ("starcoder2", "ffn_down.bias"),
    ] {
        let mut tiny = case(name);
        let before = tiny.tensors.len();
        tiny.tensors.retain(|t| !t.0.ends_with(&format!(".{part}")));
        assert!(tiny.tensors.len() < before, "{name} has {part}");
        let message = refusal(&tiny);
        assert!(
            message.contains(&format!("{part}' is missing")),
            "{name}: {message}"
        );
    }
    assert!(lost("gpt2", "output_norm.bias").contains("is missing"));
    // Half of LongRoPE, or its type alone.
    let name = "phi3_longrope_long";
    for which in ["short", "long"] {
        let tensor = format!("rope_factors_{which}.weight");
        let message = lost(name, &tensor);
        assert!(
            message.contains(&format!("'{tensor}' is missing")),
            "{message}"
        );
    }
    let typed = case("phi3").set("rope.scaling.type", Value::String("longrope".into()));
    assert!(refusal(&typed).contains("'rope_factors_short.weight' is missing"));
    let factor = case(name)
        .set("rope.scaling.type", Value::String("longrope".into()))
        .set("rope.scaling.factor", Value::F32(4.0));
    assert!(refusal(&factor).contains("LongRoPE's factors are tensors"));
}

/// A vocabulary of another size than the embedding, whatever `vocab_size` says.
#[test]
fn the_vocabulary_is_as_long_as_the_embedding() {
    let tiny = case("llama");
    let mut tokens = crate::support::tiny::vocabulary();
    let n = tokens.len() as u32;
    tokens.push("more".to_owned());
    let tokens = Value::Array(Array::String(tokens));
    let message = refusal(
        &tiny
            .set("vocab_size", Value::U32(n))
            .tokenizer("tokens", tokens),
    );
    assert!(
        message.contains("the hyper-parameters ask for"),
        "{message}"
    );
}

#[test]
fn scales_that_leave_no_logits_are_refused() {
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let message = refusal(&case("command_r").set("logit_scale", Value::F32(scale)));
        assert!(message.contains("a positive number is needed"), "{message}");
    }
    for base in [0.0, -1.0, f32::NAN] {
        let message = refusal(&case("llama").set("rope.freq_base", Value::F32(base)));
        assert!(message.contains("a positive number is needed"), "{message}");
    }
}

/// llama.cpp does not apply Phi 3's window, so neither do we, but the model says
/// that there is one.
#[test]
fn a_window_that_llama_cpp_ignores_is_told() {
    let tiny = case("phi3").set("attention.sliding_window", Value::U32(8));
    assert_eq!(tiny.model().ok().and_then(|m| m.unheeded_window), Some(8));
    assert_eq!(nlls(&tiny), nlls(&case("phi3")));
    let none = case("phi3").model().ok().map(|m| m.unheeded_window);
    assert_eq!(none, Some(None));
}

/// What llama.cpp does without a key is what we do without it.
#[test]
fn defaults_are_llama_cpps() {
    let caps = case("gemma2")
        .set("attn_logit_softcapping", Value::F32(50.0))
        .set("final_logit_softcapping", Value::F32(30.0));
    let without = caps
        .clone()
        .unset("attn_logit_softcapping")
        .unset("final_logit_softcapping");
    assert_eq!(nlls(&without), nlls(&caps));
    let off = |key: &str| caps.clone().set(key, Value::F32(0.0));
    assert_ne!(nlls(&off("final_logit_softcapping")), nlls(&caps));
    assert_ne!(nlls(&off("attn_logit_softcapping")), nlls(&caps));
}
