//! The figures of a comparison with a base, as llama-perplexity's
//! `--kl-divergence` has them: the same names, the same formulas.

use crate::eval::TokenKld;
use crate::stats::{self, Estimate, Summary};

/// The error of a mean KLD that is estimated from a stored base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Standard error of the estimate, beside that of the tokens.
    pub err: f64,
    /// The exact mean is no less, whatever the sample.
    pub least: f64,
}

/// Everything that llama-perplexity prints of two models on the same tokens.
/// Every figure has its error, which takes tokens as independent.
#[derive(Clone, Debug, PartialEq)]
pub struct KldFigures {
    /// Perplexity of the model, `PPL(Q)`.
    pub ppl: Estimate,
    /// Perplexity of the base.
    pub ppl_base: Estimate,
    /// Pearson's correlation of the NLLs; `None` where one does not vary.
    pub correlation: Option<f64>,
    /// `ln(PPL(Q) / PPL(base))`.
    pub ln_ratio: Estimate,
    /// `PPL(Q) / PPL(base)`.
    pub ratio: Estimate,
    /// `PPL(Q) − PPL(base)`.
    pub difference: Estimate,
    /// Nats.
    pub kld: Summary,
    /// What a stored base's sampling does to the mean KLD; `None` where the base
    /// is known in full.
    pub sampling: Option<Sampling>,
    /// From −1 to 1.
    pub delta_p: Summary,
    /// Share of the tokens, from 0 to 1.
    pub same_top: Estimate,
}

/// Why a comparison has no figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum NoKldFigures {
    #[error("one scored token is too few for a comparison")]
    TooFew,
    #[error(
        "{0} is beyond the range of f64: perplexity overflows; one of the models is broken or its file \
         damaged"
    )]
    Overflow(&'static str),
}

impl KldFigures {
    /// The figures of the tokens that were compared.
    ///
    /// # Errors
    /// Fewer than two tokens, which have no errors; a figure that is not finite.
    pub fn new(tokens: &[TokenKld]) -> Result<Self, NoKldFigures> {
        let figures = Self::of(tokens).ok_or(NoKldFigures::TooFew)?;
        match figures.not_finite() {
            None => Ok(figures),
            Some(name) => Err(NoKldFigures::Overflow(name)),
        }
    }

    /// The first figure that is not finite.
    fn not_finite(&self) -> Option<&'static str> {
        [
            ("PPL(Q)", self.ppl),
            ("PPL(base)", self.ppl_base),
            ("ln(PPL(Q)/PPL(base))", self.ln_ratio),
            ("PPL(Q)/PPL(base)", self.ratio),
            ("PPL(Q)-PPL(base)", self.difference),
            ("the KLD", self.kld.mean),
            ("the KLD's root mean square", self.kld.rms),
            ("Δp", self.delta_p.mean),
        ]
        .into_iter()
        .find(|(_, e)| !(e.value.is_finite() && e.se.is_none_or(f64::is_finite)))
        .map(|(name, _)| name)
    }

    fn of(tokens: &[TokenKld]) -> Option<Self> {
        if tokens.len() < 2 {
            return None;
        }
        let mean = |f: &dyn Fn(&TokenKld) -> f64| stats::mean(tokens.iter().map(f));
        let ppl = exp(mean(&|t| t.nll)?);
        let ppl_base = exp(mean(&|t| t.nll_base)?);
        // llama-perplexity takes these errors from variances and covariance, which
        // is the same number but for the digits that cancel.
        let ln_ratio = mean(&|t| t.nll - t.nll_base)?;
        let weighted = mean(&|t| ppl.value * t.nll - ppl_base.value * t.nll_base)?;
        let variance: f64 = tokens.iter().map(|t| t.kld_variance).sum();
        let sampling = Sampling {
            err: variance.sqrt() / tokens.len() as f64,
            least: mean(&|t| t.kld_least)?.value,
        };
        Some(Self {
            ppl,
            ppl_base,
            correlation: stats::correlation(tokens.iter().map(|t| (t.nll, t.nll_base))),
            ln_ratio,
            ratio: exp(ln_ratio),
            difference: Estimate {
                value: ppl.value - ppl_base.value,
                se: weighted.se,
            },
            kld: Summary::new(tokens.iter().map(|t| t.kld).collect())?,
            sampling: (variance > 0.0).then_some(sampling),
            delta_p: Summary::new(tokens.iter().map(TokenKld::delta_p).collect())?,
            same_top: stats::share(tokens.iter().filter(|t| t.same_top).count(), tokens.len())?,
        })
    }

    /// Tokens that were compared.
    pub fn n(&self) -> usize {
        self.kld.n
    }
}

/// d e^x = e^x dx
fn exp(x: Estimate) -> Estimate {
    let value = x.value.exp();
    Estimate {
        value,
        se: x.se.map(|se| value * se),
    }
}
