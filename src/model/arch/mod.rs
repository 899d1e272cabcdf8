//! The architectures: a table of names, and one small file for each.

mod gemma3;
mod llama;

use std::sync::Arc;

use super::error::ModelError;
use super::hparams::Hparams;
use super::rope::Scaling;
use super::tensors::{Matrix, Tensors};
use super::{Activation, Embedding, Ffn, Head, Layer, Linear, Model, Norm};
use crate::gguf::Gguf;

/// What an architecture's file makes of a checked GGUF file.
struct Parts {
    embedding_scale: f32,
    layers: Vec<Layer>,
    softcap: Option<f32>,
}

type Build = fn(&mut Context) -> Result<Parts, ModelError>;

/// `general.architecture` → how to build it.
const ARCHITECTURES: &[(&str, Build)] = &[("gemma3", gemma3::build), ("llama", llama::build)];

/// The names that `general.architecture` may have, sorted.
pub fn supported_architectures() -> Vec<&'static str> {
    ARCHITECTURES.iter().map(|(name, _)| *name).collect()
}

/// Hyper-parameters that every architecture has, and the file's tensors.
struct Context<'a> {
    hp: Hparams<'a>,
    tensors: Tensors<'a>,
    n_embd: usize,
    n_layer: usize,
    n_ctx_train: usize,
    n_head: Vec<usize>,
    n_head_kv: Vec<usize>,
    n_ff: Vec<usize>,
    head_dim: usize,
    head_dim_v: usize,
    eps: f32,
}

pub(super) fn build(gguf: Arc<Gguf>) -> Result<Model, ModelError> {
    let hp = Hparams::new(&gguf)?;
    let architecture = hp.architecture().to_owned();
    let Some((_, build)) = ARCHITECTURES.iter().find(|(name, _)| *name == architecture) else {
        return Err(ModelError::Architecture {
            found: architecture,
            supported: supported_architectures().join(", "),
        });
    };
    let n_embd = hp.count("embedding_length")?;
    let n_layer = hp.count("block_count")?;
    let n_ctx_train = hp.count("context_length")?;
    let n_head = hp.per_layer("attention.head_count", n_layer)?;
    let n_head_kv = match hp.has("attention.head_count_kv") {
        true => hp.per_layer("attention.head_count_kv", n_layer)?,
        false => n_head.clone(),
    };
    for (q, kv) in n_head.iter().zip(&n_head_kv) {
        if *kv == 0 || q % kv != 0 {
            return Err(hp.bad(
                "attention.head_count_kv",
                kv,
                format!("does not divide the {q} query heads"),
            ));
        }
    }
    let head_dim = hp
        .optional_count("attention.key_length")?
        .unwrap_or(n_embd / n_head[0].max(1));
    let head_dim_v = hp
        .optional_count("attention.value_length")?
        .unwrap_or(n_embd / n_head[0].max(1));
    let n_ff = hp.per_layer("feed_forward_length", n_layer)?;
    let eps = hp.float("attention.layer_norm_rms_epsilon")?;

    let mut tensors = Tensors::new(&gguf);
    let n_vocab = n_vocab(&hp, &gguf, n_embd)?;
    let table = tensors.matrix("token_embd.weight", n_embd, n_vocab)?;
    let norm = tensors.norm("output_norm", n_embd, eps)?;
    let output = match tensors.has("output.weight") {
        true => tensors.matrix("output.weight", n_embd, n_vocab)?,
        false => table.clone(),
    };
    let mut context = Context {
        hp,
        tensors,
        n_embd,
        n_layer,
        n_ctx_train,
        n_head,
        n_head_kv,
        n_ff,
        head_dim,
        head_dim_v,
        eps,
    };
    let parts = build(&mut context)?;
    context.tensors.finish(&architecture)?;
    Ok(Model {
        architecture,
        n_embd,
        n_vocab,
        n_ctx_train,
        embedding: Embedding {
            table,
            scale: parts.embedding_scale,
        },
        layers: parts.layers,
        head: Head {
            norm,
            weight: output,
            softcap: parts.softcap,
        },
        gguf,
    })
}

/// The vocabulary's size is that of the embedding; the metadata must agree.
fn n_vocab(hp: &Hparams, gguf: &Gguf, n_embd: usize) -> Result<usize, ModelError> {
    let Some(info) = gguf.tensor("token_embd.weight") else {
        return Err(ModelError::MissingTensor {
            name: "token_embd.weight".to_owned(),
            expected: vec![n_embd],
        });
    };
    let rows = info.dims.get(1).copied().unwrap_or(1);
    let stated = match hp.optional_count("vocab_size")? {
        Some(n) => Some(n as u64),
        None => gguf
            .metadata()
            .strings("tokenizer.ggml.tokens")?
            .map(|t| t.len() as u64),
    };
    if let Some(stated) = stated.filter(|&n| n != rows) {
        return Err(ModelError::Shape {
            name: "token_embd.weight".to_owned(),
            expected: vec![n_embd, stated as usize],
            found: info.dims.clone(),
        });
    }
    Ok(rows as usize)
}

impl Context<'_> {
    fn scaling(&self) -> Result<Scaling, ModelError> {
        Scaling::read(&self.hp, self.n_ctx_train)
    }

    /// `rope.dimension_count`, by default the whole head.
    fn n_rot(&self) -> Result<usize, ModelError> {
        const KEY: &str = "rope.dimension_count";
        let n_rot = self.hp.optional_count(KEY)?.unwrap_or(self.head_dim);
        if n_rot == 0 || n_rot % 2 != 0 || n_rot > self.head_dim {
            return Err(self.hp.bad(
                KEY,
                n_rot,
                format!(
                    "an even number up to the head width {} is needed",
                    self.head_dim
                ),
            ));
        }
        Ok(n_rot)
    }

    fn norm(&mut self, prefix: &str) -> Result<Norm, ModelError> {
        self.tensors.norm(prefix, self.n_embd, self.eps)
    }

    /// Query, key and value projections of layer `i`, split or fused.
    fn qkv(&mut self, i: usize) -> Result<[Linear; 3], ModelError> {
        let d = self.n_embd;
        let widths = [
            self.n_head[i] * self.head_dim,
            self.n_head_kv[i] * self.head_dim,
            self.n_head_kv[i] * self.head_dim_v,
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
            let part = rows(&fused, first, n);
            first += n;
            part
        }))
    }

    /// The gated feed-forward network of layer `i`.
    fn ffn(&mut self, i: usize, activation: Activation) -> Result<Ffn, ModelError> {
        let (d, n_ff) = (self.n_embd, self.n_ff[i]);
        Ok(Ffn {
            n_ff,
            activation,
            gate: self.tensors.linear(&format!("blk.{i}.ffn_gate"), d, n_ff)?,
            up: self.tensors.linear(&format!("blk.{i}.ffn_up"), d, n_ff)?,
            down: self.tensors.linear(&format!("blk.{i}.ffn_down"), n_ff, d)?,
        })
    }
}

/// The outputs `[first, first + n)` of a linear map.
fn rows(linear: &Linear, first: usize, n: usize) -> Linear {
    Linear {
        weight: linear.weight.rows(first, n),
        bias: linear.bias.as_ref().map(|b| super::Vector {
            tensor: b.tensor.clone(),
            values: b.values[first..first + n].to_vec(),
        }),
    }
}

/// A linear map without bias.
fn unbiased(weight: Matrix) -> Linear {
    Linear { weight, bias: None }
}
