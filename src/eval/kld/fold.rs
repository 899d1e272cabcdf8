//! KL divergences of rows of logits that come a run of the vocabulary at a time,
//! in f64. With logits `b` of the base and `q` of the model, and their
//! log-sum-exps `B` and `Q`,
//!
//! ```text
//! KL(base ‖ model) = Σ p (ln p − ln q) = Σ e^(b − B) (b − q) − B + Q
//! ```

use super::stored::{GridRow, StoredRow, TopRow};

/// `ln Σ e^x` of values that come in runs; the largest so far is taken out.
#[derive(Clone, Copy)]
struct LogSumExp {
    max: f64,
    sum: f64,
}

impl LogSumExp {
    const EMPTY: Self = Self {
        max: f64::NEG_INFINITY,
        sum: 0.0,
    };

    /// Makes `max` at least `x`; answers by what sums relative to it shrink.
    fn raise(&mut self, x: f64) -> f64 {
        if x <= self.max {
            return 1.0;
        }
        let shrink = (self.max - x).exp();
        self.max = x;
        self.sum *= shrink;
        shrink
    }

    /// Values of `−∞` add nothing.
    fn add(&mut self, xs: &[f32]) {
        let max = f64::from(max(xs));
        if max == f64::NEG_INFINITY {
            return;
        }
        self.raise(max);
        self.sum += xs
            .iter()
            .map(|&x| (f64::from(x) - self.max).exp())
            .sum::<f64>();
    }

    fn value(&self) -> f64 {
        self.max + self.sum.ln()
    }
}

fn max(xs: &[f32]) -> f32 {
    xs.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The likeliest id so far: the first of those that tie.
#[derive(Clone, Copy)]
struct Top {
    value: f32,
    id: usize,
}

impl Top {
    const NONE: Self = Self {
        value: f32::NEG_INFINITY,
        id: usize::MAX,
    };

    fn add(&mut self, first: usize, xs: &[f32]) {
        let best = max(xs);
        if best > self.value {
            let at = xs.iter().position(|&x| x == best).unwrap_or(0);
            (self.value, self.id) = (best, first + at);
        }
    }
}

/// What a finished row says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowKld {
    pub kld: f64,
    /// No less than this.
    pub least: f64,
    /// Of `kld` as an estimate.
    pub variance: f64,
    pub nll_base: f64,
    pub same_top: bool,
}

/// A base whose logits are at hand, and a model.
#[derive(Clone)]
pub(super) struct ModelFold {
    base: LogSumExp,
    /// `Σ e^(b − max) (b − q)`
    weighted: f64,
    model: LogSumExp,
    base_top: Top,
    model_top: Top,
    target: u32,
    target_logit: f32,
}

impl ModelFold {
    pub fn new(target: u32) -> Self {
        Self {
            base: LogSumExp::EMPTY,
            weighted: 0.0,
            model: LogSumExp::EMPTY,
            base_top: Top::NONE,
            model_top: Top::NONE,
            target,
            target_logit: f32::NAN,
        }
    }

    /// Takes the run that begins with id `first`.
    pub fn add(&mut self, first: usize, base: &[f32], model: &[f32]) {
        self.model.add(model);
        self.base_top.add(first, base);
        self.model_top.add(first, model);
        self.weighted *= self.base.raise(f64::from(max(base)));
        for (&b, &q) in base.iter().zip(model) {
            let (b, q) = (f64::from(b), f64::from(q));
            let e = (b - self.base.max).exp();
            self.base.sum += e;
            self.weighted += e * (b - q);
        }
        let at = (self.target as usize).checked_sub(first);
        if let Some(&logit) = at.and_then(|i| base.get(i)) {
            self.target_logit = logit;
        }
    }

    pub fn finish(&self) -> RowKld {
        let (base, model) = (self.base.value(), self.model.value());
        let kld = not_negative(self.weighted / self.base.sum - base + model);
        RowKld {
            kld,
            least: kld,
            variance: 0.0,
            nll_base: base - f64::from(self.target_logit),
            same_top: self.base_top.id == self.model_top.id,
        }
    }
}

