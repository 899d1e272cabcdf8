//! Scoring a model by its layer windows: all of them on each batch, or one after
//! the other over the whole corpus.

use super::checkpoint::{CheckpointOptions, Checkpoints};
use super::ended::{Ended, ModelPasses};
use super::error::{DeviceError, EvalError};
use super::passes::{Batch, Job};
use crate::backend::{Device, Interrupt, LayerSpan, LayerWindow, LayerWindowModel, Partition};

/// A model whose layers run in windows on one or more devices. The embedding is
/// made on the device of the first window, the head runs on that of the last.
pub struct Layered<'a> {
    devices: Vec<(Device, &'a dyn LayerWindowModel)>,
    partition: Partition,
}

impl<'a> Layered<'a> {
    /// # Errors
    /// A layer window whose device is not there, a device with another model.
    pub fn new(
        devices: Vec<(Device, &'a dyn LayerWindowModel)>,
        partition: Partition,
    ) -> Result<Self, DeviceError> {
        let has = |span: &LayerSpan| devices.iter().any(|(device, _)| *device == span.device);
        if let Some(span) = partition.spans().iter().find(|span| !has(span)) {
            return Err(DeviceError::Missing(span.clone()));
        }
        for (device, model) in &devices {
            if model.n_layer() != partition.n_layer() {
                return Err(DeviceError::Layers {
                    partition: partition.n_layer(),
                    device: *device,
                    model: model.n_layer(),
                });
            }
        }
        Ok(Self { devices, partition })
    }

    /// All layers in one window on one device.
    pub fn whole(device: Device, model: &'a dyn LayerWindowModel) -> Self {
        Self {
            devices: vec![(device, model)],
            partition: Partition::whole(device, model.n_layer()),
        }
    }

    /// Which device computes which layers.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The model on a device that a layer window names.
    fn on(&self, span: &LayerSpan) -> Result<&'a dyn LayerWindowModel, EvalError> {
        let mut devices = self.devices.iter();
        let found = devices.find(|(device, _)| *device == span.device);
        found
            .map(|(_, model)| *model)
            .ok_or_else(|| DeviceError::Missing(span.clone()).into())
    }
}

/// The passes of one model's layer windows.
pub(super) struct LayerPasses<'a> {
    model: &'a Layered<'a>,
    passes: Vec<&'a [LayerSpan]>,
    /// The layer windows of the current pass.
    windows: Vec<Box<dyn LayerWindow + 'a>>,
    states: Checkpoints,
    interrupt: &'a Interrupt,
}

impl<'a> LayerPasses<'a> {
    pub fn new(model: &'a Layered<'a>, job: Job<'a>, checkpoints: &CheckpointOptions) -> Self {
        let rows = job.plan.windows().iter().map(|w| w.len - 1).sum();
        Self {
            model,
            passes: model.partition.passes(),
            windows: Vec::new(),
            states: Checkpoints::new(checkpoints.clone(), rows),
            interrupt: job.interrupt,
        }
    }
}

