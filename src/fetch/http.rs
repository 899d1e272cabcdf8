//! Downloads over HTTP(S) that go on where they broke.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};

use ureq::http::header::{IF_RANGE, RANGE};
use ureq::http::{HeaderMap, HeaderValue, StatusCode, response};

use super::background::{Background, pause};
use super::mask::masked_text;
use super::redirects::{Client, Failure};
use super::resume::Resume;
use super::{FetchError, MaskedUrl, Transfer, store};

/// Bytes beyond the most there ever were that an attempt has to gain to count as
/// one that got somewhere.
const WORTHWHILE: u64 = 1 << 20;

/// Downloads `url` to `transfer.part`. Says whether its beginning may be of another
/// version than its end: where the server names no versions, only a hash can tell.
pub(super) fn download(url: &MaskedUrl, transfer: &Transfer) -> Result<bool, FetchError> {
    let download = Download {
        url,
        transfer,
        client: Client::new(transfer.options.stall_timeout),
        went_on: Cell::new(false),
        doubtful: Cell::new(false),
    };
    let (mut fruitless, mut reached) = (0, download.present());
    loop {
        let failure = match download.attempt() {
            Ok(()) => return Ok(download.doubtful.get()),
            Err(Failure::Final(e)) => return Err(e),
            Err(Failure::Transient(e)) => e,
        };
        // A server that begins anew each time gains nothing, however far it gets.
        let present = download.present();
        if download.went_on.get() && present >= reached.saturating_add(WORTHWHILE) {
            fruitless = 0;
        }
        reached = reached.max(present);
        fruitless += 1;
        if fruitless >= transfer.options.attempts {
            return Err(failure);
        }
        transfer
            .progress
            .note(&format!("{failure}; trying once more"));
        let delay = transfer.options.retry_delay;
        let delay = delay.saturating_mul(2u32.pow((fruitless - 1).min(6)));
        pause(delay, transfer.options)?;
    }
}

struct Download<'a> {
    url: &'a MaskedUrl,
    transfer: &'a Transfer<'a>,
    client: Client,
    /// The last attempt added to what was there.
    went_on: Cell<bool>,
    doubtful: Cell<bool>,
}

/// What the thread that talks with the server yields.
enum Event {
    Head(Box<response::Parts>),
    Data(Vec<u8>),
    End,
    Failed(Failure),
    /// In the body.
    Broke(String),
}

type Body = Background<Event>;

