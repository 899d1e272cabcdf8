//! Elementwise and row kernels. Reductions run over fixed lanes that are then
//! added in order, so every instruction set yields the same bits.

use crate::isa::multiversion;

const LANES: usize = 16;

/// `e^x` in f32, within 2 ulp for results in the normal range; 0 below −87.3 and
/// `f32::MAX`-sized above 88.3; NaN stays NaN. Cody–Waite reduction and a
/// degree-7 polynomial.
#[inline(always)]
pub fn exp32(x: f32) -> f32 {
    // Comparisons, not `max`/`min`, so that NaN passes through.
    let under = x < -87.3;
    let x = if x > 88.3 { 88.3 } else { x };
    // Adding 1.5·2²³ rounds to an integer that is left in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p = 1.0 / 5040.0;
    let p = r.mul_add(p, 1.0 / 720.0);
    let p = r.mul_add(p, 1.0 / 120.0);
    let p = r.mul_add(p, 1.0 / 24.0);
    let p = r.mul_add(p, 1.0 / 6.0);
    let p = r.mul_add(p, 0.5);
    let p = r.mul_add(p, 1.0);
    let p = r.mul_add(p, 1.0);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if under { 0.0 } else { p * power }
}

/// `e^x` in f64 for `x ≤ 0`, within 1e-15 relative; 0 below −708. Cody–Waite
/// reduction and the Taylor polynomial of degree 13.
#[inline(always)]
fn exp64(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let under = x < -708.0;
    let shifted = x.mul_add(std::f64::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_147_180_369_123_8, x);
    let r = n.mul_add(-1.908_214_929_270_587_7e-10, r);
    let p = 1.0 / 6_227_020_800.0;
    let p = r.mul_add(p, 1.0 / 479_001_600.0);
    let p = r.mul_add(p, 1.0 / 39_916_800.0);
    let p = r.mul_add(p, 1.0 / 3_628_800.0);
    let p = r.mul_add(p, 1.0 / 362_880.0);
    let p = r.mul_add(p, 1.0 / 40_320.0);
    let p = r.mul_add(p, 1.0 / 5040.0);
    let p = r.mul_add(p, 1.0 / 720.0);
    let p = r.mul_add(p, 1.0 / 120.0);
    let p = r.mul_add(p, 1.0 / 24.0);
    let p = r.mul_add(p, 1.0 / 6.0);
    let p = r.mul_add(p, 0.5);
    let p = r.mul_add(p, 1.0);
    let p = r.mul_add(p, 1.0);
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(0x3ff0_0000_0000_0000));
    if under { 0.0 } else { p * power }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp32(-x))
}

multiversion! {
    /// `gate ← silu(gate) · up`.
    pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
        for (g, u) in gate.iter_mut().zip(up) {
            *g = *g * sigmoid(*g) * u;
        }
    }
}

multiversion! {
    /// `x ← x · σ(x)`.
    pub fn silu(xs: &mut [f32]) {
        for x in xs {
            *x *= sigmoid(*x);
        }
    }
}

multiversion! {
    /// `x ← σ(gate) · x`.
    pub fn sigmoid_mul(xs: &mut [f32], gate: &[f32]) {
        for (x, g) in xs.iter_mut().zip(gate) {
            *x *= sigmoid(*g);
        }
    }
}

multiversion! {
    /// `x ← σ(x)`.
    pub fn sigmoid_in_place(xs: &mut [f32]) {
        for x in xs {
            *x = sigmoid(*x);
        }
    }
}

multiversion! {
    /// `x ← ln(1 + e^x)`.
    pub fn softplus(xs: &mut [f32]) {
        for x in xs {
            // Beyond 20 the difference to x is below half an ulp.
            if *x <= 20.0 {
                *x = exp32(*x).ln_1p();
            }
        }
    }
}

