//! Files of the Hugging Face hub. `HF_ENDPOINT`, `HF_HOME` and the token that
//! `hf auth login` stores are the `hf-hub` crate's business; `HF_TOKEN` is added.

use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use ureq::http::header::{AUTHORIZATION, RANGE};
use ureq::http::{HeaderMap, HeaderValue};

use super::background::{Background, pause};
use super::mask::masked_text;
use super::redirects::{Client, Failure};
use super::source::check_transport;
use super::{FetchError, MaskedUrl, RepoKind, Transfer, store};

/// Where `HF_ENDPOINT` names no other.
const ENDPOINT: &str = "https://huggingface.co";

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
    let fail = &|why: String| FetchError::Hub {
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
            let endpoint = env("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
            let endpoint = endpoint.trim_end_matches('/').to_owned();
            let checked = endpoint.parse().map_err(|_| "it is no URL");
            if let Err(why) = checked.and_then(|uri| check_transport(&uri)) {
                let endpoint = MaskedUrl::from(&*endpoint);
                return Err(fail(format!("HF_ENDPOINT '{endpoint}': {why}")));
            }
            let token = env("HF_TOKEN");
            let mut builder = ApiBuilder::from_cache(cache.clone())
                .with_progress(false)
                .with_endpoint(endpoint.clone())
                .with_retries(transfer.options.attempts.saturating_sub(1) as usize);
            if token.is_some() {
                builder = builder.with_token(token.clone());
            }
            let path = format!(
                "{}/resolve/{}/{file}",
                hub_repo.url(),
                hub_repo.url_revision()
            );
            let url = format!("{endpoint}/{path}");
            let size = look(&url, token.or_else(|| cache.token()), transfer, fail)?;
            let found = by_client(builder, hub_repo, file, transfer, fail)?;
            let here = found.metadata().map_or(0, |m| m.len());
            match size {
                Some(size) if size != here => {
                    // Or it would be taken for the file next time.
                    std::fs::remove_file(&found).ok();
                    return Err(fail(format!(
                        "{here} bytes came, and the hub's file has {size}; fetch again"
                    )));
                }
                _ => found,
            }
        }
    };
    let size = found.metadata().map_or(0, |m| m.len());
    store::check_room(transfer.part, size)?;
    let write = |e| FetchError::io("write", transfer.part, e);
    let mut to = std::fs::File::create(transfer.part).map_err(write)?;
    store::copy(&found, &mut to, transfer.part, transfer.options)
}

/// What the thread that downloads yields.
enum Event {
    Begin(u64),
    /// So many bytes more.
    More(u64),
    End(Result<PathBuf, ApiError>),
}

/// Downloads into the hub's cache by the hub's client, which looks at neither
/// interrupts nor silence, and so has a thread of its own.
fn by_client(
    builder: ApiBuilder,
    repo: Repo,
    file: &str,
    transfer: &Transfer,
    fail: impl Fn(String) -> FetchError,
) -> Result<PathBuf, FetchError> {
    let name = file.to_owned();
    let events = Background::start(move |out| {
        let meter = Meter(out.clone());
        let api = builder.build();
        let path = api.and_then(|api| api.repo(repo).download_with_progress(&name, meter));
        out.send(Event::End(path)).ok();
    });
    let events = events.map_err(|e| fail(format!("no thread for it ({e})")))?;
    let progress = transfer.progress;
    // The client waits for up to 10 s before it tries once more.
    let silence = transfer.options.stall_timeout + Duration::from_secs(10);
    let mut done = 0;
    loop {
        match events.next_within(silence, transfer.options)? {
            Some(Event::Begin(total)) => {
                done = 0;
                progress.begin(transfer.label, Some(total));
            }
            Some(Event::More(n)) => {
                done += n;
                progress.at(done);
            }
            Some(Event::End(path)) => {
                progress.end();
                return path.map_err(|e| fail(reason(&e)));
            }
            None => {
                let s = silence.as_secs();
                return Err(fail(format!("nothing came from the hub for {s} s")));
            }
        }
    }
}

/// Asks for one byte of the file, as the client is going to, and refuses what it
/// would not: hops over plain http, and names that lead out of its cache. Yields the
/// size of the file.
fn look(
    url: &str,
    token: Option<String>,
    transfer: &Transfer,
    fail: impl Fn(String) -> FetchError,
) -> Result<Option<u64>, FetchError> {
    let mut headers = HeaderMap::new();
    headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let value = value.map_err(|_| fail("the token holds characters that none has".into()))?;
        headers.insert(AUTHORIZATION, value);
    }
    let client = Client::new(transfer.options.stall_timeout);
    let url = MaskedUrl::from(url);
    let mut fruitless = 0;
    loop {
        let (client, url, headers) = (client.clone(), url.clone(), headers.clone());
        let answer = Background::start(move |out| {
            let mut names = Vec::new();
            let response = client.get(&url, &headers, |h| {
                for name in ["x-repo-commit", "x-linked-etag", "etag"] {
                    names.extend(h.get(name).cloned());
                }
            });
            out.send(response.map(|r| (r.into_parts().0, names))).ok();
        });
        let answer = answer.map_err(|e| fail(format!("no thread for it ({e})")))?;
        let failure = match answer.next(transfer.options)? {
            Some(Ok((head, names))) => {
                let path = |v: &HeaderValue| {
                    let text = v.to_str().unwrap_or("/").replace('"', "");
                    text.strip_prefix("W/")
                        .unwrap_or(&text)
                        .contains(['/', '\\'])
                        || text == ".."
                };
                if names.iter().any(path) {
                    return Err(fail("the hub's answer names a path".to_owned()));
                }
                return match head.status.as_u16() {
                    200 | 206 => {
                        let range = head.headers.get("content-range");
                        let total = range.and_then(|v| v.to_str().ok()?.rsplit('/').next());
                        Ok(total.and_then(|t| t.parse().ok()))
                    }
                    status => Err(fail(refusal(status))),
                };
            }
            Some(Err(Failure::Final(e))) => return Err(fail(e.to_string())),
            Some(Err(Failure::Transient(e))) => e.to_string(),
            None => "the response broke off".to_owned(),
        };
        fruitless += 1;
        if fruitless >= transfer.options.attempts {
            return Err(fail(failure));
        }
        pause(transfer.options.retry_delay, transfer.options)?;
    }
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

fn refusal(status: u16) -> String {
    match status {
        401 | 403 => "the hub does not allow it (or there is no such repository); set HF_TOKEN, \
                      and accept the repository's terms if it has any"
            .to_owned(),
        404 => "the hub has no such repository, revision or file".to_owned(),
        code => format!("the hub answered {code}"),
    }
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
        (_, Some(code)) => refusal(code),
        (ApiError::RequestError(_), None) => format!(
            "{}; check the network, HF_ENDPOINT and the proxy variables (HTTPS_PROXY, NO_PROXY)",
            masked_text(&error.to_string())
        ),
        (ApiError::LockAcquisition(path), _) => format!(
            "another process is downloading it ({} is locked); try again when it is done",
            path.display()
        ),
        (ApiError::InvalidResume, _) => {
            "the unfinished download in the hub's cache is longer than the file; remove it"
                .to_owned()
        }
        _ => masked_text(&error.to_string()),
    }
}

struct Meter(SyncSender<Event>);

impl hf_hub::api::Progress for Meter {
    fn init(&mut self, size: usize, _: &str) {
        self.0.send(Event::Begin(size as u64)).ok();
    }

    fn update(&mut self, size: usize) {
        self.0.send(Event::More(size as u64)).ok();
    }

    fn finish(&mut self) {}
}
