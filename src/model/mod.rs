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
    /// The file, whose blocks the tensors name.
    pub gguf: Arc<Gguf>,
    /// `general.architecture`.
    pub architecture: String,
    /// Width of the hidden state.
    pub n_embd: usize,
    /// Entries of the vocabulary.
    pub n_vocab: usize,
    /// The context length the model was trained for.
    pub n_ctx_train: usize,
    /// What comes before the first layer.
    pub embedding: Embedding,
    /// The layers, in order.
    pub layers: Vec<Layer>,
    /// What comes after the last layer.
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
    /// Multiplies every row.
    pub scale: f32,
    /// Learned positions: `n_ctx_train × n_embd`.
    pub positions: Option<Matrix>,
    /// Normalizes the sum.
    pub norm: Option<Norm>,
}

/// One layer: its residual blocks in order, then `x ← rescale · x`.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its residual blocks, in order.
    pub blocks: Vec<Residual>,
    /// 1 but where a model keeps its hidden state from growing.
    pub rescale: f32,
}

/// `x ← x + Σ branches(x)`: one branch, or several that read the same `x`.
#[derive(Clone, Debug)]
pub struct Residual {
    /// What is added to `x`.
    pub branches: Vec<Branch>,
}

/// `scale · post_norm(mixer(pre_norm(x)))`.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Of what the mixer reads.
    pub pre_norm: Option<Norm>,
    /// What is computed.
    pub mixer: Mixer,
    /// Of what the mixer yields.
    pub post_norm: Option<Norm>,
    /// Multiplies the branch.
    pub scale: f32,
}

/// The layer kinds.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Attention with grouped KV heads.
    Attention(Attention),
    /// Multi-head latent attention.
    Mla(Mla),
    /// Feed-forward network.
    Ffn(Ffn),
    /// Mixture of experts.
    Moe(Moe),
    /// Selective state space.
    Mamba1(Mamba1),
    /// Selective state space with heads.
    Mamba2(Mamba2),
    /// Gated delta net.
    DeltaNet(DeltaNet),
    /// Gated short convolution.
    ShortConv(ShortConv),
    /// Time mixing of RWKV-6.
    Rwkv6TimeMix(Rwkv6TimeMix),
    /// Time mixing of RWKV-7.
    Rwkv7TimeMix(Rwkv7TimeMix),
    /// Channel mixing of RWKV.
    ChannelMix(ChannelMix),
}

/// What a norm makes of its values.
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
    /// What is subtracted and divided by.
    pub kind: NormKind,
    /// Values that are normalized together.
    pub width: usize,
    /// Multiplies the normalized values.
    pub weight: Option<Vector>,
    /// Is added after that.
    pub bias: Option<Vector>,
    /// Is added to the mean square or variance.
    pub eps: f32,
}

/// `scale · (x · wᵀ) + bias`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// `w`.
    pub weight: Matrix,
    /// Is added to the product.
    pub bias: Option<Vector>,
    /// Multiplies the product.
    pub scale: f32,
}

/// The scores and sums of causal attention with grouped KV heads. Query head `h`
/// reads KV head `h / (n_head / n_head_kv)`.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads.
    pub n_head_kv: usize,
    /// Width of a query and key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub head_dim_v: usize,
    /// Which keys a query sees.
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
    /// All of them.
    All,
    /// `i − j < n`.
    Window(usize),
    /// Those of its own chunk of `n` positions.
    Chunk(usize),
}

/// Attention from query, key and value projections.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Scores and sums.
    pub heads: Heads,
    /// To the queries.
    pub q: Linear,
    /// To the keys.
    pub k: Linear,
    /// To the values.
    pub v: Linear,
    /// From what the heads yield.
    pub output: Linear,
    /// Norms of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Rotation of queries and keys by their positions.
    pub rope: Option<Rope>,
    /// Of queries, by their positions.
    pub temperature: Option<Temperature>,
    /// `σ(gate(x))` multiplies what the heads yield.
    pub gate: Option<Linear>,
    /// Norm before the output projection.
    pub sub_norm: Option<Norm>,
}