/// Cuts the rounding of a divergence that is 0; a NaN stays one.
fn not_negative(kld: f64) -> f64 {
    if kld < 0.0 { 0.0 } else { kld }
}

/// A stored base and a model.
pub(super) enum StoredFold<'a> {
    Top(TopFold<'a>),
    Grid(GridFold<'a>),
}

impl<'a> StoredFold<'a> {
    pub fn new(row: &'a StoredRow, target: u32) -> Self {
        match row {
            StoredRow::Top(row) => StoredFold::Top(TopFold::new(row)),
            StoredRow::Grid(row) => StoredFold::Grid(GridFold::new(row, target)),
        }
    }

    /// Takes the run that begins with id `first`; `scratch` is overwritten.
    pub fn add(&mut self, first: usize, model: &[f32], scratch: &mut Vec<f32>) {
        match self {
            StoredFold::Top(fold) => fold.add(first, model),
            StoredFold::Grid(fold) => fold.add(first, model, scratch),
        }
    }

    pub fn finish(&self) -> RowKld {
        match self {
            StoredFold::Top(fold) => fold.finish(),
            StoredFold::Grid(fold) => fold.finish(),
        }
    }
}

/// A base of which the likeliest entries are known, and of the others a sample.
///
/// With `r = ln(q/p)` and since `Σ (q − p) = 0`,
///
/// ```text
/// KL = Σ −p r = Σ p (e^r − 1 − r)
/// ```
///
/// A sampled entry stands for the mass `c` of a step, so either sum is estimated
/// without bias by its terms over the entries that are known, plus `c` times those
/// of the sample. The terms of the second are never negative and of the size of
/// `r²/2`, so its error shrinks with the divergence; where the distributions are
/// far apart, `e^r` makes it worse than the first. Which one is taken depends on
/// the lower bound, which the sample has no part in.
///
/// That bound takes the tail as one bucket, by the log-sum inequality
/// `Σ p ln(p/q) ≥ P ln(P/Q)`.
pub(super) struct TopFold<'a> {
    row: &'a TopRow,
    /// The model's logits of the entries.
    gathered: Vec<f32>,
    model: LogSumExp,
    model_top: Top,
}

/// A divergence in nats from which on the first sum is taken. Measured: with 0.3
/// a few rows of a coarse quantization outweigh all others, with 0.01 a fine one
/// loses a third of its precision.
const FAR: f64 = 0.03;

impl<'a> TopFold<'a> {
    fn new(row: &'a TopRow) -> Self {
        Self {
            row,
            gathered: Vec::with_capacity(row.ids.len()),
            model: LogSumExp::EMPTY,
            model_top: Top::NONE,
        }
    }

    fn add(&mut self, first: usize, model: &[f32]) {
        self.model.add(model);
        self.model_top.add(first, model);
        let here = self.row.ids[self.gathered.len()..].iter();
        let logits = here.map_while(|&id| model.get(id as usize - first));
        self.gathered.extend(logits);
    }

    fn finish(&self) -> RowKld {
        let row = self.row;
        let model = self.model.value();
        let step = row.step;
        // Σ −p r and Σ p (e^r − 1 − r) over what is known, Σ q over it; of the
        // sample the sums of the terms and of their squares.
        let (mut plain, mut close, mut mass) = (0.0, 0.0, 0.0);
        let (mut sampled_plain, mut sampled_close) = ([0.0; 2], [0.0; 2]);
        let entries = row.logits.iter().zip(&self.gathered).zip(row.known());
        for ((&logit, &q), known) in entries {
            let ln_p = f64::from(logit) - row.lse;
            let (p, r) = (ln_p.exp(), f64::from(q) - model - ln_p);
            // e^r − 1 − r without cancelling.
            let term = r.exp_m1() - r;
            if known {
                plain -= p * r;
                close += p * term;
                mass += ln_p.exp() * r.exp();
            } else {
                let missed = 1.0 - p / step;
                let add = |sums: &mut [f64; 2], x: f64| {
                    sums[0] += step * x;
                    sums[1] += missed * (step * x).powi(2);
                };
                add(&mut sampled_plain, -r);
                add(&mut sampled_close, term);
            }
        }
        let least = match row.tail_mass > 0.0 {
            true => {
                let tail = (1.0 - mass).max(f64::MIN_POSITIVE);
                not_negative(plain + row.tail_mass * (row.tail_mass / tail).ln())
            }
            false => not_negative(plain),
        };
        let (known, [tail, variance]) = match least < FAR {
            true => (close, sampled_close),
            false => (plain, sampled_plain),
        };
        RowKld {
            kld: not_negative(known + tail),
            least,
            variance,
            nll_base: row.nll,
            same_top: row.top() == Some(self.model_top.id),
        }
    }
}

