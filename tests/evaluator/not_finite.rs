//! Broken weights end in an error that says where, never in a number.

use pplx::backend::{LayerWindowModel, Stage};
use pplx::eval::{EvalError, Feed, Geometry, Limits, WindowPlan};
use pplx::gguf::Value;

use crate::support::score_whole;
use crate::support::tiny::{self, Tiny};

/// Scores 6 windows of 16, of which the third to the last hold token 5, first at
/// position 9 of the third.
fn error(tiny: &Tiny, threads: usize, batch: usize) -> EvalError {
    let tokens: Vec<u32> = (tiny::ids(6 * 16).iter().enumerate())
        .map(|(t, &id)| match t {
            41 | 50 | 70 | 90 => 5,
            _ => {
                if id == 5 {
                    6
                } else {
                    id
                }
            }
        })
        .collect();
    let plan = WindowPlan::new(tokens.len(), Geometry::llama_cpp(16), Limits::default()).unwrap();
    let feed = Feed { bos: None, batch };
    score_whole(&tiny.cpu(threads), &tokens, &plan, feed).expect_err("the weights are broken")
}

fn assert_located(name: &str, tiny: &Tiny, window: usize, position: usize, stage: Stage) {
    let want = EvalError::NotFinite {
        window,
        position,
        stage,
    };
    for (threads, batch) in [(1, 1), (2, 1), (2, 4), (3, 6)] {
        assert_eq!(error(tiny, threads, batch), want, "{name}");
    }
}

const BAD: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

#[test]
fn a_weight_of_a_layer() {
    for layer in 0..3 {
        // Of the last layer only the rows are looked at that predict a target.
        let position = if layer == 2 { 8 } else { 0 };
        for part in ["attn_q", "attn_v", "attn_output", "ffn_up", "ffn_down"] {
            let name = format!("blk.{layer}.{part}.weight");
            let tiny = Tiny::llama().edit(&name, |w| w[3] = f32::NAN);
            assert_located(&name, &tiny, 0, position, Stage::Layer(layer));
        }
    }
    let tiny = Tiny::gemma3().edit("blk.1.post_ffw_norm.weight", |w| w[2] = f32::INFINITY);
    assert_located("post norm", &tiny, 0, 0, Stage::Layer(1));
    assert_eq!(
        error(&tiny, 1, 1).to_string(),
        "layer 1 yields a value that is not finite (NaN or infinite), first in window 0 at position \
         0: the weights or the arithmetic are broken there, so there is no perplexity"
    );
}

#[test]
fn the_embedding_of_a_token() {
    for bad in BAD {
        // Row 5, of 16 values a row.
        let tiny = Tiny::llama().edit("token_embd.weight", |w| w[5 * 16 + 2] = bad);
        assert_located("embedding", &tiny, 2, 9, Stage::Embedding);
    }
}

/// The row of a token that is never a target, so that only the sum shows it.
#[test]
fn a_row_of_the_head() {
    for bad in BAD {
        for column in 0..16 {
            let tiny = Tiny::llama().edit("output.weight", |w| w[2 * 16 + column] = bad);
            assert_located(&format!("{bad} at {column}"), &tiny, 0, 8, Stage::Logits);
        }
    }
}

/// A soft-cap would make infinite scores and logits look like any other.
#[test]
fn what_is_capped() {
    for bad in BAD {
        let tiny = Tiny::gemma3()
            .set("attn_logit_softcapping", Value::F32(50.0))
            .edit("blk.1.attn_k_norm.weight", |w| w[3] = bad);
        assert_located(&bad.to_string(), &tiny, 0, 0, Stage::Layer(1));
    }
    for bad in BAD {
        let tiny = Tiny::gemma3()
            .set("final_logit_softcapping", Value::F32(30.0))
            .tensor(
                "output.weight",
                &[16, tiny::vocabulary().len() as u64],
                vec![0.25; 16 * tiny::vocabulary().len()],
            )
            .edit("output.weight", |w| w[2 * 16 + 1] = bad);
        assert_located(&bad.to_string(), &tiny, 0, 8, Stage::Logits);
    }
}

#[test]
fn ids_outside_the_vocabulary() {
    let cpu = Tiny::llama().cpu(1);
    let n_vocab = cpu.n_vocab() as u32;
    let plan = WindowPlan::new(64, Geometry::llama_cpp(16), Limits::default()).unwrap();
    let feed = Feed {
        bos: None,
        batch: 4,
    };
    let message = |tokens: &[u32]| {
        score_whole(&cpu, tokens, &plan, feed)
            .unwrap_err()
            .to_string()
    };
    for (at, place) in [
        (0, "window 0, position 0"),
        (37, "window 2, position 5"),
        // A window's last token is a target only.
        (31, "window 1, position 15"),
    ] {
        let mut tokens = tiny::ids(64);
        tokens[at] = n_vocab;
        assert_eq!(
            message(&tokens),
            format!(
                "{place}: token id {n_vocab} is outside the model's vocabulary of {n_vocab}; were \
                 the tokens made for another model?"
            )
        );
    }
}

#[test]
fn layers_that_are_none() {
    let cpu = Tiny::llama().cpu(1);
    let message = |range| cpu.layers(range).err().map(|e| e.to_string());
    assert_eq!(
        message(1..4).unwrap(),
        "layers 1..4 are no part of the model's 3 layers"
    );
    assert_eq!(message(3..3), None);
}
