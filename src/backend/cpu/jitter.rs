//! Noise of one unit in the last place, the same wherever and whenever a value is
//! computed.

use super::isa::{Isa, multiversion};
use crate::stats::SplitMix64;

/// The seed of a layer's noise.
pub fn of_layer(seed: u64, layer: usize) -> u64 {
    SplitMix64(seed ^ SplitMix64(layer as u64).next()).next()
}

/// Moves every element of rows of `width` to the next f32 away from 0 or towards
/// it, as a hash of `seed`, its row and its column has it. Zeros stay, and so does
/// what would leave the finite numbers.
pub fn apply(isa: Isa, xs: &mut [f32], width: usize, seed: u64) {
    for (position, row) in xs.chunks_exact_mut(width).enumerate() {
        // A generator of its own for each row: 64 columns a number.
        let mut random = SplitMix64(seed ^ SplitMix64(!(position as u64)).next());
        for columns in row.chunks_mut(64) {
            step(isa, columns, random.next());
        }
    }
}

multiversion! {
    /// A step of one for each element, away from 0 where its bit is set.
    fn step(xs: &mut [f32], away: u64) {
        for (i, x) in xs.iter_mut().enumerate() {
            let bits = match away >> i & 1 {
                1 => x.to_bits() + 1,
                _ => x.to_bits().wrapping_sub(1),
            };
            let moved = f32::from_bits(bits);
            if *x != 0.0 && moved.is_finite() {
                *x = moved;
            }
        }
    }
}
