//! Downloads over HTTP(S) that go on where they broke.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, StatusCode};
use ureq::{Agent, Body};

use super::{FetchError, Transfer};

/// Bytes that an attempt has to gain to count as one that got somewhere.
const WORTHWHILE: u64 = 1 << 20;

/// What is remembered beside an unfinished download, to resume it safely.
#[derive(Default, Serialize, Deserialize)]
struct Resume {
    url: String,
    /// A strong ETag, else the date of the last change: the server sends the
    /// rest only if this still holds (If-Range, RFC 9110 section 13.1.5).
    validator: Option<String>,
}

/// Downloads `url` to `transfer.part`.
pub(super) fn download(url: &str, transfer: &Transfer) -> Result<(), FetchError> {
    let download = Download {
        url,
        transfer,
        resume_file: transfer.part.with_extension("resume.json"),
        agent: agent(url, transfer.options.stall_timeout),
    };
    let mut fruitless = 0;
    loop {
        let before = download.present();
        let failure = match download.attempt() {
            Ok(()) => return Ok(()),
            Err(Failure::Final(e)) => return Err(e),
            Err(Failure::Transient(e)) => e,
        };
        if download.present() >= before + WORTHWHILE {
            fruitless = 0;
        }
        fruitless += 1;
        if fruitless >= transfer.options.attempts {
            return Err(failure);
        }
        transfer
            .progress
            .note(&format!("{failure}; trying once more"));
        std::thread::sleep(transfer.options.retry_delay * 2u32.pow((fruitless - 1).min(6)));
    }
}

fn agent(url: &str, stall_timeout: Duration) -> Agent {
    // The proxy comes from the environment: ureq's default.
    Agent::config_builder()
        .https_only(url.starts_with("https:"))
        .http_status_as_error(false)
        .user_agent(concat!("pplx/", env!("CARGO_PKG_VERSION")))
        // Offsets count the bytes of the file, not of a compressed stream.
        .accept_encoding("identity")
        .timeout_connect(Some(stall_timeout))
        .timeout_recv_response(Some(stall_timeout))
        .timeout_per_read(Some(stall_timeout))
        .build()
        .into()
}

enum Failure {
    Final(FetchError),
    /// Worth another attempt.
    Transient(FetchError),
}

struct Download<'a> {
    url: &'a str,
    transfer: &'a Transfer<'a>,
    resume_file: PathBuf,
    agent: Agent,
}

