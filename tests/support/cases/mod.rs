//! A tiny seeded model for every architecture, with hyper-parameters chosen so
//! that each feature shows in the numbers. `tests/fixtures/arch` holds what
//! llama.cpp makes of them.

pub mod builder;
mod dense;
mod experts;
mod layer_norm;
mod recurrent;
mod state_space;

use std::path::{Path, PathBuf};

use pplx::eval::{Geometry, Mode};
use pplx::gguf::Value;

use crate::support::tiny::{self, BOS, Tiny};

pub struct Case {
    pub name: &'static str,
    pub build: fn() -> Tiny,
}

macro_rules! cases {
    ($($family:ident: $($name:ident)+;)+) => {
        &[$($(Case { name: stringify!($name), build: $family::$name }),+),+]
    };
}

pub const CASES: &[Case] = cases! {
    dense: bitnet gemma gemma2 gemma3 gemma3_rope_scaling granite llama llama_bias_fused
        llama_rope_linear llama_rope_llama3 llama_rope_yarn llama_tied_bos olmo2 olmo3 phi3
        phi3_longrope_long phi3_longrope_short qwen2 qwen3;
    experts: deepseek2 deepseek2_lite deepseek2_yarn ernie4_5_moe glm4moe gpt_oss granitemoe
        hunyuan_moe llama4 llama_moe minimax_m2 qwen2moe qwen3moe;
    layer_norm: cohere2 command_r falcon falcon_40b gpt2 gptneox gptneox_sequential stablelm
        stablelm_12b starcoder2;
    recurrent: lfm2 lfm2moe qwen35 qwen35_mtp qwen35moe qwen3next qwen3next_legacy rwkv6 rwkv7;
    state_space: falcon_h1 granitehybrid jamba mamba mamba2 nemotron_h nemotron_h_moe;
};

pub fn by_name(name: &str) -> &'static Case {
    let found = CASES.iter().find(|c| c.name == name);
    found.unwrap_or_else(|| panic!("no case is {name}"))
}

/// Tokens of a window; all but the first are targets.
pub const N_CTX: usize = 32;
pub const N_WINDOWS: usize = 2;

pub const GEOMETRY: Geometry = Geometry {
    n_ctx: N_CTX,
    mode: Mode::SlidingWindow {
        stride: N_CTX,
        unscored_prefix: 1,
    },
};

pub fn tokens() -> Vec<u32> {
    tiny::ids(N_WINDOWS * N_CTX)
}

/// The first token of each window, where the file asks for one.
pub fn bos(tiny: &Tiny) -> Option<u32> {
    let add = ("tokenizer.ggml.add_bos_token".to_owned(), Value::Bool(true));
    tiny.meta.contains(&add).then_some(BOS)
}

/// Where llama.cpp's figures lie.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/arch")
}
