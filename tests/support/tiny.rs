//! Models of a few kB, made on the spot: seeded weights, a SentencePiece
//! vocabulary of a few dozen tokens, and text that it covers. Parts can be
//! replaced, to see what each one does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pplx::backend::cpu::{CpuModel, Isa};
use pplx::gguf::{Array, BlockType, Gguf, GgufWriter, Value};
use pplx::model::{Model, ModelError};

use super::quantize::encode;

/// `(name, dims with the contiguous one first, values)`.
pub type Tensor = (String, Vec<u64>, Vec<f32>);

/// A model file in the making.
#[derive(Clone)]
pub struct Tiny {
    pub architecture: &'static str,
    pub meta: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
}

pub const BOS: u32 = 1;

/// Token texts: three special ones, characters, and merges of them.
pub fn vocabulary() -> Vec<String> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "\n", ".", ",", "\u{2581}"]
        .map(str::to_owned)
        .into();
    tokens.extend(('a'..='z').map(String::from));
    let merges = [
        "▁t", "he", "▁the", "in", "er", "an", "on", "▁a", "re", "▁s", "▁o", "nd", "▁and", "▁c",
        "at", "or", "▁m", "el", "it", "ing", "▁w", "▁on", "▁re",
    ];
    tokens.extend(merges.map(str::to_owned));
    tokens
}

/// The bytes of text that a token of [`vocabulary`] stands for.
pub fn piece_bytes(id: u32) -> usize {
    match id {
        0..3 => 0,
        id => vocabulary()[id as usize].replace('\u{2581}', " ").len(),
    }
}

/// `words` words of seeded text, which the vocabulary covers.
pub fn text(words: usize) -> String {
    const WORDS: [&str; 12] = [
        "the", "model", "and", "a", "token", "is", "on", "the", "window,", "reading", "it.",
        "\nother",
    ];
    let mut random = Random::new(7);
    let picks = (0..words).map(|_| WORDS[(random.next() * WORDS.len() as f32) as usize]);
    picks.collect::<Vec<_>>().join(" ")
}

/// Ids of [`text`]-like ids without a tokenizer: any tokens but special ones.
pub fn ids(n: usize) -> Vec<u32> {
    let mut random = Random::new(11);
    let n_normal = vocabulary().len() - 3;
    (0..n)
        .map(|_| 3 + (random.next() * n_normal as f32) as u32)
        .collect()
}

/// xorshift64*, for values in `[0, 1)`.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as f32 / (1u32 << 24) as f32
    }
}

impl Tiny {
    /// Without tensors, with a vocabulary and the keys every model has.
    pub fn new(architecture: &'static str, n_layer: u32, n_embd: u32, n_ff: u32) -> Self {
        let mut tiny = Self {
            architecture,
            meta: Vec::new(),
            tensors: Vec::new(),
        };
        for (key, value) in [
            ("block_count", n_layer),
            ("embedding_length", n_embd),
            ("feed_forward_length", n_ff),
            ("context_length", 128),
        ] {
            tiny = tiny.set(key, Value::U32(value));
        }
        let tokens = vocabulary();
        let kinds = (0..tokens.len() as i32).map(|id| match id {
            0 => 2,     // unknown
            1 | 2 => 3, // control
            _ => 1,
        });
        let scores = (0..tokens.len()).map(|id| -(id as f32));
        tiny.set("attention.layer_norm_rms_epsilon", Value::F32(1e-5))
            .tokenizer("model", Value::String("llama".into()))
            .tokenizer("scores", Value::Array(Array::F32(scores.collect())))
            .tokenizer("token_type", Value::Array(Array::I32(kinds.collect())))
            .tokenizer("tokens", Value::Array(Array::String(tokens)))
            .tokenizer("bos_token_id", Value::U32(BOS))
            .tokenizer("eos_token_id", Value::U32(2))
            .tokenizer("add_bos_token", Value::Bool(true))
    }

    /// Three layers, four query heads on two KV heads, a separate output head.
    pub fn llama() -> Self {
        Self::llama_of([16, 8, 24, 3], [0.6, 0.7])
    }

    /// As [`Self::llama`], of two layers and wide enough for every block type.
    pub fn wide_llama() -> Self {
        Self::llama_of([256, 64, 256, 2], [0.15, 0.1])
    }

