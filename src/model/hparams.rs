//! Typed access to the `ARCHITECTURE.*` keys of a file.

use std::fmt::Display;

use super::error::ModelError;
use crate::gguf::{Gguf, Metadata, Value};

/// The largest width or count that is believed; keeps products within `usize`.
const MAX_COUNT: u64 = 1 << 31;

/// Hyper-parameters of one architecture; keys are given without its name.
pub(super) struct Hparams<'a> {
    meta: &'a Metadata,
    architecture: &'a str,
}

impl<'a> Hparams<'a> {
    pub fn new(gguf: &'a Gguf) -> Result<Self, ModelError> {
        let meta = gguf.metadata();
        Ok(Self {
            meta,
            architecture: meta.require_string("general.architecture")?,
        })
    }

    pub fn architecture(&self) -> &'a str {
        self.architecture
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// An error about the value of `key`.
    pub fn bad(&self, key: &str, found: impl Display, problem: impl Display) -> ModelError {
        ModelError::Key {
            key: self.key(key),
            found: found.to_string(),
            problem: problem.to_string(),
        }
    }

    fn checked(&self, key: &str, n: u64) -> Result<usize, ModelError> {
        if n > MAX_COUNT {
            return Err(self.bad(key, n, "larger than any model"));
        }
        Ok(n as usize)
    }

    pub fn has(&self, key: &str) -> bool {
        self.meta.contains(&self.key(key))
    }

    pub fn optional_count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match self.meta.u64(&self.key(key))? {
            Some(n) => self.checked(key, n).map(Some),
            None => Ok(None),
        }
    }

    /// A count of at least 1.
    pub fn count(&self, key: &str) -> Result<usize, ModelError> {
        let n = self.checked(key, self.meta.require_u64(&self.key(key))?)?;
        if n == 0 {
            return Err(self.bad(key, n, "at least 1 is needed"));
        }
        Ok(n)
    }

    /// A count for every layer, stored as one number or as an array.
    pub fn per_layer(&self, key: &str, n_layer: usize) -> Result<Vec<usize>, ModelError> {
        let full = self.key(key);
        if !matches!(self.meta.get(&full), Some(Value::Array(_))) {
            let n = self.checked(key, self.meta.require_u64(&full)?)?;
            return Ok(vec![n; n_layer]);
        }
        let values = self.meta.i64s(&full)?.unwrap_or_default();
        if values.len() < n_layer {
            return Err(self.bad(
                key,
                format!("an array of {}", values.len()),
                format!("the model has {n_layer} layers"),
            ));
        }
        values[..n_layer]
            .iter()
            .map(|&v| match u64::try_from(v) {
                Ok(n) => self.checked(key, n),
                Err(_) => Err(self.bad(key, v, "a negative count")),
            })
            .collect()
    }

    pub fn float(&self, key: &str) -> Result<f32, ModelError> {
        Ok(self.meta.require_f32(&self.key(key))?)
    }

    pub fn optional_float(&self, key: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.meta.f32(&self.key(key))?)
    }

    /// A float that is absent or zero where the feature is off.
    pub fn nonzero_float(&self, key: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.optional_float(key)?.filter(|&x| x != 0.0))
    }

    /// A float for every layer, stored as one number or as an array under a key
    /// without the architecture's name.
    pub fn unprefixed_floats(&self, key: &str, n_layer: usize) -> Result<Vec<f32>, ModelError> {
        if !matches!(self.meta.get(key), Some(Value::Array(_))) {
            return Ok(vec![self.meta.require_f32(key)?; n_layer]);
        }
        let mut values = self.meta.f32s(key)?.unwrap_or_default();
        if values.len() < n_layer {
            return Err(ModelError::Key {
                key: key.to_owned(),
                found: format!("an array of {}", values.len()),
                problem: format!("the model has {n_layer} layers"),
            });
        }
        values.truncate(n_layer);
        Ok(values)
    }

    pub fn bool(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        Ok(self.meta.bool(&self.key(key))?.unwrap_or(default))
    }

    pub fn optional_string(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        Ok(self.meta.string(&self.key(key))?)
    }

    /// A bool for each layer.
    pub fn optional_flags(
        &self,
        key: &str,
        n_layer: usize,
    ) -> Result<Option<Vec<bool>>, ModelError> {
        let Some(mut flags) = self.meta.bools(&self.key(key))? else {
            return Ok(None);
        };
        if flags.len() < n_layer {
            return Err(self.bad(
                key,
                format!("an array of {}", flags.len()),
                format!("the model has {n_layer} layers"),
            ));
        }
        flags.truncate(n_layer);
        Ok(Some(flags))
    }

    /// Which layers have a sliding window. The key holds a bool for each layer,
    /// or the period `p` in which the last layer is full (`default` if absent).
    pub fn sliding_pattern(&self, n_layer: usize, default: usize) -> Result<Vec<bool>, ModelError> {
        self.pattern(n_layer, default, |i, period| i % period + 1 < period)
    }

    /// The same, with the first layer of a period full.
    pub fn sliding_after_full(
        &self,
        n_layer: usize,
        default: usize,
    ) -> Result<Vec<bool>, ModelError> {
        self.pattern(n_layer, default, |i, period| i % period != 0)
    }

    fn pattern(
        &self,
        n_layer: usize,
        default: usize,
        slides: impl Fn(usize, usize) -> bool,
    ) -> Result<Vec<bool>, ModelError> {
        const KEY: &str = "attention.sliding_window_pattern";
        let full = self.key(KEY);
        if let Some(Value::Array(_)) = self.meta.get(&full) {
            return Ok(self.optional_flags(KEY, n_layer)?.unwrap_or_default());
        }
        let period = self.optional_count(KEY)?.unwrap_or(default);
        // llama.cpp: period 0 means that every layer slides.
        Ok((0..n_layer)
            .map(|i| period == 0 || slides(i, period))
            .collect())
    }
}
