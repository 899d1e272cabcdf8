//! The figures of a comparison with a base, as llama-perplexity's
//! `--kl-divergence` has them: the same names, the same formulas.

use crate::eval::{Moments, TokenKld};

/// A figure and its standard error, which takes tokens as independent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub err: f64,
}

/// What is said of how values are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    pub mean: Estimate,
    sorted: Vec<f64>,
}

impl Distribution {
    fn new(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let mean = mean(&values.clone().collect())?;
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self { mean, sorted })
    }

    /// The value below which a part of the values lie, from 0 (the least) to 1
    /// (the greatest), linear between its neighbours.
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.sorted.len() - 1;
        let at = part.clamp(0.0, 1.0) * last as f64;
        let below = (at as usize).min(last);
        let above = (below + 1).min(last);
        let t = at - below as f64;
        (1.0 - t) * self.sorted[below] + t * self.sorted[above]
    }
}

/// The error of a mean KLD that is estimated from a stored base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Standard error of the estimate, beside that of the tokens.
    pub err: f64,
    /// The exact mean is no less, whatever the sample.
    pub least: f64,
}

/// Everything that llama-perplexity prints of two models on the same tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct KldFigures {
    pub tokens: usize,
    pub ppl: Estimate,
    pub ppl_base: Estimate,
    /// Pearson's correlation of the NLLs; `None` where one does not vary.
    pub correlation: Option<f64>,
    pub ln_ratio: Estimate,
    pub ratio: Estimate,
    pub difference: Estimate,
    /// Nats.
    pub kld: Distribution,
    /// What a stored base's sampling does to the mean KLD; `None` where the base
    /// is known in full.
    pub sampling: Option<Sampling>,
    /// From −1 to 1.
    pub delta_p: Distribution,
    pub rms_delta_p: Estimate,
    /// Share of the tokens, from 0 to 1.
    pub same_top: Estimate,
}

impl KldFigures {
    /// `None` with fewer than two tokens, which have no errors.
    pub fn new(tokens: &[TokenKld]) -> Option<Self> {
        let n = tokens.len() as f64;
        let moments = |f: fn(&TokenKld) -> f64| tokens.iter().map(f).collect::<Moments>();
        let model = mean(&moments(|t| t.nll))?;
        let base = mean(&moments(|t| t.nll_base))?;
        // Of the means: that of the values over n − 1, as the errors are.
        let covariance = tokens
            .iter()
            .map(|t| (t.nll - model.value) * (t.nll_base - base.value))
            .sum::<f64>()
            / n
            / (n - 1.0);
        let correlation = covariance / (model.err * base.err);
        // llama-perplexity takes these errors from variances and covariance, which
        // is the same number but for the digits that cancel.
        let ln_ratio = mean(&moments(|t| t.nll - t.nll_base))?;
        let (ppl, ppl_base) = (exp(model), exp(base));
        let weighted = |t: &TokenKld| ppl.value * t.nll - ppl_base.value * t.nll_base;
        let squares = mean(&moments(|t| t.delta_p().powi(2)))?;
        let rms = squares.value.sqrt();
        let variance: f64 = tokens.iter().map(|t| t.kld_variance).sum();
        let least = moments(|t| t.kld_least).mean;
        let sampling = Sampling {
            err: variance.sqrt() / n,
            least,
        };
        let same = tokens.iter().filter(|t| t.same_top).count() as f64 / n;
        Some(Self {
            tokens: tokens.len(),
            ppl,
            ppl_base,
            correlation: correlation.is_finite().then_some(correlation),
            ln_ratio,
            ratio: exp(ln_ratio),
            difference: Estimate {
                value: ppl.value - ppl_base.value,
                err: mean(&tokens.iter().map(weighted).collect())?.err,
            },
            kld: Distribution::new(tokens.iter().map(|t| t.kld))?,
            sampling: (variance > 0.0).then_some(sampling),
            delta_p: Distribution::new(tokens.iter().map(TokenKld::delta_p))?,
            rms_delta_p: Estimate {
                value: rms,
                // d √x = dx / (2 √x); without any difference there is no error.
                err: if rms > 0.0 {
                    0.5 / rms * squares.err
                } else {
                    0.0
                },
            },
            same_top: Estimate {
                value: same,
                err: (same * (1.0 - same) / (n - 1.0)).sqrt(),
            },
        })
    }
}

/// The mean with `sqrt(var / (n − 1))`, the population variance being meant.
fn mean(moments: &Moments) -> Option<Estimate> {
    let n = moments.n.checked_sub(1).filter(|&n| n > 0)? as f64;
    Some(Estimate {
        value: moments.mean,
        err: (moments.variance()? / n).sqrt(),
    })
}

/// d e^x = e^x dx
fn exp(x: Estimate) -> Estimate {
    let value = x.value.exp();
    Estimate {
        value,
        err: value * x.err,
    }
}