/// `tanh(x)`: an odd polynomial near 0 (Cephes), where `1 − 2/(e^(2|x|) + 1)`
/// would cancel.
#[inline(always)]
fn tanh32(x: f32) -> f32 {
    let square = x * x;
    let p = square.mul_add(-5.704_988_7e-3, 2.063_909e-2);
    let p = square.mul_add(p, -5.373_971_4e-2);
    let p = square.mul_add(p, 1.333_144_2e-1);
    let p = square.mul_add(p, -3.333_328e-1);
    let small = (p * square).mul_add(x, x);
    let large = (1.0 - 2.0 / (exp32(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { small } else { large }
}

multiversion! {
    /// `x ← tanh(x)`.
    pub fn tanh(xs: &mut [f32]) {
        for x in xs {
            *x = tanh32(*x);
        }
    }
}

multiversion! {
    /// `x ← e^(scale · e^x)`, for decays.
    pub fn exp_scaled_exp(xs: &mut [f32], scale: f32) {
        for x in xs {
            *x = exp32(scale * exp32(*x));
        }
    }
}

multiversion! {
    /// `x ← e^(scale · σ(x))`, for decays.
    pub fn exp_scaled_sigmoid(xs: &mut [f32], scale: f32) {
        for x in xs {
            *x = exp32(scale * sigmoid(*x));
        }
    }
}

multiversion! {
    /// `out[t] ← x[t] + (x[t − 1] − x[t]) · lerp[t]` for rows of `width` values;
    /// the row before the first is zero, and `lerp` may be one row for all.
    pub fn blend_previous(out: &mut [f32], x: &[f32], lerp: &[f32], width: usize) {
        for (t, out) in out.chunks_exact_mut(width).enumerate() {
            let at = t * width;
            let lerp = &lerp[at % lerp.len()..][..width];
            let x_t = &x[at..][..width];
            if t == 0 {
                for ((o, x), l) in out.iter_mut().zip(x_t).zip(lerp) {
                    *o = (-x).mul_add(*l, *x);
                }
                continue;
            }
            let before = &x[at - width..][..width];
            for (((o, x), b), l) in out.iter_mut().zip(x_t).zip(before).zip(lerp) {
                *o = (b - x).mul_add(*l, *x);
            }
        }
    }
}

multiversion! {
    /// `x ← x + (target − x) · t`.
    pub fn lerp(xs: &mut [f32], targets: &[f32], ts: &[f32]) {
        for ((x, target), t) in xs.iter_mut().zip(targets).zip(ts) {
            *x = (target - *x).mul_add(*t, *x);
        }
    }
}

multiversion! {
    /// `x ← x · (1 + (a − 1) · scale)`, `scale` being one row for all.
    pub fn mul_scaled_rate(xs: &mut [f32], rates: &[f32], scale: &[f32]) {
        let rows = xs.chunks_exact_mut(scale.len());
        for (x, rate) in rows.zip(rates.chunks_exact(scale.len())) {
            for ((x, a), s) in x.iter_mut().zip(rate).zip(scale) {
                *x *= (a - 1.0).mul_add(*s, 1.0);
            }
        }
    }
}

multiversion! {
    /// `x ← x + v · Σ terms`, the sum running over each row of `width` values.
    pub fn add_scaled_by_sums(xs: &mut [f32], vs: &[f32], terms: &[f32], width: usize) {
        let rows = xs.chunks_exact_mut(width).zip(vs.chunks_exact(width));
        for ((x, v), terms) in rows.zip(terms.chunks_exact(width)) {
            let sum = sum64(terms, |t| t) as f32;
            for (x, v) in x.iter_mut().zip(v) {
                *x = sum.mul_add(*v, *x);
            }
        }
    }
}

multiversion! {
    /// `x ← x · y`.
    pub fn mul(xs: &mut [f32], ys: &[f32]) {
        for (x, y) in xs.iter_mut().zip(ys) {
            *x *= y;
        }
    }
}

multiversion! {
    /// `x ← max(x, 0)²`; NaN stays NaN.
    pub fn relu_squared(xs: &mut [f32]) {
        for x in xs {
            *x = if *x < 0.0 { 0.0 } else { *x * *x };
        }
    }
}

multiversion! {
    /// gpt-oss: `gate ← g·σ(1.702·g)·(u + 1)` with `g ≤ 7`, `|u| ≤ 7`; NaN stays
    /// NaN.
    pub fn clamped_swiglu(gate: &mut [f32], up: &[f32]) {
        const LIMIT: f32 = 7.0;
        for (g, u) in gate.iter_mut().zip(up) {
            let x = if *g > LIMIT { LIMIT } else { *g };
            let u = if *u > LIMIT { LIMIT } else { *u };
            let u = if u < -LIMIT { -LIMIT } else { u };
            *g = x * sigmoid(1.702 * x) * (u + 1.0);
        }
    }
}

/// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, written as
/// `x · σ(2·√(2/π)·(x + 0.044715·x³))`.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
    let z = TWO_SQRT_2_OVER_PI * (0.044_715 * x * x).mul_add(x, x);
    x * sigmoid(z)
}

multiversion! {
    /// `x ← gelu(x)`.
    pub fn gelu_tanh(xs: &mut [f32]) {
        for x in xs {
            *x = gelu(*x);
        }
    }
}

multiversion! {
    /// `gate ← gelu(gate) · up`.
    pub fn gelu_tanh_mul(gate: &mut [f32], up: &[f32]) {
        for (g, u) in gate.iter_mut().zip(up) {
            *g = gelu(*g) * u;
        }
    }
}

multiversion! {
    /// `x ← cap · tanh(x / cap)`, as `cap · (1 − 2 / (e^(2x/cap) + 1))`. An infinite
    /// `x` becomes NaN: capped it would look like any other.
    pub fn softcap(xs: &mut [f32], cap: f32) {
        let inv = 2.0 / cap;
        for x in xs {
            let nan_if_infinite = *x * 0.0;
            *x = cap * (1.0 - 2.0 / (exp32(*x * inv) + 1.0)) + nan_if_infinite;
        }
    }
}

multiversion! {
    /// `x ← x + y`.
    pub fn add(xs: &mut [f32], ys: &[f32]) {
        for (x, y) in xs.iter_mut().zip(ys) {
            *x += y;
        }
    }
}

multiversion! {
    /// `x ← x + y`; whether all sums are finite.
    pub fn add_checked(xs: &mut [f32], ys: &[f32]) -> bool {
        let mut bad = 0;
        for (x, y) in xs.iter_mut().zip(ys) {
            *x += y;
            bad |= not_finite(*x);
        }
        bad == 0
    }
}

multiversion! {
    /// `x ← x + a·y`.
    pub fn add_scaled(xs: &mut [f32], ys: &[f32], a: f32) {
        for (x, y) in xs.iter_mut().zip(ys) {
            *x = a.mul_add(*y, *x);
        }
    }
}

multiversion! {
    /// `x ← a·x`.
    pub fn scale(xs: &mut [f32], a: f32) {
        for x in xs {
            *x *= a;
        }
    }
}

/// The sum of `f(x)` in f64, over fixed lanes.
#[inline(always)]
fn sum64(xs: &[f32], f: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0f64; LANES];
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for chunk in chunks {
        for (s, v) in sums.iter_mut().zip(chunk) {
            *s += f(f64::from(*v));
        }
    }
    for (s, v) in sums.iter_mut().zip(rest) {
        *s += f(f64::from(*v));
    }
    sums.iter().sum()
}

/// `1 / √(mean(x²) + eps)`
#[inline(always)]
fn inverse_rms(xs: &[f32], eps: f32) -> f32 {
    let mean = sum64(xs, |v| v * v) / xs.len() as f64;
    (1.0 / (mean + f64::from(eps)).sqrt()) as f32
}

multiversion! {
    /// Scales each row of `width` values to a root mean square of 1 (`eps` is
    /// added to the mean square).
    pub fn rms_normalize(xs: &mut [f32], width: usize, eps: f32) {
        for x in xs.chunks_exact_mut(width) {
            let inv = inverse_rms(x, eps);
            for x in x {
                *x *= inv;
            }
        }
    }
}

multiversion! {
    /// As [`rms_normalize`] and then [`mul_rows`], into `out`.
    pub fn rms_norm(out: &mut [f32], xs: &[f32], weight: &[f32], eps: f32) {
        let width = weight.len();
        for (out, x) in out.chunks_exact_mut(width).zip(xs.chunks_exact(width)) {
            let inv = inverse_rms(x, eps);
            for ((o, x), w) in out.iter_mut().zip(x).zip(weight) {
                *o = *x * inv * w;
            }
        }
    }
}

multiversion! {
    /// Shifts and scales each row of `width` values to a mean of 0 and a variance
    /// of 1 (`eps` is added to the variance).
    pub fn layer_normalize(xs: &mut [f32], width: usize, eps: f32) {
        for x in xs.chunks_exact_mut(width) {
            let mean = sum64(x, |v| v) / width as f64;
            let variance = sum64(x, |v| (v - mean) * (v - mean)) / width as f64;
            let inv = (1.0 / (variance + f64::from(eps)).sqrt()) as f32;
            let mean = mean as f32;
            for x in x {
                *x = (*x - mean) * inv;
            }
        }
    }
}

multiversion! {
    /// Scales each row of `width` values by `1 / max(√(Σx² + eps), floor)`.
    pub fn unit_length(xs: &mut [f32], width: usize, eps: f32, floor: f32) {
        for x in xs.chunks_exact_mut(width) {
            let length = (sum64(x, |v| v * v) + f64::from(eps)).sqrt();
            let inv = (1.0 / length.max(f64::from(floor))) as f32;
            for x in x {
                *x *= inv;
            }
        }
    }
}

multiversion! {
    /// Multiplies each row of `xs` by `weight`, element by element.
    pub fn mul_rows(xs: &mut [f32], weight: &[f32]) {
        for x in xs.chunks_exact_mut(weight.len()) {
            for (x, w) in x.iter_mut().zip(weight) {
                *x *= w;
            }
        }
    }
}

multiversion! {
    /// Adds `bias` to each row of `xs`.
    pub fn add_bias(xs: &mut [f32], bias: &[f32]) {
        for x in xs.chunks_exact_mut(bias.len()) {
            for (x, b) in x.iter_mut().zip(bias) {
                *x += b;
            }
        }
    }
}

multiversion! {
    /// Turns the pairs `(2i, 2i + 1)` of `x` by the angles with these cosines
    /// and sines.
    pub fn rotate_adjacent(x: &mut [f32], cos: &[f32], sin: &[f32]) {
        for ((pair, c), s) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
            let [a, b] = *pair;
            *pair = [a * c - b * s, a * s + b * c];
        }
    }
}

