//! A second implementation of the two architectures, to compare with: f64, one
//! position after the other, straight from the formulas, and from the test's own
//! weights and settings in place of the program's reading of a file.

use std::collections::HashMap;
use std::f64::consts::PI;

use pplx::gguf::Value;

use crate::support::tiny::Tiny;

type Row = Vec<f64>;

struct Reference<'a> {
    tiny: &'a Tiny,
    tensors: HashMap<&'a str, &'a [f32]>,
}

/// `−ln p(tokens[t] | tokens[..t])` for `t ≥ 1`.
pub fn nll(tiny: &Tiny, tokens: &[u32]) -> Vec<f64> {
    let tensors = (tiny.tensors.iter()).map(|(name, _, values)| (name.as_str(), values.as_slice()));
    let reference = Reference {
        tiny,
        tensors: tensors.collect(),
    };
    reference.nll(tokens)
}

impl Reference<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        let full = format!("{}.{key}", self.tiny.architecture);
        let (_, value) = self.tiny.meta.iter().find(|(k, _)| *k == full)?;
        match value {
            Value::U32(x) => Some(f64::from(*x)),
            Value::F32(x) => Some(f64::from(*x)),
            _ => None,
        }
    }

    fn count(&self, key: &str) -> usize {
        self.number(key).unwrap() as usize
    }

    fn gemma(&self) -> bool {
        self.tiny.architecture == "gemma3"
    }

    fn linear(&self, name: &str, x: &[f64]) -> Row {
        let weight = self.tensors[format!("{name}.weight").as_str()];
        let bias = self.tensors.get(format!("{name}.bias").as_str());
        let rows = weight.chunks_exact(x.len()).enumerate();
        rows.map(|(o, w)| {
            let product: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
            product + bias.map_or(0.0, |b| f64::from(b[o]))
        })
        .collect()
    }

    /// The norm `name`, or `x` itself where an architecture has no such norm.
    fn norm(&self, name: &str, x: &[f64]) -> Row {
        let Some(weight) = self.tensors.get(format!("{name}.weight").as_str()) else {
            return x.to_vec();
        };
        let eps = self.number("attention.layer_norm_rms_epsilon").unwrap();
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scaled = x.iter().zip(*weight);
        scaled
            .map(|(x, w)| x / (mean + eps).sqrt() * f64::from(*w))
            .collect()
    }

    /// Angles of the pairs of a head at `position`, and what their vectors grow by.
    fn angles(&self, position: usize, slides: bool, n: usize) -> (Row, f64) {
        let base = match slides {
            true => self.number("rope.freq_base_swa"),
            false => self.number("rope.freq_base"),
        };
        let base = base.unwrap_or(10000.0);
        let kind = self.tiny.meta.iter().find_map(|(k, v)| match v {
            Value::String(s) if k.ends_with("rope.scaling.type") => Some(s.as_str()),
            _ => None,
        });
        let kind = kind.filter(|_| !slides);
        let factor = self.number("rope.scaling.factor").unwrap_or(1.0);
        let magnitude = self.number("rope.scaling.attn_factor").unwrap_or(1.0);
        let angles = (0..n / 2).map(|i| {
            let mut full = position as f64 * base.powf(-2.0 * i as f64 / n as f64);
            if let Some(factors) = self.tensors.get("rope_freqs.weight") {
                full /= f64::from(factors[i]);
            }
            match kind {
                Some("linear") => full / factor,
                Some("yarn") => {
                    let context = self.number("rope.scaling.original_context_length").unwrap();
                    // The pair that turns `turns` times over the original context.
                    let pair = |turns: f64| {
                        n as f64 * (context / (2.0 * PI * turns)).ln() / (2.0 * base.ln())
                    };
                    let low = pair(32.0).floor().max(0.0);
                    let high = pair(1.0).ceil().min(n as f64 - 1.0);
                    let interpolated = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    full / factor * interpolated + full * (1.0 - interpolated)
                }
                _ => full,
            }
        });
        let grown = match kind {
            Some("yarn") => magnitude * (1.0 + 0.1 * factor.ln()),
            _ => magnitude,
        };
        (angles.collect(), grown)
    }

    /// Norm and rotation of one head.
    fn head(&self, i: usize, part: &str, x: &[f64], position: usize, slides: bool) -> Row {
        let mut x = self.norm(&format!("blk.{i}.attn_{part}_norm"), x);
        let (angles, grown) = self.angles(position, slides, x.len());
        for (pair, angle) in angles.iter().enumerate() {
            let (a, b) = match self.gemma() {
                true => (pair, pair + x.len() / 2),
                false => (2 * pair, 2 * pair + 1),
            };
            let (sin, cos) = angle.sin_cos();
            (x[a], x[b]) = (
                grown * (x[a] * cos - x[b] * sin),
                grown * (x[a] * sin + x[b] * cos),
            );
        }
        x
    }

    fn attention(&self, i: usize, xs: &[Row]) -> Vec<Row> {
        let slides = self.gemma() && {
            let period = self.count("attention.sliding_window_pattern");
            !(i + 1).is_multiple_of(period)
        };
        let window = match slides {
            true => self.count("attention.sliding_window"),
            false => usize::MAX,
        };
        let (n_head, n_kv) = (
            self.count("attention.head_count"),
            self.count("attention.head_count_kv"),
        );
        let dim = self.count("attention.key_length");
        let part = |part: &str, x: &[f64]| self.linear(&format!("blk.{i}.attn_{part}"), x);
        let heads = |part: &str, x: Row, position: usize| -> Vec<Row> {
            let heads = x.chunks_exact(dim);
            heads
                .map(|h| self.head(i, part, h, position, slides))
                .collect()
        };
        let keys: Vec<Vec<Row>> = (xs.iter().enumerate())
            .map(|(t, x)| heads("k", part("k", x), t))
            .collect();
        let values: Vec<Row> = xs.iter().map(|x| part("v", x)).collect();
        let scale = self.number("attention.scale");
        let scale = scale.unwrap_or(1.0 / (dim as f64).sqrt());
        let one = |(t, x): (usize, &Row)| {
            let queries = heads("q", part("q", x), t);
            let mut mixed = Vec::new();
            for (h, query) in queries.iter().enumerate() {
                let kv = h * n_kv / n_head;
                let seen = (t + 1).saturating_sub(window)..t + 1;
                let weights = seen.clone().map(|j| {
                    let dot: f64 = query.iter().zip(&keys[j][kv]).map(|(q, k)| q * k).sum();
                    self.capped(dot * scale, "attn_logit_softcapping").exp()
                });
                let weights: Row = weights.collect();
                let sum: f64 = weights.iter().sum();
                let columns = kv * dim..(kv + 1) * dim;
                mixed.extend(columns.map(|c| {
                    let terms = seen.clone().zip(&weights).map(|(j, w)| w * values[j][c]);
                    terms.sum::<f64>() / sum
                }));
            }
            part("output", &mixed)
        };
        xs.iter().enumerate().map(one).collect()
    }

    fn capped(&self, x: f64, key: &str) -> f64 {
        match self.number(key) {
            Some(cap) => cap * (x / cap).tanh(),
            None => x,
        }
    }

    fn ffn(&self, i: usize, x: &[f64]) -> Row {
        let part = |part: &str, x: &[f64]| self.linear(&format!("blk.{i}.ffn_{part}"), x);
        let activation = |x: f64| match self.gemma() {
            true => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
            false => x / (1.0 + (-x).exp()),
        };
        let (gate, up) = (part("gate", x), part("up", x));
        let inner: Row = gate
            .iter()
            .zip(up)
            .map(|(g, u)| activation(*g) * u)
            .collect();
        part("down", &inner)
    }

    fn nll(&self, tokens: &[u32]) -> Vec<f64> {
        let d = self.count("embedding_length");
        let scale = if self.gemma() { (d as f64).sqrt() } else { 1.0 };
        let table = self.tensors["token_embd.weight"];
        let embed = |&id: &u32| -> Row {
            let row = &table[id as usize * d..][..d];
            row.iter().map(|x| f64::from(*x) * scale).collect()
        };
        let mut xs: Vec<Row> = tokens.iter().map(embed).collect();
        let add = |xs: &mut [Row], ys: Vec<Row>| {
            for (x, y) in xs.iter_mut().flatten().zip(ys.iter().flatten()) {
                *x += y;
            }
        };
        for i in 0..self.count("block_count") {
            let norm = |name: &str, xs: &[Row]| -> Vec<Row> {
                let name = format!("blk.{i}.{name}");
                xs.iter().map(|x| self.norm(&name, x)).collect()
            };
            let ys = self.attention(i, &norm("attn_norm", &xs));
            add(&mut xs, norm("post_attention_norm", &ys));
            let ys: Vec<Row> = norm("ffn_norm", &xs)
                .iter()
                .map(|x| self.ffn(i, x))
                .collect();
            add(&mut xs, norm("post_ffw_norm", &ys));
        }
        let tied = !self.tensors.contains_key("output.weight");
        let head = if tied { "token_embd" } else { "output" };
        let score = |(x, &target): (&Row, &u32)| {
            let logits = self.linear(head, &self.norm("output_norm", x)).into_iter();
            let logits: Row = logits
                .map(|l| self.capped(l, "final_logit_softcapping"))
                .collect();
            let sum: f64 = logits.iter().map(|l| l.exp()).sum();
            sum.ln() - logits[target as usize]
        };
        xs.iter().zip(&tokens[1..]).map(score).collect()
    }
}
