//! Layer kinds with a state that runs along a sequence, and those that look a
//! fixed number of positions back. All states are zero before the first position.
//!
//! `⊙` multiplies element by element; `x[t]` is a row, `x[−1]` and before are zero.

#![allow(
    missing_docs,
    reason = "the formula of each type says what its fields are"
)]

use super::{Linear, Norm, Vector};

/// A causal convolution of each channel along the positions:
/// `y[t, c] = b[c] + Σ_j w[c, j] · x[t − (width − 1) + j, c]`.
#[derive(Clone, Debug)]
pub struct CausalConv {
    pub n_channels: usize,
    /// Positions that meet, the current one included.
    pub width: usize,
    /// `n_channels × width`.
    pub weight: Vector,
    pub bias: Option<Vector>,
}

/// Mamba's selective state space (<https://arxiv.org/abs/2312.00752>). With
/// `u = silu(conv(input(x)))` and `Δ = softplus(dt(norm(dt_low(u))))`, for each
/// channel `c` and state `n`:
/// `s[c, n] ← e^(Δ[c]·a[c, n]) · s[c, n] + Δ[c]·u[c] · B[n]`,
/// `y[c] = Σ_n s[c, n]·C[n] + d[c]·u[c]`. Yields `output(y ⊙ silu(gate(x)))`.
#[derive(Clone, Debug)]
pub struct Mamba1 {
    pub n_inner: usize,
    pub n_state: usize,
    pub input: Linear,
    pub gate: Linear,
    pub conv: CausalConv,
    /// To the low-rank step sizes.
    pub dt_low: Linear,
    pub b: Linear,
    pub c: Linear,
    /// Norms of the low-rank step sizes, of `B` and of `C`.
    pub norms: Option<[Norm; 3]>,
    pub dt: Linear,
    /// `n_inner × n_state`, negative.
    pub a: Vector,
    pub d: Vector,
    pub output: Linear,
}

/// Mamba-2 (<https://arxiv.org/abs/2405.21060>): a head's channels share one
/// decay, a group's heads share `B` and `C`. `[u | B | C] = silu(conv(input(x)))`,
/// `Δ = softplus(dt(x))`, for each head `h` and channel `p`:
/// `s[p, n] ← e^(Δ[h]·a[h]) · s[p, n] + Δ[h]·u[p] · B[n]`,
/// `y[p] = Σ_n s[p, n]·C[n] + d[h]·u[p]`. Yields `output(norm(y ⊙ silu(gate(x))))`.
#[derive(Clone, Debug)]
pub struct Mamba2 {
    pub n_head: usize,
    pub head_dim: usize,
    /// Groups of `n_head / n_group` consecutive heads.
    pub n_group: usize,
    pub n_state: usize,
    pub gate: Linear,
    /// To `n_head·head_dim` values of `u`, then `n_group·n_state` of `B` and of `C`.
    pub input: Linear,
    pub dt: Linear,
    pub conv: CausalConv,
    pub a: Vector,
    pub d: Vector,
    pub norm: Option<Norm>,
    pub output: Linear,
}

/// Gated delta net (<https://arxiv.org/abs/2412.06464>). Queries, keys and values
/// are projected, convolved and passed through SiLU; queries and keys are scaled
/// to unit length. For each value head, with `g = a · softplus(alpha(x))` and
/// `β = σ(beta(x))`:
/// `S ← e^g · S`, `S ← S + k ⊗ β·(v − Sᵀk)`, `y = Sᵀq / √head_dim`.
/// Yields `output(norm(y) ⊙ silu(gate(x)))`.
#[derive(Clone, Debug)]
pub struct DeltaNet {
    pub n_k_head: usize,
    pub n_v_head: usize,
    /// Width of all heads.
    pub head_dim: usize,
    pub sharing: HeadSharing,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub q_conv: CausalConv,
    pub k_conv: CausalConv,
    pub v_conv: CausalConv,
    /// Added to the squared length that queries and keys are divided by.
    pub length_eps: f32,
    pub alpha: Linear,
    pub beta: Linear,
    /// One a value head, negative.
    pub a: Vector,
    pub norm: Norm,
    pub gate: Linear,
    pub output: Linear,
}

/// Which key head a value head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadSharing {
    /// Value head `h` reads key head `h mod n_k_head`.
    Cyclic,
    /// Value head `h` reads key head `h / (n_v_head / n_k_head)`.
    Blocks,
}

