//! Servers that lie, lead astray, or never end; and what is left of it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::*;

#[test]
fn a_server_without_ranges_is_not_asked_for_ever() {
    let body = content(41, 9_000_000);
    // How far each attempt gets, in thousands of bytes: now and then farther than
    // the last one, farther than ever each time.
    let varying: fn(usize) -> usize = |n| [2_800, 900][n % 2];
    let growing: fn(usize) -> usize = |n| 1_100 * (n + 1).min(8);
    for (what, cut) in [("varying", varying), ("growing", growing)] {
        for etag in [None, Some("\"a\"")] {
            for hashed in [true, false] {
                let served = body.clone();
                let server = serve(move |_, n| {
                    let reply = Reply::new(200, &served).cut_after(1000 * cut(n));
                    match etag {
                        Some(etag) => reply.with("ETag", etag),
                        None => reply,
                    }
                });
                let mut place = Place::new();
                place.options.attempts = 3;
                let hash = sha256(&body);
                let error = place.error(&[server.url("/m")], hashed.then_some(&hash));
                assert!(error.contains("the connection broke"), "{error}");
                assert_eq!(server.requests().len(), 3, "{what} {etag:?} {hashed}");
            }
        }
    }
}

#[test]
fn a_server_that_resumes_is_asked_as_long_as_there_is_more() {
    let body = content(42, 9_000_000);
    let served = body.clone();
    let server = serve(move |request, _| {
        let reply = Reply::file(request, &served, Some("\"a\""));
        reply.cut_after(1_500_000)
    });
    let mut place = Place::new();
    place.options.attempts = 2;
    // The last piece is whole.
    let error = place.ensure(&[server.url("/m")], None);
    assert!(error.is_ok(), "{error:?}");
    assert!(place.fetched() == body);
    assert_eq!(server.requests().len(), 6);
}

#[test]
fn redirects_stay_within_what_is_allowed() {
    // 192.0.2.1 is for documentation (RFC 5737): nobody is asked.
    for (target, why) in [
        ("http://192.0.2.1/m", "plain http"),
        ("http://192.0.2.1:8080/m?token=s3cret", "plain http"),
        ("//192.0.2.1/m", "plain http"),
        ("http://user:s3cret@192.0.2.1/m", "plain http"),
        ("http://127.0.0.1.example.org/m", "plain http"),
        ("http://localhost.example.org/m", "plain http"),
        ("http://127.0.0.1@192.0.2.1/m", "plain http"),
        ("http://192.0.2.1\\@127.0.0.1/m", "plain http"),
        ("ftp://127.0.0.1/m", "only https"),
        ("file:///etc/passwd", ""),
        ("http://", ""),
        ("/again", "more than 10 redirects"),
    ] {
        let server = serve(move |request, _| match request.path.as_str() {
            "/again" => Reply::new(302, b"").with("Location", target),
            _ => Reply::new(307, b"").with("Location", "/again"),
        });
        if target == "/again" {
            let error = Place::new().error(&[server.url("/m")], None);
            assert!(error.contains(why), "{target}: {error}");
            assert_eq!(server.requests().len(), 11);
            continue;
        }
        for hash in [None, Some(sha256(b""))] {
            let mut place = Place::new();
            place.options.attempts = 3;
            let begin = Instant::now();
            let error = place.error(&[server.url("/m")], hash.as_deref());
            assert!(begin.elapsed() < Duration::from_secs(2), "{target}");
            assert!(
                error.contains(why) && error.contains("redirect"),
                "{target}: {error}"
            );
            assert!(!error.contains("s3cret"), "{error}");
            assert!(place.unfinished().is_empty());
        }
        // The refusal is final.
        assert_eq!(server.requests().len(), 4, "{target}");
    }
}

#[test]
fn more_than_was_promised_is_refused() {
    let body = content(43, 100_000);
    let served = body.clone();
    let server = serve(move |request, n| {
        let reply = Reply::file(request, &served, Some("\"a\""));
        match n {
            0 => reply.cut_after(40_000),
            1 => Reply::new(206, &served[30_000..])
                .without_length()
                .with("ETag", "\"a\"")
                .with("Content-Range", "bytes 40000-99999/100000"),
            _ => reply,
        }
    });
    let place = Place::new();
    let sources = [server.url("/m")];
    place.error(&sources, None);
    let error = place.error(&sources, None);
    assert!(error.contains("more than it said"), "{error}");
    assert!(place.unfinished().is_empty(), "{:?}", place.unfinished());
    place.ensure(&sources, None).unwrap();
    assert!(place.fetched() == body);
}

#[test]
fn a_length_that_is_a_lie_is_a_broken_download() {
    let body = content(44, 10_000);
    let served = body.clone();
    let server = serve(move |_, _| {
        let reply = Reply::new(200, &served).without_length();
        reply.with("Content-Length", "20000")
    });
    let error = Place::new().error(&[server.url("/m")], None);
    assert!(error.contains("after 10000 of 20000"), "{error}");
    // Larger than any disk.
    let server = serve(move |_, _| {
        let reply = Reply::new(200, b"x").without_length().with("ETag", "\"a\"");
        reply.with("Content-Length", "9000000000000000000")
    });
    let place = Place::new();
    let error = place.error(&[server.url("/m")], None);
    assert!(error.contains("has room for"), "{error}");
    assert!(place.unfinished().is_empty());
}