/// A base of which all log-probabilities are known, on llama.cpp's grid of 16
/// bits: entries of `ln p ≤ −16` count nothing, as in llama-perplexity.
pub(super) struct GridFold<'a> {
    row: &'a GridRow,
    target: u32,
    /// `Σ p (ln p − q)`
    cross: f64,
    mass: f64,
    model: LogSumExp,
    base_top: Top,
    model_top: Top,
}

/// llama-perplexity's limit for log-probabilities that count.
const GRID_LEAST: f32 = -16.0;

impl<'a> GridFold<'a> {
    fn new(row: &'a GridRow, target: u32) -> Self {
        Self {
            row,
            target,
            cross: 0.0,
            mass: 0.0,
            model: LogSumExp::EMPTY,
            base_top: Top::NONE,
            model_top: Top::NONE,
        }
    }

    fn add(&mut self, first: usize, model: &[f32], scratch: &mut Vec<f32>) {
        let row = self.row;
        self.model.add(model);
        self.model_top.add(first, model);
        let codes = &row.codes[first..first + model.len()];
        scratch.clear();
        scratch.extend(codes.iter().map(|&code| row.ln_p(code)));
        self.base_top.add(first, scratch);
        for (&ln_p, &q) in scratch.iter().zip(model) {
            if ln_p > GRID_LEAST {
                let ln_p = f64::from(ln_p);
                let p = ln_p.exp();
                self.cross += p * (ln_p - f64::from(q));
                self.mass += p;
            }
        }
    }

