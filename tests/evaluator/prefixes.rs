//! Models that give logits for every position and models that give them for the
//! last one only go through one evaluator and get one number.

use pplx::backend::cpu::CpuModel;
use pplx::backend::{BackendError, Interrupt, LayerWindowModel, Stage, Target, TokenScore};
use pplx::eval::{
    CheckpointOptions, EvalError, Feed, FromLogits, Geometry, Job, Limits, LogitsModel,
    PerplexityModel, Sequence, WindowPlan, WindowScore,
};

use crate::support::tiny::{self, BOS, Tiny};
use crate::support::{SMOLLM2, bits, cpu, ids, model, score, shared};

const N_VOCAB: usize = 97;

/// Logits that depend on every token before them.
struct Toy {
    all_rows: bool,
    /// The lengths it was asked for.
    asked: Vec<usize>,
}

impl LogitsModel for Toy {
    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn returns_all_rows(&self) -> bool {
        self.all_rows
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        self.asked.push(tokens.len());
        let mut state = 1u32;
        let mut rows = Vec::new();
        for &token in tokens {
            state = state.wrapping_mul(2_654_435_761).wrapping_add(token + 1);
            let row = (0..N_VOCAB as u32).map(|v| {
                let mixed = (state ^ v.wrapping_mul(40_503)).wrapping_mul(2_246_822_519) >> 20;
                mixed as f32 / 512.0 - 4.0
            });
            rows.extend(row);
        }
        if !self.all_rows {
            rows.drain(..(tokens.len() - 1) * N_VOCAB);
        }
        Ok(rows)
    }
}

fn run(
    model: &mut impl PerplexityModel,
    tokens: &[u32],
    geometry: Geometry,
    windows: usize,
    bos: Option<u32>,
) -> Result<Vec<WindowScore>, EvalError> {
    let limits = Limits {
        windows: Some(windows),
        max_tokens: None,
    };
    let plan = WindowPlan::new(tokens.len(), geometry, limits).unwrap();
    pplx::eval::score(
        model,
        Job {
            tokens,
            plan: &plan,
            feed: Feed { bos, batch: 2 },
            interrupt: &Interrupt::default(),
            checkpoints: &CheckpointOptions::default(),
        },
        &mut |_| (),
    )
}

#[test]
fn all_rows_and_last_row_agree_exactly() {
    let tokens: Vec<u32> = (0..200).map(|i| (i * i + 3 * i) % N_VOCAB as u32).collect();
    for geometry in [
        Geometry::llama_cpp(16),
        Geometry::sliding_window(16, Some(5), Some(11)),
        Geometry::teacher_forced(30),
    ] {
        let toy = |all_rows| {
            FromLogits(Toy {
                all_rows,
                asked: Vec::new(),
            })
        };
        let (mut all, mut last) = (toy(true), toy(false));
        let a = run(&mut all, &tokens, geometry, 5, Some(7)).unwrap();
        let b = run(&mut last, &tokens, geometry, 5, Some(7)).unwrap();
        assert_eq!(bits(&a), bits(&b));
        assert_eq!(all.0.asked.len(), 5);
        // One growing prefix for each scored target.
        let prefixes: Vec<usize> = (a.iter().map(|s| s.window))
            .flat_map(|w| w.first_target..w.len)
            .collect();
        assert_eq!(last.0.asked, prefixes);
        // And the number is that of the definition.
        let w = a[1].window;
        let mut input = tokens[w.start..w.start + w.first_target].to_vec();
        input[0] = 7;
        let row = toy(false).0.forward(&input).unwrap();
        let sum: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
        let target = tokens[w.start + w.first_target];
        let want = sum.ln() - f64::from(row[target as usize]);
        let ours = a[1].tokens[0];
        assert!((ours.nll - want).abs() < 1e-12);
        let above = row.iter().filter(|&&l| l > row[target as usize]).count();
        assert_eq!(ours.rank as usize, above);
        let p = row.iter().map(|&l| f64::from(l).exp() / sum);
        let entropy: f64 = p.clone().map(|p| -p * p.ln()).sum();
        assert!((f64::from(ours.entropy) - entropy).abs() < 1e-6);
        let top_p = p.fold(0.0, f64::max);
        assert!((f64::from(ours.top_p) - top_p).abs() < 1e-7);
        let top = f64::from(row[ours.top_id as usize]).exp() / sum;
        assert_eq!(top, top_p);
    }
}

