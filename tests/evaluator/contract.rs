//! Scorers that keep a part of the contract only: each is an error with its place,
//! and no window vanishes.

use pplx::backend::{BackendError, Interrupt, TokenScore};
use pplx::eval::{
    CheckpointOptions, EvalError, Feed, FromLogits, Geometry, Job, Limits, LogitsModel,
    PerplexityModel, Sequence, WindowPlan, score,
};

const N_CTX: usize = 8;
const N_VOCAB: usize = 5;

fn run(model: &mut impl PerplexityModel) -> Result<usize, EvalError> {
    let tokens: Vec<u32> = (0..4 * N_CTX as u32).map(|i| i % N_VOCAB as u32).collect();
    let geometry = Geometry::llama_cpp(N_CTX);
    let plan = WindowPlan::new(tokens.len(), geometry, Limits::default()).unwrap();
    let feed = Feed {
        bos: None,
        batch: 2,
    };
    let scores = score(
        model,
        Job {
            tokens: &tokens,
            plan: &plan,
            feed,
            interrupt: &Interrupt::default(),
            checkpoints: &CheckpointOptions::default(),
        },
        &mut |_| (),
    )?;
    Ok(scores.iter().map(|s| s.tokens.len()).sum())
}

/// Scores everything alike, then changes what the fourth window has.
struct Scorer<F: FnMut(&mut Vec<Vec<TokenScore>>)> {
    seen: usize,
    spoil: F,
}

impl<F: FnMut(&mut Vec<Vec<TokenScore>>)> PerplexityModel for Scorer<F> {
    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn score(&mut self, batch: &[Sequence]) -> Result<Vec<Vec<TokenScore>>, BackendError> {
        let score = TokenScore {
            nll: (N_VOCAB as f64).ln(),
            rank: 0,
            top_id: 0,
            top_p: 1.0 / N_VOCAB as f32,
            entropy: (N_VOCAB as f32).ln(),
        };
        let all = batch.iter().map(|s| vec![score; s.targets.len()]);
        let mut all: Vec<_> = all.collect();
        self.seen += batch.len();
        if self.seen == 4 {
            (self.spoil)(&mut all);
        }
        Ok(all)
    }
}

fn spoilt(spoil: impl FnMut(&mut Vec<Vec<TokenScore>>)) -> String {
    run(&mut Scorer { seen: 0, spoil }).unwrap_err().to_string()
}

#[test]
fn a_scorer_that_keeps_the_contract() {
    let mut good = Scorer {
        seen: 0,
        spoil: |_: &mut Vec<Vec<TokenScore>>| (),
    };
    assert_eq!(run(&mut good), Ok(4 * 3));
}

#[test]
fn a_scorer_that_returns_too_little_or_too_much() {
    let few = spoilt(|s| s.truncate(1));
    assert!(
        few.contains("scored 1 windows of the 2") && few.contains("window 2"),
        "{few}"
    );
    let many = spoilt(|s| s.push(Vec::new()));
    assert!(many.contains("scored 3 windows of the 2"), "{many}");
    assert_eq!(
        spoilt(|s| s[1].truncate(2)),
        "window 3: the model scored 2 targets of 3"
    );
    let more = spoilt(|s| {
        let first = s[1][0];
        s[1].push(first);
    });
    assert_eq!(more, "window 3: the model scored 4 targets of 3");
}

#[test]
fn a_scorer_whose_scores_are_none() {
    for (nll, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-1.5, "-1.5")] {
        let error = spoilt(|s| s[1][2].nll = nll);
        let place =
            format!("window 3, position 7: the model's score is invalid: the NLL is {shown}");
        assert!(error.starts_with(&place), "{error}");
    }
    let error = spoilt(|s| s[0][1].top_p = 1.5);
    assert!(
        error.contains("window 2, position 6") && error.contains("probability is 1.5"),
        "{error}"
    );
    let error = spoilt(|s| s[0][1].entropy = f32::NAN);
    assert!(error.contains("the entropy is NaN"), "{error}");
    // What rounding does to a probability of 1.
    let mut rounded = Scorer {
        seen: 0,
        spoil: |s: &mut Vec<Vec<TokenScore>>| s[0][0].nll = -1e-7,
    };
    assert_eq!(run(&mut rounded), Ok(12));
}

/// Logits of another width.
struct Logits {
    width: usize,
    all: bool,
}

impl LogitsModel for Logits {
    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn returns_all_rows(&self) -> bool {
        self.all
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        if self.width == 0 {
            return Err(BackendError::other("the accelerator is on fire"));
        }
        Ok(vec![
            0.0;
            self.width * if self.all { tokens.len() } else { 1 }
        ])
    }
}

#[test]
fn logits_of_another_width_and_errors_of_others() {
    for all in [false, true] {
        let run = |width| run(&mut FromLogits(Logits { width, all }));
        assert_eq!(run(N_VOCAB), Ok(12));
        for width in [N_VOCAB - 1, N_VOCAB + 1] {
            let error = run(width).unwrap_err().to_string();
            let rows = if all { N_CTX - 1 } else { N_CTX / 2 + 1 };
            let found = width * if all { rows } else { 1 };
            let rows = if all { rows } else { 1 };
            let want =
                format!("window 0: the model returns {found} logits, not {rows} rows of {N_VOCAB}");
            assert_eq!(error, want);
        }
        let error = run(0).unwrap_err().to_string();
        assert_eq!(error, "the accelerator is on fire");
    }
}
