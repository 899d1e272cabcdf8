//! What the functions of all architectures have at hand: hyper-parameters, tensors, and
//! the usual ways to put them together.

use super::properties::{BIASES, UNTIED, WHOLE_HEAD_ROPE};
use crate::model::error::ModelError;
use crate::model::hparams::Hparams;
use crate::model::rope::{Rope, RopePairs, Scaling};
use crate::model::tensors::{Matrix, Tensors};
use crate::model::{
    Activation, Attention, Branch, Embedding, Ffn, Head, Heads, Layer, Linear, Mixer, Norm,
    NormKind, QkNorm, Residual, Span, Vector,
};

/// What an architecture's file makes of a checked GGUF file.
pub(super) struct Parts {
    pub(super) embedding: Embedding,
    pub(super) layers: Vec<Layer>,
    pub(super) head: Head,
}

pub(super) type Build = fn(&mut Context) -> Result<Parts, ModelError>;

/// What most architectures share: hyper-parameters, the file's tensors, and the
/// usual way to put them together.
pub(super) struct Context<'a> {
    pub(super) hp: Hparams<'a>,
    pub(super) tensors: Tensors<'a>,
    pub(super) n_embd: usize,
    pub(super) n_layer: usize,
    pub(super) n_ctx_train: usize,
    pub(super) n_vocab: usize,
    pub(super) norm: (NormKind, f32),
    /// See [`Model::unheeded_window`].
    pub(super) unheeded_window: Option<usize>,
}

/// Head counts and widths.
#[derive(Clone)]
pub(super) struct Widths {
    pub(super) n_head: Vec<usize>,
    pub(super) n_head_kv: Vec<usize>,
    pub(super) head_dim: usize,
    pub(super) head_dim_v: usize,
}