#[test]
fn logits_that_are_not_finite_are_located() {
    struct Broken(f32);
    impl LogitsModel for Broken {
        fn n_vocab(&self) -> usize {
            4
        }
        fn returns_all_rows(&self) -> bool {
            true
        }
        fn forward(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
            let mut rows = vec![0.5; 4 * tokens.len()];
            if tokens.contains(&3) {
                // Of a token that is nowhere a target.
                rows[4 * 5] = self.0;
            }
            Ok(rows)
        }
    }
    let mut tokens = vec![1; 32];
    tokens[17] = 3;
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let result = run(
            &mut FromLogits(Broken(bad)),
            &tokens,
            Geometry::llama_cpp(8),
            4,
            None,
        );
        let want = EvalError::NotFinite {
            window: 2,
            position: 5,
            stage: Stage::Logits,
        };
        assert_eq!(result, Err(want), "{bad}");
    }
    let plan = Geometry::llama_cpp(8);
    tokens[30] = 9;
    let error = run(&mut FromLogits(Broken(0.0)), &tokens, plan, 4, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "window 3, position 6: token id 9 is outside the model's vocabulary of 4; were the tokens \
         made for another model?"
    );
}

/// A CPU model that is only asked for the last row of growing prefixes.
struct LastRow<'a>(&'a CpuModel);

impl PerplexityModel for LastRow<'_> {
    fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    fn score(&mut self, batch: &[Sequence]) -> Result<Vec<Vec<TokenScore>>, BackendError> {
        let mut window = self.0.layers(0..self.0.n_layer())?;
        let mut one = |s: &Sequence| {
            let prefixes: Vec<&[u32]> = (s.first_target..)
                .take(s.targets.len())
                .map(|len| &s.tokens[..len])
                .collect();
            let mut hidden = self.0.embed(&prefixes, s.n_ctx)?;
            window.reset_state();
            window.forward(&mut hidden, &Interrupt::default())?;
            let mut rows = 0;
            let last = prefixes.iter().zip(s.targets).map(|(prefix, &id)| {
                rows += prefix.len();
                Target { row: rows - 1, id }
            });
            let last = last.collect::<Vec<_>>();
            self.0.score_targets(&hidden, &last, &Interrupt::default())
        };
        batch.iter().map(&mut one).collect()
    }
}

fn differences(cpu: &CpuModel, tokens: &[u32], geometry: Geometry, windows: usize) -> f64 {
    let all = score(cpu, tokens, geometry, windows, Some(BOS), 2);
    let last = run(&mut LastRow(cpu), tokens, geometry, windows, Some(BOS)).unwrap();
    let pairs = all.iter().zip(&last).flat_map(|(a, b)| {
        assert_eq!((a.window, a.tokens.len()), (b.window, b.tokens.len()));
        a.nll().zip(b.nll())
    });
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn tiny_models_by_growing_prefixes() {
    let tokens = tiny::ids(400);
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let max = differences(&tiny.cpu(2), &tokens, Geometry::teacher_forced(70), 3);
        assert!(max < 1e-6, "{max:e}");
    }
}

#[test]
fn smollm2_by_growing_prefixes() {
    let Some(path) = model(SMOLLM2) else { return };
    let Some(tokens) = shared("reference/smollm2-q4_1.tokens") else {
        return;
    };
    let tokens = ids(&tokens);
    let max = differences(&cpu(&path, 0), &tokens, Geometry::llama_cpp(64), 1);
    println!("largest difference {max:e}");
    assert!(max < 1e-6, "{max:e}");
}
