//! A file that cannot be scored exactly is refused by name. What follows from
//! the plain Llama alone is in `tests/evaluator/model_errors.rs`.

use pplx::gguf::{Array, Value};

use crate::cases::by_name;
use crate::support::tiny::Tiny;

pub struct Refusal {
    pub what: &'static str,
    pub case: &'static str,
    pub change: fn(Tiny) -> Tiny,
    pub message: &'static str,
}

const fn refusal(
    what: &'static str,
    case: &'static str,
    change: fn(Tiny) -> Tiny,
    message: &'static str,
) -> Refusal {
    Refusal {
        what,
        case,
        change,
        message,
    }
}

fn count(tiny: Tiny, key: &str, n: u32) -> Tiny {
    tiny.set(key, Value::U32(n))
}

fn scaling(tiny: Tiny, kind: &str) -> Tiny {
    tiny.set("rope.scaling.type", Value::String(kind.to_owned()))
}

/// Adds or replaces a tensor of zeros.
fn zeros(tiny: Tiny, name: &str, dims: &[u64]) -> Tiny {
    let n = dims.iter().product::<u64>() as usize;
    tiny.tensor(name, dims, vec![0.0; n])
}

pub const REFUSALS: &[Refusal] = &[
    refusal(
        "RoPE scaling of an unknown kind",
        "llama",
        |t| scaling(t, "dynamic"),
        "RoPE scaling 'dynamic' is not supported; supported are none, linear, yarn",
    ),
    refusal(
        "LongRoPE where the architecture has no factors for it",
        "qwen3",
        |t| scaling(t, "longrope"),
        "RoPE scaling 'longrope' is not supported; supported are none, linear, yarn",
    ),
    refusal(
        "RoPE scaling of an unknown kind, beside LongRoPE",
        "phi3_longrope_long",
        |t| scaling(t, "su"),
        "RoPE scaling 'su' is not supported; supported are none, linear, yarn",
    ),
    refusal(
        "RoPE over more than latent attention's keys",
        "deepseek2",
        |t| count(t, "rope.dimension_count", 12),
        "metadata key 'deepseek2.rope.dimension_count' is 12: key heads of 12 need a part without RoPE",
    ),
    refusal(
        "an unknown gating function",
        "glm4moe",
        |t| count(t, "expert_gating_func", 4),
        "metadata key 'glm4moe.expert_gating_func' is 4: supported are 1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen)",
    ),
    refusal(
        "more experts used than there are",
        "llama_moe",
        |t| count(t, "expert_used_count", 5),
        "metadata key 'llama.expert_used_count' is 5: the model has 4 experts",
    ),
    refusal(
        "no experts used",
        "qwen3moe",
        |t| count(t, "expert_used_count", 0),
        "metadata key 'qwen3moe.expert_used_count' is 0: at least 1 is needed",
    ),
    refusal(
        "more experts than the router has",
        "qwen2moe",
        |t| count(t, "expert_count", 5),
        "tensor 'blk.0.ffn_gate_inp.weight' has the shape [32, 4]; the hyper-parameters ask for [32, 5]",
    ),
    refusal(
        "groups that do not divide the experts",
        "deepseek2",
        |t| count(t, "expert_group_count", 3),
        "metadata key 'deepseek2.expert_group_count' is 3: 1 groups of 8 experts cannot be chosen from it",
    ),
    refusal(
        "groups of one expert, which have no two best",
        "deepseek2",
        |t| count(t, "expert_group_count", 8),
        "metadata key 'deepseek2.expert_group_count' is 8: 1 groups of 8 experts cannot be chosen from it",
    ),
    refusal(
        "more groups used than there are",
        "deepseek2",
        |t| count(t, "expert_group_used_count", 3),
        "metadata key 'deepseek2.expert_group_count' is 2: 3 groups of 8 experts cannot be chosen from it",
    ),
    refusal(
        "head counts that do not divide",
        "gemma2",
        |t| count(t, "attention.head_count_kv", 3),
        "metadata key 'gemma2.attention.head_count_kv' is 3: does not divide the 4 query heads",
    ),
    refusal(
        "latent attention with other heads in each layer",
        "deepseek2",
        |t| {
            let heads = Value::Array(Array::I32(vec![4, 2]));
            t.set("attention.head_count", heads)
        },
        "metadata key 'deepseek2.attention.head_count' is an array: all layers must agree",
    ),
    refusal(
        "an attention scale that llama.cpp would not apply",
        "llama",
        |t| t.set("attention.scale", Value::F32(0.5)),
        "metadata key 'llama.attention.scale' is 0.5: architecture 'llama' has no such thing, so scoring it would leave something out",
    ),
    refusal(
        "half of the temperature tuning",
        "deepseek2",
        |t| t.set("attention.temperature_scale", Value::F32(0.5)),
        "tiny.gguf: has no metadata key 'deepseek2.attention.temperature_length'",
    ),
    refusal(
        "a vocabulary of another size",
        "qwen2",
        |t| count(t, "vocab_size", 57),
        "tensor 'token_embd.weight' has the shape [32, 56]; the hyper-parameters ask for [32, 57]",
    ),
    refusal(
        "no blocks",
        "llama",
        |t| count(t, "block_count", 0),
        "metadata key 'llama.block_count' is 0: at least 1 is needed",
    ),
    refusal(
        "nothing but blocks for multi-token prediction",
        "glm4moe",
        |t| count(t, "nextn_predict_layers", 3),
        "metadata key 'glm4moe.nextn_predict_layers' is 3: the file has 3 blocks",
    ),
    refusal(
        "experts in every zeroth layer",
        "llama4",
        |t| count(t, "interleave_moe_layer_step", 0),
        "metadata key 'llama4.interleave_moe_layer_step' is 0: at least 1 is needed",
    ),
    refusal(
        "windows of no stated width",
        "cohere2",
        |t| t.unset("attention.sliding_window"),
        "tiny.gguf: has no metadata key 'cohere2.attention.sliding_window'",
    ),
    refusal(
        "a logit scale that is not stated",
        "command_r",
        |t| t.unset("logit_scale"),
        "tiny.gguf: has no metadata key 'command-r.logit_scale'",
    ),
    refusal(
        "sinks: missing",
        "gpt_oss",
        |t| t.without("blk.1.attn_sinks.weight"),
        "tensor 'blk.1.attn_sinks.weight' is missing; the architecture needs it with the shape [4]",
    ),
    refusal(
        "sinks: where the architecture has none",
        "llama",
        |t| zeros(t, "blk.1.attn_sinks.weight", &[4]),
        "the file holds 1 tensors that architecture 'llama' does not use, so scoring it would leave something out: blk.1.attn_sinks.weight",
    ),
    refusal(
        "QK norm: where the architecture has none",
        "qwen2",
        |t| zeros(t, "blk.0.attn_q_norm.weight", &[8]),
        "the file holds 1 tensors that architecture 'qwen2' does not use, so scoring it would leave something out: blk.0.attn_q_norm.weight",
    ),
    refusal(
        "QK norm: one for each head in place of one over all",
        "olmo2",
        |t| zeros(t, "blk.0.attn_q_norm.weight", &[8]),
        "tensor 'blk.0.attn_q_norm.weight' has the shape [8]; the hyper-parameters ask for [32]",
    ),
    refusal(
        "position embedding: not for the stated context",
        "gpt2",
        |t| count(t, "context_length", 64),
        "tensor 'position_embd.weight' has the shape [32, 128]; the hyper-parameters ask for [32, 64]",
    ),
    refusal(
        "frequency factors: not one a pair",
        "llama_rope_llama3",
        |t| zeros(t, "rope_freqs.weight", &[8]),
        "tensor 'rope_freqs.weight' has the shape [8]; the hyper-parameters ask for [4]",
    ),
    refusal(
        "frequency factors: LongRoPE's in another architecture",
        "llama",
        |t| zeros(t, "rope_factors_long.weight", &[4]),
        "the file holds 1 tensors that architecture 'llama' does not use, so scoring it would leave something out: rope_factors_long.weight",
    ),
    refusal(
        "norms: one that follows a block is missing",
        "gemma2",
        |t| t.without("blk.1.post_ffw_norm.weight"),
        "tensor 'blk.1.post_ffw_norm.weight' is missing; the architecture needs it with the shape [32]",
    ),
    refusal(
        "norms: one within a block is missing",
        "bitnet",
        |t| t.without("blk.0.ffn_sub_norm.weight"),
        "tensor 'blk.0.ffn_sub_norm.weight' is missing; the architecture needs it with the shape [48]",
    ),
    refusal(
        "factor of a matrix: more than one",
        "bitnet",
        |t| zeros(t, "blk.0.attn_q.scale", &[2]),
        "tensor 'blk.0.attn_q.scale' has the shape [2]; the hyper-parameters ask for [1]",
    ),
    refusal(
        "latent attention: keys and values missing",
        "deepseek2_lite",
        |t| t.without("blk.3.attn_kv_b.weight"),
        "tensor 'blk.3.attn_kv_b.weight' is missing; the architecture needs it with the shape [8, 16]",
    ),
    refusal(
        "latent attention: keys of another width",
        "deepseek2",
        |t| zeros(t, "blk.0.attn_k_b.weight", &[8, 12, 2]),
        "tensor 'blk.0.attn_k_b.weight' has the shape [8, 12, 2]; the hyper-parameters ask for [8, 12, 4]",
    ),
    refusal(
        "experts: missing",
        "qwen3moe",
        |t| t.without("blk.1.ffn_down_exps.weight"),
        "tensor 'blk.1.ffn_down_exps.weight' is missing; the architecture needs it with the shape [16, 32, 8]",
    ),
    refusal(
        "experts: of another width",
        "minimax_m2",
        |t| count(t, "feed_forward_length", 24),
        "tensor 'blk.0.ffn_gate_exps.weight' has the shape [32, 16, 6]; the hyper-parameters ask for [32, 24, 6]",
    ),
    refusal(
        "experts: biases of another number",
        "gpt_oss",
        |t| zeros(t, "blk.0.ffn_up_exps.bias", &[16, 3]),
        "tensor 'blk.0.ffn_up_exps.bias' has the shape [16, 3]; the hyper-parameters ask for [16, 4]",
    ),
    refusal(
        "experts: bias for the choice of another length",
        "ernie4_5_moe",
        |t| zeros(t, "blk.1.exp_probs_b.bias", &[4]),
        "tensor 'blk.1.exp_probs_b.bias' has the shape [4]; the hyper-parameters ask for [6]",
    ),
    refusal(
        "shared expert: missing",
        "hunyuan_moe",
        |t| t.without("blk.0.ffn_up_shexp.weight"),
        "tensor 'blk.0.ffn_up_shexp.weight' is missing; the architecture needs it with the shape [32, 24]",
    ),
    refusal(
        "shared expert: where the architecture has none",
        "llama_moe",
        |t| zeros(t, "blk.0.ffn_up_shexp.weight", &[32, 24]),
        "the file holds 1 tensors that architecture 'llama' does not use, so scoring it would leave something out: blk.0.ffn_up_shexp.weight",
    ),
    refusal(
        "gate: missing, where the network has one",
        "llama",
        |t| t.without("blk.0.ffn_gate.weight"),
        "tensor 'blk.0.ffn_gate.weight' is missing; the architecture needs it with the shape [32, 48]",
    ),
    refusal(
        "gate: missing, where the experts have one",
        "gpt_oss",
        |t| {
            t.without("blk.1.ffn_gate_exps.weight")
                .without("blk.1.ffn_gate_exps.bias")
        },
        "tensor 'blk.1.ffn_gate_exps.weight' is missing; the architecture needs it with the shape [32, 16, 4]",
    ),
    refusal(
        "gate: missing, where the shared expert has one",
        "deepseek2",
        |t| t.without("blk.1.ffn_gate_shexp.weight"),
        "tensor 'blk.1.ffn_gate_shexp.weight' is missing; the architecture needs it with the shape [32, 16]",
    ),
    refusal(
        "gate: where the network has none",
        "starcoder2",
        |t| zeros(t, "blk.0.ffn_gate.weight", &[32, 48]),
        "the file holds 1 tensors that architecture 'starcoder2' does not use, so scoring it would leave something out: blk.0.ffn_gate.weight",
    ),
    refusal(
        "Mamba-1: state of another size",
        "mamba",
        |t| count(t, "ssm.state_size", 16),
        "tensor 'blk.0.ssm_x.weight' has the shape [64, 20]; the hyper-parameters ask for [64, 36]",
    ),
    refusal(
        "Mamba-1: one of three norms missing",
        "jamba",
        |t| t.without("blk.0.ssm_b_norm.weight"),
        "tensor 'blk.0.ssm_b_norm.weight' is missing; the architecture needs it with the shape [8]",
    ),
    refusal(
        "Mamba-2: groups that do not divide the heads",
        "mamba2",
        |t| count(t, "ssm.group_count", 3),
        "metadata key 'mamba2.ssm.group_count' is 3: does not divide the 4 heads",
    ),
    refusal(
        "Mamba-2: heads that do not divide the width",
        "nemotron_h",
        |t| count(t, "ssm.time_step_rank", 3),
        "metadata key 'nemotron_h.ssm.time_step_rank' is 3: does not divide the inner width 64",
    ),
    refusal(
        "Mamba-2: decay missing",
        "granitehybrid",
        |t| t.without("blk.0.ssm_a"),
        "tensor 'blk.0.ssm_a' is missing; the architecture needs it with the shape [1, 4]",
    ),
    refusal(
        "gated delta net: value heads that key heads do not divide",
        "qwen35",
        |t| count(t, "ssm.group_count", 3),
        "metadata key 'qwen35.ssm.time_step_rank' is 4: a multiple of the 3 key heads is needed",
    ),
    refusal(
        "gated delta net: convolution of another width",
        "qwen3next",
        |t| count(t, "ssm.conv_kernel", 3),
        "tensor 'blk.0.ssm_conv1d.weight' has the shape [4, 64]; the hyper-parameters ask for [3, 64]",
    ),
    refusal(
        "short convolution: missing",
        "lfm2",
        |t| t.without("blk.0.shortconv.conv.weight"),
        "tensor 'blk.0.shortconv.conv.weight' is missing; the architecture needs it with the shape [3, 32]",
    ),
    refusal(
        "RWKV: heads that do not divide the width",
        "rwkv6",
        |t| count(t, "wkv.head_size", 48),
        "metadata key 'rwkv6.wkv.head_size' is 48: does not divide the hidden width 128",
    ),
    refusal(
        "RWKV: decay missing",
        "rwkv7",
        |t| t.without("blk.1.time_mix_w0.weight"),
        "tensor 'blk.1.time_mix_w0.weight' is missing; the architecture needs it with the shape [128]",
    ),
    refusal(
        "multi-token prediction: a layer that a key declares to be such a block",
        "llama",
        |t| count(t, "nextn_predict_layers", 1),
        "metadata key 'llama.nextn_predict_layers' is 1: block 1 is none for multi-token prediction, since it has no tensor 'blk.1.nextn.eh_proj.weight'",
    ),
    refusal(
        "what the architecture does not know: attention to what follows",
        "qwen3",
        |t| t.set("attention.causal", Value::Bool(false)),
        "metadata key 'qwen3.attention.causal' is false: architecture 'qwen3' has no such thing, so scoring it would leave something out",
    ),
    refusal(
        "what the architecture does not know: a sliding window",
        "llama",
        |t| count(t, "attention.sliding_window", 16),
        "metadata key 'llama.attention.sliding_window' is 16: architecture 'llama' has no such thing, so scoring it would leave something out",
    ),
    refusal(
        "experts: weights that the architecture makes otherwise",
        "qwen3moe",
        |t| t.set("expert_weights_norm", Value::Bool(false)),
        "metadata key 'qwen3moe.expert_weights_norm' is false: the architecture knows true only",
    ),
    refusal(
        "bias: lost in one layer",
        "qwen2",
        |t| t.without("blk.1.attn_q.bias"),
        "tensor 'blk.1.attn_q.bias' is missing, while 'blk.0.attn_q.bias' is there: without it one layer would be computed differently from the others",
    ),
    refusal(
        "bias: lost, where all models have one",
        "gpt2",
        |t| t.without("output_norm.bias"),
        "tensor 'output_norm.bias' is missing; the architecture needs it with the shape [32]",
    ),
    refusal(
        "head: lost, where no model ties it",
        "gptneox",
        |t| t.without("output.weight"),
        "tensor 'output.weight' is missing; the architecture needs it with the shape [32, 56]",
    ),
    refusal(
        "multi-token prediction: blocks that no key declares",
        "glm4moe",
        |t| t.unset("nextn_predict_layers"),
        "the file holds 4 tensors that architecture 'glm4moe' does not use, so scoring it would leave something out: blk.2.nextn.eh_proj.weight, blk.2.nextn.enorm.weight, blk.2.nextn.hnorm.weight, blk.2.nextn.shared_head_norm.weight",
    ),
];

#[test]
fn every_refusal_says_what_is_wrong() {
    let mut wrong = Vec::new();
    for r in REFUSALS {
        let tiny = (r.change)((by_name(r.case).build)());
        let error = match tiny.model() {
            Ok(_) => "the file was taken".to_owned(),
            Err(e) => e.to_string(),
        };
        if error != r.message {
            wrong.push(format!("{}:\n  {error}\n  {}", r.what, r.message));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
