//! The CPU is the judge: per-token NLLs of every architecture.

use pplx::backend::cuda::{CUDA, Precision};
use pplx::backend::{BackendError, CPU, Interrupt, LayerWindowModel, Partition, TokenScore};
use pplx::eval::{Geometry, Mode, WindowScore};
use pplx::model::{Gating, HeadSharing, Mixer, MlaKv, MlaQuery, Model};

use crate::cases::{CASES, GEOMETRY, bos, by_name, tokens};
use crate::cuda_standin::standin;
use crate::harness::{Both, Text, difference};
use crate::support::{SMOLLM2, ids, model, shared, tiny};

/// Nats a token.
const BOUND: f64 = 2e-4;

/// The largest difference of a token's NLL on both devices.
fn error(both: &Both, text: Text) -> f64 {
    let n = both.model.n_layer();
    let on = |device| text.score(both, Partition::whole(device, n));
    let want = on(CPU).unwrap_or_else(|e| panic!("{e}"));
    let got = on(CUDA).unwrap_or_else(|e| panic!("{e}"));
    assert!(!want.is_empty());
    companions(&want, &got);
    difference(&want, &got)
}

/// What comes with an NLL: numbers within rounding, and the same ranks and most
/// likely tokens but where two logits are that close.
fn companions(want: &[WindowScore], got: &[WindowScore]) {
    let (mut n, mut others) = (0, 0);
    let tokens = |scores: &[WindowScore]| -> Vec<TokenScore> {
        scores.iter().flat_map(|s| s.tokens.clone()).collect()
    };
    for (a, b) in tokens(want).iter().zip(tokens(got)) {
        assert!((a.top_p - b.top_p).abs() < 1e-4, "{a:?} {b:?}");
        assert!((a.entropy - b.entropy).abs() < 2e-4, "{a:?} {b:?}");
        assert!(a.rank.abs_diff(b.rank) < 2, "{a:?} {b:?}");
        n += 1;
        others += usize::from((a.rank, a.top_id) != (b.rank, b.top_id));
    }
    assert!(others <= n / 50, "{others} of {n}");
}

