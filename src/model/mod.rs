//! Architectures as data: which tensors, which layer kinds, in which order,
//! with which constants. Knows nothing of devices or corpus windows.
//!
//! A model is an embedding, a list of layers and a head. A layer is a list of
//! residual blocks; each adds the outputs of its branches to the hidden state,
//! `x ← x + Σ post_norm(mixer(pre_norm(x)))`. All widths are in elements and all
//! matrices map rows: `y[t, o] = Σ_i x[t, i] · w[o, i] + b[o]`.

// A few values a layer: boxes would only cost readers.
#![allow(clippy::large_enum_variant)]

mod arch;
mod error;
mod hparams;
mod kinds;
mod recurrent;
mod rope;
mod tensors;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use arch::supported_architectures;
pub use error::ModelError;
pub use recurrent::{
    CausalConv, ChannelMix, DeltaNet, FirstValue, HeadSharing, Inner, LowRank, Mamba1, Mamba2,
    Rwkv6TimeMix, Rwkv7TimeMix, ShortConv,
};
pub use rope::{Rope, RopePairs};
pub use tensors::{Matrix, Vector};

use crate::gguf::Gguf;

/// A model whose file has been checked against its architecture.
pub struct Model {
    pub gguf: Arc<Gguf>,
    pub architecture: String,
    /// Width of the hidden state.
    pub n_embd: usize,
    pub n_vocab: usize,
    /// The context length the model was trained for.
    pub n_ctx_train: usize,
    pub embedding: Embedding,
    pub layers: Vec<Layer>,
    pub head: Head,
    /// A sliding window that the file states and llama.cpp does not apply. Neither
    /// do we: in contexts beyond it the figure is not the one that the model was
    /// trained for.
    pub unheeded_window: Option<usize>,
    /// Blocks for multi-token prediction that the file declares without a tensor of
    /// theirs: either they lie in another file, or layers are lost.
    pub absent_mtp_blocks: usize,
}

/// Token embedding: row `id` of `table` times `scale`, plus the row of the
/// position, normed.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// `n_vocab × n_embd`.
    pub table: Matrix,
    pub scale: f32,
    /// Learned positions: `n_ctx_train × n_embd`.
    pub positions: Option<Matrix>,
    pub norm: Option<Norm>,
}

/// One layer: its residual blocks in order, then `x ← rescale · x`.
#[derive(Clone, Debug)]
pub struct Layer {
    pub blocks: Vec<Residual>,
    /// 1 but where a model keeps its hidden state from growing.
    pub rescale: f32,
}

/// `x ← x + Σ branches(x)`: one branch, or several that read the same `x`.
#[derive(Clone, Debug)]
pub struct Residual {
    pub branches: Vec<Branch>,
}

/// `scale · post_norm(mixer(pre_norm(x)))`.
#[derive(Clone, Debug)]
pub struct Branch {
    pub pre_norm: Option<Norm>,
    pub mixer: Mixer,
    pub post_norm: Option<Norm>,
    pub scale: f32,
}