/// Gated short convolution (LFM2): `output(c(x) ⊙ conv(b(x) ⊙ input(x)))`.
#[derive(Clone, Debug)]
pub struct ShortConv {
    pub b: Linear,
    pub c: Linear,
    pub input: Linear,
    pub conv: CausalConv,
    pub output: Linear,
}

/// `up(f(down(x)))` through a few dimensions.
#[derive(Clone, Debug)]
pub struct LowRank {
    pub down: Linear,
    pub inner: Inner,
    pub up: Linear,
}

/// What lies between the two maps of a [`LowRank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    Identity,
    Tanh,
    Sigmoid,
}

/// RWKV-6's time mixing (<https://arxiv.org/abs/2404.05892>). Each projection
/// reads its own blend of a row and the one before:
/// `x_m = x[t] + (x[t−1] − x[t]) ⊙ blend_m(x[t] + (x[t−1] − x[t]) ⊙ lerp)`.
/// With `w = e^(−e^decay(x_w))`, for each head:
/// `y[j] = Σ_i r[i]·(u[i]·k[i]·v[j] + S[i, j])`, `S[i, j] ← w[i]·S[i, j] + k[i]·v[j]`.
/// Yields `output(norm(y) ⊙ silu(gate(x_g)))`.
#[derive(Clone, Debug)]
pub struct Rwkv6TimeMix {
    pub n_head: usize,
    pub head_dim: usize,
    pub lerp: Vector,
    /// For decay, key, value, receptance and gate.
    pub blends: [LowRank; 5],
    pub decay: LowRank,
    pub key: Linear,
    pub value: Linear,
    pub receptance: Linear,
    pub gate: Linear,
    /// The bonus `u` of the current position: `n_head × head_dim`.
    pub bonus: Vector,
    pub norm: Norm,
    pub output: Linear,
}

/// RWKV-7's time mixing (<https://arxiv.org/abs/2503.14456>), on blends
/// `x_m = x[t] + (x[t−1] − x[t]) ⊙ lerp_m`. With `w = e^(−e^(−½)·σ(decay(x_w)))`,
/// `a = σ(rate(x_a))`, `κ` the key times `removal_scale` at unit length in each head,
/// and the key then scaled by `1 + (a − 1) ⊙ rate_scale`, for each head:
/// `S[i, j] ← w[j]·S[i, j] − (Σ_l S[i, l]·κ[l])·κ[j]·a[j] + v[i]·k[j]`,
/// `y[i] = Σ_j S[i, j]·r[j]`.
/// Yields `output((norm(y) + v · Σ(r ⊙ k ⊙ bonus)) ⊙ gate(x_g))`.
#[derive(Clone, Debug)]
pub struct Rwkv7TimeMix {
    pub n_head: usize,
    pub head_dim: usize,
    /// For receptance, decay, key, value, rate and gate.
    pub lerps: [Vector; 6],
    pub receptance: Linear,
    pub decay: LowRank,
    pub key: Linear,
    pub value: Linear,
    pub first_value: FirstValue,
    pub rate: LowRank,
    pub gate: LowRank,
    pub removal_scale: Vector,
    pub rate_scale: Vector,
    /// `n_head × head_dim`.
    pub bonus: Vector,
    pub norm: Norm,
    pub output: Linear,
}

/// What a layer does with the values of the model's first layer, which travel
/// beside the hidden state.
#[derive(Clone, Debug)]
pub enum FirstValue {
    /// It is the first.
    Store,
    /// `v ← v + (v_first − v) ⊙ σ(mix(x_v))`.
    Mix(LowRank),
}

/// RWKV's channel mixing: `σ(receptance(x_r)) ⊙ value(max(key(x_k), 0)²)` on
/// blends `x_m = x[t] + (x[t−1] − x[t]) ⊙ lerp_m`.
#[derive(Clone, Debug)]
pub struct ChannelMix {
    pub key_lerp: Vector,
    pub key: Linear,
    pub value: Linear,
    /// The receptance with its blend.
    pub receptance: Option<(Vector, Linear)>,
}

impl CausalConv {
    /// The channels `[first, first + n)`.
    pub(super) fn channels(&self, first: usize, n: usize) -> Self {
        let part = |v: &Vector, width: usize| Vector {
            tensor: v.tensor.clone(),
            values: v.values[first * width..(first + n) * width].to_vec(),
        };
        CausalConv {
            n_channels: n,
            width: self.width,
            weight: part(&self.weight, self.width),
            bias: self.bias.as_ref().map(|b| part(b, 1)),
        }
    }
}
