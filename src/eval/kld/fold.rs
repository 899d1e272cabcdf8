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

    fn merge(mut self, other: Self) -> Self {
        if other.max == f64::NEG_INFINITY {
            return self;
        }
        self.raise(other.max);
        self.sum += other.sum * (other.max - self.max).exp();
        self
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
    /// No more than this; `kld` itself where the base is known in full.
    pub kld_max: f64,
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
            kld_max: kld,
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
            StoredFold::Top(fold) => fold.add(first, model, scratch),
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

/// A base of which the likeliest entries are known, the others by their mass.
///
/// The tail as one bucket gives a lower bound by the log-sum inequality,
/// `Σ p ln(p/q) ≥ P ln(P/Q)`. The stored `Σ p ln p` of the tail and the model's
/// least likely id give an upper one.
pub(super) struct TopFold<'a> {
    row: &'a TopRow,
    /// `Σ p (ln p − q)` over the entries.
    cross: f64,
    /// `Σ p` over the entries.
    mass: f64,
    entries: LogSumExp,
    tail: LogSumExp,
    tail_min: f32,
    base_top: Top,
    model_top: Top,
}

impl<'a> TopFold<'a> {
    fn new(row: &'a TopRow) -> Self {
        Self {
            row,
            cross: 0.0,
            mass: 0.0,
            entries: LogSumExp::EMPTY,
            tail: LogSumExp::EMPTY,
            tail_min: f32::INFINITY,
            base_top: Top::NONE,
            model_top: Top::NONE,
        }
    }

    fn add(&mut self, first: usize, model: &[f32], scratch: &mut Vec<f32>) {
        let row = self.row;
        self.model_top.add(first, model);
        let end = first + model.len();
        let from = row.ids.partition_point(|&id| (id as usize) < first);
        let to = row.ids.partition_point(|&id| (id as usize) < end);
        scratch.clear();
        scratch.extend_from_slice(model);
        for (&id, &logit) in row.ids[from..to].iter().zip(&row.logits[from..to]) {
            let q = &mut scratch[id as usize - first];
            let ln_p = f64::from(logit) - row.lse;
            let p = ln_p.exp();
            self.cross += p * (ln_p - f64::from(*q));
            self.mass += p;
            self.entries.add(&[*q]);
            self.base_top.add(id as usize, &[logit]);
            // Out of the tail.
            *q = f32::NEG_INFINITY;
        }
        self.tail.add(scratch);
        for &q in scratch.iter().filter(|q| **q > f32::NEG_INFINITY) {
            self.tail_min = self.tail_min.min(q);
        }
    }

    fn finish(&self) -> RowKld {
        let row = self.row;
        let model = self.entries.merge(self.tail).value();
        let entries = self.cross + self.mass * model;
        let (tail, most) = match row.tail_mass > 0.0 {
            true => (
                row.tail_mass * (row.tail_mass.ln() - (self.tail.value() - model)),
                row.tail_plnp + row.tail_mass * (model - f64::from(self.tail_min)),
            ),
            false => (0.0, 0.0),
        };
        let kld = not_negative(entries + tail);
        RowKld {
            kld,
            kld_max: (entries + most).max(kld),
            nll_base: row.nll,
            same_top: self.base_top.id == self.model_top.id,
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
            kld_max: kld,
            nll_base: code.map_or(f64::NAN, |c| -f64::from(self.row.ln_p(c))),
            same_top: self.base_top.id == self.model_top.id,
        }
    }
}
