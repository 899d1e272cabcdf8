//! What the runs of a sweep share: models, and the tokens of corpora.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::RunError;
use super::input::LoadedModel;
use super::inputs::Inputs;
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

/// A model as a run wants it, and its corpus.
pub(super) struct Wanted<'a> {
    pub model: &'a ModelSpec,
    pub corpus: &'a Path,
    pub numerics: Numerics,
    pub variation: Variation,
    pub n_threads: usize,
}

impl ModelCache {
    pub fn new(cache_dir: &Path) -> Self {
        Self {
            model: None,
            tokens: HashMap::new(),
            disk: TokenCache::new(cache_dir.join("tokens")),
        }
    }

    /// A model and its tokens of a corpus. A plan lists the runs of a model
    /// together, so one of them is in memory at a time.
    ///
    /// # Errors
    /// What cannot be loaded or tokenized; files that are not those of `inputs`.
    pub fn get(
        &mut self,
        wanted: &Wanted,
        inputs: &Inputs,
    ) -> Result<(&LoadedModel, Arc<CorpusTokens>), RunError> {
        let Wanted { model, corpus, .. } = *wanted;
        let key = (model.path.clone(), model.tokenizer_options());
        let loaded = match self.model.take() {
            Some((old, loaded)) if old == key => loaded,
            old => {
                // Its memory is wanted for the next one.
                drop(old);
                self.tokens.clear();
                LoadedModel::open(&key.0, &key.1, wanted.n_threads)?
            }
        };
        inputs.check_model(model, &loaded.model.gguf)?;
        let loaded = loaded
            .with_numerics(wanted.numerics)?
            .with_variation(wanted.variation);
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
        inputs.check_corpus(corpus, &tokens.sha256)?;
        Ok((loaded, tokens))
    }
}
