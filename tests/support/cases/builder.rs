//! Fills a [`Tiny`] with the tensors of usual parts. A tensor's values depend on
//! the model's seed and the tensor's name only, so models with one seed share
//! what they have in common.

use pplx::gguf::{Array, Value};

use crate::support::tiny::{Random, Tiny, vocabulary};

/// Widths and counts of a model.
#[derive(Clone, Copy)]
pub struct Shape {
    pub n_layer: usize,
    /// Width of the hidden state.
    pub d: usize,
    pub n_ff: usize,
    pub n_head: usize,
    pub n_kv: usize,
    pub head: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            n_layer: 2,
            d: 32,
            n_ff: 48,
            n_head: 4,
            n_kv: 2,
            head: 8,
        }
    }
}

/// How an attention block deviates from the plain one.
#[derive(Clone, Copy)]
pub struct Attn {
    /// One tensor for query, key and value.
    pub fused: bool,
    pub qkv_bias: bool,
    pub o_bias: bool,
    pub qk_norm: QkNorm,
    /// `attn_q` holds a gate for each head's output, too.
    pub gated: bool,
    /// Standard deviation of what the output projection adds.
    pub out: f32,
}

#[derive(Clone, Copy, PartialEq)]
pub enum QkNorm {
    None,
    /// One weight for all heads.
    Head,
    /// One norm over all heads.
    Wide,
    /// A weight for each head.
    PerHead,
}

impl Default for Attn {
    fn default() -> Self {
        Self {
            fused: false,
            qkv_bias: false,
            o_bias: false,
            qk_norm: QkNorm::None,
            gated: false,
            out: 1.5,
        }
    }
}

/// How a mixture of experts deviates from the plain one.
#[derive(Clone, Copy)]
pub struct Experts {
    pub n: usize,
    pub n_ff: usize,
    pub gate: bool,
    /// Gate and up projection in one tensor.
    pub fused: bool,
    pub bias: bool,
    pub selection_bias: bool,
    /// Width of the shared expert, if there is one.
    pub shared: usize,
    pub shared_gate: bool,
    /// Standard deviation of what the gate and up projections yield.
    pub inner: f32,
    pub down: f32,
}

impl Default for Experts {
    fn default() -> Self {
        Self {
            n: 4,
            n_ff: 16,
            gate: true,
            fused: false,
            bias: false,
            selection_bias: false,
            shared: 0,
            shared_gate: false,
            inner: 1.2,
            down: 1.5,
        }
    }
}

pub struct Builder {
    pub tiny: Tiny,
    pub shape: Shape,
    seed: u64,
}

impl Builder {
    /// A model with the keys that every attention model has.
    pub fn new(architecture: &'static str, seed: &str, shape: Shape) -> Self {
        let Shape {
            n_layer, d, n_ff, ..
        } = shape;
        let mut b = Self {
            tiny: Tiny::new(architecture, n_layer as u32, d as u32, n_ff as u32)
                .tokenizer("add_bos_token", Value::Bool(false)),
            shape,
            seed: fnv(seed),
        };
        b.count("attention.head_count", shape.n_head);
        b.count("attention.head_count_kv", shape.n_kv);
        b.count("attention.key_length", shape.head);
        b.count("attention.value_length", shape.head);
        b.count("rope.dimension_count", shape.head);
        b.float("rope.freq_base", 10000.0);
        b
    }

    pub fn key(&mut self, key: &str, value: Value) {
        self.tiny = self.tiny.clone().set(key, value);
    }

    pub fn unset(&mut self, key: &str) {
        self.tiny = self.tiny.clone().unset(key);
    }

    pub fn count(&mut self, key: &str, n: usize) {
        self.key(key, Value::U32(n as u32));
    }

    pub fn counts(&mut self, key: &str, n: &[usize]) {
        let n = n.iter().map(|&n| n as i32).collect();
        self.key(key, Value::Array(Array::I32(n)));
    }

    pub fn float(&mut self, key: &str, x: f32) {
        self.key(key, Value::F32(x));
    }

    pub fn bool(&mut self, key: &str, x: bool) {
        self.key(key, Value::Bool(x));
    }

    pub fn text(&mut self, key: &str, s: &str) {
        self.key(key, Value::String(s.to_owned()));
    }