impl ModelPasses for LayerPasses<'_> {
    fn count(&self) -> usize {
        self.passes.len()
    }

    /// Puts the layer windows of a pass on their devices.
    fn begin(&mut self, pass: usize) -> Result<(), EvalError> {
        // The old ones leave their devices before the new ones come.
        self.windows.clear();
        for span in self.passes[pass] {
            let window = self.model.on(span)?.layers(span.layers.clone());
            self.windows.push(window.map_err(EvalError::Backend)?);
        }
        for span in self.passes.get(pass + 1).into_iter().copied().flatten() {
            self.model.on(span)?.prefetch(span.layers.clone());
        }
        Ok(())
    }

    /// Takes a batch through the layers of a pass. The last pass yields its hidden
    /// states and the model whose head they are for.
    fn advance(&mut self, pass: usize, batch: &Batch) -> Result<Option<Ended<'_>>, EvalError> {
        let (first, last) = (pass == 0, pass + 1 == self.passes.len());
        let spans = self.passes[pass];
        let (Some(first_span), Some(last_span)) = (spans.first(), spans.last()) else {
            return Ok(None);
        };
        // Whole-device runs keep nothing and need no tags.
        let tags = match first && last {
            true => Vec::new(),
            false => batch.tags(),
        };
        let sequences = batch.sequences();
        let mut hidden = if first {
            let tokens: Vec<&[u32]> = sequences.iter().map(|s| s.tokens).collect();
            let embedding = self.model.on(first_span)?;
            let n_ctx = sequences.iter().map(|s| s.n_ctx).max().unwrap_or(0);
            embedding
                .embed(&tokens, n_ctx)
                .map_err(EvalError::Backend)?
        } else {
            let (kept, hidden) = self.states.take(batch.index)?;
            let wrong = |i: &usize| kept.get(*i) != tags.get(*i);
            if let Some(i) = (0..batch.windows.len()).find(wrong) {
                let window = batch.windows[i].index;
                return Err(EvalError::Replay { window, pass });
            }
            hidden
        };
        // A target is predicted by the row before it.
        let needed = sequences.iter().map(|s| s.first_target - 1);
        hidden.needed_from = needed.min().unwrap_or(0);
        for window in &mut self.windows {
            window.reset_state();
            window
                .forward(&mut hidden, self.interrupt)
                .map_err(EvalError::Backend)?;
        }
        if !last {
            self.states.put(batch.index, tags, hidden)?;
            return Ok(None);
        }
        Ok(Some(Ended::Hidden {
            hidden,
            head: self.model.on(last_span)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::CPU;
    use crate::backend::cuda::CUDA;
    use std::ops::Range;

    use super::*;
    use crate::backend::{BackendError, Hidden, Target, TokenScore};
    use crate::eval::passes::{Passes, run_passes};
    use crate::eval::{Feed, Geometry, Limits, WindowPlan};

    /// Two layers; a hidden state is a token's id, which each layer doubles.
    struct Doubling;

    struct Double(Range<usize>);

    impl LayerWindowModel for Doubling {
        fn n_layer(&self) -> usize {
            2
        }

        fn n_vocab(&self) -> usize {
            1000
        }

        fn n_embd(&self) -> usize {
            1
        }

        fn embed(&self, sequences: &[&[u32]], n_ctx: usize) -> Result<Hidden, BackendError> {
            Ok(Hidden {
                data: sequences.concat().iter().map(|&id| id as f32).collect(),
                width: 1,
                carried: Vec::new(),
                lens: sequences.iter().map(|s| s.len()).collect(),
                n_ctx,
                needed_from: 0,
            })
        }

        fn layers(&self, range: Range<usize>) -> Result<Box<dyn LayerWindow + '_>, BackendError> {
            Ok(Box::new(Double(range)))
        }

        fn head_rows(&self, hidden: &Hidden, rows: &[usize]) -> Vec<f32> {
            rows.iter().map(|&row| hidden.data[row]).collect()
        }

        /// A hidden state is the logit of every id.
        fn logits(
            &self,
            head_rows: &[f32],
            vocab: Range<usize>,
            _interrupt: &Interrupt,
        ) -> Result<Vec<f32>, BackendError> {
            let row = |&x: &f32| std::iter::repeat_n(x, vocab.len());
            Ok(head_rows.iter().flat_map(row).collect())
        }

        fn score_targets(
            &self,
            hidden: &Hidden,
            targets: &[Target],
            _interrupt: &Interrupt,
        ) -> Result<Vec<TokenScore>, BackendError> {
            let score = |t: &Target| TokenScore {
                nll: hidden.data[t.row].into(),
                rank: 0,
                top_id: 0,
                top_p: 1.0,
                entropy: 0.0,
            };
            Ok(targets.iter().map(score).collect())
        }
    }

    impl LayerWindow for Double {
        fn range(&self) -> Range<usize> {
            self.0.clone()
        }

        fn reset_state(&mut self) {}

        fn forward(&mut self, hidden: &mut Hidden, _: &Interrupt) -> Result<(), BackendError> {
            let factor = (1u32 << self.0.len()) as f32;
            hidden.data.iter_mut().for_each(|x| *x *= factor);
            Ok(())
        }
    }

    /// A cycle in which two slots change places after the first pass.
    struct Swapping<'a>(LayerPasses<'a>, usize, usize);

    impl Passes for Swapping<'_> {
        fn count(&self) -> usize {
            self.0.count()
        }

        fn begin(&mut self, pass: usize) -> Result<(), EvalError> {
            if pass == 1 {
                self.0.states.swap(self.1, self.2);
            }
            self.0.begin(pass)
        }

        fn batch(
            &mut self,
            pass: usize,
            batch: &Batch,
        ) -> Result<Option<Vec<Vec<TokenScore>>>, EvalError> {
            match self.0.advance(pass, batch)? {
                Some(ended) => ended
                    .scores(&batch.sequences(), &Interrupt::default())
                    .map(Some),
                None => Ok(None),
            }
        }
    }

    #[test]
    fn hidden_states_of_another_window_are_noticed() {
        let tokens: Vec<u32> = (0..40).collect();
        let plan = WindowPlan::new(40, Geometry::teacher_forced(10), Limits::default()).unwrap();
        let partition = Partition::cycle(CPU, 2, 1);
        let model = Layered::new(vec![(CPU, &Doubling)], partition).unwrap();
        let interrupt = Interrupt::default();
        for memory in [0, 1000] {
            let run = |a, b| {
                let options = CheckpointOptions {
                    memory,
                    ..CheckpointOptions::default()
                };
                let job = Job {
                    tokens: &tokens,
                    plan: &plan,
                    feed: Feed {
                        bos: None,
                        batch: 1,
                    },
                    interrupt: &interrupt,
                    checkpoints: &options,
                };
                let passes = LayerPasses::new(&model, job, &options);
                run_passes(&mut Swapping(passes, a, b), job, &mut |_| ())
            };
            let good = run(0, 0).unwrap();
            // The target at position 1 of window 3 is scored from the id 30.
            assert_eq!((good.len(), good[3].tokens[0].nll), (4, 120.0));
            let error = run(1, 3).unwrap_err();
            assert_eq!(error, EvalError::Replay { window: 1, pass: 1 });
            assert_eq!(
                error.to_string(),
                "the hidden states kept for window 1 belong to other tokens than pass 1 evaluates"
            );
        }
    }

    #[test]
    fn devices_that_do_not_fit() {
        let new = |device, partition| {
            let error = Layered::new(vec![(device, &Doubling)], partition).err();
            error.map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(
            new(CPU, Partition::whole(CUDA, 2)),
            "there is no model on the device of the layer window cuda[0,2)"
        );
        assert_eq!(
            new(CPU, Partition::whole(CPU, 3)),
            "the partition has 3 layers, the model on cpu has 2"
        );
    }
}
