//! How fast this machine is at the moment, as a part of what [`Speed`] assumes.
//!
//! [`Speed`]: super::footprint::Speed

use std::time::Instant;

use super::Isa;
use super::footprint::Speed;
use super::gemm::{Packed, Product, multiply};
use crate::backend::Numerics;

/// Rows, inputs and outputs of a product that the caches hold.
const SHAPE: (usize, usize, usize) = (256, 512, 512);
/// Products that are timed, after one that is not.
const ROUNDS: usize = 64;

/// The measured speed of products, with all `threads` at work, over the assumed one.
/// Takes some 50 ms. Clocks and neighbours change: it is a matter of minutes.
pub fn measure(isa: Isa, threads: usize) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = threads.clamp(1, cores);
    let seconds: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..busy).map(|_| scope.spawn(|| a_product(isa))).collect();
        // A thread that panics has not measured anything.
        let seconds = threads
            .into_iter()
            .map(|t| t.join().unwrap_or(f64::INFINITY));
        seconds.sum()
    });
    let (rows, n_in, n_out) = SHAPE;
    let giga = 2e-9 * (rows * n_in * n_out) as f64;
    let measured = giga * busy as f64 / seconds;
    measured / Speed::assumed(isa, Numerics::Exact).products
}

/// Seconds that one takes: the lower quartile, since whatever disturbs only adds.
fn a_product(isa: Isa) -> f64 {
    let (rows, n_in, n_out) = SHAPE;
    // Zeros cost a processor less than numbers do.
    let noise = |i: usize| (i as u32).wrapping_mul(2_654_435_761) as f32 / u32::MAX as f32 - 0.5;
    let x: Vec<f32> = (0..rows * n_in).map(noise).collect();
    let mut w = Packed::zeros(n_in, n_out);
    w.panels_mut_serial()
        .for_each(|panel| panel.copy_from_slice(&x[..panel.len()]));
    let mut out = vec![0.0; rows * n_out];
    let mut times: Vec<f64> = (0..=ROUNDS)
        .map(|_| {
            let start = Instant::now();
            multiply(isa, Product::full(&x, rows, &w), &mut out, n_out);
            start.elapsed().as_secs_f64()
        })
        .skip(1)
        .collect();
    std::hint::black_box(&out);
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_positive_number_for_any_number_of_threads() {
        for threads in [0, 1, 3, 100_000] {
            let pace = measure(Isa::detect(), threads);
            assert!(pace.is_finite() && pace > 0.0, "{threads}: {pace}");
        }
    }
}