multiversion! {
    /// Turns the pairs `(i, i + n)` of `x`, `n` being the number of angles.
    pub fn rotate_halves(x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let (lo, hi) = x.split_at_mut(cos.len());
        for (((a, b), c), s) in lo.iter_mut().zip(hi).zip(cos).zip(sin) {
            let (x, y) = (*a, *b);
            *a = x * c - y * s;
            *b = x * s + y * c;
        }
    }
}

/// The greater of the two; `a` where either is not a number.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The largest of the lanes, none of which is NaN.
#[inline(always)]
fn largest(mut lanes: [f32; LANES]) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] = greater(lanes[i], lanes[i + n]);
        }
        n /= 2;
    }
    lanes[0]
}

/// `x ← e^(x − max)`; returns the sums with them added.
#[inline(always)]
fn numerators(xs: &mut [f32; LANES], max: f32, mut sums: [f32; LANES]) -> [f32; LANES] {
    for (s, x) in sums.iter_mut().zip(xs) {
        *x = exp32(*x - max);
        *s += *x;
    }
    sums
}

multiversion! {
    /// `x ← e^(x − m)`, `m` being the largest of `xs` and `sink`; returns the
    /// reciprocal of their sum, `e^(sink − m)` included. NaN where an input is NaN.
    pub fn softmax_numerators(xs: &mut [f32], sink: f32) -> f32 {
        let (chunks, rest) = xs.as_chunks_mut::<LANES>();
        // What is left as a chunk of its own: scalars would take longer than the row.
        let mut tail = [f32::NEG_INFINITY; LANES];
        tail[..rest.len()].copy_from_slice(rest);
        let mut maxima = [f32::NEG_INFINITY; LANES];
        for chunk in chunks.iter().chain([&tail]) {
            for (m, x) in maxima.iter_mut().zip(chunk) {
                *m = greater(*m, *x);
            }
        }
        let max = greater(largest(maxima), sink);
        let mut sums = [0.0f32; LANES];
        for chunk in &mut *chunks {
            sums = numerators(chunk, max, sums);
        }
        sums = numerators(&mut tail, max, sums);
        rest.copy_from_slice(&tail[..rest.len()]);
        let mut sum: f64 = sums.iter().map(|&s| f64::from(s)).sum();
        if sink != f32::NEG_INFINITY {
            sum += f64::from(exp32(sink - max));
        }
        (1.0 / sum) as f32
    }
}

