//! Credentials of URLs go to servers and nowhere else.

use super::program::{finish, pplx};
use super::*;

const SECRETS: [&str; 2] = ["s3cret", "t0ken"];

fn assert_hidden(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{text}");
    }
}

/// `http://user:s3cret@…/path?key=t0ken`
fn with_secrets(server: &Server, path: &str) -> String {
    let url = server.url(path);
    let rest = url.strip_prefix("http://").unwrap();
    format!("http://user:s3cret@{rest}?key=t0ken")
}

/// All names and contents below a directory.
fn everything_in(directory: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        text += &format!("{}\n", path.display());
        match path.is_dir() {
            true => text += &everything_in(&path),
            false => text += &String::from_utf8_lossy(&std::fs::read(&path).unwrap()),
        }
    }
    text
}

#[test]
fn the_server_gets_them_and_nobody_else_sees_them() {
    let server = serve(move |request, _| match request.path.as_str() {
        "/moved?key=t0ken" => {
            Reply::new(302, b"").with("Location", "http://me:s3cret@192.0.2.1/x?y=t0ken")
        }
        "/broken?key=t0ken" => Reply::file(request, &[7; 100_000], Some("\"a\"")).cut_after(40_000),
        "/m?key=t0ken" => Reply::file(request, b"model", None),
        "/unsized?key=t0ken" => Reply::new(200, b"x").without_length(),
        _ => Reply::new(404, b""),
    });
    let mut place = Place::new();
    place.options.attempts = 2;
    for path in ["/moved", "/broken", "/unsized", "/absent"] {
        let heard = Heard::default();
        let sources = [with_secrets(&server, path)];
        let error = place.ensure_with(&sources, None, &heard).unwrap_err();
        assert!(error.to_string().contains(path), "{error}");
        assert_hidden(&error.to_string());
        assert_hidden(&format!("{error:?}"));
        assert_hidden(&heard.all());
    }
    // A part of /broken is there to be resumed.
    assert_eq!(place.unfinished().len(), 2);
    assert_hidden(&everything_in(&place.cache()));
    place.ensure(&[with_secrets(&server, "/m")], None).unwrap();
    let sent = server.requests();
    let basic = Some("Basic dXNlcjpzM2NyZXQ=");
    assert!(sent.iter().all(|r| r.header("authorization") == basic));
    // What changes the source changes what is resumed.
    let count = |place: &Place| {
        std::fs::read_dir(place.cache().join("partial"))
            .unwrap()
            .count()
    };
    let before = count(&place);
    std::fs::remove_file(&place.path).unwrap();
    place.error(&[server.url("/broken?key=t0ken")], None);
    assert_eq!(count(&place), before + 1);
}

#[test]
fn the_program_shows_none() {
    let server = serve(move |_, _| Reply::new(404, b""));
    let place = Place::new();
    let url = with_secrets(&server, "/m");
    for source in [
        &*url,
        "https://user:s3cret@/m?key=t0ken",
        "https://user:s3cret@h/white space?key=t0ken",
        "http://user:s3cret@192.0.2.1/m?key=t0ken",
        "ftp://user:s3cret@h/m",
        "HTTPS://user:s3cret@h/m",
        "hf:o/r/f?key=t0ken",
        "hf:https://user:s3cret@h/o/r/f",
    ] {
        let (code, out, err) = finish(pplx(&place, &[source]));
        assert_ne!(code, Some(0), "{source}");
        assert_hidden(&out);
        assert_hidden(&err);
        // As if it were an experiment.
        let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
        command.arg("fetch").arg(source);
        let (code, out, err) = finish(command);
        assert_eq!(code, Some(2), "{source}");
        assert_hidden(&out);
        assert_hidden(&err);
    }
}

#[test]
fn experiments_and_plans_show_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    let experiment = |source: &str| {
        format!(
            "name = \"x\"\n[sweep]\ncorpora = [\"b\"]\ncontexts = [64]\n\
             [[models]]\npath = \"m/a.gguf\"\nsource = {source}\n\
             [[corpora]]\nname = \"b\"\npath = \"b.txt\"\nsource = \"https://u:s3cret@h/b?k=t0ken\"\n"
        )
    };
    for (source, good) in [
        ("\"https://user:s3cret@h/m?key=t0ken\"", true),
        (
            "[\"https://user:s3cret@h/0\", \"https://user:s3cret@h/1\"]",
            true,
        ),
        ("\"https://user:s3cret@/m?key=t0ken\"", false),
        ("\"http://user:s3cret@h/m?key=t0ken\"", false),
        ("\"https://user:s3cret@h/m?key=t0ken\" x", false),
        ("\"https://user:s3cret@h/m?key=t0ken", false),
        ("{ \"https://user:s3cret@h/m\" = 1 }", false),
    ] {
        std::fs::write(&file, experiment(source)).unwrap();
        for flags in [
            &[][..],
            &["--format", "json"],
            &["--set", "sweep.contexts=0"],
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
            command.arg("plan").arg(&file).args(flags);
            command.env("PPLX_CACHE", dir.path().join("cache"));
            let (code, out, err) = finish(command);
            let good = good && flags.first() != Some(&"--set");
            assert_eq!(code, Some(if good { 0 } else { 2 }), "{source}: {err}");
            assert_hidden(&out);
            assert_hidden(&err);
        }
    }
}
