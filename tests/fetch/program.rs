//! What depends on environment variables, through the program.

use super::*;
use crate::skip::skip;

pub fn pplx(place: &Place, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
    command.arg("fetch").args(args).arg("-o").arg(&place.path);
    command.env("PPLX_CACHE", place.cache());
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

pub fn finish(mut command: Command) -> (Option<i32>, String, String) {
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
        .meta("llama.context_length", Value::U32(128))
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
        command.env("PPLX_CACHE", place.cache());
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
    command.env("PPLX_CACHE", place.cache());
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

#[test]
fn the_hub_too_is_asked_over_https_or_on_this_machine() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let server = serve(move |request, _| {
        let to = match request.path.rsplit('/').next() {
            Some("far") => "http://192.0.2.1/x?token=s3cret",
            Some("loop") => &request.path,
            // Names that lead out of the hub's cache.
            Some("etag") => {
                return Reply::file(request, b"model", Some("\"../../../etag\""))
                    .with("X-Repo-Commit", commit);
            }
            _ => {
                return Reply::file(request, b"model", Some("\"a\""))
                    .with("X-Repo-Commit", "../../commit");
            }
        };
        Reply::new(302, b"").with("Location", to)
    });
    let place = Place::new();
    for (file, why) in [
        ("far", "plain http"),
        ("loop", "more than 10 redirects"),
        ("etag", "names a path"),
        ("commit", "names a path"),
    ] {
        let mut command = pplx(&place, &[&format!("hf:o/r/{file}")]);
        command.env("HF_ENDPOINT", server.url(""));
        let (code, _, err) = finish(command);
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(why) && !err.contains("s3cret"), "{err}");
    }
    for (endpoint, why) in [
        ("http://192.0.2.1", "plain http"),
        ("http://user:s3cret@192.0.2.1/hub", "plain http"),
        ("ftp://192.0.2.1", "only https"),
        ("user:s3cret@hub", ""),
        ("no url", "no URL"),
    ] {
        let mut command = pplx(&place, &["hf:o/r/f"]);
        command.env("HF_ENDPOINT", endpoint);
        let (code, _, err) = finish(command);
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains("HF_ENDPOINT") && err.contains(why), "{err}");
        assert!(!err.contains("s3cret"), "{err}");
    }
    assert!(!place.path.exists() && place.unfinished().is_empty());
}

#[test]
fn a_hub_file_that_is_cut_short_is_no_file() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let server = serve(move |request, _| {
        let reply = match request.header("range") {
            Some("bytes=0-0") => Reply::file(request, &[7; 1000], Some("\"a\"")),
            // Ends early, and seems whole.
            _ => Reply::new(206, &[7; 600]).with("ETag", "\"a\""),
        };
        reply.with("X-Repo-Commit", commit)
    });
    let place = Place::new();
    for _ in 0..2 {
        let mut command = pplx(&place, &[&format!("hf:o/r/f@{commit}")]);
        command.env("HF_ENDPOINT", server.url(""));
        let (code, _, err) = finish(command);
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains("600 bytes came"), "{err}");
    }
    assert!(!place.path.exists() && place.unfinished().is_empty());
}

fn have_pip() -> bool {
    let pip = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output();
    let there = pip.is_ok_and(|o| o.status.success());
    if !there {
        skip("python", "python3 -m pip is missing");
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

/// Fetches `member` of the wheel tiny-model 1.0, which is found in a directory.
fn from_wheel(place: &Place, wheel: &[u8], member: &str) -> (Option<i32>, String, String) {
    let wheels = place.dir.path().join("wheels");
    std::fs::create_dir_all(&wheels).unwrap();
    std::fs::write(wheels.join("tiny_model-1.0-py3-none-any.whl"), wheel).unwrap();
    let mut command = pplx(place, &[&format!("pypi:tiny-model==1.0/{member}")]);
    command
        .env("PIP_FIND_LINKS", &wheels)
        .env("PIP_NO_INDEX", "1");
    command.env("PIP_CONFIG_FILE", "/dev/null");
    finish(command)
}

#[test]
fn a_member_has_the_size_that_the_wheel_declares() {
    if !have_pip() {
        return;
    }
    let size = 3_141_592_u32;
    let honest = wheel("m.gguf", &vec![0; size as usize]);
    let declaring = |other: u32| {
        let mut lie = honest.clone();
        let places: Vec<usize> = (0..lie.len() - 4)
            .filter(|&i| lie[i..i + 4] == size.to_le_bytes())
            .collect();
        assert!(!places.is_empty());
        for at in places {
            lie[at..at + 4].copy_from_slice(&other.to_le_bytes());
        }
        lie
    };
    for (wheel, why) in [
        (declaring(1_000), "larger than its declared"),
        (declaring(size + 1), "declares 3141593"),
        (declaring(u32::MAX - 1), ""),
    ] {
        let place = Place::new();
        let (code, _, err) = from_wheel(&place, &wheel, "m.gguf");
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(why), "{err}");
        assert!(!place.path.exists());
        assert!(place.unfinished().is_empty(), "{:?}", place.unfinished());
    }
    let place = Place::new();
    let (code, _, err) = from_wheel(&place, &honest, "absent");
    assert_eq!(code, Some(1), "{err}");
    assert!(place.unfinished().is_empty(), "{:?}", place.unfinished());
    let (code, _, err) = from_wheel(&place, &honest, "m.gguf");
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(place.fetched(), vec![0; size as usize]);
}

#[test]
fn what_pip_says_is_shown_without_credentials() {
    if !have_pip() {
        return;
    }
    let server = serve(move |_, _| Reply::new(404, b""));
    let place = Place::new();
    let mut command = pplx(&place, &["pypi:tiny-model==1.0/m"]);
    let index = server.url("/simple?key=t0ken");
    let index = index.replace("http://", "http://user:s3cret@");
    command.env("PIP_INDEX_URL", index);
    command.env("PIP_CONFIG_FILE", "/dev/null");
    command.env("PIP_EXTRA_INDEX_URL", "http://s3cret@127.0.0.1:9/x");
    let (code, _, err) = finish(command);
    assert_eq!(code, Some(1));
    assert!(err.contains("tiny-model==1.0"), "{err}");
    assert!(!err.contains("s3cret") && !err.contains("t0ken"), "{err}");
    assert!(place.unfinished().is_empty());
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
