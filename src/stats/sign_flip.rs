//! The sign-flip permutation test.

/// Up to so many values, all sign patterns are tried.
const EXACT: usize = 16;
/// Random patterns beyond that.
const DRAWS: u32 = 19_999;

/// Two-sided p-value of the hypothesis that each difference is as likely to have
/// the other sign: the share of sign patterns whose `|sum|` is at least that of
/// the differences as they are. It asks for no distribution.
///
/// All patterns are tried for up to 16 differences; else 19,999 random ones from
/// a fixed seed, and `p = (1 + hits) / (1 + draws)`, which counts the pattern at
/// hand (Phipson and Smyth, "Permutation p-values should never be zero", 2010).
/// The same differences yield the same p.
pub fn sign_flip_p(differences: &[f64]) -> f64 {
    let observed = differences.iter().sum::<f64>().abs();
    let size: f64 = differences.iter().map(|d| d.abs()).sum();
    // Sums of the same terms in another order round differently.
    let least = observed - 1e-12 * size;
    if differences.len() <= EXACT {
        return exact(differences, least);
    }
    let mut random = SplitMix64(0x7070_6c78);
    let words = differences.len().div_ceil(64);
    // Signs of the patterns that are summed together, 64 a word.
    let mut signs = vec![[0; TOGETHER]; words];
    let mut hits = 0;
    let mut left = DRAWS as usize;
    while left > 0 {
        let drawn = left.min(TOGETHER);
        for pattern in 0..drawn {
            signs
                .iter_mut()
                .for_each(|word| word[pattern] = random.next());
        }
        let sums = flipped_sums(differences, &signs);
        hits += sums[..drawn].iter().filter(|s| s.abs() >= least).count();
        left -= drawn;
    }
    (1 + hits) as f64 / f64::from(1 + DRAWS)
}

/// Patterns that are summed together, which the processor does faster than one by
/// one. Each sum has its own terms in their order, so it is the same bits.
const TOGETHER: usize = 16;

fn flipped_sums(differences: &[f64], signs: &[[u64; TOGETHER]]) -> [f64; TOGETHER] {
    let mut sums = [0.0; TOGETHER];
    for (chunk, word) in differences.chunks(64).zip(signs) {
        let mut word = *word;
        for d in chunk {
            for (sum, signs) in sums.iter_mut().zip(&mut word) {
                // The lowest bit becomes the sign.
                *sum += f64::from_bits(d.to_bits() ^ (*signs << 63));
                *signs >>= 1;
            }
        }
    }
    sums
}

/// Patterns and their opposites have the same `|sum|`: the last sign is fixed.
fn exact(differences: &[f64], least: f64) -> f64 {
    let Some((last, rest)) = differences.split_last() else {
        return 1.0;
    };
    let patterns = 1u32 << rest.len();
    let hits = (0..patterns).filter(|signs| {
        let flipped = rest.iter().enumerate();
        let sum = flipped.fold(*last, |sum, (i, d)| match signs >> i & 1 {
            0 => sum + d,
            _ => sum - d,
        });
        sum.abs() >= least
    });
    hits.count() as f64 / f64::from(patterns)
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014):
/// its own, since a library's generator may change with its version, and with it
/// every p.
pub(crate) struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Seeded normal deviates, by Box and Muller.
#[cfg(test)]
pub(crate) struct Normal(SplitMix64);

#[cfg(test)]
impl Normal {
    pub fn new(seed: u64) -> Self {
        Normal(SplitMix64(seed))
    }

    pub fn uniform(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn next(&mut self) -> f64 {
        let r = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        r * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_by_hand() {
        // Sums of ±1 ±2 ±3: 6, 4, 2, 0 and their opposites.
        assert_eq!(sign_flip_p(&[1.0, 2.0, 3.0]), 0.25);
        assert_eq!(sign_flip_p(&[-1.0, 2.0, 3.0]), 0.5);
        assert_eq!(sign_flip_p(&[1.0, 2.0, -3.0]), 1.0);
        assert_eq!(sign_flip_p(&[0.0; 5]), 1.0);
        assert_eq!(sign_flip_p(&[4.0]), 1.0);
        assert_eq!(sign_flip_p(&[]), 1.0);
        // Eight of the same sign: 2 of 2⁸, although tenths are not exact.
        assert_eq!(sign_flip_p(&[0.1; 8]), 2.0 / 256.0);
    }

    /// Patterns one by one, as the definition has them.
    fn drawn_plainly(differences: &[f64]) -> f64 {
        let observed = differences.iter().sum::<f64>().abs();
        let least = observed - 1e-12 * differences.iter().map(|d| d.abs()).sum::<f64>();
        let mut random = SplitMix64(0x7070_6c78);
        let mut hits = 0;
        for _ in 0..DRAWS {
            let mut sum = 0.0;
            for chunk in differences.chunks(64) {
                let mut signs = random.next();
                for d in chunk {
                    sum += if signs & 1 == 0 { *d } else { -*d };
                    signs >>= 1;
                }
            }
            hits += u32::from(sum.abs() >= least);
        }
        f64::from(1 + hits) / f64::from(1 + DRAWS)
    }

    #[test]
    fn sums_taken_together_are_the_same_bits() {
        let mut random = SplitMix64(1);
        for n in [17, 63, 64, 65, 200] {
            for shift in [0.0, 0.02, 0.1] {
                let mut draw = || (random.next() >> 11) as f64 / (1u64 << 53) as f64 - 0.5 + shift;
                let some: Vec<f64> = (0..n).map(|_| draw()).collect();
                assert_eq!(sign_flip_p(&some), drawn_plainly(&some), "{n} {shift}");
            }
        }
    }

    /// Random patterns against all of them: the same differences with zeros, which
    /// change no sum, behind them.
    #[test]
    fn drawn_agrees_with_exact() {
        let some = [0.3, -0.1, 0.25, 0.4, -0.2, 0.15, 0.05, -0.02, 0.11, 0.3];
        let p = sign_flip_p(&some);
        // scipy.stats.permutation_test, all 1024 patterns.
        assert_eq!(p, 84.0 / 1024.0);
        let mut padded = some.to_vec();
        padded.resize(70, 0.0);
        let drawn = sign_flip_p(&padded);
        let se = (p * (1.0 - p) / f64::from(DRAWS)).sqrt();
        assert!((drawn - p).abs() < 4.0 * se, "{drawn} {p}");
        assert_eq!(drawn, sign_flip_p(&padded));
        // Far out, p is at least one in the number of patterns.
        assert_eq!(sign_flip_p(&[1.0; 80]), 1.0 / 20_000.0);
    }
}