/// What one look at a run of logits tells.
struct Survey {
    max: f32,
    finite: bool,
    /// How many are greater than the threshold.
    above: u32,
}

#[inline(always)]
fn survey(xs: &[f32], threshold: f32) -> Survey {
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let mut bad = [0u32; LANES];
    let mut above = [0u32; LANES];
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for chunk in chunks {
        let lanes = maxima.iter_mut().zip(&mut bad).zip(&mut above);
        for (((m, b), a), x) in lanes.zip(chunk) {
            *m = greater(*m, *x);
            *b |= not_finite(*x);
            *a += u32::from(*x > threshold);
        }
    }
    let lanes = maxima.iter_mut().zip(&mut bad).zip(&mut above);
    for (((m, b), a), x) in lanes.zip(rest) {
        *m = greater(*m, *x);
        *b |= not_finite(*x);
        *a += u32::from(*x > threshold);
    }
    Survey {
        max: largest(maxima),
        finite: bad.iter().all(|&b| b == 0),
        above: above.iter().sum(),
    }
}

/// 1 for NaN and infinities, 0 for the rest.
#[inline(always)]
fn not_finite(x: f32) -> u32 {
    const EXPONENT: u32 = 0x7f80_0000;
    u32::from(x.to_bits() & EXPONENT == EXPONENT)
}

