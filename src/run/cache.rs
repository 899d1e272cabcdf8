//! What the runs of a sweep share: models, and the tokens of corpora.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::input::LoadedModel;
use super::sweep::RunError;
use crate::backend::{Numerics, Variation};
use crate::corpus::{CorpusTokens, DEFAULT_CHUNK, TokenCache};
use crate::plan::ModelSpec;
use crate::tokenizer;

/// What runs share.
pub(super) struct Cache {
    pub run: ModelCache,
    /// The model that runs are compared with stays beside theirs.
    pub base: ModelCache,
}

impl Cache {
    pub fn new(cache_dir: &Path) -> Self {
        Self {
            run: ModelCache::new(cache_dir),
            base: ModelCache::new(cache_dir),
        }
    }
}

/// The last model, and the tokens of each corpus for it.
pub(super) struct ModelCache {
    model: Option<(ModelKey, LoadedModel)>,
    tokens: HashMap<PathBuf, Arc<CorpusTokens>>,
    disk: TokenCache,
}

/// A model's file, and how it is tokenized.
type ModelKey = (PathBuf, tokenizer::Options);

/// How it is multiplied, and what is varied.
pub(super) type Arithmetic = (Numerics, Variation);

impl ModelCache {
    pub fn new(cache_dir: &Path) -> Self {
        Self {
            model: None,
            tokens: HashMap::new(),
            disk: TokenCache::new(cache_dir.join("tokens")),
        }
    }

    /// Threads of the last model.
    pub fn n_threads(&self) -> usize {
        let model = self.model.as_ref();
        model.map_or(0, |(_, loaded)| loaded.cpu.n_threads())
    }

    /// A model and its tokens of a corpus. A plan lists the runs of a model
    /// together, so one of them is in memory at a time.
    pub fn get(
        &mut self,
        (model, (numerics, variation)): (&ModelSpec, Arithmetic),
        corpus: &Path,
        n_threads: usize,
    ) -> Result<(&LoadedModel, Arc<CorpusTokens>), RunError> {
        let key = (model.path.clone(), model.tokenizer_options());
        let loaded = match self.model.take() {
            Some((old, loaded)) if old == key => loaded,
            old => {
                // Its memory is wanted for the next one.
                drop(old);
                self.tokens.clear();
                LoadedModel::open(&key.0, &key.1, n_threads)?
            }
        };
        let loaded = loaded.with_numerics(numerics)?.with_variation(variation);
        let (_, loaded) = self.model.insert((key, loaded));
        let tokens = match self.tokens.get(corpus) {
            Some(tokens) => tokens.clone(),
            None => {
                let tokens = self
                    .disk
                    .tokenize(corpus, loaded.tokenizer()?, DEFAULT_CHUNK)?;
                let tokens = Arc::new(tokens);
                self.tokens.insert(corpus.to_owned(), tokens.clone());
                tokens
            }
        };
        Ok((loaded, tokens))
    }
}