#[test]
fn every_architecture() {
    let Some(_standin) = standin() else { return };
    let tokens = tokens();
    let mut failed = Vec::new();
    for case in CASES {
        let tiny = (case.build)();
        let text = Text {
            tokens: &tokens,
            geometry: GEOMETRY,
            bos: bos(&tiny),
            batch: 2,
        };
        // What stays on the page should the comparison end here.
        println!("{}", case.name);
        let max = error(&Both::tiny(&tiny), text);
        println!("{:24} max {max:.2e}", case.name);
        if max.is_nan() || max > BOUND {
            failed.push((case.name, max));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// A number for each kind of mixer, and each form of it that has an order of
/// operations of its own. A new one does not compile until it has a number here.
fn form(mixer: &Mixer) -> Vec<usize> {
    match mixer {
        Mixer::Attention(_) => vec![0],
        Mixer::Mla(m) => {
            let query = match m.query {
                MlaQuery::Direct(_) => 1,
                MlaQuery::LowRank { .. } => 2,
            };
            let kv = match m.kv {
                MlaKv::Absorbed { .. } => 3,
                MlaKv::Expanded { .. } => 4,
            };
            vec![query, kv]
        }
        Mixer::Ffn(_) => vec![5],
        Mixer::Moe(m) => {
            let weighed = if m.weigh_input { 6 } else { 7 };
            let shared = match &m.shared {
                None => 8,
                Some(s) if s.gate.is_none() => 9,
                Some(_) => 10,
            };
            let gating = match m.gating {
                Gating::Softmax => 11,
                Gating::Sigmoid => 12,
                Gating::SoftmaxOfChosen => 13,
            };
            vec![weighed, shared, gating]
        }
        Mixer::Mamba1(m) => vec![if m.norms.is_some() { 14 } else { 15 }],
        Mixer::Mamba2(m) => vec![if m.norm.is_some() { 16 } else { 17 }],
        Mixer::DeltaNet(m) => vec![match m.sharing {
            HeadSharing::Cyclic => 18,
            HeadSharing::Blocks => 19,
        }],
        Mixer::ShortConv(_) => vec![20],
        Mixer::Rwkv6TimeMix(_) => vec![21],
        Mixer::Rwkv7TimeMix(_) => vec![22],
        Mixer::ChannelMix(_) => vec![23],
    }
}

/// The order of a mixer's operations is written twice, for the CPU and for CUDA.
/// `every_architecture` holds the two together, for every form that there is.
#[test]
fn every_form_of_a_mixer_has_a_case() {
    const N_FORMS: usize = 24;
    let mut seen = [false; N_FORMS];
    for case in CASES {
        let model = (case.build)().model().unwrap_or_else(|e| panic!("{e}"));
        let blocks = model.layers.iter().flat_map(|l| &l.blocks);
        for branch in blocks.flat_map(|b| &b.branches) {
            form(&branch.mixer).into_iter().for_each(|i| seen[i] = true);
        }
    }
    let missing: Vec<usize> = (0..N_FORMS).filter(|&i| !seen[i]).collect();
    assert!(missing.is_empty(), "no case has the forms {missing:?}");
}

/// The larger models of `../shared/arch`: windows of 64.
#[test]
fn architecture_suite() {
    let (Some(root), Some(_standin)) = (shared("arch"), standin()) else {
        return;
    };
    let all = ids(&root.join("ids.txt"));
    let supported = pplx::model::supported_architectures();
    let mut index = csv::Reader::from_path(root.join("INDEX.csv")).expect("an index");
    let (mut cases, mut failed) = (0, Vec::new());
    for case in index.records() {
        let case = case.expect("a row");
        let name = &case[0];
        if !supported.contains(&&case[1]) {
            continue;
        }
        cases += 1;
        let model = Model::open(root.join(format!("{name}.gguf"))).expect("a model");
        let both = Both::new(model, Precision::F32).unwrap_or_else(|e| panic!("{e}"));
        let text = Text {
            tokens: &all[..128],
            geometry: Geometry {
                n_ctx: 64,
                mode: Mode::SlidingWindow {
                    stride: 64,
                    unscored_prefix: 1,
                },
            },
            bos: (name == "llama_tied_bos").then_some(1),
            batch: 2,
        };
        let max = error(&both, text);
        println!("{name:24} max {max:.2e}");
        if max.is_nan() || max > BOUND {
            failed.push((name.to_owned(), max));
        }
    }
    assert_eq!(cases, 89, "cases of the suite");
    assert!(failed.is_empty(), "{failed:?}");
}

/// A real model's first two windows of a real text.
#[test]
fn smollm2() {
    let (Some(path), Some(root)) = (model(SMOLLM2), shared("reference")) else {
        return;
    };
    let Some(_standin) = standin() else { return };
    let tokens = ids(&root.join("smollm2-q4_1.tokens"));
    let text = Text {
        tokens: &tokens[..128],
        geometry: Geometry::llama_cpp(64),
        bos: None,
        batch: 2,
    };
    let model = Model::open(&path).expect("a model");
    let both = Both::new(model, Precision::F32).unwrap_or_else(|e| panic!("{e}"));
    let max = error(&both, text);
    println!("max {max:.2e}");
    assert!(max < BOUND, "{max:e}");
}

/// Logits for comparisons of two models: any part of the vocabulary.
#[test]
fn logits() {
    let Some(_standin) = standin() else { return };
    for name in ["llama", "gemma2", "gpt2"] {
        let both = Both::tiny(&(by_name(name).build)());
        let ids = tiny::ids(24);
        let hidden = both.cpu.embed(&[&ids], 24).unwrap();
        let rows = both.cpu.head_rows(&hidden, &[0, 7, 23]);
        assert_eq!(both.cuda.head_rows(&hidden, &[0, 7, 23]), rows);
        let n = both.cpu.n_vocab();
        for vocab in [0..n, 3..n - 1, 5..6, n..n] {
            let interrupt = Interrupt::default();
            let want = both.cpu.logits(&rows, vocab.clone(), &interrupt).unwrap();
            let got = both.cuda.logits(&rows, vocab.clone(), &interrupt).unwrap();
            assert_eq!((want.len(), got.len()), (3 * vocab.len(), 3 * vocab.len()));
            for (want, got) in want.iter().zip(&got) {
                assert!((want - got).abs() < 1e-5, "{name}: {got} for {want}");
            }
        }
        let beyond = both.cuda.logits(&rows, 0..n + 1, &Interrupt::default());
        assert!(matches!(beyond, Err(BackendError::Vocabulary { .. })));
    }
}