impl Download<'_> {
    fn present(&self) -> u64 {
        self.transfer.part.metadata().map_or(0, |m| m.len())
    }

    fn attempt(&self) -> Result<(), Failure> {
        let resume = self.load_resume();
        let mut start = self.present();
        // Joining the bytes of two versions of a file must be impossible, or be
        // found out.
        if resume.url != self.url || (resume.validator.is_none() && !self.transfer.hashed) {
            start = 0;
        }
        let response = self.request(start, resume.validator.as_deref())?;
        let (head, body) = response.into_parts();
        let length = number(head.headers.get("content-length"));
        let total = match head.status {
            StatusCode::OK => {
                start = 0;
                length
            }
            StatusCode::PARTIAL_CONTENT => {
                let (from, total) = content_range(&head.headers).unwrap_or((None, None));
                if start == 0 || from != Some(start) {
                    return Err(Failure::Final(self.protocol(
                        "the server sent another range of bytes than the one asked for",
                    )));
                }
                total.or_else(|| length.and_then(|n| n.checked_add(start)))
            }
            StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => {
                // Nothing is missing, or what is there is of no use.
                if content_range(&head.headers) == Some((None, Some(start))) {
                    return self.finish();
                }
                self.forget()?;
                return self.attempt();
            }
            status => return Err(self.status(status)),
        };
        if head.headers.contains_key("content-encoding") {
            return Err(Failure::Final(
                self.protocol("the server insists on compressing the file"),
            ));
        }
        let chunked = head.headers.contains_key("transfer-encoding");
        if total.is_none() && !chunked && !self.transfer.hashed {
            return Err(Failure::Final(self.protocol(
                "the server does not say how long the file is, so that a broken download would \
                 look like a whole one; give the file's sha256",
            )));
        }
        self.save_resume(validator(&head.headers))?;
        self.copy(body, start, total)?;
        self.finish()
    }

    fn request(
        &self,
        start: u64,
        validator: Option<&str>,
    ) -> Result<ureq::http::Response<Body>, Failure> {
        let mut request = self.agent.get(self.url);
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
            if let Some(validator) = validator {
                request = request.header("If-Range", validator);
            }
        }
        request.call().map_err(|e| {
            let transient = matches!(
                e,
                ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed
            );
            let error = FetchError::Network {
                url: self.url.to_owned(),
                why: e.to_string(),
            };
            match transient {
                true => Failure::Transient(error),
                false => Failure::Final(error),
            }
        })
    }

    fn copy(&self, body: Body, start: u64, total: Option<u64>) -> Result<(), Failure> {
        let Transfer {
            label,
            part,
            progress,
            ..
        } = *self.transfer;
        let io = |doing| move |e| Failure::Final(FetchError::io(doing, part, e));
        let open = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(start == 0)
            .open(part);
        let mut file = open.map_err(io("create"))?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(start)).map_err(io("write"))?;
        progress.begin(label, total);
        progress.at(start);
        let mut reader = body.into_reader();
        let mut buffer = vec![0; 256 << 10];
        let mut done = start;
        let why = loop {
            match reader.read(&mut buffer) {
                Ok(0) if total.is_none_or(|total| done == total) => break None,
                Ok(0) => break Some("the server closed it".to_owned()),
                Ok(n) => {
                    file.write_all(&buffer[..n]).map_err(io("write"))?;
                    done += n as u64;
                    progress.at(done);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => break Some(e.to_string()),
            }
        };
        match why {
            None => {
                progress.end();
                Ok(())
            }
            Some(why) => Err(Failure::Transient(FetchError::Broken {
                url: self.url.to_owned(),
                done,
                total,
                why,
            })),
        }
    }

    fn load_resume(&self) -> Resume {
        // Without it, or with a damaged one, the download starts anew.
        std::fs::read(&self.resume_file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    fn save_resume(&self, validator: Option<String>) -> Result<(), Failure> {
        let resume = Resume {
            url: self.url.to_owned(),
            validator,
        };
        let error = |e| Failure::Final(FetchError::io("write", &self.resume_file, e));
        let file = File::create(&self.resume_file).map_err(error)?;
        serde_json::to_writer(file, &resume).map_err(|e| error(e.into()))
    }

    /// Throws away what was downloaded so far.
    fn forget(&self) -> Result<(), Failure> {
        let part = self.transfer.part;
        std::fs::remove_file(part).map_err(|e| Failure::Final(FetchError::io("remove", part, e)))
    }

    fn finish(&self) -> Result<(), Failure> {
        std::fs::remove_file(&self.resume_file)
            .map_err(|e| Failure::Final(FetchError::io("remove", &self.resume_file, e)))
    }

    fn protocol(&self, why: &str) -> FetchError {
        FetchError::Protocol {
            url: self.url.to_owned(),
            why: why.to_owned(),
        }
    }

    fn status(&self, status: StatusCode) -> Failure {
        let error = FetchError::Status {
            url: self.url.to_owned(),
            status: status.as_u16(),
        };
        match status.as_u16() {
            408 | 429 | 500 | 502 | 503 | 504 => Failure::Transient(error),
            _ => Failure::Final(error),
        }
    }
}

fn number(value: Option<&ureq::http::HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}

/// A value that changes whenever the file does, as If-Range takes it. A weak
/// ETag says too little for that.
fn validator(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
    let strong = text("etag").filter(|tag| tag.starts_with('"'));
    strong.or_else(|| text("last-modified")).map(str::to_owned)
}

/// First byte and total size of `bytes 5-9/10`, `bytes */10` or `bytes 5-9/*`.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let value = headers.get("content-range")?.to_str().ok()?;
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let first = range.split('-').next()?.trim().parse().ok();
    Some((first, total.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_with_care() {
        let headers = |name: &'static str, value: &str| {
            let mut h = HeaderMap::new();
            h.insert(name, value.parse().unwrap());
            h
        };
        let range = |v: &str| content_range(&headers("content-range", v));
        assert_eq!(range("bytes 5-9/10"), Some((Some(5), Some(10))));
        assert_eq!(range("bytes */10"), Some((None, Some(10))));
        assert_eq!(range("bytes 5-9/*"), Some((Some(5), None)));
        assert_eq!(range("items 5-9/10"), None);
        assert_eq!(range("bytes 5-9"), None);
        let tag = |v: &str| validator(&headers("etag", v));
        assert_eq!(tag("\"abc\""), Some("\"abc\"".to_owned()));
        assert_eq!(tag("W/\"abc\""), None);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(
            validator(&headers("last-modified", date)),
            Some(date.to_owned())
        );
    }
}
