//! Keys that change the arithmetic, wherever an architecture knows them. A file
//! that sets one which its architecture does not know is refused: the figure would
//! leave out what the file declares.
//!
//! Keys that only say which tensors there are (shared experts, recurrent layers,
//! ranks, kernels) need no such rule, since a tensor that is missing, unused or of
//! another shape is refused. `n_deepstack_layers` is for images, `pooling_type` for
//! embeddings.

use super::Context;
use crate::gguf::{Array, Value};
use crate::model::ModelError;

/// What leaves the arithmetic as it is.
enum Harmless {
    Zero,
    /// A factor or count of none or one.
    ZeroOrOne,
    /// This bool, which says what the architecture does anyway.
    Is(bool),
    /// One of these strings.
    Text(&'static [&'static str]),
    /// The value of another key, or this number without it.
    Same(&'static str, Option<f64>),
    /// No value at all.
    Nothing,
    /// What attention does anyway: 1/√(key width).
    UsualScale,
    /// A window as long as the longest context.
    WideWindow,
}

use Harmless::{Is, Nothing, Same, Text, UsualScale, WideWindow, Zero, ZeroOrOne};

const KEYS: &[(&str, Harmless)] = &[
    ("activation.situ_beta", Zero),
    ("activation.situ_linear_beta", Zero),
    ("adapters.count", Zero),
    ("attention.causal", Is(true)),
    ("attention.clamp_kqv", Zero),
    ("attention.compress_ratios", Nothing),
    ("attention.indexer.head_count", Zero),
    (
        "attention.key_length_swa",
        Same("attention.key_length", None),
    ),
    ("attention.max_alibi_bias", Zero),
    ("attention.output_group_count", ZeroOrOne),
    ("attention.output_scale", ZeroOrOne),
    ("attention.rope_pattern", Nothing),
    ("attention.scale", UsualScale),
    ("attention.shared_kv_layers", Zero),
    ("attention.sliding_window", WideWindow),
    ("attention.temperature_scale", Zero),
    (
        "attention.value_length_swa",
        Same("attention.value_length", None),
    ),
    ("attention.value_scale", ZeroOrOne),
    ("attn_logit_softcapping", Zero),
    ("attn_res.block_size", Zero),
    ("embedding_length_out", Same("embedding_length", None)),
    ("embedding_length_per_layer_input", Zero),
    ("embedding_scale", ZeroOrOne),
    ("expert_chunk_feed_forward_length", Zero),
    ("expert_count", ZeroOrOne),
    ("expert_group_count", ZeroOrOne),
    ("expert_group_scale", ZeroOrOne),
    ("expert_latent_length", Zero),
    ("experts_per_group", Zero),
    ("final_logit_softcapping", Zero),
    ("hash_layer_count", Zero),
    ("hidden_activation", Nothing),
    ("hrm.layers_per_stack", Nothing),
    ("hyper_connection.count", ZeroOrOne),
    ("interleave_moe_layer_step", ZeroOrOne),
    ("leading_dense_block_count", Zero),
    ("logit_scale", ZeroOrOne),
    ("moe_every_n_layers", ZeroOrOne),
    ("moe_latent_size", Zero),
    ("norm_before_residual", Is(false)),
    ("num_loops", ZeroOrOne),
    ("ple.layers", Nothing),
    ("rescale_every_n_layers", Zero),
    ("residual_scale", ZeroOrOne),
    (
        "rope.dimension_count_swa",
        Same("rope.dimension_count", None),
    ),
    ("rope.dimension_sections", Zero),
    ("rope.freq_base_swa", Same("rope.freq_base", Some(10000.0))),
    ("rope.scale_linear", ZeroOrOne),
    ("rope.scaling.alpha", Zero),
    ("rope.scaling.attn_factor", ZeroOrOne),
    ("rope.scaling.factor", ZeroOrOne),
    ("rope.scaling.type", Text(&["none", "linear"])),
    ("rope.scaling.yarn_attn_factor", ZeroOrOne),
    ("rope.scaling.yarn_log_multiplier", Zero),
    ("router_logit_softcapping", Zero),
    ("ssm.dt_b_c_rms", Is(false)),
    ("swiglu_clamp_exp", Zero),
    ("swiglu_clamp_shexp", Zero),
    ("swin_norm", Is(false)),
    ("use_parallel_residual", Is(false)),
];

impl Context<'_> {
    /// Refuses a file that declares what its architecture, now built, did not ask
    /// for.
    pub(super) fn refuse_unheeded(&self) -> Result<(), ModelError> {
        for (key, harmless) in KEYS {
            let Some(value) = self.hp.unasked(key) else {
                continue;
            };
            if !self.is_harmless(value, harmless) {
                let problem = format!(
                    "architecture '{}' has no such thing, so scoring it would leave something out",
                    self.hp.architecture()
                );
                return Err(self.hp.bad(key, plain(value), problem));
            }
        }
        Ok(())
    }

    fn is_harmless(&self, value: &Value, harmless: &Harmless) -> bool {
        let all = |is: &dyn Fn(f64) -> bool| numbers(value).is_some_and(|v| v.into_iter().all(is));
        let is_near = |x: f64, y: f64| (x - y).abs() <= 1e-6 * y.abs();
        match harmless {
            Zero => all(&|x| x == 0.0),
            ZeroOrOne => all(&|x| x == 0.0 || x == 1.0),
            Is(harmless) => *value == Value::Bool(*harmless),
            Text(texts) => matches!(value, Value::String(s) if texts.contains(&s.as_str())),
            Nothing => false,
            Same(key, default) => {
                let other = self.hp.number(key).or(*default);
                other.is_some_and(|y| all(&|x| is_near(x, y)))
            }
            UsualScale => match self.widths() {
                Ok(w) => {
                    let usual = 1.0 / (w.head_dim as f64).sqrt();
                    all(&|x| x == 0.0 || is_near(x, usual))
                }
                Err(_) => false,
            },
            WideWindow => all(&|x| x == 0.0 || x >= self.n_ctx_train as f64),
        }
    }
}

/// All numbers of a value, bools as 0 and 1.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    if let Value::Array(array) = value {
        return match array {
            Array::Bool(flags) => Some(flags.iter().map(|&b| f64::from(u8::from(b))).collect()),
            array => {
                let floats = array
                    .to_f32()
                    .map(|v| v.into_iter().map(f64::from).collect());
                floats.or_else(|| Some(array.to_i64()?.into_iter().map(|n| n as f64).collect()))
            }
        };
    }
    value.to_number().map(|x| vec![x])
}

/// A value, for messages.
fn plain(value: &Value) -> String {
    match value {
        Value::F32(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::String(_) | Value::Array(_) => value.describe(),
        _ => value
            .to_number()
            .map_or_else(|| value.describe(), |x| x.to_string()),
    }
}
