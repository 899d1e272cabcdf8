//! The CPU is the judge: per-token NLLs of every architecture.

use pplx::backend::cuda::Precision;
use pplx::backend::{Device, Partition};
use pplx::eval::{Geometry, Mode};
use pplx::model::Model;

use crate::cases::{CASES, GEOMETRY, bos, tokens};
use crate::cuda_standin::standin;
use crate::harness::{Both, Text, difference};
use crate::support::{SMOLLM2, ids, model, shared};

/// Nats a token.
const BOUND: f64 = 2e-4;

/// The largest difference of a token's NLL on both devices.
fn error(both: &Both, text: Text) -> f64 {
    let n = both.model.n_layer();
    let on = |device| text.score(both, Partition::whole(device, n));
    let want = on(Device::Cpu).unwrap_or_else(|e| panic!("{e}"));
    let got = on(Device::Cuda).unwrap_or_else(|e| panic!("{e}"));
    assert!(!want.is_empty());
    difference(&want, &got)
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
        let max = error(&Both::tiny(&tiny), text);
        println!("{:24} max {max:.2e}", case.name);
        if max.is_nan() || max > BOUND {
            failed.push((case.name, max));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
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
