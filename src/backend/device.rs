//! What a backend is to all others: a kind of device that can be looked for, asked for
//! its memory, and opened.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use super::contract::LayerWindowModel;
use super::error::BackendError;
use super::memory::{Footprint, Share};
use super::numerics::Numerics;
use crate::model::Model;

/// A kind of device that layers can run on. It is one directory here and one line in
/// the registry.
pub trait Backend: Sync {
    /// As in experiment files, keys, tables and on the command line.
    fn name(&self) -> &'static str;

    /// As in sentences.
    fn title(&self) -> &'static str;

    /// What a number of layers on it is called in keys: the `gpu_layers` of
    /// `gpu_layers=8`. No other backend may call it so.
    fn layers_key(&self) -> &'static str;

    /// The arithmetic that its products can have.
    fn numerics(&self) -> &'static [Numerics];

    /// Looks for the device that a run would take. Nothing of the backend is loaded
    /// before this or [`Self::open`] is called.
    ///
    /// # Errors
    /// Why there is none, or none that can be used.
    fn probe(&self) -> Result<Arc<dyn FoundDevice>, BackendError>;

    /// Windows of `n_ctx` tokens that are evaluated together, enough to keep the
    /// device busy; `None` where the host's threads do the work.
    fn batch_windows(&self, n_ctx: usize) -> Option<usize>;

    /// Takes the device for `model`.
    ///
    /// # Errors
    /// A device that cannot be used, numerics that it does not have.
    fn open(
        &self,
        model: Arc<Model>,
        options: &OpenOptions,
    ) -> Result<Box<dyn LayerWindowModel>, BackendError>;

    /// Goes the way of a run up to the first layer, and writes what it meets to `out`,
    /// a line each, for `pplx doctor`. What was met before an error is there too.
    ///
    /// # Errors
    /// Why runs cannot take the device.
    fn examine(&self, out: &mut String, cache: Option<&Path>) -> Result<(), BackendError>;
}

/// With what a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions<'a> {
    /// The arithmetic of products.
    pub numerics: Numerics,
    /// Threads of the host; 0 takes every core.
    pub n_threads: usize,
    /// Where compiled kernels are kept; nowhere without.
    pub cache: Option<&'a Path>,
}

/// A device that was found; nothing is on it yet.
pub trait FoundDevice: fmt::Debug + Send + Sync {
    /// As it calls itself, for the engine's name in tables.
    fn name(&self) -> &str;

    /// Memory that is free.
    fn free_bytes(&self) -> u64;

    /// What a share of a model takes of its memory, in windows of `n_ctx` tokens.
    ///
    /// # Errors
    /// Layers or numerics that it cannot do.
    fn footprint(
        &self,
        model: &Model,
        share: &Share,
        numerics: Numerics,
        n_ctx: usize,
    ) -> Result<Footprint, BackendError>;
}

/// A backend by its name. Two of the same name are one.
#[derive(Clone, Copy)]
pub struct Device(&'static dyn Backend);

impl Device {
    /// The device of a backend; the registry lists those of this build.
    pub const fn new(backend: &'static dyn Backend) -> Self {
        Self(backend)
    }

    /// Whether layers on it can be computed so.
    pub fn can_do(self, numerics: Numerics) -> bool {
        self.numerics().contains(&numerics)
    }
}

impl Deref for Device {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Device {}

impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
