//! The recurrences against plain f64 loops, written from the formulas of
//! `model::recurrent` and not from the kernels.

use super::*;
use crate::isa::Isa;

/// `n` values in `[lo, hi]`, with no pattern that a stride could hide.
fn values(n: usize, lo: f32, hi: f32, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| lo + (hi - lo) * next()).collect()
}

fn f64s(xs: &[f32]) -> Vec<f64> {
    xs.iter().map(|&x| f64::from(x)).collect()
}

const LENS: [usize; 3] = [1, 2, 37];
const N_HEAD: usize = 3;

/// Runs a kernel on [`N_HEAD`] heads in every way; all must give the same bits,
/// close to `want`. The buffer is dirty from the second run on.
fn check(
    scan: Scan,
    len: usize,
    want: &[f64],
    kernel: impl Fn(Isa, usize, &mut [f32], &mut [f32]) + Sync,
) {
    let mut bits: Option<Vec<u32>> = None;
    let mut buffer = vec![7.0; 1];
    for isa in Isa::available() {
        for spread in [false, true] {
            let mut out = vec![f32::NAN; len * scan.n_head * scan.dim];
            scan.run(
                &Exec { isa, spread },
                &mut buffer,
                &mut out,
                |head, state, y| {
                    kernel(isa, head, state, y);
                },
            );
            for (i, (got, want)) in out.iter().zip(want).enumerate() {
                let error = (f64::from(*got) - want).abs();
                assert!(error < 2e-6 * (1.0 + want.abs()), "{got} for {want} at {i}");
            }
            let got: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
            assert!(*bits.get_or_insert_with(|| got.clone()) == got, "bits");
        }
    }
    // What a state left over from another sequence would do: the first outputs,
    // where it has not decayed, all move.
    let outputs = [0.0, 0.5].map(|left_over| {
        let mut state = vec![left_over; scan.n_rows * scan.dim];
        let mut y = vec![0.0; len * scan.dim];
        kernel(Isa::detect(), 0, &mut state, &mut y);
        y.truncate(scan.dim);
        y
    });
    let [fresh, stale] = &outputs;
    let mut pairs = fresh.iter().zip(stale);
    assert!(pairs.all(|(a, b)| (*a - *b).abs() > 1e-3), "a dead state");
}

#[test]
fn mamba1_matches_f64() {
    let (n_state, dim) = (5, 8);
    let n = N_HEAD * dim;
    for len in LENS {
        let (u, delta) = (values(len * n, -1.0, 1.0, 1), values(len * n, 0.01, 1.5, 2));
        let (b, c) = (
            values(len * n_state, -1.0, 1.0, 3),
            values(len * n_state, -1.0, 1.0, 4),
        );
        // `a[channel, state]`, as files have it.
        let (a, d) = (values(n * n_state, -1.5, -0.02, 5), values(n, -1.0, 1.0, 6));
        let mut want = vec![0.0; len * n];
        for channel in 0..n {
            let mut s = vec![0.0f64; n_state];
            for t in 0..len {
                let (u, delta) = (
                    f64::from(u[t * n + channel]),
                    f64::from(delta[t * n + channel]),
                );
                let mut y = f64::from(d[channel]) * u;
                for (i, s) in s.iter_mut().enumerate() {
                    let decay = (delta * f64::from(a[channel * n_state + i])).exp();
                    *s = decay * *s + delta * u * f64::from(b[t * n_state + i]);
                    y += *s * f64::from(c[t * n_state + i]);
                }
                want[t * n + channel] = y;
            }
        }
        let by_state: Vec<f32> = (0..N_HEAD)
            .flat_map(|h| (0..n_state).map(move |i| (h, i)))
            .flat_map(|(h, i)| (0..dim).map(move |p| (h * dim + p) * n_state + i))
            .map(|at| a[at])
            .collect();
        let scan = Scan {
            n_head: N_HEAD,
            n_rows: n_state,
            dim,
        };
        check(scan, len, &want, |isa, h, state, y| {
            mamba1(
                isa,
                state,
                y,
                Columns::group(&u, n, h, dim),
                Columns::group(&delta, n, h, dim),
                Columns::group(&b, n_state, 0, n_state),
                Columns::group(&c, n_state, 0, n_state),
                &by_state[h * dim * n_state..][..dim * n_state],
                &d[h * dim..][..dim],
            );
        });
    }
}

#[test]
fn mamba2_matches_f64() {
    let (n_state, dim) = (5, 19);
    let n = N_HEAD * dim;
    for len in LENS {
        let (u, delta) = (
            values(len * n, -1.0, 1.0, 1),
            values(len * N_HEAD, 0.01, 1.5, 2),
        );
        let (b, c) = (
            values(len * n_state, -1.0, 1.0, 3),
            values(len * n_state, -1.0, 1.0, 4),
        );
        let (a, d) = ([-0.05f32, -0.7, -1.9], [0.4f32, -1.0, 1.3]);
        let mut want = vec![0.0; len * n];
        for (h, (a, d)) in f64s(&a).into_iter().zip(f64s(&d)).enumerate() {
            for p in 0..dim {
                let mut s = vec![0.0f64; n_state];
                for t in 0..len {
                    let at = t * n + h * dim + p;
                    let (u, delta) = (f64::from(u[at]), f64::from(delta[t * N_HEAD + h]));
                    want[at] = d * u;
                    for (i, s) in s.iter_mut().enumerate() {
                        *s = (delta * a).exp() * *s + delta * u * f64::from(b[t * n_state + i]);
                        want[at] += *s * f64::from(c[t * n_state + i]);
                    }
                }
            }
        }
        let scan = Scan {
            n_head: N_HEAD,
            n_rows: n_state,
            dim,
        };
        check(scan, len, &want, |isa, h, state, y| {
            mamba2(
                isa,
                state,
                y,
                Columns::group(&u, n, h, dim),
                Columns::group(&delta, N_HEAD, h, 1),
                Columns::group(&b, n_state, 0, n_state),
                Columns::group(&c, n_state, 0, n_state),
                a[h],
                d[h],
            );
        });
    }
}

