//! What differs between architectures and no key of a file says.

/// Those whose norms subtract the mean. The others have RMS norms.
pub(super) const LAYER_NORM: &[&str] = &[
    "codeshell",
    "cohere2",
    "command-r",
    "falcon",
    "gpt2",
    "gptneox",
    "jais2",
    "nemotron",
    "olmo",
    "orion",
    "phi2",
    "rwkv6",
    "rwkv7",
    "stablelm",
    "starcoder",
    "starcoder2",
];

/// Those whose file says by its epsilon which norm it has.
pub(super) const EITHER_NORM: &[&str] = &["cohere2moe", "nemotron_h", "nemotron_h_moe"];

/// Those whose head has a matrix of its own in every model (llama.cpp asks for it).
pub(super) const UNTIED: &[&str] = &[
    "apertus",
    "baichuan",
    "bailingmoe",
    "bailingmoe2",
    "codeshell",
    "dots1",
    "exaone-moe",
    "gpt-oss",
    "gptneox",
    "internlm2",
    "mellum",
    "minimax-m2",
    "nemotron",
    "olmo2",
    "olmoe",
    "orion",
    "phi2",
    "phimoe",
    "qwen",
    "qwen2moe",
    "rwkv6",
    "rwkv7",
    "stablelm",
    "xverse",
];

/// Those that rotate every pair of a head (llama.cpp asks for it).
pub(super) const WHOLE_HEAD_ROPE: &[&str] = &["deci", "falcon", "llama"];

/// Biases that every model of an architecture has (llama.cpp asks for them). Without
/// this list a file that lost one would be scored as if it were 0.
pub(super) const BIASES: &[(&str, &[&str])] = &[
    (
        "codeshell",
        &[
            "output_norm",
            "attn_norm",
            "attn_output",
            "ffn_norm",
            "ffn_down",
            "ffn_up",
        ],
    ),
    ("falcon", &["output_norm", "attn_norm"]),
    ("gpt2", GPT2_BIASES),
    ("gptneox", GPT2_BIASES),
    (
        "jais2",
        &[
            "output_norm",
            "attn_norm",
            "attn_output",
            "ffn_norm",
            "ffn_up",
            "ffn_down",
        ],
    ),
    ("mamba2", &["ssm_conv1d"]),
    ("minimax-m2", &["exp_probs_b"]),
    ("nemotron", &["output_norm", "attn_norm", "ffn_norm"]),
    (
        "gpt-oss",
        &[
            "attn_output",
            "ffn_gate_inp",
            "ffn_gate_exps",
            "ffn_down_exps",
            "ffn_up_exps",
        ],
    ),
    ("orion", &["output_norm", "attn_norm", "ffn_norm"]),
    ("pangu-embedded", &["attn_output"]),
    (
        "phi2",
        &[
            "output_norm",
            "output",
            "attn_norm",
            "attn_output",
            "ffn_down",
            "ffn_up",
        ],
    ),
    (
        "phimoe",
        &[
            "output_norm",
            "output",
            "attn_norm",
            "attn_output",
            "ffn_norm",
        ],
    ),
    ("qwen", &["attn_qkv"]),
    ("rwkv6", RWKV_BIASES),
    ("rwkv7", RWKV_BIASES),
    ("stablelm", &["output_norm", "attn_norm"]),
    ("starcoder", GPT2_BIASES),
    (
        "starcoder2",
        &[
            "output_norm",
            "attn_norm",
            "attn_output",
            "ffn_norm",
            "ffn_down",
        ],
    ),
];

const GPT2_BIASES: &[&str] = &[
    "output_norm",
    "attn_norm",
    "attn_qkv",
    "attn_output",
    "ffn_norm",
    "ffn_down",
    "ffn_up",
];
const RWKV_BIASES: &[&str] = &[
    "token_embd_norm",
    "output_norm",
    "attn_norm",
    "attn_norm_2",
    "time_mix_ln",
];
