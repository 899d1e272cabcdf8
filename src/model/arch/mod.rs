//! The architectures: one small file for each family, a table of their names, and
//! what they share.

mod apertus;
mod bitnet;
mod cohere;
mod context;
mod deci;
mod declared;
mod deepseek;
mod dense;
mod exaone;
mod experts;
mod falcon_h1;
mod gemma;
mod glm;
mod gpt;
mod granite;
mod jamba;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod minicpm;
mod mixtures;
mod moe;
mod mrope;
mod mtp;
mod nemotron_h;
mod olmo;
mod openai;
mod phi;
mod properties;
mod qwen;
mod qwen_delta;
mod rwkv;
mod table;

use std::sync::Arc;

use super::error::ModelError;
use super::hparams::Hparams;
use super::tensors::Tensors;
use super::{Model, NormKind};
use crate::gguf::Gguf;
use context::{Context, Parts, Widths, block, branch, layer};
use properties::{EITHER_NORM, LAYER_NORM};
use table::ARCHITECTURES;
pub use table::supported_architectures;

pub(super) fn build(gguf: Arc<Gguf>) -> Result<Model, ModelError> {
    let mut hp = Hparams::new(&gguf)?;
    let architecture = hp.architecture().to_owned();
    let Some((_, build)) = ARCHITECTURES.iter().find(|(name, _)| *name == architecture) else {
        return Err(ModelError::Architecture {
            found: architecture,
            supported: supported_architectures().join(", "),
        });
    };
    let n_embd = hp.count("embedding_length")?;
    let (n_layer, n_mtp) = n_layer(&hp, gguf.tensors().len())?;
    hp.set_blocks(n_layer + n_mtp);
    let mut context = Context {
        n_embd,
        n_layer,
        n_ctx_train: hp.count("context_length")?,
        n_vocab: n_vocab(&hp, &gguf, n_embd)?,
        norm: norm_kind(&hp)?,
        tensors: Tensors::new(&gguf),
        unheeded_window: None,
        hp,
    };
    let absent_mtp_blocks = context.leave_out_mtp(n_layer..n_layer + n_mtp)?;
    let parts = build(&mut context)?;
    context.require_biases()?;
    let (n_ctx_train, n_vocab) = (context.n_ctx_train, context.n_vocab);
    let unheeded_window = context.unheeded_window;
    let unheeded = context.refuse_unheeded();
    context.tensors.finish(&architecture)?;
    unheeded?;
    Ok(Model {
        architecture,
        n_embd,
        n_vocab,
        n_ctx_train,
        embedding: parts.embedding,
        layers: parts.layers,
        head: parts.head,
        unheeded_window,
        absent_mtp_blocks,
        gguf,
    })
}

/// Layers that make the logits, and blocks for multi-token prediction.
fn n_layer(hp: &Hparams, n_tensors: usize) -> Result<(usize, usize), ModelError> {
    const ALL: &str = "block_count";
    let (all, mtp) = (hp.count(ALL)?, hp.optional_count(mtp::KEY)?.unwrap_or(0));
    // Every layer has tensors; lists as long as the layers must stay small.
    if all > n_tensors {
        return Err(hp.bad(ALL, all, format!("the file has {n_tensors} tensors")));
    }
    match all.checked_sub(mtp) {
        Some(n) if n > 0 => Ok((n, mtp)),
        _ => Err(hp.bad(mtp::KEY, mtp, format!("the file has {all} blocks"))),
    }
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
    let tokens = gguf.metadata().strings("tokenizer.ggml.tokens")?;
    let stated = [hp.optional_count("vocab_size")?, tokens.map(<[_]>::len)];
    let differs = |n: &usize| *n as u64 != rows;
    if let Some(stated) = stated.into_iter().flatten().find(differs) {
        return Err(ModelError::Shape {
            name: "token_embd.weight".to_owned(),
            expected: vec![n_embd, stated],
            found: info.dims.clone(),
        });
    }
    Ok(rows as usize)
}

/// The architecture's norm, with the file's epsilon for it.
fn norm_kind(hp: &Hparams) -> Result<(NormKind, f32), ModelError> {
    const RMS: &str = "attention.layer_norm_rms_epsilon";
    const LAYER: &str = "attention.layer_norm_epsilon";
    let architecture = hp.architecture();
    let either = EITHER_NORM.contains(&architecture);
    let is_layer = match either {
        true => !hp.has(RMS) && hp.has(LAYER),
        false => LAYER_NORM.contains(&architecture),
    };
    let (kind, key) = match is_layer {
        true => (NormKind::Layer, LAYER),
        false => (NormKind::Rms, RMS),
    };
    match hp.float(key)? {
        eps if eps >= 0.0 && eps.is_finite() => Ok((kind, eps)),
        eps => Err(hp.bad(key, eps, "a number of at least 0 is needed")),
    }
}
