//! The next layer window, on its way to the device while the current one computes.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::chunk::pack;
use super::gpu::Gpu;
use super::memory::Allocation;
use super::upload::upload;
use crate::model::Model;

/// The layer window that is wanted next.
pub(super) enum Next {
    /// Nothing is on its way yet: the batch that runs now may need the room.
    Wanted(Range<usize>),
    Coming(Prefetch),
}

impl Next {
    /// Starts what is wanted.
    pub fn start(self, gpu: &Arc<Gpu>, model: &Arc<Model>) -> Option<Self> {
        match self {
            Next::Wanted(range) => Prefetch::start(gpu, model, range).map(Next::Coming),
            coming => Some(coming),
        }
    }

    /// The weights of `range`, if they are what was fetched.
    pub fn finish(self, range: &Range<usize>) -> Option<Allocation> {
        match self {
            Next::Wanted(_) => None,
            Next::Coming(prefetch) => prefetch.finish(range),
        }
    }
}

/// Weights of a layer window on their way to the device.
pub(super) struct Prefetch {
    range: Range<usize>,
    thread: Option<JoinHandle<Option<Allocation>>>,
}

impl Prefetch {
    fn start(gpu: &Arc<Gpu>, model: &Arc<Model>, range: Range<usize>) -> Option<Self> {
        let (gpu, model, layers) = (gpu.clone(), model.clone(), range.clone());
        // What goes wrong here, as where there is no room, is nothing lost but
        // time: the window is loaded when it is asked for, and errors are met then.
        let fetch = move || {
            let (_, packer) = pack(&model, layers).ok()?;
            upload(
                &gpu,
                &model.gguf,
                &packer,
                "the next layer window's weights",
            )
            .ok()
        };
        let thread = std::thread::Builder::new().name("cuda-prefetch".to_owned());
        Some(Self {
            range,
            thread: Some(thread.spawn(fetch).ok()?),
        })
    }

    fn finish(mut self, range: &Range<usize>) -> Option<Allocation> {
        let weights = self.thread.take()?.join().ok().flatten();
        weights.filter(|_| self.range == *range)
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