/// The layer kinds.
#[derive(Clone, Debug)]
pub enum Mixer {
    Attention(Attention),
    Mla(Mla),
    Ffn(Ffn),
    Moe(Moe),
    Mamba1(Mamba1),
    Mamba2(Mamba2),
    DeltaNet(DeltaNet),
    ShortConv(ShortConv),
    Rwkv6TimeMix(Rwkv6TimeMix),
    Rwkv7TimeMix(Rwkv7TimeMix),
    ChannelMix(ChannelMix),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + eps)`.
    Rms,
    /// `(x − mean(x)) / sqrt(var(x) + eps)`.
    Layer,
}

/// A norm over runs of `width` values, times `weight`, plus `bias`. Both are as
/// long as a run, or as several that differ (heads with weights of their own).
#[derive(Clone, Debug)]
pub struct Norm {
    pub kind: NormKind,
    pub width: usize,
    pub weight: Option<Vector>,
    pub bias: Option<Vector>,
    pub eps: f32,
}

/// `scale · (x · wᵀ) + bias`.
#[derive(Clone, Debug)]
pub struct Linear {
    pub weight: Matrix,
    pub bias: Option<Vector>,
    pub scale: f32,
}

/// The scores and sums of causal attention with grouped KV heads. Query head `h`
/// reads KV head `h / (n_head / n_head_kv)`.
#[derive(Clone, Debug)]
pub struct Heads {
    pub n_head: usize,
    pub n_head_kv: usize,
    /// Width of a query and key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub head_dim_v: usize,
    pub span: Span,
    /// Multiplies `q·k`.
    pub scale: f32,
    /// `s ← cap · tanh(s / cap)` on the scaled scores.
    pub softcap: Option<f32>,
    /// A logit for each head that takes part in the softmax's denominator only.
    pub sinks: Option<Vector>,
}

/// Which keys `j ≤ i` a query at position `i` sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    All,
    /// `i − j < n`.
    Window(usize),
    /// Those of its own chunk of `n` positions.
    Chunk(usize),
}

/// Attention from query, key and value projections.
#[derive(Clone, Debug)]
pub struct Attention {
    pub heads: Heads,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub output: Linear,
    pub qk_norm: Option<QkNorm>,
    pub rope: Option<Rope>,
    pub temperature: Option<Temperature>,
    /// `σ(gate(x))` multiplies what the heads yield.
    pub gate: Option<Linear>,
    /// Norm before the output projection.
    pub sub_norm: Option<Norm>,
}

#[derive(Clone, Debug)]
pub struct QkNorm {
    pub q: Norm,
    pub k: Norm,
    pub after_rope: bool,
}

/// Queries at position `p` are multiplied by
/// `1 + scale · ln(⌊(p + offset)/floor⌋ + 1)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    pub floor: f32,
    pub offset: f32,
    pub scale: f32,
}

/// Multi-head latent attention (DeepSeek-V2, <https://arxiv.org/abs/2405.04434>):
/// keys and values are low-rank, RoPE has dimensions of its own at the end of
/// each query head and in one key head that all share.
#[derive(Clone, Debug)]
pub struct Mla {
    /// Of the attention that is carried out: over latents, or over whole heads.
    pub heads: Heads,
    pub query: MlaQuery,
    /// To the latent and the shared RoPE key.
    pub kv_a: Linear,
    pub kv_norm: Norm,
    pub kv: MlaKv,
    pub n_nope: usize,
    pub rope: Rope,
    pub temperature: Option<Temperature>,
    pub output: Linear,
}

#[derive(Clone, Debug)]
pub enum MlaQuery {
    Direct(Linear),
    LowRank { a: Linear, norm: Norm, b: Linear },
}

/// How heads come from the latent.
#[derive(Clone, Debug)]
pub enum MlaKv {
    /// For each head, a map of its query into the latent space, and one of the
    /// latent sum to its value.
    Absorbed { k: Vec<Linear>, v: Vec<Linear> },
    /// Keys (without RoPE) and values of all heads from the latent.
    Expanded { k: Linear, v: Linear },
}

/// Feed-forward network: `down(norm(act(gate(x)) ⊙ up(x)))`, or
/// `down(norm(act(up(x))))` without a gate.
#[derive(Clone, Debug)]
pub struct Ffn {
    pub n_ff: usize,
    pub activation: Activation,
    pub gate: Option<Linear>,
    pub up: Linear,
    pub down: Linear,
    pub sub_norm: Option<Norm>,
}

/// Mixture of experts: a router chooses `n_used` experts for each row.
#[derive(Clone, Debug)]
pub struct Moe {
    pub router: Linear,
    pub n_used: usize,
    pub gating: Gating,
    /// Added to the probabilities for the choice, not for the weights.
    pub selection_bias: Option<Vector>,
    /// Only experts of the best groups can be chosen. A group counts as much as
    /// its two best experts.
    pub groups: Option<Groups>,
    /// Whether the weights of the chosen are made to sum to 1.
    pub normalize: bool,
    /// Multiplies the weights.
    pub scale: f32,
    /// Whether weights multiply an expert's input instead of its output.
    pub weigh_input: bool,
    pub experts: Vec<Ffn>,
    pub shared: Option<SharedExpert>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    Sigmoid,
    /// Softmax over the logits of the chosen.
    SoftmaxOfChosen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    pub n: usize,
    pub n_used: usize,
}