#[test]
fn a_part_that_no_later_fetch_can_use_is_removed() {
    let body = content(45, 100_000);
    let hash = sha256(&body);
    for (etag, ranges, hashed, kept) in [
        (None, None, false, false),
        (Some("W/\"a\""), None, false, false),
        (Some("\"a\""), None, false, true),
        (Some("\"a\""), Some("none"), false, false),
        (None, None, true, true),
    ] {
        let served = body.clone();
        let server = serve(move |request, _| {
            let reply = Reply::file(request, &served, etag).cut_after(60_000);
            match ranges {
                Some(ranges) => reply.with("Accept-Ranges", ranges),
                None => reply,
            }
        });
        let place = Place::new();
        place.error(&[server.url("/m")], hashed.then_some(&hash));
        let names: Vec<_> = place.unfinished();
        let names = names
            .iter()
            .map(|p| p.file_name().unwrap().to_str().unwrap());
        let expected: &[&str] = match kept {
            true => &["0.part", "0.resume.json"],
            false => &[],
        };
        assert!(names.eq(expected.iter().copied()), "{etag:?} {hashed}");
    }
}

#[test]
fn what_killed_fetches_left_is_tidied_by_the_next_one() {
    let body = content(46, 1_000);
    let server = file_server(body.clone(), "\"a\"");
    let place = Place::new();
    let partial = place.cache().join("partial");
    let put = |path: &str, text: &str| {
        let path = partial.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let hash = "0".repeat(64);
    let note = |validator: &str, total: &str| {
        format!("{{\"url_sha256\":\"x\",\"validator\":{validator},\"total\":{total}}}")
    };
    let tag = "{\"header\":\"etag\",\"value\":\"x\"}";
    for useless in [
        "unhashed-1/0.part".to_owned(),
        "unhashed-1/0.done".to_owned(),
        "unhashed-1/whole".to_owned(),
        "unhashed-2/scratch-x/wheels/big.whl".to_owned(),
        "unhashed-2/pip/wheels/big.whl".to_owned(),
        "unhashed-3/0.part".to_owned(),
        format!("{hash}/whole"),
        format!("{hash}/2.part"),
    ] {
        put(&useless, "useless");
    }
    put("unhashed-3/0.resume.json", &note("null", "9"));
    let useful = [
        format!("{hash}/0.done"),
        format!("{hash}/1.part"),
        format!("{hash}/1.resume.json"),
        "unhashed-4/0.part".to_owned(),
        "unhashed-4/0.resume.json".to_owned(),
        // Somebody is at it.
        "unhashed-5/0.part".to_owned(),
    ];
    for useful in &useful {
        put(useful, "useful");
    }
    put(&format!("{hash}/1.resume.json"), &note("null", "null"));
    put("unhashed-4/0.resume.json", &note(tag, "9"));
    std::fs::create_dir_all(place.cache().join("locks")).unwrap();
    let lock = std::fs::File::create(place.cache().join("locks/unhashed-5")).unwrap();
    lock.lock().unwrap();

    place.ensure(&[server.url("/m")], None).unwrap();
    let left: Vec<PathBuf> = useful.iter().map(|p| partial.join(p)).collect();
    assert_eq!(place.unfinished(), left);
    let directories = std::fs::read_dir(&partial).unwrap();
    assert_eq!(directories.count(), 3);
}

#[test]
fn an_interrupt_ends_a_fetch_at_once_wherever_it_is() {
    let body = content(47, 200_000);
    let hash = sha256(&body);
    // A server that says nothing; one that stops in the middle; one that is broken,
    // so that the fetch is between two attempts.
    for what in ["silent", "stops", "broken"] {
        let served = body.clone();
        let server = serve(move |request, _| {
            let reply = Reply::file(request, &served, Some("\"a\""));
            match what {
                "silent" => {
                    std::thread::sleep(Duration::from_secs(5));
                    reply
                }
                "stops" => reply.paced(Duration::from_secs(5)),
                _ => Reply::new(503, b""),
            }
        });
        let mut place = Place::new();
        place.options.attempts = 3;
        place.options.retry_delay = Duration::from_secs(20);
        let interrupt = place.options.interrupt.clone();
        let sources = [server.url("/m")];
        let error = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(400));
                interrupt.store(true, Ordering::Relaxed);
            });
            let begin = Instant::now();
            let error = place.ensure(&sources, Some(&hash)).unwrap_err();
            assert!(begin.elapsed() < Duration::from_secs(1), "{what}");
            error
        });
        assert!(matches!(error, FetchError::Interrupted), "{what}: {error}");
        // Another process that waits for this one's lock, too.
        let kept = place.unfinished().len();
        assert_eq!(kept, if what == "stops" { 2 } else { 0 }, "{what}");
    }
}

#[test]
fn waiting_for_another_process_can_be_interrupted() {
    let place = Place::new();
    let hash = sha256(b"x");
    std::fs::create_dir_all(place.cache().join("locks")).unwrap();
    let lock = std::fs::File::create(place.cache().join("locks").join(&hash)).unwrap();
    lock.lock().unwrap();
    let heard = Heard::default();
    let sources = ["http://127.0.0.1:9/x".to_owned()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            place.options.interrupt.store(true, Ordering::Relaxed);
        });
        let begin = Instant::now();
        let error = place
            .ensure_with(&sources, Some(&hash), &heard)
            .unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(1));
        assert!(matches!(error, FetchError::Interrupted), "{error}");
    });
    assert!(heard.all().contains("waiting for another process"));
}
