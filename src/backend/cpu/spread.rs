//! One loop for both ways of sharing work: where a batch has a sequence for
//! every thread, each sequence stays on one thread; where it has fewer, the rows
//! of a sequence are spread over all. The arithmetic is the same either way.

use rayon::prelude::*;

/// Calls `f(i, chunk)` for the chunks of `data`, on all threads if `spread`,
/// else as one whole chunk: serial code needs no cuts.
pub fn chunks_mut(
    spread: bool,
    data: &mut [f32],
    size: usize,
    f: impl Fn(usize, &mut [f32]) + Sync,
) {
    if spread {
        data.par_chunks_mut(size)
            .enumerate()
            .for_each(|(i, chunk)| f(i, chunk));
    } else if !data.is_empty() {
        f(0, data);
    }
}