    /// LayerNorm's epsilon in place of RMSNorm's.
    pub fn layer_norm(&mut self) {
        self.unset("attention.layer_norm_rms_epsilon");
        self.float("attention.layer_norm_epsilon", 1e-5);
    }

    /// RoPE scaling from an original context of 32.
    pub fn rope_scaling(&mut self, kind: &str, factor: f32) {
        self.text("rope.scaling.type", kind);
        self.float("rope.scaling.factor", factor);
        self.count("rope.scaling.original_context_length", 32);
    }

    /// Values between 0 and 1 for the tensor `name`.
    fn uniform(&self, name: &str, n: usize) -> impl Iterator<Item = f32> + use<> {
        let mut random = Random::new(self.seed ^ fnv(name));
        (0..n).map(move |_| random.next())
    }

    /// Uniform values with this mean and standard deviation.
    pub fn tensor(&mut self, name: &str, dims: &[usize], mean: f32, std: f32) {
        let values = self.uniform(name, dims.iter().product());
        let values = values.map(|x| mean + std * 12f32.sqrt() * (x - 0.5));
        self.given(name, dims, values.collect());
    }

    /// Values whose logarithms are uniform between those of `range`, times
    /// `sign`.
    pub fn log_uniform(&mut self, name: &str, dims: &[usize], range: (f32, f32), sign: f32) {
        let (low, high) = (range.0.ln(), range.1.ln());
        let values = self.uniform(name, dims.iter().product());
        let values = values.map(|x| sign * (low + (high - low) * x).exp());
        self.given(name, dims, values.collect());
    }

    pub fn given(&mut self, name: &str, dims: &[usize], values: Vec<f32>) {
        let dims = dims.iter().map(|&d| d as u64).collect();
        self.tiny.tensors.push((name.to_owned(), dims, values));
    }

    /// `PREFIX.weight`, which maps values of unit variance to values with the
    /// standard deviation `gain`.
    pub fn linear(&mut self, prefix: &str, n_in: usize, n_out: usize, gain: f32) {
        let std = gain / (n_in as f32).sqrt();
        self.tensor(&format!("{prefix}.weight"), &[n_in, n_out], 0.0, std);
    }

    pub fn bias(&mut self, prefix: &str, dims: &[usize]) {
        self.tensor(&format!("{prefix}.bias"), dims, 0.0, 0.3);
    }

    pub fn norm(&mut self, prefix: &str, n: usize) {
        self.tensor(&format!("{prefix}.weight"), &[n], 1.0, 0.25);
    }

    /// A norm with a bias where the model has LayerNorms.
    pub fn norm_bias(&mut self, prefix: &str, n: usize) {
        self.norm(prefix, n);
        self.bias(prefix, &[n]);
    }

    /// Embedding, final norm, and a head of its own unless it is tied.
    pub fn ends(&mut self, tied: bool) {
        let d = self.shape.d;
        let std = if tied { 1.5 / (d as f32).sqrt() } else { 0.7 };
        self.embedding(std);
        self.norm("output_norm", d);
        if !tied {
            self.linear("output", d, vocabulary().len(), 2.0);
        }
    }

    pub fn embedding(&mut self, std: f32) {
        let dims = [self.shape.d, vocabulary().len()];
        self.tensor("token_embd.weight", &dims, 0.0, std);
    }

    pub fn attn(&mut self, i: usize, a: Attn) {
        let Shape {
            d,
            n_head,
            n_kv,
            head,
            ..
        } = self.shape;
        let at = |part: &str| format!("blk.{i}.attn_{part}");
        let parts = match a.fused {
            true => vec![("qkv", (n_head + 2 * n_kv) * head, 1.3)],
            false => vec![
                ("q", n_head * head * if a.gated { 2 } else { 1 }, 1.5),
                ("k", n_kv * head, 1.5),
                ("v", n_kv * head, 1.0),
            ],
        };
        for (part, n, gain) in parts {
            self.linear(&at(part), d, n, gain);
            if a.qkv_bias {
                self.bias(&at(part), &[n]);
            }
        }
        self.linear(&at("output"), n_head * head, d, a.out);
        if a.o_bias {
            self.bias(&at("output"), &[d]);
        }
        for (part, n) in [("q_norm", n_head), ("k_norm", n_kv)] {
            let dims: &[usize] = match a.qk_norm {
                QkNorm::None => continue,
                QkNorm::Head => &[head],
                QkNorm::Wide => &[n * head],
                QkNorm::PerHead => &[head, n],
            };
            self.tensor(&format!("{}.weight", at(part)), dims, 1.4, 0.3);
        }
    }

