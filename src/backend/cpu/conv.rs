//! Causal convolutions along the positions, each channel by itself.

use super::exec::Exec;
use crate::isa::multiversion;
use crate::model::CausalConv;

pub(super) struct LoadedConv<'m> {
    n_channels: usize,
    /// `width × n_channels`, so that channels lie side by side.
    taps: Vec<f32>,
    bias: Option<&'m [f32]>,
}

impl<'m> LoadedConv<'m> {
    pub fn load(spec: &'m CausalConv) -> Self {
        let taps = (0..spec.width)
            .flat_map(|j| spec.weight.values.iter().skip(j).step_by(spec.width))
            .copied()
            .collect();
        Self {
            n_channels: spec.n_channels,
            taps,
            bias: spec.bias.as_ref().map(|b| b.values.as_slice()),
        }
    }

    /// `out ← conv(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], out: &mut [f32]) {
        let isa = exec.isa;
        const ROWS: usize = 32;
        let n = self.n_channels;
        exec.chunks_mut(out, ROWS * n, |i, out| {
            rows(isa, out, i * ROWS, x, &self.taps, self.bias, n);
        });
    }
}

multiversion! {
    /// The output rows from row `first` on.
    fn rows(out: &mut [f32], first: usize, x: &[f32], taps: &[f32], bias: Option<&[f32]>, n: usize) {
        let width = taps.len() / n;
        for (t, out) in (first..).zip(out.chunks_exact_mut(n)) {
            match bias {
                Some(bias) => out.copy_from_slice(bias),
                None => out.fill(0.0),
            }
            for (j, tap) in taps.chunks_exact(n).enumerate() {
                // The row `width − 1 − j` positions back.
                let Some(row) = (t + j + 1).checked_sub(width) else { continue };
                for ((o, w), x) in out.iter_mut().zip(tap).zip(&x[row * n..][..n]) {
                    *o = w.mul_add(*x, *o);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::model::Vector;

    fn values(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.7 + seed).sin()).collect()
    }

    #[test]
    fn matches_f64_for_any_cut() {
        for (len, n, width) in [(1, 5, 4), (2, 16, 4), (3, 7, 1), (70, 19, 3)] {
            let x = values(len * n, 0.3);
            let vector = |values| Vector {
                tensor: String::new(),
                values,
            };
            let spec = CausalConv {
                n_channels: n,
                width,
                weight: vector(values(n * width, 1.1)),
                bias: (width > 1).then(|| vector(values(n, 2.2))),
            };
            let conv = LoadedConv::load(&spec);
            let mut bits: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                for spread in [false, true] {
                    let mut out = vec![f32::NAN; len * n];
                    conv.apply(&Exec { isa, spread }, &x, &mut out);
                    for t in 0..len {
                        for c in 0..n {
                            let mut want = spec.bias.as_ref().map_or(0.0, |b| b.values[c].into());
                            for back in 0..width.min(t + 1) {
                                let w = spec.weight.values[c * width + width - 1 - back];
                                want += f64::from(w) * f64::from(x[(t - back) * n + c]);
                            }
                            let got = f64::from(out[t * n + c]);
                            assert!((got - want).abs() < 1e-6, "{got} for {want} at {t}, {c}");
                        }
                    }
                    let got: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
                    assert!(*bits.get_or_insert_with(|| got.clone()) == got, "bits");
                }
            }
        }
    }
}