    fn llama_of([d, head, n_ff, n_layer]: [u64; 4], [layers, output]: [f32; 2]) -> Self {
        let n_layer = n_layer as u32;
        let mut tiny = Self::new("llama", n_layer, d as u32, n_ff as u32)
            .set("attention.head_count", Value::U32(4))
            .set("attention.head_count_kv", Value::U32(2))
            .set("attention.key_length", Value::U32(head as u32))
            .set("attention.value_length", Value::U32(head as u32))
            .set("rope.freq_base", Value::F32(10000.0));
        let mut add = Adder::new(&mut tiny, 1);
        let n_vocab = vocabulary().len() as u64;
        add.weights("token_embd.weight", &[d, n_vocab], 1.0);
        for i in 0..n_layer {
            add.norm(&format!("blk.{i}.attn_norm.weight"), d);
            add.norm(&format!("blk.{i}.ffn_norm.weight"), d);
            add.layer(i, d, [4 * head, 2 * head], n_ff, layers);
        }
        add.norm("output_norm.weight", d);
        add.weights("output.weight", &[d, n_vocab], output);
        tiny
    }

    /// Three layers, of which the first two slide over 6 tokens; two query heads
    /// on one KV head, heads wider than half the hidden state, a tied head.
    pub fn gemma3() -> Self {
        let (d, head, n_ff, n_layer) = (16, 12, 24, 3);
        let mut tiny = Self::new("gemma3", n_layer, d as u32, n_ff as u32)
            .set("attention.head_count", Value::U32(2))
            .set("attention.head_count_kv", Value::U32(1))
            .set("attention.key_length", Value::U32(head as u32))
            .set("attention.value_length", Value::U32(head as u32))
            .set("attention.sliding_window", Value::U32(6))
            .set("attention.sliding_window_pattern", Value::U32(3))
            .set("rope.freq_base", Value::F32(1e6))
            .set("rope.freq_base_swa", Value::F32(10000.0));
        let mut add = Adder::new(&mut tiny, 2);
        add.weights("token_embd.weight", &[d, vocabulary().len() as u64], 0.8);
        for i in 0..n_layer {
            for part in [
                "attn_norm",
                "post_attention_norm",
                "ffn_norm",
                "post_ffw_norm",
            ] {
                add.norm(&format!("blk.{i}.{part}.weight"), d);
            }
            for part in ["attn_q_norm", "attn_k_norm"] {
                add.norm(&format!("blk.{i}.{part}.weight"), head);
            }
            add.layer(i, d, [2 * head, head], n_ff, 0.6);
        }
        add.norm("output_norm.weight", d);
        tiny
    }

    /// Sets `ARCHITECTURE.KEY`.
    pub fn set(self, key: &str, value: Value) -> Self {
        let key = format!("{}.{key}", self.architecture);
        self.set_raw(&key, value)
    }

    /// Sets `tokenizer.ggml.KEY`.
    pub fn tokenizer(self, key: &str, value: Value) -> Self {
        self.set_raw(&format!("tokenizer.ggml.{key}"), value)
    }

    pub fn set_raw(mut self, key: &str, value: Value) -> Self {
        self.meta.retain(|(k, _)| k != key);
        self.meta.push((key.to_owned(), value));
        self
    }

    /// Removes `ARCHITECTURE.KEY`.
    pub fn unset(mut self, key: &str) -> Self {
        let key = format!("{}.{key}", self.architecture);
        self.meta.retain(|(k, _)| *k != key);
        self
    }

