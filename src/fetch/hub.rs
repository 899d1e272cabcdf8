//! Files of the Hugging Face hub. `HF_ENDPOINT`, `HF_HOME` and the token that
//! `hf auth login` stores are the `hf-hub` crate's business; `HF_TOKEN` is added.

use std::path::PathBuf;

use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};

use super::{FetchError, Progress, RepoKind, Transfer};

/// Fetches `file` of `repo` at `revision` through the hub's own cache, and copies
/// it to `transfer.part`. A copy, no link: the hub's cache is shared with other
/// programs, and a model may be edited in place.
pub(super) fn download(
    kind: RepoKind,
    repo: &str,
    file: &str,
    revision: &str,
    transfer: &Transfer,
) -> Result<(), FetchError> {
    let fail = |why: String| FetchError::Hub {
        repo: repo.to_owned(),
        file: file.to_owned(),
        revision: revision.to_owned(),
        why,
    };
    let repo_type = match kind {
        RepoKind::Model => RepoType::Model,
        RepoKind::Dataset => RepoType::Dataset,
    };
    let hub_repo = Repo::with_revision(repo.to_owned(), repo_type, revision.to_owned());
    let cache = cache_dir().ok_or_else(|| fail("HOME and HF_HOME are not set".to_owned()))?;
    let cache = Cache::new(cache);
    // A commit cannot change; a branch or a tag can, so its cached copy is not
    // taken for the present one.
    let is_commit = revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit());
    let cached = cache.repo(hub_repo.clone()).get(file);
    let found = match cached.filter(|_| is_commit) {
        Some(path) => path,
        None => {
            let mut builder = ApiBuilder::from_cache(cache).with_progress(false);
            if let Some(endpoint) = env("HF_ENDPOINT") {
                let endpoint = endpoint.trim_end_matches('/').to_owned();
                builder = builder.with_endpoint(endpoint);
            }
            if let Some(token) = env("HF_TOKEN") {
                builder = builder.with_token(Some(token));
            }
            let retries = transfer.options.attempts.saturating_sub(1) as usize;
            let api = builder.with_retries(retries).build();
            let meter = Meter { transfer, done: 0 };
            api.and_then(|api| api.repo(hub_repo).download_with_progress(file, meter))
                .map_err(|e| fail(reason(&e)))?
        }
    };
    let mut from = std::fs::File::open(&found).map_err(|e| FetchError::io("open", &found, e))?;
    let write = |e| FetchError::io("write", transfer.part, e);
    let mut to = std::fs::File::create(transfer.part).map_err(write)?;
    std::io::copy(&mut from, &mut to).map_err(write)?;
    Ok(())
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// Where the crate keeps its files; made absolute here because it cannot work
/// with a relative `HF_HOME`, and panics where there is no home.
fn cache_dir() -> Option<PathBuf> {
    let home = match env("HF_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir()?.join(".cache").join("huggingface"),
    };
    Some(std::path::absolute(home).ok()?.join("hub"))
}

fn reason(error: &ApiError) -> String {
    let status = |e: &ApiError| match e {
        ApiError::RequestError(e) => match **e {
            ureq::Error::StatusCode(code) => Some(code),
            _ => None,
        },
        _ => None,
    };
    match (error, status(error)) {
        (ApiError::TooManyRetries(inner), _) => reason(inner),
        (_, Some(401 | 403)) => {
            "the hub does not allow it (or there is no such repository); set HF_TOKEN, and \
             accept the repository's terms if it has any"
                .to_owned()
        }
        (_, Some(404)) => "the hub has no such repository, revision or file".to_owned(),
        (_, Some(code)) => format!("the hub answered {code}"),
        (ApiError::RequestError(_), None) => format!(
            "{error}; check the network, HF_ENDPOINT and the proxy variables (HTTPS_PROXY, NO_PROXY)"
        ),
        (ApiError::LockAcquisition(path), _) => format!(
            "another process is downloading it ({} is locked); try again when it is done",
            path.display()
        ),
        (ApiError::InvalidResume, _) => {
            "the unfinished download in the hub's cache is longer than the file; remove it"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

struct Meter<'a> {
    transfer: &'a Transfer<'a>,
    done: u64,
}

impl hf_hub::api::Progress for Meter<'_> {
    fn init(&mut self, size: usize, _: &str) {
        self.done = 0;
        let progress: &dyn Progress = self.transfer.progress;
        progress.begin(self.transfer.label, Some(size as u64));
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        self.transfer.progress.at(self.done);
    }

    fn finish(&mut self) {
        self.transfer.progress.end();
    }
}