impl Context<'_> {
    /// A plain embedding, the layers, a plain head.
    pub(super) fn parts(&mut self, layers: Vec<Layer>) -> Result<Parts, ModelError> {
        Ok(Parts {
            embedding: self.embedding(1.0)?,
            layers,
            head: self.head()?,
        })
    }

    /// `token_embd`, scaled.
    pub(super) fn embedding(&mut self, scale: f32) -> Result<Embedding, ModelError> {
        Ok(Embedding {
            table: self.token_embd()?,
            scale,
            positions: None,
            norm: None,
        })
    }

    pub(super) fn token_embd(&mut self) -> Result<Matrix, ModelError> {
        self.tensors
            .matrix("token_embd.weight", self.n_embd, self.n_vocab)
    }

    /// `output_norm`, then `output` or the embedding's table.
    pub(super) fn head(&mut self) -> Result<Head, ModelError> {
        self.head_after("output_norm")
    }

    pub(super) fn head_after(&mut self, norm: &str) -> Result<Head, ModelError> {
        Ok(Head {
            norm: Some(self.norm(norm)?),
            ..self.projection()?
        })
    }

    /// Refuses a file that has lost a bias which its architecture always has.
    pub(super) fn require_biases(&self) -> Result<(), ModelError> {
        let is_ours = |(name, _): &&(&str, _)| *name == self.hp.architecture();
        let biases = BIASES.iter().filter(is_ours).flat_map(|(_, b)| *b);
        for part in biases {
            if part.starts_with("output") || *part == "token_embd_norm" {
                self.tensors.require_bias(part)?;
                continue;
            }
            for i in 0..self.n_layer {
                self.tensors.require_bias(&format!("blk.{i}.{part}"))?;
            }
        }
        Ok(())
    }

    /// The head without its norm.
    pub(super) fn projection(&mut self) -> Result<Head, ModelError> {
        // A file of an architecture that never ties its head has lost it.
        let is_tied =
            !UNTIED.contains(&self.hp.architecture()) && !self.tensors.has("output.weight");
        let weight = match !is_tied {
            true => self
                .tensors
                .matrix("output.weight", self.n_embd, self.n_vocab)?,
            false => self.token_embd()?,
        };
        Ok(Head {
            norm: None,
            weight,
            bias: self.tensors.optional_vector("output.bias", self.n_vocab)?,
            scale: 1.0,
            softcap: None,
        })
    }

    /// The architecture's norm over the hidden width.
    pub(super) fn norm(&mut self, prefix: &str) -> Result<Norm, ModelError> {
        let (kind, eps) = self.norm;
        self.tensors.norm(prefix, kind, self.n_embd, 1, eps)
    }

    /// Head counts and widths; a layer without attention has none.
    pub(super) fn widths(&self) -> Result<Widths, ModelError> {
        const KV: &str = "attention.head_count_kv";
        let n_head = self.hp.per_layer("attention.head_count", self.n_layer)?;
        let n_head_kv = match self.hp.has(KV) {
            true => self.hp.per_layer(KV, self.n_layer)?,
            false => n_head.clone(),
        };
        for (&q, &kv) in n_head.iter().zip(&n_head_kv) {
            if kv != 0 && (q == 0 || q % kv != 0) {
                let problem = format!("does not divide the {q} query heads");
                return Err(self.hp.bad(KV, kv, problem));
            }
        }
        let most = n_head.iter().copied().max().unwrap_or(0).max(1);
        let width = |key| -> Result<usize, ModelError> {
            // RoPE lists a head's pairs before any tensor proves its width.
            const WIDEST: usize = 1 << 16;
            match self.hp.optional_count(key)?.unwrap_or(self.n_embd / most) {
                n if n > WIDEST => Err(self.hp.bad(key, n, "wider than the head of any model")),
                n => Ok(n),
            }
        };
        Ok(Widths {
            n_head,
            n_head_kv,
            head_dim: width("attention.key_length")?,
            head_dim_v: width("attention.value_length")?,
        })
    }

    pub(super) fn n_ff(&self) -> Result<Vec<usize>, ModelError> {
        self.hp.per_layer("feed_forward_length", self.n_layer)
    }

    pub(super) fn scaling(&self) -> Result<Scaling, ModelError> {
        Scaling::read(&self.hp, self.n_ctx_train, false)
    }

    /// `rope.dimension_count`, by default the whole head.
    pub(super) fn n_rot(&self, head_dim: usize) -> Result<usize, ModelError> {
        const KEY: &str = "rope.dimension_count";
        let n_rot = self.hp.optional_count(KEY)?.unwrap_or(head_dim);
        if n_rot == 0 || n_rot % 2 != 0 || n_rot > head_dim {
            let problem = format!("an even number up to the head width {head_dim} is needed");
            return Err(self.hp.bad(KEY, n_rot, problem));
        }
        if n_rot < head_dim && WHOLE_HEAD_ROPE.contains(&self.hp.architecture()) {
            let problem = format!("the architecture rotates whole heads of {head_dim}");
            return Err(self.hp.bad(KEY, n_rot, problem));
        }
        Ok(n_rot)
    }

    /// RoPE with the file's base, scaling and frequency factors.
    pub(super) fn rope(&mut self, pairs: RopePairs, head_dim: usize) -> Result<Rope, ModelError> {
        let n_rot = self.n_rot(head_dim)?;
        let factors = self
            .tensors
            .optional_vector("rope_freqs.weight", n_rot / 2)?;
        let (base, attn_factor) = (self.rope_base()?, self.attn_factor()?);
        let scaling = self.scaling()?;
        Ok(Rope::new(
            pairs,
            n_rot,
            base,
            &scaling,
            factors.as_ref(),
            attn_factor,
        ))
    }

    pub(super) fn rope_base(&self) -> Result<f32, ModelError> {
        const KEY: &str = "rope.freq_base";
        match self.hp.optional_float(KEY)?.unwrap_or(10000.0) {
            base if base > 0.0 && base.is_finite() => Ok(base),
            base => Err(self.hp.bad(KEY, base, "a positive number is needed")),
        }
    }

    pub(super) fn attn_factor(&self) -> Result<f32, ModelError> {
        Ok(self
            .hp
            .optional_float("rope.scaling.attn_factor")?
            .unwrap_or(1.0))
    }

    /// Query, key and value projections of layer `i`, split or fused.
    pub(super) fn qkv(&mut self, i: usize, w: &Widths) -> Result<[Linear; 3], ModelError> {
        let d = self.n_embd;
        let widths = [
            w.n_head[i] * w.head_dim,
            w.n_head_kv[i] * w.head_dim,
            w.n_head_kv[i] * w.head_dim_v,
        ];
        if !self.tensors.has(&format!("blk.{i}.attn_qkv.weight")) {
            let mut linear =
                |part: &str, n| self.tensors.linear(&format!("blk.{i}.attn_{part}"), d, n);
            return Ok([
                linear("q", widths[0])?,
                linear("k", widths[1])?,
                linear("v", widths[2])?,
            ]);
        }
        let fused = self
            .tensors
            .linear(&format!("blk.{i}.attn_qkv"), d, widths.iter().sum())?;
        let mut first = 0;
        Ok(widths.map(|n| {
            let part = fused.rows(first, n);
            first += n;
            part
        }))
    }

    /// Plain attention of layer `i`: no norms, no RoPE, everything visible,
    /// scores scaled by the key width.
    pub(super) fn attention(&mut self, i: usize, w: &Widths) -> Result<Attention, ModelError> {
        let qkv = self.qkv(i, w)?;
        self.attention_over(qkv, i, w)
    }

    /// As [`Context::attention`], from the given projections.
    pub(super) fn attention_over(
        &mut self,
        [q, k, v]: [Linear; 3],
        i: usize,
        w: &Widths,
    ) -> Result<Attention, ModelError> {
        let n_mixed = w.n_head[i] * w.head_dim_v;
        Ok(Attention {
            heads: Heads {
                n_head: w.n_head[i],
                n_head_kv: w.n_head_kv[i],
                head_dim: w.head_dim,
                head_dim_v: w.head_dim_v,
                span: Span::All,
                scale: 1.0 / (w.head_dim as f32).sqrt(),
                softcap: None,
                sinks: None,
            },
            q,
            k,
            v,
            output: self
                .tensors
                .linear(&format!("blk.{i}.attn_output"), n_mixed, self.n_embd)?,
            qk_norm: None,
            rope: None,
            temperature: None,
            gate: None,
            sub_norm: None,
        })
    }

    /// Plain attention of layer `i` with RoPE.
    pub(super) fn roped(
        &mut self,
        i: usize,
        w: &Widths,
        rope: &Rope,
    ) -> Result<Attention, ModelError> {
        let mut attention = self.attention(i, w)?;
        attention.rope = Some(rope.clone());
        Ok(attention)
    }

    /// The gated feed-forward network of layer `i`.
    pub(super) fn ffn(
        &mut self,
        i: usize,
        n_ff: usize,
        activation: Activation,
    ) -> Result<Ffn, ModelError> {
        self.ffn_named(&format!("blk.{i}.ffn"), "", n_ff, activation, true)
    }

    /// The feed-forward network of layer `i`, without a gate.
    pub(super) fn ungated_ffn(
        &mut self,
        i: usize,
        n_ff: usize,
        activation: Activation,
    ) -> Result<Ffn, ModelError> {
        self.ffn_named(&format!("blk.{i}.ffn"), "", n_ff, activation, false)
    }

    /// The network with the tensors `PREFIX_{gate,up,down}SUFFIX`.
    pub(super) fn ffn_named(
        &mut self,
        prefix: &str,
        suffix: &str,
        n_ff: usize,
        activation: Activation,
        gated: bool,
    ) -> Result<Ffn, ModelError> {
        let d = self.n_embd;
        let name = |part: &str| format!("{prefix}_{part}{suffix}");
        let gate = match gated {
            true => Some(self.tensors.linear(&name("gate"), d, n_ff)?),
            false => None,
        };
        Ok(Ffn {
            n_ff,
            activation,
            gate,
            up: self.tensors.linear(&name("up"), d, n_ff)?,
            down: self.tensors.linear(&name("down"), n_ff, d)?,
            sub_norm: None,
        })
    }
}