/// A running log-sum-exp, `ln Σ e^l = max + ln(sum)`, and what else the softmax of
/// one row of logits is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogSumExp {
    max: f32,
    sum: f64,
    /// `Σ e^(l − max) · (l − max)`
    moment: f64,
    finite: bool,
    /// Logits taken so far.
    seen: u32,
    /// The number of the first that is `max`.
    top: u32,
    /// How many are greater than the target's.
    above: u32,
}

impl Default for LogSumExp {
    fn default() -> Self {
        Self {
            max: f32::NEG_INFINITY,
            sum: 0.0,
            moment: 0.0,
            finite: true,
            seen: 0,
            top: 0,
            above: 0,
        }
    }
}

impl LogSumExp {
    /// The logarithm of the sum; NaN if any logit was not finite, `−∞` included,
    /// which no sum would show.
    pub fn value(&self) -> f64 {
        match self.finite {
            true => f64::from(self.max) + self.sum.ln(),
            false => f64::NAN,
        }
    }

    /// The number of the largest logit, the first of equal ones.
    pub fn top(&self) -> u32 {
        self.top
    }

    /// Its probability, `e^(max − max) / sum`.
    pub fn top_p(&self) -> f64 {
        1.0 / self.sum
    }

    /// How many logits are greater than the target's.
    pub fn above(&self) -> u32 {
        self.above
    }

    /// `−Σ p · ln p` in nats: with `p = e^(l − max) / sum` it is
    /// `ln(sum) − moment / sum`.
    pub fn entropy(&self) -> f64 {
        // Rounding may leave it below 0 where one logit is all.
        (self.sum.ln() - self.moment / self.sum).max(0.0)
    }
}

multiversion! {
    /// Takes a run of logits into a log-sum-exp, in f64; `target` is the logit
    /// that ranks are counted from.
    pub fn log_sum_exp(lse: &mut LogSumExp, logits: &[f32], target: f32) {
        let run = survey(logits, target);
        lse.finite &= run.finite;
        lse.above += run.above;
        if run.max > lse.max {
            let old = lse.max;
            lse.max = run.max;
            // Rare after the first few runs, so a second look costs little.
            let at = logits.iter().position(|&x| x == run.max).unwrap_or(0);
            lse.top = lse.seen + at as u32;
            // Nothing finite yet: e^(−inf − −inf) is not a number.
            if lse.sum != 0.0 {
                let step = f64::from(old) - f64::from(lse.max);
                let factor = exp64(step);
                lse.moment = factor * step.mul_add(lse.sum, lse.moment);
                lse.sum *= factor;
            }
        }
        lse.seen += logits.len() as u32;
        let max = f64::from(lse.max);
        let mut sums = [0.0f64; LANES];
        let mut moments = [0.0f64; LANES];
        let (chunks, rest) = logits.as_chunks::<LANES>();
        for chunk in chunks {
            for ((s, m), x) in sums.iter_mut().zip(&mut moments).zip(chunk) {
                let below = f64::from(*x) - max;
                let e = exp64(below);
                *s += e;
                *m = e.mul_add(below, *m);
            }
        }
        for ((s, m), x) in sums.iter_mut().zip(&mut moments).zip(rest) {
            let below = f64::from(*x) - max;
            let e = exp64(below);
            *s += e;
            *m = e.mul_add(below, *m);
        }
        lse.sum += sums.iter().sum::<f64>();
        lse.moment += moments.iter().sum::<f64>();
    }
}

multiversion! {
    /// Rounds to the nearest f16, ties to even; what is too large becomes infinite.
    /// In f32, since `half` converts one vector at a time.
    pub fn round_to_f16(xs: &mut [f32]) {
        const LEAST_NORMAL: f32 = 6.103_515_6e-5;
        const TOO_LARGE: f32 = 65_520.0;
        for x in xs {
            let bits = x.to_bits();
            let normal = f32::from_bits((bits.wrapping_add(0xfff + (bits >> 13 & 1))) & !0x1fff);
            // In [0.5, 1) the distance of f32 values is that of subnormal f16 values.
            let subnormal = ((x.abs() + 0.5) - 0.5).copysign(*x);
            let finite = if x.abs() < LEAST_NORMAL { subnormal } else { normal };
            // A NaN fails the comparison, and stays one.
            *x = if x.abs() < TOO_LARGE { finite } else { *x * f32::INFINITY };
        }
    }
}

multiversion! {
    /// Whether all values are finite.
    pub fn all_finite(xs: &[f32]) -> bool {
        xs.iter().fold(0, |bad, x| bad | not_finite(*x)) == 0
    }
}

#[cfg(test)]
mod tests;
