//! What is scored, and scoring.

use super::checkpoint::CheckpointOptions;
use super::ended::{Ended, ModelPasses};
use super::error::EvalError;
use super::layered::{LayerPasses, Layered};
use super::model::PerplexityModel;
use super::passes::{Batch, Job, Passes, Progress, WindowScore, run_passes};
use crate::backend::{Interrupt, TokenScore};

/// A model, in either of the ways in which one can be evaluated.
pub enum Scorer<'a> {
    /// Windows of the corpus as a whole: anybody's model.
    Windows(&'a mut dyn PerplexityModel),
    /// Windows of layers, on one or more devices.
    Layers(&'a Layered<'a>),
}

impl<'a, M: PerplexityModel> From<&'a mut M> for Scorer<'a> {
    fn from(model: &'a mut M) -> Self {
        Scorer::Windows(model)
    }
}

impl<'a> From<&'a Layered<'a>> for Scorer<'a> {
    fn from(model: &'a Layered<'a>) -> Self {
        Scorer::Layers(model)
    }
}

impl<'a> Scorer<'a> {
    /// The same for a while.
    pub fn by_ref(&mut self) -> Scorer<'_> {
        match self {
            Scorer::Windows(model) => Scorer::Windows(&mut **model),
            Scorer::Layers(model) => Scorer::Layers(model),
        }
    }

    pub(super) fn passes(
        self,
        job: Job<'a>,
        checkpoints: &CheckpointOptions,
    ) -> Box<dyn ModelPasses + 'a> {
        match self {
            Scorer::Windows(model) => Box::new(OnePass(model)),
            Scorer::Layers(model) => Box::new(LayerPasses::new(model, job, checkpoints)),
        }
    }
}

/// Scores every window of the job, in order, calling `each` before each pass and
/// after each batch of windows.
///
/// A partition that cycles takes one pass a layer window: the first embeds, each
/// leaves its hidden states to the next, the last runs the head. Everything else
/// takes one pass. Both yield the same bits.
///
/// # Errors
/// Values that are not finite, scores that are none, ids outside the vocabulary,
/// hidden states that cannot be kept, interruption.
pub fn score<'a>(
    scorer: impl Into<Scorer<'a>>,
    job: Job<'a>,
    each: &mut dyn FnMut(Progress),
) -> Result<Vec<WindowScore>, EvalError> {
    let mut passes = Scoring {
        model: scorer.into().passes(job, job.checkpoints),
        interrupt: job.interrupt,
    };
    run_passes(&mut passes, job, each)
}

/// A model that evaluates a window from end to end: one pass.
struct OnePass<'a>(&'a mut dyn PerplexityModel);

impl ModelPasses for OnePass<'_> {
    fn count(&self) -> usize {
        1
    }

    fn begin(&mut self, _pass: usize) -> Result<(), EvalError> {
        Ok(())
    }

    fn advance(&mut self, _pass: usize, _batch: &Batch) -> Result<Option<Ended<'_>>, EvalError> {
        Ok(Some(Ended::Whole(self.0)))
    }
}

struct Scoring<'a> {
    model: Box<dyn ModelPasses + 'a>,
    interrupt: &'a Interrupt,
}

impl Passes for Scoring<'_> {
    fn count(&self) -> usize {
        self.model.count()
    }

    fn begin(&mut self, pass: usize) -> Result<(), EvalError> {
        self.model.begin(pass)
    }

    fn batch(
        &mut self,
        pass: usize,
        batch: &Batch,
    ) -> Result<Option<Vec<Vec<TokenScore>>>, EvalError> {
        match self.model.advance(pass, batch)? {
            Some(ended) => ended.scores(&batch.sequences(), self.interrupt).map(Some),
            None => Ok(None),
        }
    }
}
