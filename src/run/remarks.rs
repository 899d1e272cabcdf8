//! What a reader of a figure should know beside it: none of it makes the figure
//! wrong, all of it can make it mean something else.

use super::input::LoadedModel;
use super::measure::Settings;
use crate::eval::WindowPlan;
use crate::gguf::{Gguf, TensorInfo};
use crate::tokenizer::Tokenizer;

/// U+FEFF in UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Short notes on scoring `tokens`, the ids of a whole corpus, under `settings`.
/// Reads a byte or so of each tensor, and more only of tensors that are zero.
pub fn remarks(loaded: &LoadedModel, tokens: &[u32], settings: &Settings) -> Vec<String> {
    let tokenizer = loaded.tokenizer().ok();
    let notes = [
        begins_with_bos_twice(tokenizer, tokens),
        without_bos(loaded, tokenizer, tokens, settings),
        tokenizer.and_then(|t| begins_with_bom(t, tokens)),
        tokenizer.and_then(|t| without_bytes(t, tokens, settings)),
        zero_tensors(&loaded.model.gguf),
        unheeded_window(loaded, settings),
        absent_blocks(loaded),
    ];
    notes.into_iter().flatten().collect()
}

/// Of a text that begins with a written-out BOS, or of ids that were made with one
/// by two tools.
fn begins_with_bos_twice(tokenizer: Option<&Tokenizer>, tokens: &[u32]) -> Option<String> {
    let bos = tokenizer?.bos()?;
    tokens.starts_with(&[bos, bos]).then(|| {
        format!("the corpus begins with BOS ({bos}) twice: its own, and the one that is added")
    })
}

/// Gemma models fall apart without the BOS that they were trained with.
fn without_bos(
    loaded: &LoadedModel,
    tokenizer: Option<&Tokenizer>,
    tokens: &[u32],
    settings: &Settings,
) -> Option<String> {
    let architecture = &loaded.model.architecture;
    // Where windows keep their own first token, one context holds the corpus.
    let begins_with_bos = match settings.geometry.mode.substitutes_bos() {
        true => settings.bos.is_some(),
        false => tokenizer.is_some_and(|t| t.bos().is_some() && t.bos() == tokens.first().copied()),
    };
    (architecture.starts_with("gemma") && !begins_with_bos).then(|| {
        format!("no BOS is added, but {architecture} models are trained with it: the figure means little")
    })
}

/// A mark of the file, not of the text, which the model reads as a token.
fn begins_with_bom(tokenizer: &Tokenizer, tokens: &[u32]) -> Option<String> {
    // A BOM is three tokens at most; BOS and a space may be put before it.
    const FIRST: usize = 6;
    let pieces = tokens.iter().take(FIRST).map(|&id| tokenizer.piece(id));
    let text: Vec<u8> = pieces.flatten().collect();
    let text = text.strip_prefix(b" ").unwrap_or(&text);
    text.starts_with(BOM).then(|| {
        "the corpus begins with a byte order mark (U+FEFF), which is scored as text".to_owned()
    })
}

/// Control and unknown tokens, which stand for no text.
fn without_bytes(tokenizer: &Tokenizer, tokens: &[u32], settings: &Settings) -> Option<String> {
    let plan = WindowPlan::new(tokens.len(), settings.geometry, settings.limits).ok()?;
    let targets = plan.windows().iter().flat_map(|w| &tokens[w.targets()]);
    let known = targets.filter(|&&id| (id as usize) < tokenizer.vocab_size());
    let n = known.filter(|&&id| tokenizer.piece(id).is_empty()).count();
    (n > 0).then(|| {
        format!(
            "{n} of the scored tokens stand for no text (control or unknown tokens): they count \
             in the PPL, and in bits per byte as NLL without bytes"
        )
    })
}

/// Weights that are all zero bytes, as a preallocated or broken download has them.
fn zero_tensors(gguf: &Gguf) -> Option<String> {
    let tensors = gguf.tensors().iter().filter(|t| is_never_zero(t));
    let mut zero = tensors.filter(|t| gguf.data(t).iter().all(|&b| b == 0));
    let first = zero.next()?;
    let n = 1 + zero.count();
    let (name, are) = (&first.name, if n == 1 { "is" } else { "are" });
    let tensors = if n == 1 { "tensor" } else { "tensors" };
    Some(format!(
        "{n} {tensors} of the model {are} all zero, first '{name}': is the file complete?"
    ))
}

/// Matrices and the weights of norms: all zero they would cut a path of the model.
/// Biases, factors, lerps and the like are often zero as a whole, and so may be
/// whatever is as small as they are.
fn is_never_zero(t: &TensorInfo) -> bool {
    const SMALL: usize = 16;
    let n_wide = t.dims.iter().filter(|&&d| d > 1).count();
    let is_norm = t.name.contains("norm");
    t.name.ends_with(".weight") && t.elements() >= SMALL && (n_wide > 1 || is_norm)
}

fn unheeded_window(loaded: &LoadedModel, settings: &Settings) -> Option<String> {
    let window = loaded.model.unheeded_window?;
    (settings.geometry.n_ctx > window)
        .then(|| format!("the model's sliding window of {window} is not applied, as in llama.cpp"))
}

fn absent_blocks(loaded: &LoadedModel) -> Option<String> {
    let n = loaded.model.absent_mtp_blocks;
    (n > 0).then(|| {
        format!("{n} declared blocks for multi-token prediction are not in the file, which the figure does not need")
    })
}
