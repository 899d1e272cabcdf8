//! The comparison of two runs token by token, from their records.

use serde::Serialize;

use super::paired::largest;
use crate::results::record::{Excerpt, Record};
use crate::stats::{self, Estimate, Summary};

/// What the records of two runs, A and B, say beyond their windows.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenComparison {
    /// Mean NLL difference B − A in nats. The error takes tokens as independent,
    /// which they are not: [`Paired::se`](super::Paired::se) is the one to judge by.
    pub mean: Estimate,
    /// Of the NLLs of A and B; `None` where one side does not vary.
    pub correlation: Option<f64>,
    /// Share of the positions whose most likely token is the same.
    pub same_top: Estimate,
    /// `p_B − p_A` of the targets, `p = e^(−nll)`.
    pub delta_p: Summary,
    /// The tokens that moved most, by size.
    pub moved: Vec<MovedToken>,
}

/// A token that moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MovedToken {
    /// The window that it is scored in.
    pub window: usize,
    /// Corpus index of the token.
    pub index: u64,
    /// The token and the text around it.
    pub text: Excerpt,
    /// Its score in A.
    pub a: MovedScore,
    /// Its score in B.
    pub b: MovedScore,
}

/// The score of one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MovedScore {
    /// In nats.
    pub nll: f32,
    /// Entries of the vocabulary that are more likely.
    pub rank: u32,
    /// Text of the most likely token.
    pub top: String,
    /// Probability of that token.
    pub top_p: f32,
}

impl TokenComparison {
    /// Compares B with A; lists the `n_moved` tokens that moved most.
    ///
    /// # Errors
    /// Records of other targets.
    pub fn new(a: &Record, b: &Record, n_moved: usize) -> Result<Self, String> {
        let geometry = |r: &Record| -> Vec<(usize, u64, usize)> {
            let windows = r.windows().iter();
            windows
                .map(|w| (w.window, w.first_target, w.scored))
                .collect()
        };
        let (x, y) = (a.tokens(), b.tokens());
        if geometry(a) != geometry(b) || x.target != y.target {
            return Err("the records score other targets".to_owned());
        }
        let nll = |column: &[f32]| -> Vec<f64> { column.iter().map(|&x| x.into()).collect() };
        let (nll_a, nll_b) = (nll(&x.nll), nll(&y.nll));
        let pairs = || nll_a.iter().zip(&nll_b);
        let moves: Vec<f64> = pairs().map(|(a, b)| b - a).collect();
        let delta_p = pairs().map(|(a, b)| (-b).exp() - (-a).exp()).collect();
        let same_top = x.top_id.iter().zip(&y.top_id).filter(|(a, b)| a == b);
        let empty = "the records have no tokens";
        Ok(Self {
            mean: stats::mean(moves.iter().copied()).ok_or(empty)?,
            correlation: stats::correlation(pairs().map(|(a, b)| (*a, *b))),
            same_top: stats::share(same_top.count(), x.len()).ok_or(empty)?,
            delta_p: Summary::new(delta_p).ok_or(empty)?,
            moved: moved(a, b, &largest(&moves, n_moved)),
        })
    }

    /// Tokens that were compared.
    pub fn n(&self) -> usize {
        self.delta_p.n
    }
}

/// What is to be said of the tokens at these places.
fn moved(a: &Record, b: &Record, places: &[usize]) -> Vec<MovedToken> {
    let spans: Vec<_> = a.spans().collect();
    let score = |r: &Record, at: usize| MovedScore {
        nll: r.tokens().nll[at],
        rank: r.tokens().rank[at],
        top: r.piece_text(r.tokens().top_id[at]),
        top_p: r.tokens().top_p[at],
    };
    let token = |&at: &usize| {
        let i = spans.partition_point(|(_, span)| span.end <= at);
        let (window, span) = spans.get(i)?;
        Some(MovedToken {
            window: window.window,
            index: window.first_target + (at - span.start) as u64,
            text: a.excerpt(at, span.clone()),
            a: score(a, at),
            b: score(b, at),
        })
    };
    places.iter().filter_map(token).collect()
}