impl Linear {
    /// A map without bias.
    pub(super) fn unbiased(weight: Matrix) -> Self {
        Linear {
            weight,
            bias: None,
            scale: 1.0,
        }
    }

    /// The outputs `[first, first + n)`.
    pub(super) fn rows(&self, first: usize, n: usize) -> Self {
        self.runs(first, n, n, n)
    }

    /// `n` outputs in runs of `run`, `step` from start to start.
    pub(super) fn runs(&self, first: usize, n: usize, run: usize, step: usize) -> Self {
        Linear {
            weight: self.weight.runs(first, n, run, step),
            bias: self.bias.as_ref().map(|b| {
                let row = |o: usize| first + o / run * step + o % run;
                Vector {
                    tensor: b.tensor.clone(),
                    values: (0..n).map(|o| b.values[row(o)]).collect(),
                }
            }),
            scale: self.scale,
        }
    }
}

/// A residual block with one branch.
pub(super) fn block(pre_norm: Option<Norm>, mixer: Mixer, post_norm: Option<Norm>) -> Residual {
    Residual {
        branches: vec![branch(pre_norm, mixer, post_norm)],
    }
}

/// A layer of residual blocks.
pub(super) fn layer(blocks: Vec<Residual>) -> Layer {
    Layer {
        blocks,
        rescale: 1.0,
    }
}

