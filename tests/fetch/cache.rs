//! A cache that cannot be written.

use super::program::{finish, pplx};
use super::*;

/// Sets a cache that nobody can create, not even root: its directory is a file.
fn without_cache(place: &Place, command: &mut Command) {
    let file = place.dir.path().join("no-directory");
    std::fs::write(&file, b"").unwrap();
    command.env("PPLX_CACHE", file.join("cache"));
}

/// Sets that there is no cache at all.
fn homeless(_: &Place, command: &mut Command) {
    for name in ["PPLX_CACHE", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", "/dev/null/nobody");
}

fn age(path: &Path) {
    let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(then).unwrap();
    // The time of the last change cannot be set: the file has to be some seconds old
    // for its hash to be remembered.
    std::thread::sleep(Duration::from_secs(4));
}

#[test]
fn what_is_there_needs_no_cache_and_a_download_says_that_it_does() {
    let place = Place::new();
    let body = content(51, 10_000);
    let hash = sha256(&body);
    std::fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    std::fs::write(&place.path, &body).unwrap();
    age(&place.path);
    let server = file_server(body.clone(), "\"a\"");
    for cacheless in [without_cache, homeless] {
        let run = |args: &[&str]| {
            let mut command = pplx(&place, args);
            cacheless(&place, &mut command);
            finish(command)
        };
        let url = server.url("/m");
        let (code, out, err) = run(&[&url]);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains(&hash), "{out}");
        assert!(
            err.contains("note: the cache") && err.lines().count() == 1,
            "{err}"
        );
        let (code, out, err) = run(&[&url, "--sha256", &hash]);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("already there, verified"), "{out}");
        assert_eq!(err.lines().count(), 1, "{err}");

        let absent = Place::new();
        let mut command = pplx(&absent, &[&url, "--sha256", &hash]);
        cacheless(&absent, &mut command);
        let (code, _, err) = finish(command);
        assert_eq!(code, Some(1));
        assert!(err.contains("a download needs the cache"), "{err}");
        assert!(err.contains("PPLX_CACHE"), "{err}");
        assert!(!absent.path.parent().unwrap().exists());
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_cache_that_is_read_only_is_read() {
    let place = Place::new();
    let body = content(52, 10_000);
    let hash = sha256(&body);
    std::fs::create_dir_all(place.blob(&hash).parent().unwrap()).unwrap();
    std::fs::write(place.blob(&hash), &body).unwrap();
    // No directory can be made there, by root neither.
    for name in ["locks", "partial", "verified.json"] {
        std::fs::write(place.cache().join(name), b"").unwrap();
    }
    let sources = ["http://127.0.0.1:9/m".to_owned()];
    assert_eq!(
        place.ensure(&sources, Some(&hash)).unwrap(),
        Outcome::FromCache
    );
    assert!(place.fetched() == body);
}

#[test]
fn a_place_that_cannot_be_written_is_found_before_the_download() {
    let mut place = Place::new();
    std::fs::write(place.dir.path().join("file"), b"").unwrap();
    place.path = place.dir.path().join("file/m.gguf");
    let server = file_server(content(53, 10_000), "\"a\"");
    let error = place.ensure(&[server.url("/m")], None).unwrap_err();
    assert!(error.to_string().contains("file/m.gguf"), "{error}");
    assert!(!error.to_string().contains(".pplx-"), "{error}");
    assert!(server.requests().is_empty());
}
