//! What the runs of a sweep share: models, and the tokens of corpora.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::RunError;
use super::input::LoadedModel;
use super::inputs::Inputs;
use crate::backend::{Numerics, Variation};
use crate::corpus::{CorpusTokens, DEFAULT_CHUNK, TokenCache};
use crate::fetch::{FetchOptions, TransferProgress};
use crate::plan::ModelSpec;
use crate::tokenizer;

/// What runs share.
pub(super) struct Cache {
    pub run: ModelCache,
    /// The model that runs are compared with stays beside theirs.
    pub base: ModelCache,
}

impl Cache {
    pub fn new(fetch: &FetchOptions) -> Self {
        Self {
            run: ModelCache::new(fetch),
            base: ModelCache::new(fetch),
        }
    }

    /// [`ModelCache::note_trouble`] of both.
    pub fn note_trouble(&mut self, progress: &dyn TransferProgress) {
        self.run.note_trouble(progress);
        self.base.note_trouble(progress);
    }
}

/// The last model, and the tokens of each corpus for it.
pub(super) struct ModelCache {
    model: Option<(ModelKey, LoadedModel)>,
    tokens: HashMap<PathBuf, Arc<CorpusTokens>>,
    disk: TokenCache,
    fetch: FetchOptions,
    /// Why tokens were not cached on disk.
    trouble: Option<io::Error>,
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
    pub fn new(fetch: &FetchOptions) -> Self {
        let folder = fetch.cache_dir.as_ref().map(|dir| dir.join("tokens"));
        Self {
            model: None,
            tokens: HashMap::new(),
            disk: TokenCache::new(folder),
            fetch: fetch.clone(),
            trouble: None,
        }
    }

    /// Notes a cache on disk that could not be written, once.
    pub fn note_trouble(&mut self, progress: &dyn TransferProgress) {
        if let Some(error) = self.trouble.take() {
            self.fetch.note_cache_trouble(&error, progress);
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
                let tokens = self.disk.tokenize(
                    corpus,
                    loaded.tokenizer()?,
                    DEFAULT_CHUNK,
                    &self.fetch.interrupt,
                    &mut |e| self.trouble = Some(e),
                )?;
                let tokens = Arc::new(tokens);
                self.tokens.insert(corpus.to_owned(), tokens.clone());
                tokens
            }
        };
        inputs.check_corpus(corpus, &tokens.sha256)?;
        Ok((loaded, tokens))
    }
}