pub(super) fn branch(pre_norm: Option<Norm>, mixer: Mixer, post_norm: Option<Norm>) -> Branch {
    Branch {
        pre_norm,
        mixer,
        post_norm,
        scale: 1.0,
    }
}

impl Context<'_> {
    /// The usual layers: `x += attention(attn_norm(x))`, then
    /// `x += ffn(ffn_norm(x))`.
    pub(super) fn pre_norm_layers(
        &mut self,
        ffn_norm: &str,
        mut attention: impl FnMut(&mut Self, usize) -> Result<Mixer, ModelError>,
        mut ffn: impl FnMut(&mut Self, usize) -> Result<Mixer, ModelError>,
    ) -> Result<Vec<Layer>, ModelError> {
        let n_layer = self.n_layer;
        let layer = |i| {
            let attn_norm = self.norm(&format!("blk.{i}.attn_norm"))?;
            let ffn_norm = self.norm(&format!("blk.{i}.{ffn_norm}"))?;
            Ok(layer(vec![
                block(Some(attn_norm), attention(self, i)?, None),
                block(Some(ffn_norm), ffn(self, i)?, None),
            ]))
        };
        (0..n_layer).map(layer).collect()
    }

    /// Norms of query and key heads, each with one weight for all heads.
    pub(super) fn qk_norm(
        &mut self,
        i: usize,
        w: &Widths,
        after_rope: bool,
    ) -> Result<QkNorm, ModelError> {
        let (kind, eps) = self.norm;
        let mut norm = |part: &str| {
            let name = format!("blk.{i}.attn_{part}_norm");
            self.tensors.norm(&name, kind, w.head_dim, 1, eps)
        };
        Ok(QkNorm {
            q: norm("q")?,
            k: norm("k")?,
            after_rope,
        })
    }

    /// Norms over the whole width of queries and keys.
    pub(super) fn wide_qk_norm(&mut self, i: usize, w: &Widths) -> Result<QkNorm, ModelError> {
        let (kind, eps) = self.norm;
        let mut norm = |part: &str, n_head: usize| {
            let name = format!("blk.{i}.attn_{part}_norm");
            self.tensors.norm(&name, kind, n_head * w.head_dim, 1, eps)
        };
        Ok(QkNorm {
            q: norm("q", w.n_head[i])?,
            k: norm("k", w.n_head_kv[i])?,
            after_rope: false,
        })
    }

    /// Refuses a file that states a bool other than what the architecture does.
    pub(super) fn require_flag(&self, key: &str, is: bool) -> Result<(), ModelError> {
        match self.hp.bool(key, is)? {
            said if said == is => Ok(()),
            said => {
                let problem = format!("the architecture knows {is} only");
                Err(self.hp.bad(key, said, problem))
            }
        }
    }

    /// The sliding window, where the file has one.
    pub(super) fn window(&self) -> Result<Option<usize>, ModelError> {
        let n = self.hp.optional_count("attention.sliding_window")?;
        Ok(n.filter(|&n| n > 0))
    }

    /// The spans of all layers: windows in periods whose last layer sees all.
    pub(super) fn spans(
        &self,
        window: Option<usize>,
        period: usize,
    ) -> Result<Vec<Span>, ModelError> {
        let Some(window) = window else {
            return Ok(vec![Span::All; self.n_layer]);
        };
        let slides = self.hp.sliding_pattern(self.n_layer, period)?;
        Ok(slides
            .into_iter()
            .map(|slides| match slides {
                true => Span::Window(window),
                false => Span::All,
            })
            .collect())
    }
}
