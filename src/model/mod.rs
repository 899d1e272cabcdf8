//! Architectures as data: which tensors, which layer kinds, in which order,
//! with which constants. Knows nothing of devices or corpus windows.
//!
//! A model is an embedding, a list of layers and a head. A layer is a list of
//! residual blocks; each adds the outputs of its branches to the hidden state,
//! `x ← x + Σ post_norm(mixer(pre_norm(x)))`. All widths are in elements and all
//! matrices map rows: `y[t, o] = Σ_i x[t, i] · w[o, i] + b[o]`.

mod arch;
mod error;
mod hparams;
mod rope;
mod tensors;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use arch::supported_architectures;
pub use error::ModelError;
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
}

/// Token embedding: row `id` of `table`, times `scale`.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// `n_vocab × n_embd`.
    pub table: Matrix,
    pub scale: f32,
}

/// One layer: its residual blocks in order.
#[derive(Clone, Debug)]
pub struct Layer {
    pub blocks: Vec<Residual>,
}

/// `x ← x + Σ branches(x)`: one branch, or several that read the same `x`.
#[derive(Clone, Debug)]
pub struct Residual {
    pub branches: Vec<Branch>,
}

#[derive(Clone, Debug)]
pub struct Branch {
    pub pre_norm: Option<Norm>,
    pub mixer: Mixer,
    pub post_norm: Option<Norm>,
}

/// The layer kinds.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // a few a layer; boxes would only cost readers
pub enum Mixer {
    Attention(Attention),
    Ffn(Ffn),
    Moe(Moe),
}

/// Root-mean-square norm: `x / sqrt(mean(x²) + eps) · weight`.
#[derive(Clone, Debug)]
pub struct Norm {
    pub weight: Vector,
    pub eps: f32,
}

/// A matrix with an optional bias.
#[derive(Clone, Debug)]
pub struct Linear {
    pub weight: Matrix,
    pub bias: Option<Vector>,
}

/// Causal attention with grouped KV heads. Query head `h` reads KV head
/// `h / (n_head / n_head_kv)`.
#[derive(Clone, Debug)]
pub struct Attention {
    pub n_head: usize,
    pub n_head_kv: usize,
    /// Width of a query and key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub head_dim_v: usize,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub output: Linear,
    /// Per-head norms, applied before RoPE.
    pub q_norm: Option<Norm>,
    pub k_norm: Option<Norm>,
    pub rope: Option<Rope>,
    /// Key `j` is visible to query `i` iff `j ≤ i` and `i − j < window`.
    pub window: Option<usize>,
    /// Multiplies `q·k`.
    pub scale: f32,
    /// `s ← cap · tanh(s / cap)` on the scaled scores.
    pub softcap: Option<f32>,
}

/// Gated feed-forward network: `down(act(gate(x)) ⊙ up(x))`.
#[derive(Clone, Debug)]
pub struct Ffn {
    pub n_ff: usize,
    pub activation: Activation,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

/// Mixture of experts: softmax over the router's logits, the `n_used` largest,
/// their weights renormalized to sum to 1.
#[derive(Clone, Debug)]
pub struct Moe {
    pub router: Linear,
    pub n_used: usize,
    pub experts: Vec<Ffn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    GeluTanh,
}

/// Final norm and output projection.
#[derive(Clone, Debug)]
pub struct Head {
    pub norm: Norm,
    /// `n_vocab × n_embd`; the embedding's table where the head is tied.
    pub weight: Matrix,
    /// `l ← cap · tanh(l / cap)` on the logits.
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
}

impl Layer {
    /// Matrices of the layer.
    pub fn matrices(&self) -> Vec<&Matrix> {
        let mut out = Vec::new();
        for branch in self.blocks.iter().flat_map(|b| &b.branches) {
            match &branch.mixer {
                Mixer::Attention(a) => {
                    out.extend([&a.q, &a.k, &a.v, &a.output].map(|l| &l.weight));
                }
                Mixer::Ffn(f) => out.extend(f.matrices()),
                Mixer::Moe(m) => {
                    out.push(&m.router.weight);
                    out.extend(m.experts.iter().flat_map(Ffn::matrices));
                }
            }
        }
        out
    }
}

impl Ffn {
    fn matrices(&self) -> [&Matrix; 3] {
        [&self.gate.weight, &self.up.weight, &self.down.weight]
    }
}

impl Attention {
    /// The keys that a query at position `i` sees.
    pub fn visible(&self, i: usize) -> Range<usize> {
        let start = self.window.map_or(0, |w| (i + 1).saturating_sub(w));
        start..i + 1
    }
}