/// Norms of query and key heads.
#[derive(Clone, Debug)]
pub struct QkNorm {
    /// Of the queries.
    pub q: Norm,
    /// Of the keys.
    pub k: Norm,
    /// Whether they are rotated first.
    pub after_rope: bool,
}

/// Queries at position `p` are multiplied by
/// `1 + scale · ln(⌊(p + offset)/floor⌋ + 1)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Positions to a step.
    pub floor: f32,
    /// Is added to a position.
    pub offset: f32,
    /// Multiplies the logarithm.
    pub scale: f32,
}

/// Multi-head latent attention (DeepSeek-V2, <https://arxiv.org/abs/2405.04434>):
/// keys and values are low-rank, RoPE has dimensions of its own at the end of
/// each query head and in one key head that all share.
#[derive(Clone, Debug)]
pub struct Mla {
    /// Of the attention that is carried out: over latents, or over whole heads.
    pub heads: Heads,
    /// To the query heads.
    pub query: MlaQuery,
    /// To the latent and the shared RoPE key.
    pub kv_a: Linear,
    /// Of the latent.
    pub kv_norm: Norm,
    /// From the latent to keys and values.
    pub kv: MlaKv,
    /// Dimensions of a query head without RoPE.
    pub n_nope: usize,
    /// Of the other dimensions.
    pub rope: Rope,
    /// Of queries, by their positions.
    pub temperature: Option<Temperature>,
    /// From what the heads yield.
    pub output: Linear,
}

/// How queries come from the hidden state.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the formula says what its fields are")]
pub enum MlaQuery {
    /// One map.
    Direct(Linear),
    /// `b(norm(a(x)))`.
    LowRank { a: Linear, norm: Norm, b: Linear },
}

/// How heads come from the latent.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the text says what its fields are")]
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
    /// Width between the maps.
    pub n_ff: usize,
    /// `act`.
    pub activation: Activation,
    /// To what `act` is applied to.
    pub gate: Option<Linear>,
    /// To what the gate multiplies.
    pub up: Linear,
    /// Back to the hidden width.
    pub down: Linear,
    /// Norm before `down`.
    pub sub_norm: Option<Norm>,
}

/// Mixture of experts: a router chooses `n_used` experts for each row.
#[derive(Clone, Debug)]
pub struct Moe {
    /// To a logit for each expert.
    pub router: Linear,
    /// Experts that a row passes through.
    pub n_used: usize,
    /// From logits to probabilities.
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
    /// The networks to choose from.
    pub experts: Vec<Ffn>,
    /// One that is not chosen.
    pub shared: Option<SharedExpert>,
}

/// How a router turns logits into the weights of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
    /// Softmax over the logits of the chosen.
    SoftmaxOfChosen,
}

/// Groups of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Groups of as many consecutive experts.
    pub n: usize,
    /// Groups to choose from.
    pub n_used: usize,
}

/// An expert that every row passes through, times `σ(gate(x))` where it has one.
#[derive(Clone, Debug)]
pub struct SharedExpert {
    /// The network.
    pub ffn: Ffn,
    /// To one number a row.
    pub gate: Option<Linear>,
}

/// The function between two maps.
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
    /// xIELU with its parameters.
    Xielu(Xielu),
}

/// xIELU (<https://arxiv.org/abs/2411.13010>): `x > 0`: `positive·x² + beta·x`,
/// else `negative·(e^min(x, eps) − 1 − x) + beta·x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    /// Of `x²` above zero.
    pub positive: f32,
    /// Of the exponential below it.
    pub negative: f32,
    /// Slope at zero.
    pub beta: f32,
    /// Bounds the exponent.
    pub eps: f32,
}

/// Final norm and output projection: `softcap(scale · logits)`.
#[derive(Clone, Debug)]
pub struct Head {
    /// Final norm.
    pub norm: Option<Norm>,
    /// `n_vocab × n_embd`; the embedding's table where the head is tied.
    pub weight: Matrix,
    /// Is added to the logits.
    pub bias: Option<Vector>,
    /// Multiplies the logits.
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

    /// Number of layers.
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
