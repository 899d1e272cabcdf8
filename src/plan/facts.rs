//! What the planner knows of a model from its header alone.

use std::collections::BTreeSet;
use std::path::Path;

use crate::backend::cpu::footprint::{HeadSizes, LayerSizes};
use crate::gguf::{BlockType, Gguf, GgufError, Value};

/// Sizes of a model that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// `general.architecture`.
    pub architecture: String,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Sum of all tensors in bytes, as stored.
    pub tensor_bytes: u64,
    /// Number of weights.
    pub parameters: u64,
    /// Weights of the output head; a tied head is the token embedding.
    pub head_parameters: u64,
    /// Weights of layers that a token is multiplied with: of experts, those of as many
    /// as it goes to.
    pub layer_parameters: u64,
    /// Values that the heads of all layers yield for a token.
    pub attention_values: u64,
    /// Tokens and merges.
    pub vocabulary_entries: u64,
    /// The output head.
    pub head: HeadSizes,
    /// Layer by layer.
    pub layers: Vec<LayerSizes>,
    /// Layers.
    pub n_layers: usize,
    /// Hidden width.
    pub n_embd: usize,
    /// The types of all tensors.
    pub types: BTreeSet<BlockType>,
    /// The training context.
    pub context_length: usize,
}

impl ModelFacts {
    /// Reads the header of `path`.
    ///
    /// # Errors
    /// A malformed file, and one without the architecture's basic sizes.
    pub fn read(path: &Path) -> Result<Self, GgufError> {
        let gguf = Gguf::open(path)?;
        let meta = gguf.metadata();
        let architecture = meta.require_string("general.architecture")?.to_owned();
        let size = |key: &str| meta.require_u64(&format!("{architecture}.{key}"));
        let embedding = gguf.tensor("token_embd.weight");
        let head = gguf.tensor("output.weight").or(embedding);
        let used = meta.u64(&format!("{architecture}.expert_used_count"))?;
        let entries = |key: &str| match meta.get(&format!("tokenizer.ggml.{key}")) {
            Some(Value::Array(array)) => array.len() as u64,
            _ => 0,
        };
        let n_layers = saturating(size("block_count")?);
        let mut layers = vec![LayerSizes::default(); n_layers.min(MANY_LAYERS)];
        let (mut layer_parameters, mut attention_values) = (0, 0);
        for t in gguf.tensors() {
            let Some((layer, name)) = in_layer(&t.name) else {
                continue;
            };
            // What belongs to no layer that is counted is refused with the model.
            if layer >= MANY_LAYERS {
                continue;
            }
            if layer >= layers.len() {
                layers.resize(layer + 1, LayerSizes::default());
            }
            layers[layer].add(name, t);
            layer_parameters += match t.dims[..] {
                [n_in, n_out, n_experts] if name.contains("_exps.") => {
                    n_in * n_out * used.unwrap_or(n_experts).min(n_experts)
                }
                _ => t.elements() as u64,
            };
            if name == "attn_output.weight" {
                attention_values += t.dims.first().copied().unwrap_or(0);
            }
        }
        Ok(Self {
            file_bytes: gguf.file_len() as u64,
            tensor_bytes: gguf.tensors().iter().map(|t| t.n_bytes as u64).sum(),
            parameters: gguf.tensors().iter().map(|t| t.elements() as u64).sum(),
            head_parameters: head.map_or(0, |t| t.elements() as u64),
            layer_parameters,
            attention_values,
            vocabulary_entries: entries("tokens") + entries("merges"),
            head: head.map(HeadSizes::new).unwrap_or_default(),
            layers,
            n_layers,
            n_embd: saturating(size("embedding_length")?),
            types: gguf.tensors().iter().map(|t| t.ty).collect(),
            context_length: saturating(size("context_length")?),
            architecture,
        })
    }
}

/// More layers than any model has.
const MANY_LAYERS: usize = 1 << 16;

/// The layer of a tensor and its name there: `blk.N.NAME`.
fn in_layer(name: &str) -> Option<(usize, &str)> {
    let (layer, name) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, name))
}

fn saturating(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
