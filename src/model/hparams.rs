//! Typed access to the `ARCHITECTURE.*` keys of a file.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Display;

use super::error::ModelError;
use crate::gguf::{Gguf, Metadata, Value};

/// The largest width or count that is believed; keeps products within `usize`.
const MAX_COUNT: u64 = 1 << 31;

/// Hyper-parameters of one architecture; keys are given without its name.
pub(super) struct Hparams<'a> {
    meta: &'a Metadata,
    architecture: &'a str,
    /// Blocks of the file; more than the layers where some are for multi-token
    /// prediction. Lists may be as long as either.
    n_blocks: usize,
    /// Keys that have been asked for.
    asked: RefCell<HashSet<String>>,
}

impl<'a> Hparams<'a> {
    pub fn new(gguf: &'a Gguf) -> Result<Self, ModelError> {
        let meta = gguf.metadata();
        Ok(Self {
            meta,
            architecture: meta.require_string("general.architecture")?,
            n_blocks: 0,
            asked: RefCell::default(),
        })
    }

    pub fn set_blocks(&mut self, n_blocks: usize) {
        self.n_blocks = n_blocks;
    }

    pub fn architecture(&self) -> &'a str {
        self.architecture
    }

    fn key(&self, key: &str) -> String {
        if !self.asked.borrow().contains(key) {
            self.asked.borrow_mut().insert(key.to_owned());
        }
        format!("{}.{key}", self.architecture)
    }

    /// The value of a key that nothing has asked for.
    pub fn unasked(&self, key: &str) -> Option<&'a Value> {
        match self.asked.borrow().contains(key) {
            true => None,
            false => self.meta.get(&format!("{}.{key}", self.architecture)),
        }
    }

    /// Refuses a list that is for another number of layers.
    fn check_length(&self, key: String, found: usize, n_layer: usize) -> Result<(), ModelError> {
        if found == n_layer || found == self.n_blocks {
            return Ok(());
        }
        Err(ModelError::Key {
            key,
            found: format!("an array of {found}"),
            problem: format!("the model has {n_layer} layers"),
        })
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
        self.check_length(full, values.len(), n_layer)?;
        self.counts(key, &values[..n_layer])
    }

    /// An array of exactly `N` counts.
    pub fn array<const N: usize>(&self, key: &str) -> Result<[usize; N], ModelError> {
        let full = self.key(key);
        let found = self.meta.i64s(&full);
        let counts = match found.ok().flatten() {
            Some(values) if values.len() == N => self.counts(key, &values)?,
            _ => {
                let problem = format!("an array of {N} counts is needed");
                return Err(self.bad(key, "not as expected", problem));
            }
        };
        Ok(std::array::from_fn(|i| counts[i]))
    }

    fn counts(&self, key: &str, values: &[i64]) -> Result<Vec<usize>, ModelError> {
        values
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

    /// A float that must be there, and be more than 0: one that scales.
    pub fn positive_float(&self, key: &str) -> Result<f32, ModelError> {
        match self.float(key)? {
            x if x > 0.0 && x.is_finite() => Ok(x),
            x => Err(self.bad(key, x, "a positive number is needed")),
        }
    }

    pub fn optional_float(&self, key: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.meta.f32(&self.key(key))?)
    }

    /// The value of a key that holds one number of any type.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.meta.get(&self.key(key))?.to_number()
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
        self.check_length(key.to_owned(), values.len(), n_layer)?;
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
        self.check_length(self.key(key), flags.len(), n_layer)?;
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
