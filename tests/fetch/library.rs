//! Single files, through the library.

use super::*;

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

/// What lies beside a part of `total` bytes whose beginning is there.
fn note(url: &str, etag: &str, total: u64) -> String {
    let (url, etag) = (sha256(url.as_bytes()), etag.replace('"', "\\\""));
    let validator = format!("{{\"header\":\"etag\",\"value\":\"{etag}\"}}");
    format!("{{\"url_sha256\":\"{url}\",\"validator\":{validator},\"total\":{total}}}")
}

#[test]
fn a_complete_part_of_a_fetch_that_died_is_not_downloaded_again() {
    // The process died between the last byte and the rename.
    let body = content(8, 100_000);
    let hash = sha256(&body);
    let server = file_server(body.clone(), "\"a\"");
    let place = Place::new();
    let sources = [server.url("/m.gguf")];
    let work = place.cache().join("partial").join(&hash);
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("0.part"), &body).unwrap();
    std::fs::write(
        work.join("0.resume.json"),
        note(&sources[0], "\"a\"", 100_000),
    )
    .unwrap();
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
