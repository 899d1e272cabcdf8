//! Threads, batches, instruction sets and the windows scored before are no part
//! of the result: not one bit of it.

use pplx::backend::cpu::Isa;
use pplx::eval::{Geometry, Mode};

use crate::cases::{CASES, GEOMETRY, N_CTX, N_WINDOWS, bos, tokens};
use crate::support::{bits, score};

#[test]
fn threads_batches_and_instruction_sets() {
    for case in CASES {
        let (tiny, tokens) = ((case.build)(), tokens());
        let run = |isa, threads, batch| {
            let cpu = tiny.cpu_with(threads, isa);
            bits(&score(
                &cpu,
                &tokens,
                GEOMETRY,
                N_WINDOWS,
                bos(&tiny),
                batch,
            ))
        };
        let want = run(Isa::detect(), 1, 1);
        assert_eq!(want.len(), N_WINDOWS * (N_CTX - 1));
        for isa in Isa::available() {
            for (threads, batch) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
                let name = (case.name, isa.name());
                let ours = run(isa, threads, batch);
                assert!(ours == want, "{name:?}, {threads} threads, batch {batch}");
            }
        }
    }
}

/// Nothing is left of a window when the next begins; were it, the figures would
/// be those of one long window, which are others.
#[test]
fn windows_do_not_know_of_each_other() {
    for case in CASES {
        let (tiny, tokens) = ((case.build)(), tokens());
        let (cpu, bos) = (tiny.cpu(1), bos(&tiny));
        let both = score(&cpu, &tokens, GEOMETRY, 2, bos, 1);
        let swapped = [&tokens[N_CTX..], &tokens[..N_CTX]].concat();
        let second = score(&cpu, &swapped, GEOMETRY, 1, bos, 1);
        assert_eq!(bits(&both[1..]), bits(&second), "{}", case.name);
        let long = Geometry::teacher_forced(2 * N_CTX);
        let long = score(&cpu, &tokens, long, 1, bos, 1);
        let (long, second) = (&long[0].nll[N_CTX..], &second[0].nll);
        let moved = long.iter().zip(second).map(|(a, b)| (a - b).abs());
        let mean = moved.sum::<f64>() / second.len() as f64;
        assert!(mean > 1e-3, "{}: {mean:e}", case.name);
    }
}

/// The last layer skips rows that nobody scores; a window that scores more of
/// them has the same figures for those that both score.
#[test]
fn unscored_rows_make_no_difference() {
    for case in CASES {
        let (tiny, tokens) = ((case.build)(), tokens());
        let (cpu, bos) = (tiny.cpu(1), bos(&tiny));
        let run = |unscored_prefix| {
            let geometry = Geometry {
                mode: Mode::SlidingWindow {
                    stride: N_CTX,
                    unscored_prefix,
                },
                ..GEOMETRY
            };
            score(&cpu, &tokens, geometry, N_WINDOWS, bos, 1)
        };
        let all = run(1);
        for prefix in [2, N_CTX / 2 + 1, N_CTX - 1] {
            for (all, some) in all.iter().zip(run(prefix)) {
                let common = &all.nll[prefix - 1..];
                assert!(common == some.nll, "{}, from {prefix}", case.name);
            }
        }
    }
}
