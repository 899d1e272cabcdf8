//! Files that cannot be scored exactly are refused, and the refusal says why.

use pplx::gguf::{Array, BlockType, Value};
use pplx::model::supported_architectures;

use crate::support::tiny::{Tiny, build};

fn refusal(tiny: &Tiny) -> String {
    match tiny.model() {
        Ok(_) => panic!("the file was taken"),
        Err(e) => e.to_string(),
    }
}

fn text(s: &str) -> Value {
    Value::String(s.to_owned())
}

#[test]
fn the_models_themselves_are_fine() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let model = tiny.model().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(model.architecture, tiny.architecture);
        assert_eq!((model.n_layer(), model.n_embd), (3, 16));
    }
}

#[test]
fn unknown_architectures() {
    let mut tiny = Tiny::llama();
    tiny.architecture = "t5";
    assert_eq!(
        refusal(&tiny),
        format!(
            "architecture 't5' is not supported; supported are {}",
            supported_architectures().join(", ")
        )
    );
    assert!(
        ["gemma3", "llama"]
            .iter()
            .all(|name| supported_architectures().contains(name))
    );
}

#[test]
fn tensors() {
    let llama = Tiny::llama;
    let cases = [
        (
            llama().without("blk.1.attn_v.weight"),
            "tensor 'blk.1.attn_v.weight' is missing; the architecture needs it with the shape [16, 16]",
        ),
        (
            llama().without("token_embd.weight"),
            "tensor 'token_embd.weight' is missing",
        ),
        (
            Tiny::gemma3().without("blk.2.attn_q_norm.weight"),
            "tensor 'blk.2.attn_q_norm.weight' is missing; the architecture needs it with the shape [12]",
        ),
        (
            llama().tensor("blk.0.ffn_up.weight", &[24, 16], vec![0.0; 24 * 16]),
            "tensor 'blk.0.ffn_up.weight' has the shape [24, 16]; the hyper-parameters ask for [16, 24]",
        ),
        (
            llama().tensor("blk.0.attn_q.bias", &[31], vec![0.0; 31]),
            "tensor 'blk.0.attn_q.bias' has the shape [31]; the hyper-parameters ask for [32]",
        ),
        (
            llama().tensor("token_embd.weight", &[16, 55], vec![0.0; 16 * 55]),
            "tensor 'token_embd.weight' has the shape [16, 55]; the hyper-parameters ask for [16, 56]",
        ),
        (
            llama().tensor("blk.2.surplus.weight", &[8], vec![1.0; 8]),
            "the file holds 1 tensors that architecture 'llama' does not use, so scoring it would \
             leave something out: blk.2.surplus.weight",
        ),
        (
            llama().set("block_count", Value::U32(2)),
            "the file holds 9 tensors that architecture 'llama' does not use",
        ),
    ];
    for (tiny, expected) in cases {
        let error = tiny
            .model()
            .err()
            .map_or("no error".to_owned(), |e| e.to_string());
        assert!(error.contains(expected), "{error}\n  {expected}");
    }
}

#[test]
fn hyper_parameters() {
    let llama = Tiny::llama;
    let cases = [
        (
            llama().set("attention.head_count_kv", Value::U32(3)),
            "metadata key 'llama.attention.head_count_kv' is 3: does not divide the 4 query heads",
        ),
        (
            llama().set("attention.head_count_kv", Value::U32(0)),
            "tensor 'blk.0.attn_k.weight' has the shape [16, 16]; the hyper-parameters ask for [16, 0]",
        ),
        (
            llama().set("attention.head_count", Value::Array(Array::I32(vec![4, 4]))),
            "metadata key 'llama.attention.head_count' is an array of 2: the model has 3 layers",
        ),
        (
            llama().set("block_count", Value::U32(u32::MAX)),
            "metadata key 'llama.block_count' is 4294967295: larger than any model",
        ),
        (llama().unset("block_count"), "llama.block_count"),
        (
            llama().unset("attention.layer_norm_rms_epsilon"),
            "llama.attention.layer_norm_rms_epsilon",
        ),
        (
            llama().set("rope.dimension_count", Value::U32(10)),
            "metadata key 'llama.rope.dimension_count' is 10: an even number up to the head width 8",
        ),
        (
            llama().set("rope.scaling.type", text("longrope")),
            "RoPE scaling 'longrope' is not supported; supported are none, linear, yarn",
        ),
        (
            llama().set("rope.scaling.factor", Value::F32(-2.0)),
            "metadata key 'llama.rope.scaling.factor' is -2: a positive number is needed",
        ),
        (
            llama().set("rope.freq_base", text("high")),
            "llama.rope.freq_base",
        ),
        (
            Tiny::gemma3().set(
                "attention.sliding_window_pattern",
                Value::Array(Array::Bool(vec![true])),
            ),
            "metadata key 'gemma3.attention.sliding_window_pattern' is an array of 1: the model has 3 layers",
        ),
    ];
    for (tiny, expected) in cases {
        let error = tiny
            .model()
            .err()
            .map_or("no error".to_owned(), |e| e.to_string());
        assert!(error.contains(expected), "{error}\n  {expected}");
    }
}

#[test]
fn block_types_without_a_decoder() {
    let mut writer = Tiny::llama().without("blk.1.ffn_gate.weight").writer();
    let data = vec![0; 16 * 24];
    writer.tensor("blk.1.ffn_gate.weight", &[16, 24], BlockType::I8, data);
    let error = build(&writer).err().expect("a refusal").to_string();
    assert_eq!(
        error,
        "tensor 'blk.1.ffn_gate.weight' has the block type I8, which cannot be decoded"
    );
}