    fn finish(&self) -> RowKld {
        // Not cut at 0: the rounded probabilities do not add up to 1.
        let kld = self.cross + self.mass * self.model.value();
        let code = self.row.codes.get(self.target as usize).copied();
        RowKld {
            kld,
            least: kld,
            variance: 0.0,
            nll_base: code.map_or(f64::NAN, |c| -f64::from(self.row.ln_p(c))),
            same_top: self.base_top.id == self.model_top.id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 100;

    /// Logits with a wide spread, the largest neither first nor last.
    fn logits(seed: usize) -> Vec<f32> {
        let value = |i: usize| ((i * 37 + seed * 11) % 101) as f32 / 7.0 - 5.0;
        (0..N).map(value).collect()
    }

    fn log_softmax(logits: &[f32]) -> Vec<f64> {
        let lse = logits.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln();
        logits.iter().map(|&l| f64::from(l) - lse).collect()
    }

    fn kld(p: &[f64], q: &[f64]) -> f64 {
        p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum()
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{a}, not {b}");
    }

    /// The runs in which a vocabulary comes.
    fn runs(len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..N)
            .step_by(len)
            .map(move |first| first..(first + len).min(N))
    }

    #[test]
    fn runs_of_any_length_add_up() {
        let (base, model) = (logits(1), logits(2));
        let (p, q) = (log_softmax(&base), log_softmax(&model));
        for len in [1, 7, 64, N] {
            let mut fold = ModelFold::new(42);
            for run in runs(len) {
                fold.add(run.start, &base[run.clone()], &model[run]);
            }
            let row = fold.finish();
            close(row.kld, kld(&p, &q));
            close(row.nll_base, -p[42]);
            assert_eq!(
                (row.least, row.variance, row.same_top),
                (row.kld, 0.0, false)
            );
        }
    }

    #[test]
    fn a_row_with_all_entries_is_the_base() {
        let (base, model) = (logits(1), logits(2));
        let (p, q) = (log_softmax(&base), log_softmax(&model));
        let row = StoredRow::Top(TopRow {
            ids: (0..N as u32).collect(),
            logits: base.clone(),
            lse: f64::from(base[0]) - p[0],
            nll: -p[42],
            tail_mass: 0.0,
            step: 0.0,
            ln_step: f64::MIN,
        });
        for len in [1, 7, N] {
            let mut fold = StoredFold::new(&row, 42);
            for run in runs(len) {
                fold.add(run.start, &model[run], &mut Vec::new());
            }
            let got = fold.finish();
            close(got.kld, kld(&p, &q));
            close(got.least, kld(&p, &q));
            assert_eq!((got.variance, got.nll_base), (0.0, -p[42]));
        }
    }

    /// A step for which every entry of the tail is drawn as often as it weighs:
    /// over all draws the estimate is the divergence, with either sum.
    #[test]
    fn the_estimate_has_no_bias() {
        for scale in [0.02f32, 1.0] {
            let base = logits(1);
            let other = logits(2);
            let moved = base.iter().zip(&other).map(|(b, o)| b + scale * o);
            let model: Vec<f32> = moved.collect();
            let (p, q) = (log_softmax(&base), log_softmax(&model));
            let step = 0.05;
            let tail: Vec<usize> = (0..N).filter(|&i| p[i].exp() < step).collect();
            let tail_mass: f64 = tail.iter().map(|&i| p[i].exp()).sum();
            let estimate = |drawn: Option<usize>| {
                let stored = (0..N).filter(|i| p[*i].exp() >= step || drawn == Some(*i));
                let ids: Vec<u32> = stored.map(|i| i as u32).collect();
                let row = StoredRow::Top(TopRow {
                    logits: ids.iter().map(|&i| base[i as usize]).collect(),
                    ids,
                    lse: f64::from(base[0]) - p[0],
                    nll: 0.0,
                    tail_mass,
                    step,
                    ln_step: step.ln(),
                });
                let mut fold = StoredFold::new(&row, 0);
                for run in runs(7) {
                    fold.add(run.start, &model[run], &mut Vec::new());
                }
                fold.finish()
            };
            // An entry adds to the sum only where it is drawn.
            let none = estimate(None);
            let drawn = |&i: &usize| p[i].exp() / step * (estimate(Some(i)).kld - none.kld);
            let mean = none.kld + tail.iter().map(drawn).sum::<f64>();
            // The second sum's terms are all positive; the first sum's are cut at
            // 0 together, which these do not reach.
            assert!((mean - kld(&p, &q)).abs() < 1e-9, "{mean} {}", kld(&p, &q));
            assert!(none.least <= kld(&p, &q) + 1e-12);
        }
    }

    #[test]
    fn a_grid_counts_what_llama_perplexity_counts() {
        let model = logits(2);
        let q = log_softmax(&model);
        let row = GridRow {
            scale: 0.001,
            min: -18.0,
            codes: (0..N).map(|i| (i * 173 % 18_000) as u16).collect(),
        };
        let want: f64 = (row.codes.iter().zip(&q))
            .map(|(&code, q)| (f64::from(row.ln_p(code)), q))
            .filter(|(p, _)| *p > -16.0)
            .map(|(p, q)| p.exp() * (p - q))
            .sum();
        let nll = -f64::from(row.ln_p(row.codes[42]));
        let row = StoredRow::Grid(row);
        for len in [1, 7, N] {
            let mut fold = StoredFold::new(&row, 42);
            for run in runs(len) {
                fold.add(run.start, &model[run], &mut Vec::new());
            }
            let got = fold.finish();
            close(got.kld, want);
            assert_eq!(got.nll_base, nll);
        }
    }
}
