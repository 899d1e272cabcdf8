//! How the work on a sequence is done, which changes no bit of what comes of it.

use rayon::prelude::*;

use crate::isa::Isa;

/// The instruction set of the kernels, and who does the work. Where a batch has a
/// sequence for every thread, each sequence stays on one thread; where it has fewer,
/// the rows of a sequence are spread over all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exec {
    pub isa: Isa,
    /// Whether the rows of a sequence are spread over all threads.
    pub spread: bool,
}

impl Exec {
    /// Calls `f(i, chunk)` for the chunks of `data`, on all threads if rows are spread,
    /// else as one whole chunk: serial code needs no cuts.
    pub fn chunks_mut(&self, data: &mut [f32], size: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
        if self.spread {
            data.par_chunks_mut(size)
                .enumerate()
                .for_each(|(i, chunk)| f(i, chunk));
        } else if !data.is_empty() {
            f(0, data);
        }
    }
}
