//! Bytes of two versions of a file are never joined.

use super::*;

const OLD: u64 = 31;
const NEW: u64 = 32;
const SIZE: usize = 200_000;
const CUT: usize = 50_000;

/// A place where a fetch of the old version broke after [`CUT`] bytes, and a server
/// that since then answers by `then`, which gets the new version. Requests without a
/// range get all of the new version.
fn broken(
    etag: Option<&'static str>,
    wanted: Option<&str>,
    new: Vec<u8>,
    then: impl Fn(&Request, &[u8]) -> Reply + Send + Sync + 'static,
) -> (Place, [String; 1], Server) {
    let old = content(OLD, SIZE);
    let server = serve(move |request, n| match n {
        0 => Reply::file(request, &old, etag).cut_after(CUT),
        _ if request.header("range").is_some() => then(request, &new),
        _ => Reply::new(200, &new).with("ETag", "\"new\""),
    });
    let place = Place::new();
    let sources = [server.url("/m.gguf")];
    let error = place.error(&sources, wanted);
    assert!(error.contains("after 50000 of 200000"), "{error}");
    (place, sources, server)
}

fn partial(body: &[u8], first: usize) -> Reply {
    let range = format!("bytes {first}-{}/{}", body.len() - 1, body.len());
    Reply::new(206, &body[first..]).with("Content-Range", &range)
}

#[test]
fn a_partial_response_of_another_version_is_not_joined() {
    type Then = fn(&Request, &[u8]) -> Reply;
    // Servers that take no notice of If-Range.
    let cases: [(&str, Then); 8] = [
        ("another ETag", |_, new| {
            partial(new, CUT).with("ETag", "\"new\"")
        }),
        ("a weak ETag", |_, new| {
            partial(new, CUT).with("ETag", "W/\"old\"")
        }),
        ("no ETag", |_, new| partial(new, CUT)),
        ("another size", |_, new| {
            partial(&new[1..], CUT).with("ETag", "\"old\"")
        }),
        ("another range", |_, new| {
            partial(new, CUT + 1).with("ETag", "\"old\"")
        }),
        ("no range", |_, new| {
            Reply::new(206, new).with("ETag", "\"old\"")
        }),
        ("no end", |_, new| {
            let range = format!("bytes {CUT}-{}/*", new.len() - 1);
            let reply = Reply::new(206, &new[CUT..]).with("ETag", "\"old\"");
            reply.with("Content-Range", &range)
        }),
        ("416", |_, _| {
            Reply::new(416, b"").with("Content-Range", "bytes */50000")
        }),
    ];
    let new = content(NEW, SIZE);
    for (what, then) in cases {
        let (place, sources, server) = broken(Some("\"old\""), None, new.clone(), then);
        assert_eq!(
            place.ensure(&sources, None).unwrap(),
            Outcome::Downloaded,
            "{what}"
        );
        assert_eq!(
            server.requests()[1].header("range"),
            Some("bytes=50000-"),
            "{what}"
        );
        assert!(place.fetched() == new, "{what}");
        place.assert_nothing_unfinished();
    }
}

#[test]
fn a_file_that_became_as_short_as_its_part_is_downloaded_anew() {
    let new = content(NEW, CUT);
    let gone = |_: &Request, new: &[u8]| {
        Reply::new(416, b"").with("Content-Range", &format!("bytes */{}", new.len()))
    };
    let (place, sources, _) = broken(Some("\"old\""), None, new.clone(), gone);
    place.ensure(&sources, None).unwrap();
    assert!(place.fetched() == new);
}

#[test]
fn dates_count_as_versions_only_where_they_are_told_apart() {
    let (early, late) = (
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:38 GMT",
    );
    // (Date of the first response, of the file then and now, whether it goes on)
    for (date, then, now, goes_on) in [
        (late, early, early, true),
        (late, early, late, false),
        (early, early, early, false),
    ] {
        let body = content(OLD, SIZE);
        let served = body.clone();
        let server = serve(move |request, n| {
            let modified = if n == 0 { then } else { now };
            let reply = Reply::file(request, &served, request.header("if-range"));
            let reply = reply.with("Date", date).with("Last-Modified", modified);
            if n == 0 { reply.cut_after(CUT) } else { reply }
        });
        let place = Place::new();
        let sources = [server.url("/m")];
        place.error(&sources, None);
        place.ensure(&sources, None).unwrap();
        assert!(place.fetched() == body);
        let last = server.requests().pop().unwrap();
        let range = goes_on.then_some("bytes=50000-");
        assert_eq!(last.header("range"), range, "{date} {then} {now}");
    }
}

#[test]
fn where_no_version_is_named_the_hash_finds_out_and_the_file_is_downloaded_anew() {
    let new = content(NEW, SIZE);
    let hash = sha256(&new);
    let rest = |_: &Request, new: &[u8]| partial(new, CUT);
    let (place, sources, server) = broken(None, Some(&hash), new.clone(), rest);
    let heard = Heard::default();
    let outcome = place.ensure_with(&sources, Some(&hash), &heard).unwrap();
    assert_eq!(outcome, Outcome::Downloaded);
    assert!(heard.all().contains("another version"), "{}", heard.all());
    assert!(place.fetched() == new);
    assert_eq!(server.requests().len(), 3);
    // The joined file is not kept.
    let blobs = std::fs::read_dir(place.cache().join("blobs")).unwrap();
    assert_eq!(blobs.count(), 1);

    // So with a part of an earlier day that was complete.
    let parts = [content(33, 1_000), content(34, 2_000)];
    let whole = parts.concat();
    let hash = sha256(&whole);
    let served = parts.clone();
    let server = serve(move |request, _| match request.path.as_str() {
        "/0" => Reply::file(request, &served[0], None),
        _ => Reply::file(request, &served[1], None),
    });
    let place = Place::new();
    let work = place.cache().join("partial").join(&hash);
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("0.done"), content(35, 1_000)).unwrap();
    let sources = [server.url("/0"), server.url("/1")];
    place.ensure(&sources, Some(&hash)).unwrap();
    assert!(place.fetched() == whole);
    place.assert_nothing_unfinished();
}

#[test]
fn a_part_without_an_intact_note_is_not_gone_on_with() {
    let body = content(36, 100_000);
    for note in [
        None,
        Some(""),
        Some("{}"),
        Some("{\"url_sha256\":\"\",\"validator\":null}"),
    ] {
        for hashed in [true, false] {
            let server = file_server(body.clone(), "\"a\"");
            let place = Place::new();
            let sources = [server.url("/m")];
            let hash = sha256(&body);
            let wanted = hashed.then_some(hash.as_str());
            // Where the fetch is going to look.
            let key = match wanted {
                Some(hash) => hash.to_owned(),
                None => {
                    let id = format!("{}\n{}", place.path.display(), sources[0]);
                    format!("unhashed-{}", sha256(id.as_bytes()))
                }
            };
            let work = place.cache().join("partial").join(key);
            std::fs::create_dir_all(&work).unwrap();
            std::fs::write(work.join("0.part"), &body[1..60_000]).unwrap();
            if let Some(note) = note {
                std::fs::write(work.join("0.resume.json"), note).unwrap();
            }
            place.ensure(&sources, wanted).unwrap();
            assert!(place.fetched() == body);
            assert_eq!(server.requests()[0].header("range"), None);
            place.assert_nothing_unfinished();
        }
    }
}