impl Download<'_> {
    fn present(&self) -> u64 {
        self.transfer.part.metadata().map_or(0, |m| m.len())
    }

    fn attempt(&self) -> Result<(), Failure> {
        let Transfer { part, hashed, .. } = *self.transfer;
        self.went_on.set(false);
        // Without it, or with a damaged one, the download starts anew.
        let resume = Resume::load(part).filter(|r| r.is_of(self.url.raw()) && r.is_of_use(hashed));
        let start = self.present();
        if let Some(resume) = resume
            && start > 0
            && resume.total.is_none_or(|total| start <= total)
        {
            let (head, body) = self.request(start, Some(&resume))?;
            let range = ContentRange::of(&head.headers);
            match head.status {
                StatusCode::PARTIAL_CONTENT => {
                    let range = range.filter(|r| r.is_whole_from(start, &head.headers));
                    let total = range.and_then(|r| r.total);
                    if range.is_some() && resume.is_continued_by(&head.headers, total, hashed) {
                        self.went_on.set(true);
                        if resume.validator.is_none() {
                            self.doubtful.set(true);
                        }
                        let total = total.or(resume.total);
                        self.check_encoding(&head)?;
                        return self.copy(&body, start, total);
                    }
                }
                StatusCode::RANGE_NOT_SATISFIABLE => {
                    // Nothing is missing, or what is there is of no use.
                    let now = range.and_then(|r| r.total);
                    let complete = resume.total == Some(start)
                        || (hashed && resume.total.is_none() && now == Some(start));
                    if complete && now.is_none_or(|now| now == start) {
                        return Ok(());
                    }
                }
                StatusCode::OK => return self.expect_whole(&head, &body),
                status => return Err(self.status(status)),
            }
        }
        let (head, body) = self.request(0, None)?;
        match head.status {
            StatusCode::OK => self.expect_whole(&head, &body),
            StatusCode::PARTIAL_CONTENT => {
                Err(self.protocol("the server sent another range of bytes than the one asked for"))
            }
            status => Err(self.status(status)),
        }
    }

    fn expect_whole(&self, head: &response::Parts, body: &Body) -> Result<(), Failure> {
        let Transfer { part, hashed, .. } = *self.transfer;
        self.check_encoding(head)?;
        let chunked = head.headers.contains_key("transfer-encoding");
        // A body in chunks says itself where it ends.
        let total = number(head.headers.get("content-length")).filter(|_| !chunked);
        if total.is_none() && !chunked && !hashed {
            return Err(self.protocol(
                "the server does not say how long the file is, so that a broken download would \
                 look like a whole one; give the file's sha256",
            ));
        }
        // In this order: killed in between, no bytes of another version are left
        // beside the note that says of which version they are.
        let io = |doing| move |e| Failure::Final(FetchError::io(doing, part, e));
        match std::fs::remove_file(Resume::file(part)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io("begin")(e)),
            _ => {}
        }
        std::fs::File::create(part).map_err(io("create"))?;
        let resume = Resume::new(self.url.raw(), &head.headers, total);
        let ranges = head.headers.get("accept-ranges");
        let without_ranges = ranges.is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"none"));
        if resume.is_of_use(hashed) && !without_ranges {
            resume.save(part).map_err(io("write a note beside"))?;
        }
        self.copy(body, 0, total)
    }

    /// The head of the server's response; the body follows it.
    fn request(
        &self,
        start: u64,
        resume: Option<&Resume>,
    ) -> Result<(response::Parts, Body), Failure> {
        let mut headers = HeaderMap::new();
        if start > 0 {
            let range = format!("bytes={start}-");
            let validator = resume.and_then(|r| r.validator.as_ref());
            let validator = validator.map(|v| v.value.clone());
            let fields = [(RANGE, Some(range)), (IF_RANGE, validator)];
            for (name, value) in fields {
                if let Some(value) = value.and_then(|v| HeaderValue::try_from(v).ok()) {
                    headers.insert(name, value);
                }
            }
        }
        let (client, url) = (self.client.clone(), self.url.clone());
        let body = Background::start(move |out| {
            let response = match client.get(&url, &headers, |_| {}) {
                Ok(response) => response,
                Err(e) => return drop(out.send(Event::Failed(e))),
            };
            let (head, body) = response.into_parts();
            if out.send(Event::Head(Box::new(head))).is_err() {
                return;
            }
            let mut reader = body.into_reader();
            loop {
                let mut buffer = vec![0; 256 << 10];
                let event = match reader.read(&mut buffer) {
                    Ok(0) => Event::End,
                    Ok(n) => {
                        buffer.truncate(n);
                        Event::Data(buffer)
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => Event::Broke(masked_text(&e.to_string())),
                };
                let last = !matches!(event, Event::Data(_));
                if out.send(event).is_err() || last {
                    return;
                }
            }
        });
        let body = body.map_err(|e| self.network(&format!("no thread for it ({e})")))?;
        match body.next(self.transfer.options)? {
            Some(Event::Head(head)) => Ok((*head, body)),
            Some(Event::Failed(e)) => Err(e),
            _ => Err(self.network("the response broke off")),
        }
    }

    fn copy(&self, body: &Body, start: u64, total: Option<u64>) -> Result<(), Failure> {
        let Transfer {
            label,
            part,
            progress,
            options,
            ..
        } = *self.transfer;
        let io = |doing| move |e| Failure::Final(FetchError::io(doing, part, e));
        if let Some(total) = total {
            store::check_room(part, total.saturating_sub(start))?;
        }
        let open = OpenOptions::new().write(true).open(part);
        let mut file = open.map_err(io("open"))?;
        file.seek(SeekFrom::Start(start)).map_err(io("write"))?;
        progress.begin(label, total);
        progress.at(start);
        let mut done = start;
        let why = loop {
            match body.next(options)? {
                Some(Event::Data(bytes)) => {
                    done += bytes.len() as u64;
                    if total.is_some_and(|total| done > total) {
                        // None of it can be trusted.
                        std::fs::remove_file(Resume::file(part)).ok();
                        let why = "the server sends more than it said the file has";
                        return Err(self.protocol(why));
                    }
                    file.write_all(&bytes).map_err(io("write"))?;
                    progress.at(done);
                }
                Some(Event::End) if total.is_none_or(|total| done == total) => break None,
                Some(Event::Broke(why)) => break Some(why),
                _ => break Some("the server closed it".to_owned()),
            }
        };
        match why {
            None => {
                progress.end();
                Ok(())
            }
            Some(why) => Err(Failure::Transient(FetchError::Broken {
                url: self.url.to_string(),
                done,
                total,
                why,
            })),
        }
    }

    fn check_encoding(&self, head: &response::Parts) -> Result<(), Failure> {
        match head.headers.get("content-encoding") {
            Some(e) if !e.as_bytes().eq_ignore_ascii_case(b"identity") => {
                Err(self.protocol("the server insists on compressing the file"))
            }
            _ => Ok(()),
        }
    }

    fn protocol(&self, why: &str) -> Failure {
        Failure::Final(FetchError::Protocol {
            url: self.url.to_string(),
            why: why.to_owned(),
        })
    }

    fn network(&self, why: &str) -> Failure {
        Failure::Transient(FetchError::Network {
            url: self.url.to_string(),
            why: why.to_owned(),
        })
    }

    fn status(&self, status: StatusCode) -> Failure {
        let error = FetchError::Status {
            url: self.url.to_string(),
            status: status.as_u16(),
        };
        match status.as_u16() {
            408 | 429 | 500 | 502 | 503 | 504 => Failure::Transient(error),
            _ => Failure::Final(error),
        }
    }
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}

