//! A model whose logits are a table of bigrams, against the cross-entropy that
//! follows from the table.

use std::f64::consts::LN_2;

use pplx::backend::TokenScore;
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{Geometry, Limits};
use pplx::gguf::Value;
use pplx::plan::Placement;
use pplx::run::{Control, LoadedModel, Settings, measure};
use pplx::tokenizer;

use crate::support::tiny::{BOS, Tiny, piece_bytes, text, vocabulary};

/// The logit of `next` after `token`: quarters, so that nothing is rounded.
pub fn logit(token: usize, next: usize) -> f32 {
    ((token * 7 + next * next * 5 + token * next) % 23) as f32 / 4.0 - 2.0
}

/// One-hot embeddings, blocks that add nothing, and the table as the head. An
/// embedding's mean square is `1/d`; with `eps` of `3/d` the final norm divides by
/// `2/√d`, which its weight undoes. With `d = 64` all of this is exact in f32.
pub fn bigram_model(logit: impl Fn(usize, usize) -> f32) -> Tiny {
    let (n_vocab, d) = (vocabulary().len(), 64);
    let mut tiny = Tiny::llama()
        .unset("attention.key_length")
        .unset("attention.value_length")
        .set("embedding_length", Value::U32(d as u32))
        .set("attention.layer_norm_rms_epsilon", Value::F32(3.0 / 64.0));
    let wide: [(&str, usize, usize); 7] = [
        ("attn_q", d, d),
        ("attn_k", d, d / 2),
        ("attn_v", d, d / 2),
        ("attn_output", d, d),
        ("ffn_gate", d, 24),
        ("ffn_up", d, 24),
        ("ffn_down", 24, d),
    ];
    for i in 0..3 {
        for (part, n_in, n_out) in wide {
            let silent = part == "attn_output" || part == "ffn_down";
            let values = (0..n_in * n_out).map(|k| match silent {
                true => 0.0,
                false => (k % 7) as f32 - 3.0,
            });
            tiny = tiny.tensor(
                &format!("blk.{i}.{part}.weight"),
                &[n_in as u64, n_out as u64],
                values.collect(),
            );
        }
        for norm in ["attn_norm", "ffn_norm"] {
            tiny = tiny.tensor(&format!("blk.{i}.{norm}.weight"), &[d as u64], vec![1.0; d]);
        }
    }
    let dims = [d as u64, n_vocab as u64];
    let mut one_hot = vec![0.0; d * n_vocab];
    let mut head = vec![0.0; d * n_vocab];
    for a in 0..n_vocab {
        one_hot[a * d + a] = 1.0;
        for b in 0..n_vocab {
            head[b * d + a] = logit(a, b);
        }
    }
    tiny.tensor("token_embd.weight", &dims, one_hot)
        .tensor("output_norm.weight", &[d as u64], vec![0.25; d])
        .tensor("output.weight", &dims, head)
}

/// `−ln p(next | token)`.
fn nll(token: u32, next: u32) -> f64 {
    let (token, next) = (token as usize, next as usize);
    let sum: f64 = (0..vocabulary().len())
        .map(|b| f64::from(logit(token, b)).exp())
        .sum();
    sum.ln() - f64::from(logit(token, next))
}

/// Rank, top token and entropy from the table. Its quarters tie often.
fn check_rest(ours: &TokenScore, before: u32, target: u32) {
    let n_vocab = vocabulary().len();
    let logit = |next: usize| logit(before as usize, next);
    let above = (0..n_vocab).filter(|&b| logit(b) > logit(target as usize));
    assert_eq!(ours.rank as usize, above.count());
    let top = (0..n_vocab).fold(0, |top, b| if logit(b) > logit(top) { b } else { top });
    assert_eq!(ours.top_id as usize, top);
    let all: Vec<f64> = (0..n_vocab).map(|b| nll(before, b as u32)).collect();
    assert!((f64::from(ours.top_p) - (-all[top]).exp()).abs() < 1e-7);
    let entropy: f64 = all.iter().map(|x| x * (-x).exp()).sum();
    assert!((f64::from(ours.entropy) - entropy).abs() < 1e-6);
}