#[test]
fn delta_net_matches_f64() {
    let dim = 18;
    let n = N_HEAD * dim;
    for len in LENS {
        let data = |seed| values(len * n, -0.4, 0.4, seed);
        let (q, k, v) = (data(1), data(2), data(3));
        let (g, beta) = (
            values(len * N_HEAD, -0.8, -0.01, 4),
            values(len * N_HEAD, 0.1, 0.9, 5),
        );
        let mut want = vec![0.0; len * n];
        for h in 0..N_HEAD {
            // `s[i][j]`: key i, value j.
            let mut s = vec![vec![0.0f64; dim]; dim];
            for t in 0..len {
                let row = |m: &[f32]| f64s(&m[t * n + h * dim..][..dim]);
                let (q, k, v) = (row(&q), row(&k), row(&v));
                let decay = f64::from(g[t * N_HEAD + h]).exp();
                s.iter_mut().flatten().for_each(|s| *s *= decay);
                for j in 0..dim {
                    let read: f64 = (0..dim).map(|i| s[i][j] * k[i]).sum();
                    let update = f64::from(beta[t * N_HEAD + h]) * (v[j] - read);
                    for i in 0..dim {
                        s[i][j] += k[i] * update;
                    }
                    want[t * n + h * dim + j] = (0..dim).map(|i| s[i][j] * q[i]).sum();
                }
            }
        }
        let scan = Scan {
            n_head: N_HEAD,
            n_rows: dim + 1,
            dim,
        };
        check(scan, len, &want, |isa, h, state, y| {
            let of = |m| Columns::group(m, n, h, dim);
            let one = |m| Columns::group(m, N_HEAD, h, 1);
            delta_net(isa, state, y, of(&q), of(&k), of(&v), one(&g), one(&beta));
        });
    }
}

#[test]
fn rwkv6_matches_f64() {
    let dim = 18;
    let n = N_HEAD * dim;
    for len in LENS {
        let data = |seed| values(len * n, -0.6, 0.6, seed);
        let (r, k, v) = (data(1), data(2), data(3));
        let (w, bonus) = (values(len * n, 0.3, 0.99, 4), values(n, -1.0, 1.0, 5));
        let mut want = vec![0.0; len * n];
        for h in 0..N_HEAD {
            let mut s = vec![vec![0.0f64; dim]; dim];
            for t in 0..len {
                let row = |m: &[f32]| f64s(&m[t * n + h * dim..][..dim]);
                let (r, k, v, w) = (row(&r), row(&k), row(&v), row(&w));
                for i in 0..dim {
                    let u = f64::from(bonus[h * dim + i]);
                    for j in 0..dim {
                        want[t * n + h * dim + j] += r[i] * (u * k[i] * v[j] + s[i][j]);
                        s[i][j] = w[i] * s[i][j] + k[i] * v[j];
                    }
                }
            }
        }
        let scan = Scan {
            n_head: N_HEAD,
            n_rows: dim,
            dim,
        };
        check(scan, len, &want, |isa, h, state, y| {
            let of = |m| Columns::group(m, n, h, dim);
            let bonus = &bonus[h * dim..][..dim];
            rwkv6(isa, state, y, of(&r), of(&w), of(&k), of(&v), bonus);
        });
    }
}

#[test]
fn rwkv7_matches_f64() {
    let dim = 18;
    let n = N_HEAD * dim;
    for len in LENS {
        let data = |seed| values(len * n, -0.4, 0.4, seed);
        let (r, k, v, removal) = (data(1), data(2), data(3), data(4));
        let (w, rate) = (values(len * n, 0.55, 0.99, 5), values(len * n, 0.1, 0.9, 6));
        let mut want = vec![0.0; len * n];
        for h in 0..N_HEAD {
            // `s[i][j]`: value i, key j.
            let mut s = vec![vec![0.0f64; dim]; dim];
            for t in 0..len {
                let row = |m: &[f32]| f64s(&m[t * n + h * dim..][..dim]);
                let (r, k, v, w) = (row(&r), row(&k), row(&v), row(&w));
                let (removal, rate) = (row(&removal), row(&rate));
                for i in 0..dim {
                    let read: f64 = (0..dim).map(|j| s[i][j] * removal[j]).sum();
                    for j in 0..dim {
                        s[i][j] = w[j] * s[i][j] - read * removal[j] * rate[j] + v[i] * k[j];
                    }
                    want[t * n + h * dim + i] = (0..dim).map(|j| s[i][j] * r[j]).sum();
                }
            }
        }
        let scan = Scan {
            n_head: N_HEAD,
            n_rows: dim + 1,
            dim,
        };
        check(scan, len, &want, |isa, h, state, y| {
            let of = |m| Columns::group(m, n, h, dim);
            let (removal, rate) = (of(&removal), of(&rate));
            rwkv7(isa, state, y, of(&r), of(&w), of(&k), of(&v), removal, rate);
        });
    }
}