    /// Adds or replaces a tensor.
    pub fn tensor(mut self, name: &str, dims: &[u64], values: Vec<f32>) -> Self {
        self = self.without(name);
        self.tensors.push((name.to_owned(), dims.to_vec(), values));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|(n, ..)| n != name);
        self
    }

    /// Changes the values of the tensor `part`, or of `blk.*.part` in every layer.
    pub fn edit(mut self, part: &str, mut change: impl FnMut(&mut [f32])) -> Self {
        let in_layer = format!(".{part}");
        let mut found = 0;
        for (name, _, values) in &mut self.tensors {
            if name == part || name.ends_with(&in_layer) {
                change(values);
                found += 1;
            }
        }
        assert!(found > 0, "no tensor is {part}");
        self
    }

    pub fn writer(&self) -> GgufWriter {
        let mut writer = GgufWriter::new(self.architecture);
        for (key, value) in &self.meta {
            writer.meta(key, value.clone());
        }
        for (name, dims, values) in &self.tensors {
            writer.f32_tensor(name, dims, values);
        }
        writer
    }

    /// As [`Self::writer`], with all matrices but the embedding in blocks of `ty`.
    pub fn quantized(&self, ty: BlockType) -> GgufWriter {
        let mut writer = GgufWriter::new(self.architecture);
        for (key, value) in &self.meta {
            writer.meta(key, value.clone());
        }
        for (name, dims, values) in &self.tensors {
            if dims.len() == 2 && name != "token_embd.weight" {
                writer.tensor(name, dims, ty, encode(ty, values));
            } else {
                writer.f32_tensor(name, dims, values);
            }
        }
        writer
    }

    pub fn write(&self, path: impl AsRef<Path>) {
        self.writer().write(path).expect("a model file is written");
    }

    /// The parts that llama-gguf-split makes of the model: tensor `i` goes into
    /// part `part_of(i)` of `n`, counted from 0.
    pub fn parts(&self, n: usize, part_of: impl Fn(usize) -> usize) -> Vec<Tiny> {
        let part = |no: usize| {
            let tensors = self.tensors.iter().enumerate();
            let mine = tensors.filter(|&(i, _)| part_of(i) == no);
            let part = Self {
                architecture: self.architecture,
                meta: if no == 0 { self.meta.clone() } else { vec![] },
                tensors: mine.map(|(_, t)| t.clone()).collect(),
            };
            part.set_raw("split.no", Value::U16(no as u16))
                .set_raw("split.count", Value::U16(n as u16))
                .set_raw("split.tensors.count", Value::I32(self.tensors.len() as i32))
        };
        (0..n).map(part).collect()
    }

    pub fn model(&self) -> Result<Model, ModelError> {
        build(&self.writer())
    }

    pub fn cpu(&self, n_threads: usize) -> CpuModel {
        self.cpu_with(n_threads, Isa::detect())
    }

    pub fn cpu_with(&self, n_threads: usize, isa: Isa) -> CpuModel {
        let model = self.model().unwrap_or_else(|e| panic!("{e}"));
        CpuModel::with_isa(Arc::new(model), n_threads, isa).expect("threads")
    }
}

/// Writes `DIRECTORY/NAME-00001-of-0000N.gguf` and so on; returns the paths.
pub fn write_parts(directory: &Path, name: &str, parts: &[Tiny]) -> Vec<PathBuf> {
    let n = parts.len();
    let write = |(i, part): (usize, &Tiny)| {
        let path = directory.join(format!("{name}-{:05}-of-{n:05}.gguf", i + 1));
        part.write(&path);
        path
    };
    parts.iter().enumerate().map(write).collect()
}

/// The model that a writer's file holds.
pub fn build(writer: &GgufWriter) -> Result<Model, ModelError> {
    Model::from_gguf(Arc::new(Gguf::from_bytes("tiny.gguf", writer.to_bytes())?))
}

struct Adder<'a> {
    tiny: &'a mut Tiny,
    random: Random,
}

impl<'a> Adder<'a> {
    fn new(tiny: &'a mut Tiny, seed: u64) -> Self {
        Self {
            tiny,
            random: Random::new(seed),
        }
    }

    /// Uniform in `±size`.
    fn weights(&mut self, name: &str, dims: &[u64], size: f32) {
        let values = (0..dims.iter().product())
            .map(|_| size * (2.0 * self.random.next() - 1.0))
            .collect();
        self.tiny.tensors.push((name.into(), dims.into(), values));
    }

    fn norm(&mut self, name: &str, len: u64) {
        let values = (0..len).map(|_| 0.5 + self.random.next()).collect();
        self.tiny.tensors.push((name.into(), vec![len], values));
    }

    fn layer(&mut self, i: u32, d: u64, [q, kv]: [u64; 2], n_ff: u64, size: f32) {
        for (part, n_in, n_out) in [
            ("attn_q", d, q),
            ("attn_k", d, kv),
            ("attn_v", d, kv),
            ("attn_output", q, d),
            ("ffn_gate", d, n_ff),
            ("ffn_up", d, n_ff),
            ("ffn_down", n_ff, d),
        ] {
            self.weights(&format!("blk.{i}.{part}.weight"), &[n_in, n_out], size);
        }
    }
}