/// An expert that every row passes through, times `σ(gate(x))` where it has one.
#[derive(Clone, Debug)]
pub struct SharedExpert {
    pub ffn: Ffn,
    pub gate: Option<Linear>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    GeluTanh,
    /// `max(x, 0)²`.
    ReluSquared,
    /// gpt-oss: `g · σ(1.702 g) · (u + 1)`, with `g ≤ 7` and `|u| ≤ 7`.
    ClampedSwiglu,
    Xielu(Xielu),
}

/// xIELU (<https://arxiv.org/abs/2411.13010>): `x > 0`: `positive·x² + beta·x`,
/// else `negative·(e^min(x, eps) − 1 − x) + beta·x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    pub positive: f32,
    pub negative: f32,
    pub beta: f32,
    pub eps: f32,
}

/// Final norm and output projection: `softcap(scale · logits)`.
#[derive(Clone, Debug)]
pub struct Head {
    pub norm: Option<Norm>,
    /// `n_vocab × n_embd`; the embedding's table where the head is tied.
    pub weight: Matrix,
    pub bias: Option<Vector>,
    pub scale: f32,
    /// `l ← cap · tanh(l / cap)`.
    pub softcap: Option<f32>,
}

impl Model {
    /// Opens a model file and checks it against its architecture.
    ///
    /// # Errors
    /// Malformed files, unknown architectures, missing, mis-shaped, undecodable
    /// or unused tensors, hyper-parameters that contradict each other.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::from_gguf(Arc::new(Gguf::open(path)?))
    }

    /// Checks an open GGUF file against its architecture.
    pub fn from_gguf(gguf: Arc<Gguf>) -> Result<Self, ModelError> {
        arch::build(gguf)
    }

    pub fn n_layer(&self) -> usize {
        self.layers.len()
    }

    /// Values a row that layers hand to later layers beside the hidden state.
    pub fn n_carried(&self) -> usize {
        let blocks = self.layers.iter().flat_map(|l| &l.blocks);
        let carried = blocks.flat_map(|b| &b.branches).map(|b| match &b.mixer {
            Mixer::Rwkv7TimeMix(m) => m.n_head * m.head_dim,
            Mixer::Attention(_)
            | Mixer::Mla(_)
            | Mixer::Ffn(_)
            | Mixer::Moe(_)
            | Mixer::Mamba1(_)
            | Mixer::Mamba2(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Rwkv6TimeMix(_)
            | Mixer::ChannelMix(_) => 0,
        });
        carried.max().unwrap_or(0)
    }

    /// Elements of the tensors of layer `i`.
    pub fn layer_elements(&self, i: usize) -> usize {
        let tensors = self.gguf.tensors().iter();
        tensors
            .filter(|t| tensors::layer_of(&t.name) == Some(i))
            .map(|t| t.elements())
            .sum()
    }

    /// Releases what has been read of a range of layers: see [`Gguf::release`].
    pub fn release_layers(&self, layers: Range<usize>) {
        for tensor in self.gguf.tensors() {
            if tensors::layer_of(&tensor.name).is_some_and(|i| layers.contains(&i)) {
                self.gguf.release(tensor, 0..tensor.n_bytes);
            }
        }
    }
}

impl Heads {
    /// The keys that a query at position `i` sees.
    pub fn visible(&self, i: usize) -> Range<usize> {
        let start = match self.span {
            Span::All => 0,
            Span::Window(n) => (i + 1).saturating_sub(n),
            Span::Chunk(n) => i - i % n,
        };
        start..i + 1
    }
}

impl Temperature {
    /// The factor at a position.
    pub fn at(&self, position: usize) -> f32 {
        let steps = ((position as f32 + self.offset) / self.floor).floor();
        1.0 + self.scale * (steps + 1.0).ln()
    }
}
