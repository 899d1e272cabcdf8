//! A device between the evaluator and the CPU, which can be made to misbehave.

use std::ops::Range;

use pplx::backend::cpu::CpuModel;
use pplx::backend::cuda::CUDA;
use pplx::backend::{
    BackendError, CPU, Hidden, Interrupt, LayerWindow, LayerWindowModel, Partition, Target,
    TokenScore,
};
use pplx::eval::{CheckpointOptions, Feed, Job, Layered, WindowPlan, WindowScore, score};

/// The CPU with a recurrent state on top: each batch's last value is added to the
/// next batch of the same layer window, unless the state is reset between them.
pub struct Probe<'a> {
    pub cpu: &'a CpuModel,
    /// Whether `reset_state` does nothing.
    pub leaks: bool,
    /// Changes the hidden states after the layers up to the given one.
    pub after: &'a (dyn Fn(usize, &mut Hidden) + Sync),
}

struct Window<'a> {
    inner: Box<dyn LayerWindow + 'a>,
    probe: &'a Probe<'a>,
    state: f32,
}

impl LayerWindowModel for Probe<'_> {
    fn n_layer(&self) -> usize {
        self.cpu.n_layer()
    }

    fn n_vocab(&self) -> usize {
        self.cpu.n_vocab()
    }

    fn n_embd(&self) -> usize {
        self.cpu.n_embd()
    }

    fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError> {
        self.cpu.embed(sequences, n_ctx)
    }

    fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
        Ok(Box::new(Window {
            inner: self.cpu.layers(range)?,
            probe: self,
            state: 0.0,
        }))
    }

    fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32> {
        self.cpu.head_rows(hidden, rows)
    }

    fn logits(
        &self,
        head_rows: &[f32],
        vocab: Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<Vec<f32>, BackendError> {
        self.cpu.logits(head_rows, vocab, interrupt)
    }

    fn score_targets(
        &self,
        hidden: &Hidden,
        targets: &[Target],
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenScore>, BackendError> {
        self.cpu.score_targets(hidden, targets, interrupt)
    }
}

impl LayerWindow for Window<'_> {
    fn range(&self) -> Range<usize> {
        self.inner.range()
    }

    fn reset_state(&mut self) {
        if !self.probe.leaks {
            self.state = 0.0;
        }
        self.inner.reset_state();
    }

    fn forward(&mut self, hidden: &mut Hidden, interrupt: &Interrupt) -> Result<(), BackendError> {
        for x in hidden.data.iter_mut().step_by(2) {
            *x += self.state;
        }
        self.inner.forward(hidden, interrupt)?;
        self.state = hidden.data.last().copied().unwrap_or(0.0);
        (self.probe.after)(self.range().end, hidden);
        Ok(())
    }
}

/// Scores with one model standing in for every device.
pub fn score_on(
    model: &dyn LayerWindowModel,
    partition: Partition,
    tokens: &[u32],
    plan: &WindowPlan,
    feed: Feed,
    memory: u64,
) -> Vec<WindowScore> {
    let devices = vec![(CPU, model), (CUDA, model)];
    let model = Layered::new(devices, partition).unwrap_or_else(|e| panic!("{e}"));
    let options = CheckpointOptions {
        memory,
        ..CheckpointOptions::default()
    };
    score(
        &model,
        Job {
            tokens,
            plan,
            feed,
            interrupt: &Interrupt::default(),
            checkpoints: &options,
        },
        &mut |_| (),
    )
    .unwrap_or_else(|e| panic!("{e}"))
}
