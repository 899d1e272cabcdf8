//! Changes of the arithmetic that should not matter: each shows, and barely; none
//! depends on threads, batches or instruction sets.

use pplx::backend::cpu::Isa;
use pplx::backend::{Storage, SumOrder, Variation};
use pplx::eval::WindowScore;

use crate::cases::{CASES, GEOMETRY, N_WINDOWS, bos, by_name, tokens};
use crate::support::tiny::Tiny;
use crate::support::{bits, score};

const REVERSED: Variation = Variation {
    order: SumOrder::Descending,
    ..NONE
};
const KV: Variation = Variation {
    kv: Storage::F16,
    ..NONE
};
const ATTENTION: Variation = Variation {
    attention: Storage::F16,
    ..NONE
};
const NONE: Variation = Variation {
    order: SumOrder::Ascending,
    kv: Storage::F32,
    attention: Storage::F32,
    jitter: None,
};

fn jitter(seed: u64) -> Variation {
    Variation {
        jitter: Some(seed),
        ..NONE
    }
}

fn run(tiny: &Tiny, variation: Variation) -> Vec<WindowScore> {
    let cpu = tiny.cpu(1).with_variation(variation);
    score(&cpu, &tokens(), GEOMETRY, N_WINDOWS, bos(tiny), 1)
}

/// Largest difference of two runs' NLLs.
fn apart(a: &[WindowScore], b: &[WindowScore]) -> f64 {
    let nll = |s: &[WindowScore]| -> Vec<f64> { s.iter().flat_map(WindowScore::nll).collect() };
    let pairs = nll(a).into_iter().zip(nll(b));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn each_shows_and_barely() {
    assert_eq!(NONE, Variation::default());
    for name in ["llama", "gemma3", "deepseek2", "gpt_oss"] {
        let tiny = (by_name(name).build)();
        let base = run(&tiny, NONE);
        for (variation, most) in [
            (REVERSED, 1e-4),
            (jitter(1), 1e-4),
            (KV, 2e-2),
            (ATTENTION, 2e-2),
        ] {
            let moved = apart(&base, &run(&tiny, variation));
            assert!(
                moved > 0.0 && moved < most,
                "{name}, {variation:?}: {moved:e}"
            );
        }
    }
}

#[test]
fn seeds_draw_other_noise() {
    let tiny = (by_name("llama").build)();
    let [one, again, other] = [1, 1, 2].map(|seed| run(&tiny, jitter(seed)));
    assert_eq!(bits(&one), bits(&again));
    assert_ne!(bits(&one), bits(&other));
}

/// A network without attention has no keys to round.
#[test]
fn what_a_model_has_not_does_nothing() {
    let tiny = (by_name("mamba").build)();
    let base = bits(&run(&tiny, NONE));
    assert_eq!(bits(&run(&tiny, KV)), base);
    assert_eq!(bits(&run(&tiny, ATTENTION)), base);
    assert_ne!(bits(&run(&tiny, REVERSED)), base);
}

#[test]
fn threads_batches_and_instruction_sets_make_no_difference() {
    let all = Variation {
        order: SumOrder::Descending,
        kv: Storage::F16,
        attention: Storage::F16,
        jitter: Some(7),
    };
    for case in CASES {
        let (tiny, tokens) = ((case.build)(), tokens());
        let want = bits(&run(&tiny, all));
        for isa in Isa::available() {
            for (threads, batch) in [(1, 2), (2, 1)] {
                let cpu = tiny.cpu_with(threads, isa).with_variation(all);
                let scores = score(&cpu, &tokens, GEOMETRY, N_WINDOWS, bos(&tiny), batch);
                let name = (case.name, isa.name());
                assert!(
                    bits(&scores) == want,
                    "{name:?}, {threads} threads, {batch}"
                );
            }
        }
    }
}
