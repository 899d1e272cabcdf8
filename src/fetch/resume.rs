//! What is remembered beside an unfinished download, to resume it safely.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ureq::http::HeaderMap;

use super::hash::sha256_bytes;
use crate::files;

/// Of which version of which file the bytes in the part are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resume {
    /// Of the URL, which may hold secrets.
    url_sha256: String,
    pub validator: Option<Validator>,
    /// Bytes of the whole file.
    pub total: Option<u64>,
}

/// A header that changes whenever the file does, as If-Range takes it (RFC 9110
/// section 13.1.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Validator {
    /// `etag` or `last-modified`.
    header: String,
    pub value: String,
}

impl Resume {
    pub fn new(url: &str, headers: &HeaderMap, total: Option<u64>) -> Self {
        Self {
            url_sha256: sha256_bytes(url.as_bytes()),
            validator: Validator::of(headers),
            total,
        }
    }

    /// Where it lies for a part.
    pub fn file(part: &Path) -> PathBuf {
        part.with_extension("resume.json")
    }

    /// That of `part`; none where it is damaged.
    pub fn load(part: &Path) -> Option<Self> {
        let bytes = std::fs::read(Self::file(part)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub fn save(&self, part: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        files::replace(&Self::file(part), |out| out.write_all(&bytes))
    }

    pub fn is_of(&self, url: &str) -> bool {
        self.url_sha256 == sha256_bytes(url.as_bytes())
    }

    /// Whether a download can go on with it. Without a hash, joining the bytes of
    /// two versions of a file must be impossible; with one it is found out.
    pub fn is_of_use(&self, hashed: bool) -> bool {
        hashed || (self.validator.is_some() && self.total.is_some())
    }

    /// Whether the headers of a partial response are those of the same version.
    /// Servers that do not know If-Range send a part of whatever they have now.
    pub fn is_continued_by(&self, headers: &HeaderMap, total: Option<u64>, hashed: bool) -> bool {
        let same_size = match (self.total, total) {
            (Some(before), Some(now)) => before == now,
            _ => hashed,
        };
        let same_version = match &self.validator {
            Some(v) => text(headers, &v.header).map_or(hashed, |now| now == v.value),
            None => hashed,
        };
        same_size && same_version
    }
}

impl Validator {
    /// A strong ETag, else the date of the last change, if it was more than a
    /// moment before the response. A weak ETag says too little.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let new = |header: &str, value: &str| Self {
            header: header.to_owned(),
            value: value.to_owned(),
        };
        if let Some(tag) = text(headers, "etag").filter(|tag| tag.starts_with('"')) {
            return Some(new("etag", tag));
        }
        let modified = text(headers, "last-modified")?;
        let time = |text| httpdate::parse_http_date(text).ok();
        let now = time(text(headers, "date")?)?;
        // The clock of the header counts seconds: within one the file could change
        // once more.
        let age = now.duration_since(time(modified)?).ok()?;
        (age.as_secs() >= 1).then(|| new("last-modified", modified))
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.insert(*name, value.parse().unwrap());
        }
        map
    }

    const EARLY: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATE: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn only_strong_validators_count() {
        let of = |h: &[_]| Validator::of(&headers(h)).map(|v| v.value);
        assert_eq!(of(&[("etag", "\"abc\"")]), Some("\"abc\"".to_owned()));
        assert_eq!(of(&[("etag", "W/\"abc\"")]), None);
        assert_eq!(of(&[("etag", "abc")]), None);
        let dates = |modified, date| of(&[("last-modified", modified), ("date", date)]);
        assert_eq!(dates(EARLY, LATE), Some(EARLY.to_owned()));
        assert_eq!(dates(EARLY, EARLY), None);
        assert_eq!(dates(LATE, EARLY), None);
        assert_eq!(dates("yesterday", LATE), None);
        assert_eq!(of(&[("last-modified", EARLY)]), None);
    }

    #[test]
    fn a_part_is_continued_by_its_own_version_only() {
        let first = headers(&[("etag", "\"a\"")]);
        let resume = Resume::new("u", &first, Some(10));
        let goes_on = |h: &[_], total| {
            let h = headers(h);
            [false, true].map(|hashed| resume.is_continued_by(&h, total, hashed))
        };
        assert_eq!(goes_on(&[("etag", "\"a\"")], Some(10)), [true, true]);
        assert_eq!(goes_on(&[("etag", "\"b\"")], Some(10)), [false, false]);
        assert_eq!(goes_on(&[("etag", "W/\"a\"")], Some(10)), [false, false]);
        assert_eq!(goes_on(&[("etag", "\"a\"")], Some(11)), [false, false]);
        // A hash finds out.
        assert_eq!(goes_on(&[("etag", "\"a\"")], None), [false, true]);
        assert_eq!(goes_on(&[], Some(10)), [false, true]);
        let nothing = Resume::new("u", &headers(&[]), None);
        assert!(nothing.is_of_use(true) && !nothing.is_of_use(false));
        assert!(resume.is_of("u") && !resume.is_of("v"));
    }
}
