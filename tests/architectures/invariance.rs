//! Threads, batches, instruction sets and the windows scored before are no part
//! of the result: not one bit of it.

use pplx::backend::cpu::{CpuModel, Isa};
use pplx::backend::{Interrupt, LayerWindowModel, Target, TokenScore};
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
        let pairs = long[0].nll().skip(N_CTX).zip(second[0].nll());
        let moved: Vec<f64> = pairs.map(|(a, b)| (a - b).abs()).collect();
        let mean = moved.iter().sum::<f64>() / moved.len() as f64;
        assert!(mean > 1e-3, "{}: {mean:e}", case.name);
    }
}

/// All ids as targets of one position: their probabilities sum to 1, and rank, top
/// token and entropy are those of the distribution that they are. A target's own
/// logit and the walk over the vocabulary come to the same bits, or ranks would
/// not be a count.
#[test]
fn a_distribution_scored_id_by_id() {
    for case in CASES {
        let tiny = (case.build)();
        let (cpu, tokens) = (tiny.cpu(2), tokens());
        let mut hidden = cpu.embed(&[&tokens[..9]], N_CTX).unwrap();
        let mut layers = cpu.layers(0..cpu.n_layer()).unwrap();
        layers.reset_state();
        layers.forward(&mut hidden, &Interrupt::default()).unwrap();
        let ids = 0..cpu.n_vocab() as u32;
        let targets: Vec<Target> = ids.map(|id| Target { row: 8, id }).collect();
        let scores = cpu.score_targets(&hidden, &targets, &Interrupt::default());
        let scores: Vec<TokenScore> = scores.unwrap();
        let p: Vec<f64> = scores.iter().map(|s| (-s.nll).exp()).collect();
        let entropy: f64 = scores.iter().zip(&p).map(|(s, p)| p * s.nll).sum();
        let best = scores.iter().map(|s| s.nll).fold(f64::INFINITY, f64::min);
        let name = case.name;
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{name}");
        for (s, p) in scores.iter().zip(&p) {
            let rank = scores.iter().filter(|t| t.nll < s.nll).count();
            assert_eq!(s.rank as usize, rank, "{name}");
            let top = &scores[s.top_id as usize];
            assert_eq!((top.rank, top.nll), (0, best), "{name}");
            assert!(f64::from(s.top_p) - p > -1e-7, "{name}");
            assert!((f64::from(s.top_p) - (-best).exp()).abs() < 1e-7, "{name}");
            assert!((f64::from(s.entropy) - entropy).abs() < 1e-6, "{name}");
        }
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
                let common = &all.tokens[prefix - 1..];
                assert!(common == some.tokens, "{}, from {prefix}", case.name);
            }
        }
    }
}

/// Weights that are decoded panel by panel, for each sequence anew.
#[test]
fn decoding_panel_by_panel() {
    for case in CASES {
        let (tiny, tokens) = ((case.build)(), tokens());
        let bos = bos(&tiny);
        let run =
            |cpu: CpuModel, batch| bits(&score(&cpu, &tokens, GEOMETRY, N_WINDOWS, bos, batch));
        let want = run(tiny.cpu(1), 1);
        // Two threads share the rows of one sequence.
        for (threads, batch) in [(1, 2), (2, 1)] {
            let panels = tiny.cpu(threads).with_layer_bytes(0);
            assert!(run(panels, batch) == want, "{}, {threads}", case.name);
        }
    }
}