#[test]
fn cross_entropy_of_a_bigram_table() {
    let folder = tempfile::tempdir().unwrap();
    let (model, corpus) = (folder.path().join("m.gguf"), folder.path().join("c.txt"));
    bigram_model(logit).write(&model);
    std::fs::write(&corpus, text(300)).unwrap();
    let loaded = LoadedModel::open(&model, &tokenizer::Options::default(), 2).unwrap();
    let tokens = tokenize_file(&corpus, loaded.tokenizer().unwrap(), DEFAULT_CHUNK)
        .unwrap()
        .ids;
    assert_eq!(tokens[0], BOS);

    for geometry in [
        Geometry::llama_cpp(32),
        Geometry::sliding_window(32, Some(20), Some(3)),
        Geometry::teacher_forced(128),
    ] {
        let bos = geometry.mode.substitutes_bos().then_some(BOS);
        let settings = Settings {
            geometry,
            limits: Limits::default(),
            bos,
            batch: Some(3),
        };
        let control = Control::default();
        let m = loaded
            .placed(Placement::CPU, &control, |subject| {
                measure(
                    subject,
                    loaded.text(&tokens),
                    &settings,
                    &control,
                    &mut |_| (),
                )
            })
            .unwrap();
        // The definition of the score, window by window.
        let (mut all, mut bytes) = (Vec::new(), 0);
        for s in &m.scores {
            for (target, ours) in s.window.targets().zip(&s.tokens) {
                let first = target - 1 == s.window.start;
                let before = if first { BOS } else { tokens[target - 1] };
                let want = nll(before, tokens[target]);
                check_rest(ours, before, tokens[target]);
                let ours = ours.nll;
                assert!(
                    (ours - want).abs() < 1e-9,
                    "target {target}: {ours}, not {want}"
                );
                all.push(want);
                bytes += piece_bytes(tokens[target]);
            }
        }
        let n = all.len() as f64;
        assert!(n > 400.0 && n as usize == m.scored);
        let mean = all.iter().sum::<f64>() / n;
        let squares = all.iter().map(|x| x * x).sum::<f64>() / n;
        let ppl = mean.exp();
        let close =
            |ours: f64, want: f64| assert!((ours - want).abs() < 1e-9 * want, "{ours} {want}");
        close(m.figures.mean_nll, mean);
        close(m.figures.ppl, ppl);
        // llama-perplexity's own formula.
        close(
            m.figures.ppl_err.unwrap(),
            ppl * ((squares - mean * mean) / (n - 1.0)).sqrt(),
        );
        close(
            m.figures.bits_per_byte.unwrap(),
            mean * n / (LN_2 * bytes as f64),
        );
    }
}

/// In one block the scored bytes are the file's, and the space that the
/// tokenizer puts before it, less the first token's: none, since it is BOS.
#[test]
fn bytes_are_those_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let (model, corpus) = (folder.path().join("m.gguf"), folder.path().join("c.txt"));
    bigram_model(logit).write(&model);
    let text = text(25);
    std::fs::write(&corpus, &text).unwrap();
    let loaded = LoadedModel::open(&model, &tokenizer::Options::default(), 1).unwrap();
    let tokens = tokenize_file(&corpus, loaded.tokenizer().unwrap(), DEFAULT_CHUNK).unwrap();
    assert!(tokens.ids.len() < 128, "{}", tokens.ids.len());
    let settings = Settings {
        geometry: Geometry::teacher_forced(128),
        limits: Limits::default(),
        bos: Some(BOS),
        batch: None,
    };
    let control = Control::default();
    let m = loaded
        .placed(Placement::CPU, &control, |subject| {
            measure(
                subject,
                loaded.text(&tokens.ids),
                &settings,
                &control,
                &mut |_| (),
            )
        })
        .unwrap();
    assert_eq!(m.windows.len(), 1);
    assert_eq!(m.windows[0].target_bytes, text.len() as u64 + 1);
}