/// `bytes 5-9/10`, `bytes */10` or `bytes 5-9/*`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ContentRange {
    /// First and last byte.
    range: Option<(u64, u64)>,
    total: Option<u64>,
}

impl ContentRange {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get("content-range")?.to_str().ok()?;
        let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
        let ends = range.split_once('-');
        let range = ends.and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
        Some(Self {
            range,
            total: total.trim().parse().ok(),
        })
    }

    /// Whether it begins at `start` and its numbers, and the length of the body,
    /// agree.
    fn is_whole_from(self, start: u64, headers: &HeaderMap) -> bool {
        let Some((first, last)) = self.range else {
            return false;
        };
        let length = number(headers.get("content-length"));
        first == start
            && last >= first
            && self.total.is_none_or(|total| last < total)
            && length.is_none_or(|n| n.checked_sub(1) == Some(last - first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_care() {
        let headers = |v: &str, length: Option<&str>| {
            let mut h = HeaderMap::new();
            h.insert("content-range", v.parse().unwrap());
            if let Some(length) = length {
                h.insert("content-length", length.parse().unwrap());
            }
            h
        };
        let range = |v: &str| ContentRange::of(&headers(v, None)).map(|r| (r.range, r.total));
        assert_eq!(range("bytes 5-9/10"), Some((Some((5, 9)), Some(10))));
        assert_eq!(range("bytes */10"), Some((None, Some(10))));
        assert_eq!(range("bytes 5-9/*"), Some((Some((5, 9)), None)));
        assert_eq!(range("bytes -9/10"), Some((None, Some(10))));
        assert_eq!(range("items 5-9/10"), None);
        assert_eq!(range("bytes 5-9"), None);
        let whole = |v: &str, length| {
            let h = headers(v, length);
            ContentRange::of(&h).is_some_and(|r| r.is_whole_from(5, &h))
        };
        assert!(whole("bytes 5-9/10", None) && whole("bytes 5-9/10", Some("5")));
        assert!(whole("bytes 5-7/10", None) && whole("bytes 5-9/*", None));
        for (v, length) in [
            ("bytes 4-9/10", None),
            ("bytes 6-9/10", None),
            ("bytes 5-9/10", Some("6")),
            ("bytes 5-10/10", None),
            ("bytes 5-4/10", None),
            ("bytes 5-18446744073709551615/*", Some("0")),
            ("bytes */10", None),
        ] {
            assert!(!whole(v, length), "{v}");
        }
    }
}
