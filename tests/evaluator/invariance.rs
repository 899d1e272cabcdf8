//! Threads, batches and instruction sets are a matter of speed alone: not one
//! bit of one NLL depends on them.

use std::sync::Arc;

use pplx::backend::cpu::{CpuModel, Isa};
use pplx::eval::Geometry;
use pplx::model::Model;

use crate::support::tiny::{self, BOS, Tiny};
use crate::support::{SMOLLM2, bits, ids, model, score, shared};

/// Windows longer than a block of the attention's queries (56), and more than
/// the largest batch.
const GEOMETRY: Geometry = Geometry {
    n_ctx: 75,
    mode: pplx::eval::Mode::SlidingWindow {
        stride: 75,
        unscored_prefix: 1,
    },
};

fn is_invariant(tiny: &Tiny) {
    let tokens = tiny::ids(9 * 75 + 1);
    let want = bits(&score(&tiny.cpu(1), &tokens, GEOMETRY, 9, Some(BOS), 1));
    assert_eq!(want.len(), 9 * 74);
    for isa in Isa::available() {
        for threads in [1, 2, 3] {
            let cpu = tiny.cpu_with(threads, isa);
            for batch in [1, 2, 3, 4, 7] {
                let ours = bits(&score(&cpu, &tokens, GEOMETRY, 9, Some(BOS), batch));
                let name = isa.name();
                assert!(
                    ours == want,
                    "{name}, {threads} threads, batches of {batch}"
                );
            }
        }
    }
}

#[test]
fn tiny_llama() {
    is_invariant(&Tiny::llama());
}

#[test]
fn tiny_gemma3() {
    is_invariant(&Tiny::gemma3());
}

#[test]
fn smollm2() {
    let Some(path) = model(SMOLLM2) else { return };
    let Some(tokens) = shared("reference/smollm2-q4_1.tokens") else {
        return;
    };
    let tokens = ids(&tokens);
    let model = Arc::new(Model::open(path).unwrap());
    let run = |threads, isa, batch| {
        let cpu = CpuModel::with_isa(model.clone(), threads, isa).unwrap();
        bits(&score(
            &cpu,
            &tokens,
            Geometry::llama_cpp(128),
            4,
            None,
            batch,
        ))
    };
    let isas = Isa::available();
    let want = run(1, isas[0], 1);
    assert_eq!(want.len(), 4 * 63);
    for (threads, batch) in [(2, 1), (1, 4)] {
        assert!(
            run(threads, isas[0], batch) == want,
            "{threads} threads, batches of {batch}"
        );
    }
    // Portable code takes minutes where the build's target has no fused
    // multiply-add; the tiny models have it.
    for isa in isas.iter().filter(|isa| isa.name() != "portable") {
        assert!(run(2, *isa, 4) == want, "{}", isa.name());
    }
}
