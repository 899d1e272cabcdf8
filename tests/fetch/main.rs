//! Fetching, against HTTP servers on loopback that the tests control.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Duration;

use pplx::fetch::{
    Artifact, FetchError, FetchOptions, Outcome, Quiet, TransferProgress, ensure, sha256_file,
};
use sha2::{Digest, Sha256};

mod cache;
mod hostile;
#[path = "../http_server/mod.rs"]
mod http_server;
mod killed;
mod library;
mod program;
mod secrets;
#[path = "../support/skip.rs"]
mod skip;
mod versions;

use http_server::{Reply, Request, Server, serve};

/// Bytes that no constant or period can imitate.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// A directory with a cache and a path to fetch to.
struct Place {
    dir: tempfile::TempDir,
    path: PathBuf,
    options: FetchOptions,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = FetchOptions::new(dir.path().join("cache"));
        options.attempts = 1;
        options.retry_delay = Duration::from_millis(1);
        options.stall_timeout = Duration::from_secs(10);
        Self {
            path: dir.path().join("models/tiny.gguf"),
            dir,
            options,
        }
    }

    fn ensure(&self, sources: &[String], sha256: Option<&str>) -> Result<Outcome, FetchError> {
        self.ensure_with(sources, sha256, &Quiet)
    }

    fn ensure_with(
        &self,
        sources: &[String],
        sha256: Option<&str>,
        progress: &dyn TransferProgress,
    ) -> Result<Outcome, FetchError> {
        let artifact = Artifact {
            name: "tiny",
            path: &self.path,
            sources,
            sha256,
        };
        ensure(&artifact, &self.options, progress)
    }

    fn error(&self, sources: &[String], sha256: Option<&str>) -> String {
        let result = self.ensure(sources, sha256);
        assert!(!self.path.exists() || matches!(result, Err(FetchError::Mismatch { .. })));
        result.expect_err("an error is expected").to_string()
    }

    fn fetched(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn blob(&self, hash: &str) -> PathBuf {
        self.cache().join("blobs").join(hash)
    }

    /// What is left of unfinished fetches.
    fn unfinished(&self) -> Vec<PathBuf> {
        let Ok(directories) = std::fs::read_dir(self.cache().join("partial")) else {
            return Vec::new();
        };
        let files = directories.map(|f| f.unwrap().path());
        let files = files.flat_map(|f| std::fs::read_dir(f).unwrap());
        let mut files: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
        files.sort();
        files
    }

    fn assert_nothing_unfinished(&self) {
        let partial = self.cache().join("partial");
        assert_eq!(std::fs::read_dir(partial).unwrap().count(), 0);
        let beside = self.path.parent().unwrap();
        assert_eq!(std::fs::read_dir(beside).unwrap().count(), 1);
    }
}

/// Keeps what is said.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn all(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl TransferProgress for Heard {
    fn begin(&self, label: &str, _: Option<u64>) {
        self.0.lock().unwrap().push(label.to_owned());
    }
    fn at(&self, _: u64) {}
    fn end(&self) {}
    fn note(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

/// Serves `body`, with ranges, as a good server does.
fn file_server(body: Vec<u8>, etag: &'static str) -> Server {
    serve(move |request, _| Reply::file(request, &body, Some(etag)))
}