    /// `ffn_{gate,up,down}`, or `ffn_{up,down}`.
    pub fn ffn(&mut self, i: usize, gate: bool, bias: bool) {
        let (d, n_ff) = (self.shape.d, self.shape.n_ff);
        self.ffn_named(&format!("blk.{i}.ffn"), "", (d, n_ff), gate, bias);
    }

    fn ffn_named(
        &mut self,
        prefix: &str,
        suffix: &str,
        (d, n_ff): (usize, usize),
        gate: bool,
        bias: bool,
    ) {
        let ins: &[&str] = if gate { &["gate", "up"] } else { &["up"] };
        let ins = ins.iter().map(|part| (*part, d, n_ff, 1.2));
        for (part, n_in, n_out, gain) in ins.chain([("down", n_ff, d, 1.3)]) {
            let name = format!("{prefix}_{part}{suffix}");
            self.linear(&name, n_in, n_out, gain);
            if bias {
                self.bias(&name, &[n_out]);
            }
        }
    }

    pub fn moe(&mut self, i: usize, e: Experts) {
        let d = self.shape.d;
        let at = |part: &str| format!("blk.{i}.ffn_{part}");
        self.linear(&at("gate_inp"), d, e.n, 2.0);
        if e.bias {
            self.bias(&at("gate_inp"), &[e.n]);
        }
        if e.selection_bias {
            let name = format!("blk.{i}.exp_probs_b.bias");
            self.tensor(&name, &[e.n], 0.0, 0.3);
        }
        let ins: &[(&str, usize)] = match (e.fused, e.gate) {
            (true, _) => &[("gate_up", 2)],
            (false, true) => &[("gate", 1), ("up", 1)],
            (false, false) => &[("up", 1)],
        };
        let ins = (ins.iter()).map(|&(part, n)| (part, d, n * e.n_ff, e.inner));
        for (part, n_in, n_out, gain) in ins.chain([("down", e.n_ff, d, e.down)]) {
            let name = at(&format!("{part}_exps"));
            let std = gain / (n_in as f32).sqrt();
            self.tensor(&format!("{name}.weight"), &[n_in, n_out, e.n], 0.0, std);
            if e.bias {
                self.bias(&name, &[n_out, e.n]);
            }
        }
        if e.shared > 0 {
            self.ffn_named(
                &format!("blk.{i}.ffn"),
                "_shexp",
                (d, e.shared),
                e.gate,
                false,
            );
            if e.shared_gate {
                let std = 1.5 / (d as f32).sqrt();
                self.tensor(&format!("{}.weight", at("gate_inp_shexp")), &[d], 0.0, std);
            }
        }
    }

    /// `expert_count`, `expert_used_count` and the experts' width.
    pub fn expert_keys(&mut self, e: Experts, n_used: usize) {
        self.count("expert_count", e.n);
        self.count("expert_used_count", n_used);
        self.count("expert_feed_forward_length", e.n_ff);
    }

    /// `blk.I.PART`, a norm over the hidden width.
    pub fn layer_part(&mut self, i: usize, part: &str) {
        self.norm(&format!("blk.{i}.{part}"), self.shape.d);
    }

    /// Layers of attention and a network, each with a norm before it.
    pub fn pre_norm_layers(&mut self, a: Attn, mut network: impl FnMut(&mut Self, usize)) {
        for i in 0..self.shape.n_layer {
            self.layer_part(i, "attn_norm");
            self.attn(i, a);
            self.layer_part(i, "ffn_norm");
            network(self, i);
        }
    }

    /// [`Self::pre_norm_layers`] with gated networks.
    pub fn dense_layers(&mut self, a: Attn) {
        self.pre_norm_layers(a, |b, i| b.ffn(i, true, false));
    }
}

/// FNV-1a, 64 bits.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}
