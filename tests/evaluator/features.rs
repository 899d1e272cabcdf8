//! Every feature of an architecture does what the formulas say, and can be seen
//! in the numbers: a change that could not be seen could not be tested.

use pplx::eval::Geometry;
use pplx::gguf::Value;

use super::reference;
use crate::support::tiny::{self, BOS, Random, Tiny};
use crate::support::{bits, score};

const LEN: usize = 48;

/// NLLs of one window, in which every token but the first is scored.
fn nll(tiny: &Tiny) -> Vec<f64> {
    let geometry = Geometry::teacher_forced(LEN);
    let scores = score(&tiny.cpu(1), &tiny::ids(LEN), geometry, 1, None, 1);
    scores[0].nll().collect()
}

fn largest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f64::max)
}

/// Each variation agrees with the second implementation and differs from the
/// plain model by far more than the two implementations do.
fn check(plain: &Tiny, variations: Vec<(&str, Tiny)>) {
    let tokens = tiny::ids(LEN);
    let base = nll(plain);
    let off = largest(&base, &reference::nll(plain, &tokens));
    println!("{:28} off by {off:.1e}", plain.architecture);
    assert!(off < 2e-5, "{}: {off:e}", plain.architecture);
    let mut wrong = Vec::new();
    for (name, tiny) in variations {
        let ours = nll(&tiny);
        let off = largest(&ours, &reference::nll(&tiny, &tokens));
        let moved = largest(&ours, &base);
        println!("{name:28} off by {off:.1e}, moves by {moved:.1e}");
        if off > 2e-5 {
            wrong.push(format!("{name}: differs from the formulas by {off:.1e}"));
        }
        if moved < 2e-3 {
            wrong.push(format!("{name}: moves nothing by more than {moved:.1e}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn float(x: f32) -> Value {
    Value::F32(x)
}

fn scaled(kind: &str, factor: f32) -> Tiny {
    Tiny::llama()
        .set("rope.scaling.type", Value::String(kind.into()))
        .set("rope.scaling.factor", float(factor))
        .set("rope.scaling.original_context_length", Value::U32(64))
}

/// The llama with a bias on each output of the projection `part`.
fn biased(part: &str) -> Tiny {
    let mut tiny = Tiny::llama();
    let mut random = Random::new(5);
    for i in 0..3 {
        let name = format!("blk.{i}.{part}");
        let weight = tiny
            .tensors
            .iter()
            .find(|(n, ..)| *n == format!("{name}.weight"));
        let n = weight.expect("a weight").1[1];
        let values = (0..n).map(|_| random.next() - 0.5).collect();
        tiny = tiny.tensor(&format!("{name}.bias"), &[n], values);
    }
    tiny
}

#[test]
fn llama() {
    let freqs = vec![1.0, 1.5, 4.0, 8.0];
    check(
        &Tiny::llama(),
        vec![
            (
                "rope base",
                Tiny::llama().set("rope.freq_base", float(500.0)),
            ),
            ("linear scaling", scaled("linear", 4.0)),
            ("yarn scaling", scaled("yarn", 4.0)),
            ("yarn, factor 2", scaled("yarn", 2.0)),
            (
                "llama3 factors",
                Tiny::llama().tensor("rope_freqs.weight", &[4], freqs),
            ),
            (
                "attention factor",
                Tiny::llama().set("rope.scaling.attn_factor", float(1.2)),
            ),
            ("tied head", Tiny::llama().without("output.weight")),
            (
                "norm epsilon",
                Tiny::llama().set("attention.layer_norm_rms_epsilon", float(0.1)),
            ),
            ("query bias", biased("attn_q")),
            // A key bias alone would cancel in the softmax, but for RoPE.
            ("key bias", biased("attn_k")),
            ("value bias", biased("attn_v")),
            ("output bias", biased("attn_output")),
            ("gate bias", biased("ffn_gate")),
            ("up bias", biased("ffn_up")),
            ("down bias", biased("ffn_down")),
        ],
    );
}

#[test]
fn scaling_of_the_kind_none_is_none() {
    assert_eq!(nll(&scaled("none", 4.0)), nll(&Tiny::llama()));
    assert_eq!(nll(&scaled("linear", 1.0)), nll(&Tiny::llama()));
}

#[test]
fn gemma3() {
    let ones = |suffix| Tiny::gemma3().edit(suffix, |w| w.fill(1.0));
    check(
        &Tiny::gemma3(),
        vec![
            (
                "no sliding window",
                Tiny::gemma3().set("attention.sliding_window", Value::U32(LEN as u32)),
            ),
            (
                "window one shorter",
                Tiny::gemma3().set("attention.sliding_window", Value::U32(5)),
            ),
            (
                "every other layer slides",
                Tiny::gemma3().set("attention.sliding_window_pattern", Value::U32(2)),
            ),
            (
                "local rope base",
                Tiny::gemma3().set("rope.freq_base_swa", float(100.0)),
            ),
            (
                "global rope base",
                Tiny::gemma3().set("rope.freq_base", float(100.0)),
            ),
            (
                "global rope scaling",
                Tiny::gemma3()
                    .set("rope.scaling.type", Value::String("linear".into()))
                    .set("rope.scaling.factor", float(8.0)),
            ),
            ("query norm", ones("attn_q_norm.weight")),
            ("key norm", ones("attn_k_norm.weight")),
            ("norm after attention", ones("post_attention_norm.weight")),
            ("norm after the FFN", ones("post_ffw_norm.weight")),
            (
                "attention soft-cap",
                Tiny::gemma3().set("attn_logit_softcapping", float(1.5)),
            ),
            (
                "final soft-cap",
                Tiny::gemma3().set("final_logit_softcapping", float(3.0)),
            ),
            (
                "head of its own",
                Tiny::gemma3().tensor(
                    "output.weight",
                    &[16, tiny::vocabulary().len() as u64],
                    (0..16 * tiny::vocabulary().len())
                        .map(|i| (i % 13) as f32 / 13.0 - 0.5)
                        .collect(),
                ),
            ),
        ],
    );
}

#[test]
fn grouped_heads_are_repeated_heads() {
    /// KV heads written out, one for each query head.
    fn repeated(map: [usize; 4]) -> Tiny {
        let spread = |values: &[f32]| -> Vec<f32> {
            let head = values.len() / 2;
            map.iter()
                .flat_map(|&h| &values[h * head..][..head])
                .copied()
                .collect()
        };
        let mut tiny = Tiny::llama().set("attention.head_count_kv", Value::U32(4));
        for (name, dims, values) in &mut tiny.tensors {
            if name.ends_with("attn_k.weight") || name.ends_with("attn_v.weight") {
                dims[1] *= 2;
                *values = spread(values);
            }
        }
        tiny
    }
    let grouped = nll(&Tiny::llama());
    assert_eq!(nll(&repeated([0, 0, 1, 1])), grouped);
    assert!(largest(&nll(&repeated([0, 1, 0, 1])), &grouped) > 2e-3);
}

#[test]
fn bos_replaces_the_first_token_and_is_never_a_target() {
    let cpu = Tiny::llama().cpu(1);
    let mut tokens = tiny::ids(110);
    let geometry = Geometry::sliding_window(40, Some(30), Some(1));
    let plain = score(&cpu, &tokens, geometry, 2, None, 2);
    let with_bos = score(&cpu, &tokens, geometry, 2, Some(BOS), 2);
    for (a, b) in plain.iter().zip(&with_bos) {
        let (a, b): (Vec<f64>, Vec<f64>) = (a.nll().collect(), b.nll().collect());
        assert!(largest(&a, &b) > 2e-3);
    }
    // The second window's first token is a target of the first one's.
    tokens[0] = BOS;
    let by_hand = score(&cpu, &tokens, geometry, 1, None, 1);
    assert_eq!(bits(&with_bos[..1]), bits(&by_hand));
    tokens[30] = BOS;
    let by_hand = score(&cpu, &tokens[30..], geometry, 1, None, 1);
    assert_eq!(bits(&with_bos[1..]), bits(&by_hand));
}
