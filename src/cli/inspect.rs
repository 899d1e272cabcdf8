//! `pplx inspect`: what a model file holds, and whether it can be scored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use indicatif::{HumanBytes, HumanCount};

use super::Failure;
use crate::gguf::{BlockType, Gguf, TensorInfo};
use crate::model::Model;
use crate::say;
use crate::tokenizer::{Options, Tokenizer};

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 the file can be scored; 1 it cannot, and the output says why; \
2 it cannot be read."
)]
pub struct Args {
    /// The model, a GGUF file.
    model: PathBuf,

    /// List every tensor.
    #[arg(long)]
    tensors: bool,

    /// List every metadata key.
    #[arg(long)]
    metadata: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let gguf = Arc::new(Gguf::open(&args.model).map_err(Failure::usage)?);
    let model = Model::from_gguf(gguf.clone());
    let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &Options::default());
    let mut out = String::new();
    if args.metadata {
        for (key, value) in gguf.metadata().iter() {
            out += &format!("{key} = {}\n", value.describe());
        }
        out.push('\n');
    }
    if args.tensors {
        for t in gguf.tensors() {
            out += &format!("{:8} {:?}  {}\n", t.ty.name(), t.dims, t.name);
        }
        out.push('\n');
    }
    out += &summary(&args, &gguf);
    let mut problems = Vec::new();
    match &model {
        Ok(m) => {
            out += &format!("layers        {}\n", m.n_layer());
            for (kinds, n) in m.layer_kinds() {
                out += &format!("  {:<12}{}\n", format!("{n} ×"), kinds.join(", "));
            }
            out += &format!(
                "hidden width  {}\nvocabulary    {}\ncontext       {}\n",
                m.n_embd, m.n_vocab, m.n_ctx_train
            );
        }
        Err(e) => problems.push(e.to_string()),
    }
    match &tokenizer {
        Ok(t) => {
            let bos = match (t.bos(), t.add_bos()) {
                (Some(id), true) => format!("BOS {id} is added"),
                (Some(id), false) => format!("BOS {id} is not added"),
                (None, _) => "no BOS".to_owned(),
            };
            out += &format!("tokenizer     {} tokens, {bos}\n", t.vocab_size());
        }
        Err(e) => problems.push(e.to_string()),
    }
    out += &types(gguf.tensors());
    out += &layers(&gguf);
    out += match problems.is_empty() {
        true => "\nThis file can be scored.\n",
        false => "\nThis file cannot be scored:\n",
    };
    for p in &problems {
        out += &format!("  {p}\n");
    }
    say::text(&out)?;
    match problems.is_empty() {
        true => Ok(()),
        // The output has said why.
        false => Err(Failure::failed("")),
    }
}

fn summary(args: &Args, gguf: &Gguf) -> String {
    let elements: u64 = gguf.tensors().iter().map(|t| t.elements() as u64).sum();
    let architecture = match gguf.metadata().string("general.architecture") {
        Ok(Some(name)) => name,
        _ => "not named",
    };
    let parts = match gguf.paths().len() {
        1 => String::new(),
        n => format!(", {n} parts"),
    };
    format!(
        "file          {} ({}{parts})\narchitecture  {architecture}\nparameters    {}\n",
        args.model.display(),
        HumanBytes(gguf.file_len() as u64),
        HumanCount(elements),
    )
}

/// Tensors, parameters and bytes of each block type.
fn types(tensors: &[TensorInfo]) -> String {
    let mut by_type: BTreeMap<BlockType, (usize, u64, u64)> = BTreeMap::new();
    for t in tensors {
        let (n, elements, bytes) = by_type.entry(t.ty).or_default();
        *n += 1;
        *elements += t.elements() as u64;
        *bytes += t.n_bytes as u64;
    }
    let mut out = "\ntype      tensors      parameters        bytes\n".to_owned();
    for (ty, (n, elements, bytes)) in by_type {
        out += &format!(
            "{:8}  {n:7}  {:>14}  {:>11}\n",
            ty.name(),
            HumanCount(elements).to_string(),
            HumanBytes(bytes).to_string()
        );
    }
    out
}

/// Bytes of each layer, layers of one size together.
fn layers(gguf: &Gguf) -> String {
    let mut bytes: BTreeMap<usize, u64> = BTreeMap::new();
    let mut rest = 0;
    for t in gguf.tensors() {
        let layer = t
            .name
            .strip_prefix("blk.")
            .and_then(|s| s.split('.').next());
        match layer.and_then(|s| s.parse().ok()) {
            Some(layer) => *bytes.entry(layer).or_default() += t.n_bytes as u64,
            None => rest += t.n_bytes as u64,
        }
    }
    let mut out = "\nlayers            bytes each\n".to_owned();
    let mut line = |name: String, bytes| {
        out += &format!("{name:16}  {:>10}\n", HumanBytes(bytes).to_string());
    };
    let mut all = bytes.into_iter().peekable();
    while let Some((first, size)) = all.next() {
        let mut last = first;
        while let Some((next, _)) = all.next_if(|&(_, b)| b == size) {
            last = next;
        }
        let name = match first == last {
            true => format!("{first}"),
            false => format!("{first}–{last}"),
        };
        line(name, size);
    }
    line("outside layers".to_owned(), rest);
    out
}
