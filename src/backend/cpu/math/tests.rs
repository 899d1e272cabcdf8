//! Each kernel against its formula in f64, on every instruction set.

use super::*;
use crate::isa::Isa;

fn each_isa(f: impl Fn(Isa)) {
    Isa::available().into_iter().for_each(f);
}

/// A spread of values in `[lo, hi]`, deterministic.
fn values(lo: f32, hi: f32, n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| lo + (hi - lo) * ((i as f32 * 0.618_034) % 1.0))
        .collect()
}

#[test]
fn exp32_is_within_two_ulp() {
    for x in values(-87.2, 88.2, 200_001) {
        let exact = f64::from(x).exp();
        let ulp = f64::from(f32::EPSILON) * exact;
        let error = (f64::from(exp32(x)) - exact).abs();
        assert!(error <= 2.0 * ulp, "exp({x}) is off by {} ulp", error / ulp);
    }
    assert_eq!(exp32(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp32(0.0), 1.0);
    assert!(exp32(f32::NAN).is_nan());
    assert!(exp32(f32::INFINITY) > 1e38);
}

#[test]
fn exp64_is_within_its_bound() {
    for x in values(-700.0, 0.0, 200_001) {
        let x = f64::from(x);
        let exact = x.exp();
        assert!((exp64(x) - exact).abs() <= 1e-15 * exact, "exp({x})");
    }
    assert_eq!(exp64(0.0), 1.0);
    assert_eq!(exp64(f64::NEG_INFINITY), 0.0);
    assert!(exp64(f64::NAN).is_nan());
}

#[test]
fn activations_match_their_formulas() {
    let xs = values(-30.0, 30.0, 1003);
    let ups = values(-2.0, 2.0, 1003);
    each_isa(|isa| {
        let (mut silu, mut gelu) = (xs.clone(), xs.clone());
        silu_mul(isa, &mut silu, &ups);
        gelu_tanh_mul(isa, &mut gelu, &ups);
        for i in 0..xs.len() {
            let (x, u) = (f64::from(xs[i]), f64::from(ups[i]));
            let want_silu = x / (1.0 + (-x).exp()) * u;
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            let want_gelu = 0.5 * x * (1.0 + inner.tanh()) * u;
            assert!((f64::from(silu[i]) - want_silu).abs() <= 1e-6 * (1e-2 + want_silu.abs()));
            assert!((f64::from(gelu[i]) - want_gelu).abs() <= 1e-6 * (1e-1 + want_gelu.abs()));
        }
    });
}

#[test]
fn tanh_and_softplus_are_within_a_few_ulp() {
    each_isa(|isa| {
        let xs: Vec<f32> = [values(-95.0, 40.0, 20_001), values(-1.0, 1.0, 20_001)].concat();
        let (mut t, mut s) = (xs.clone(), xs.clone());
        tanh(isa, &mut t);
        softplus(isa, &mut s);
        for ((x, t), s) in xs.iter().zip(t).zip(s) {
            let x = f64::from(*x);
            let (tanh, softplus) = (x.tanh(), x.exp().ln_1p());
            assert!(
                (f64::from(t) - tanh).abs() <= 5e-7 * tanh.abs(),
                "tanh({x})"
            );
            // Below, `exp32` is 0.
            let tiny = 2.0 * f64::from(f32::MIN_POSITIVE);
            assert!(
                (f64::from(s) - softplus).abs() <= 5e-7 * softplus + tiny,
                "softplus({x})"
            );
        }
    });
}

#[test]
fn blends_and_lengths_match_their_formulas() {
    let (x, lerps) = (values(-2.0, 2.0, 5 * 17), values(-1.0, 1.0, 5 * 17));
    each_isa(|isa| {
        for lerp in [&lerps[..17], &lerps[..]] {
            let mut out = vec![f32::NAN; x.len()];
            blend_previous(isa, &mut out, &x, lerp, 17);
            for i in 0..x.len() {
                let before = if i < 17 { 0.0 } else { f64::from(x[i - 17]) };
                let (now, l) = (f64::from(x[i]), f64::from(lerp[i % lerp.len()]));
                let want = now + (before - now) * l;
                assert!((f64::from(out[i]) - want).abs() < 1e-6, "element {i}");
            }
        }
        let mut units = x.clone();
        units[..17].fill(0.0);
        unit_length(isa, &mut units, 17, 0.0, 1e-12);
        assert!(units[..17].iter().all(|&u| u == 0.0));
        let length = |row: &[f32]| row.iter().map(|&u| f64::from(u).powi(2)).sum::<f64>();
        for row in units.chunks(17).skip(1) {
            assert!((length(row) - 1.0).abs() < 1e-6);
        }
        let mut short = x.clone();
        unit_length(isa, &mut short, 17, 3.0, 0.0);
        for (row, x) in short.chunks(17).zip(x.chunks(17)) {
            assert!((length(row) - length(x) / (length(x) + 3.0)).abs() < 1e-6);
        }
    });
}

#[test]
fn softcap_is_cap_tanh() {
    each_isa(|isa| {
        let xs = values(-400.0, 400.0, 999);
        let mut ys = xs.clone();
        softcap(isa, &mut ys, 30.0);
        for (x, y) in xs.iter().zip(ys) {
            let want = 30.0 * (f64::from(*x) / 30.0).tanh();
            assert!(
                (f64::from(y) - want).abs() < 1e-5,
                "softcap({x}) = {y}, not {want}"
            );
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut xs = [0.0; 17].map(|_: f32| bad);
            softcap(isa, &mut xs, 30.0);
            assert!(xs.iter().all(|x| x.is_nan()), "{bad}");
        }
    });
}

#[test]
fn log_sum_exp_in_pieces_matches_f64() {
    let xs = values(-40.0, 25.0, 5000);
    let max = xs.iter().copied().fold(f32::MIN, f32::max);
    let want = f64::from(max)
        + xs.iter()
            .map(|&x| (f64::from(x) - f64::from(max)).exp())
            .sum::<f64>()
            .ln();
    each_isa(|isa| {
        for piece in [1, 7, 16, 100, 5000] {
            let mut lse = LogSumExp::default();
            xs.chunks(piece)
                .for_each(|c| log_sum_exp(isa, &mut lse, c, 3.0));
            assert!((lse.value() - want).abs() < 1e-13, "pieces of {piece}");
        }
    });
}

/// What else the softmax is asked for, with the maximum, the target and a tie for
/// the maximum in any piece.
#[test]
fn top_rank_and_entropy_in_pieces_match_f64() {
    let mut xs = values(-12.0, 9.0, 3000);
    (xs[700], xs[2100]) = (9.5, 9.5);
    let exps: Vec<f64> = xs.iter().map(|&x| f64::from(x).exp()).collect();
    let sum: f64 = exps.iter().sum();
    let entropy: f64 = exps.iter().map(|e| -(e / sum) * (e / sum).ln()).sum();
    each_isa(|isa| {
        for piece in [1, 7, 16, 100, 3000] {
            for target in [0, 699, 700, 2999] {
                let target = xs[target];
                let mut lse = LogSumExp::default();
                let pieces = xs.chunks(piece);
                pieces.for_each(|c| log_sum_exp(isa, &mut lse, c, target));
                let above = xs.iter().filter(|&&x| x > target).count();
                assert_eq!((lse.top(), lse.above()), (700, above as u32));
                assert!((lse.top_p() - exps[700] / sum).abs() < 1e-13);
                assert!((lse.entropy() - entropy).abs() < 1e-12, "pieces of {piece}");
            }
        }
        let mut lse = LogSumExp::default();
        log_sum_exp(isa, &mut lse, &[5.0], 5.0);
        assert_eq!((lse.top_p(), lse.entropy(), lse.above()), (1.0, 0.0, 0));
    });
}

#[test]
fn all_versions_agree_bit_for_bit() {
    let xs = values(-20.0, 20.0, 1003);
    let weight = values(0.5, 1.5, 17);
    let run = |isa| {
        let mut a = xs.clone();
        silu_mul(isa, &mut a, &xs);
        let mut b = xs.clone();
        gelu_tanh_mul(isa, &mut b, &xs);
        let mut c = xs.clone();
        let inv = softmax_numerators(isa, &mut c, f32::NEG_INFINITY);
        let mut d = xs[..59 * 17].to_vec();
        rms_normalize(isa, &mut d, 17, 1e-5);
        mul_rows(isa, &mut d, &weight);
        // Both at once are the same bits.
        let mut fused = vec![f32::NAN; d.len()];
        rms_norm(isa, &mut fused, &xs[..59 * 17], &weight, 1e-5);
        assert!(fused == d);
        layer_normalize(isa, &mut d, 59, 1e-5);
        let mut lse = LogSumExp::default();
        log_sum_exp(isa, &mut lse, &xs, 3.0);
        let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        (
            bits(a),
            bits(b),
            bits(c),
            bits(d),
            inv.to_bits(),
            lse.value().to_bits(),
            lse.entropy().to_bits(),
            (lse.top(), lse.above(), lse.top_p().to_bits()),
        )
    };
    let all = Isa::available();
    let want = run(all[all.len() - 1]);
    for isa in all {
        assert_eq!(run(isa), want, "{}", isa.name());
    }
}

#[test]
fn what_is_not_finite_is_seen_everywhere() {
    each_isa(|isa| {
        for at in 0..70 {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut xs = values(-1.0, 1.0, 70);
                assert!(all_finite(isa, &xs));
                xs[at] = bad;
                assert!(!all_finite(isa, &xs));
                if bad.is_nan() {
                    assert!(softmax_numerators(isa, &mut xs.clone(), f32::NEG_INFINITY).is_nan());
                    let mut lse = LogSumExp::default();
                    log_sum_exp(isa, &mut lse, &xs, 3.0);
                    assert!(lse.value().is_nan());
                }
            }
        }
    });
}
