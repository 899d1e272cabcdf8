//! Buffers that one sequence's evaluation needs, kept from layer to layer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::gemm::Packed;
use super::times::{Clock, Times};

#[derive(Default)]
pub(super) struct Scratch {
    pub normed: Vec<f32>,
    pub branch: Vec<f32>,
    pub sum: Vec<f32>,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub mixed: Vec<f32>,
    pub gate: Vec<f32>,
    pub up: Vec<f32>,
    /// Rows before a convolution, or blended with the row before.
    pub raw: Vec<f32>,
    pub blended: Vec<f32>,
    /// What a recurrence reads of each row beside queries, keys and values.
    pub decay: Vec<f32>,
    pub rate: Vec<f32>,
    pub low: Vec<f32>,
    /// States and outputs by head.
    pub scan: Vec<f32>,
    pub heads: HeadScratch,
    pub experts: ExpertScratch,
    pub clock: Clock,
}

/// Packed keys and values, and scores: kept from layer to layer.
#[derive(Default)]
pub(super) struct HeadScratch {
    pub keys: Vec<Packed>,
    pub values: Vec<Packed>,
    pub scores: Vec<f32>,
}

/// Rows that go to one expert, and what routes them.
#[derive(Default)]
pub(super) struct ExpertScratch {
    pub logits: Vec<f32>,
    pub rows: Vec<f32>,
    pub out: Vec<f32>,
}

/// `n` elements of `buffer`, with whatever they held before.
pub(super) fn room(buffer: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
    &mut buffer[..n]
}

/// Scratch for as many sequences as are evaluated at once.
#[derive(Default)]
pub(super) struct Pool {
    scratch: Mutex<Vec<Scratch>>,
    times: Mutex<Times>,
}

impl Pool {
    /// Lends scratch to `f`, whose laps count for as many threads as work on it.
    pub fn with<R>(&self, threads: u32, f: impl FnOnce(&mut Scratch) -> R) -> R {
        let lock = || self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = lock().pop().unwrap_or_default();
        scratch.clock.start();
        let result = f(&mut scratch);
        self.times().merge(&scratch.clock.take(), threads);
        lock().push(scratch);
        result
    }

    /// What has been spent so far.
    pub fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
