//! kill -9 at many instants of a fetch.

use super::program::{finish, pplx};
use super::*;

/// Kills fetches `kills` times, from the first moment to beyond the end; in between
/// the file on the server changes. Then the fetch is to complete with the bytes of
/// one version, and nothing is to be left.
fn campaign(kills: u32, hashed: bool, changes: bool) {
    let versions = [content(61, 1 << 20), content(62, 1 << 20)];
    let served = versions.clone();
    let now = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let version = now.clone();
    let server = serve(move |request, _| {
        let v = version.load(std::sync::atomic::Ordering::SeqCst) % 2;
        let etag = ["\"0\"", "\"1\""][v];
        Reply::file(request, &served[v], Some(etag)).paced(Duration::from_millis(6))
    });
    let place = Place::new();
    let hash = sha256(&versions[0]);
    let url = server.url("/m");
    let mut args = vec![url.as_str()];
    if hashed {
        args.extend(["--sha256", &hash]);
    }
    let mut done = 0;
    for i in 0..kills {
        let mut child = pplx(&place, &args)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(u64::from(i * 150 / kills)));
        child.kill().unwrap();
        child.wait().unwrap();
        if place.path.exists() {
            done += 1;
            assert!(versions.contains(&place.fetched()), "kill {i}");
            std::fs::remove_file(&place.path).unwrap();
        }
        if changes {
            now.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let cached = hashed && place.blob(&hash).exists();
    assert!(cached || done < kills, "no kill came in time");
    now.store(0, std::sync::atomic::Ordering::SeqCst);
    let (code, _, err) = finish(pplx(&place, &args));
    assert_eq!(code, Some(0), "{err}");
    assert!(place.fetched() == versions[0], "{hashed} {changes}");
    place.assert_nothing_unfinished();
    let mut names: Vec<_> = std::fs::read_dir(place.cache())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names.retain(|n| n != "verified.json" && n != "blobs");
    assert_eq!(names, ["locks", "partial"]);
    if let Ok(blobs) = std::fs::read_dir(place.cache().join("blobs")) {
        assert!(blobs.count() <= 1);
    }
}

#[test]
fn a_fetch_that_is_killed_at_any_instant_completes_with_the_right_bytes() {
    // The long form: PPLX_KILLS=100.
    let kills = std::env::var("PPLX_KILLS").ok();
    let kills = kills.and_then(|n| n.parse().ok()).unwrap_or(8);
    campaign(kills, true, false);
    campaign(kills, false, false);
    campaign(kills, false, true);
}
