//! Noise of one unit in the last place, the same wherever and whenever a value is
//! computed.

use crate::isa::{Isa, multiversion};
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
            if *x != 0.0 && x.is_finite() && moved.is_finite() {
                *x = moved;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 150;

    fn rows() -> Vec<f32> {
        let x = |i: usize| (i as f32 * 0.37).sin() * 10f32.powi(i as i32 % 7 - 3);
        (0..9 * WIDTH).map(x).collect()
    }

    fn jittered(isa: Isa, xs: &[f32], seed: u64) -> Vec<f32> {
        let mut out = xs.to_vec();
        apply(isa, &mut out, WIDTH, seed);
        out
    }

    #[test]
    fn every_value_moves_to_a_neighbour() {
        let xs = rows();
        let want = jittered(Isa::detect(), &xs, 1);
        let up = xs.iter().zip(&want).filter(|(x, y)| **y == x.next_up());
        let down = xs.iter().zip(&want).filter(|(x, y)| **y == x.next_down());
        let (up, down) = (up.count(), down.count());
        // All but the one that is 0; as if by a coin.
        assert_eq!(up + down, xs.len() - 1);
        assert!(up.abs_diff(down) < 4 * 37, "{up} up, {down} down");
        for isa in Isa::available() {
            assert!(jittered(isa, &xs, 1) == want, "{}", isa.name());
        }
    }

    #[test]
    fn seed_layer_position_and_column_decide() {
        let same = |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a == b).count();
        let isa = Isa::detect();
        let ones = vec![1.0; 2 * WIDTH];
        let x = jittered(isa, &ones, of_layer(1, 0));
        for seed in [of_layer(2, 0), of_layer(1, 1), of_layer(0, 1)] {
            let half = same(&x, &jittered(isa, &ones, seed));
            assert!((100..200).contains(&half), "{half} of 300 the same");
        }
        let (first, second) = x.split_at(WIDTH);
        assert!((50..100).contains(&same(first, second)));
        assert!((16..48).contains(&same(&x[..64], &x[64..128])));
        // A row alone is jittered as among others.
        assert_eq!(jittered(isa, &ones[..WIDTH], of_layer(1, 0)), first);
    }

    #[test]
    fn numbers_stay_numbers() {
        let tiny = f32::from_bits(1);
        let xs = [
            0.0,
            -0.0,
            f32::MAX,
            f32::MIN,
            tiny,
            -tiny,
            f32::NAN,
            f32::INFINITY,
        ];
        for seed in 0..64 {
            let mut out = xs;
            apply(Isa::detect(), &mut out, xs.len(), seed);
            assert!(out[..6].iter().all(|x| x.is_finite()), "{out:?}");
            assert!(out[0].to_bits() == 0 && out[1].to_bits() == 1 << 31);
            assert!(out[6].is_nan() && out[7] == f32::INFINITY);
        }
    }
}
