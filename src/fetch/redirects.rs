//! One GET, with redirects followed by hand: content may come over https, or over
//! plain http within this machine, and that is to hold for every hop.

use std::time::Duration;

use ureq::http::header::{AUTHORIZATION, LOCATION};
use ureq::http::{HeaderMap, Response, Uri};
use ureq::{Agent, Body};

use super::mask::masked_text;
use super::source::check_transport;
use super::{FetchError, MaskedUrl};

const MOST_REDIRECTS: usize = 10;

pub(super) enum Failure {
    Final(FetchError),
    /// Worth another attempt.
    Transient(FetchError),
}

impl From<FetchError> for Failure {
    fn from(e: FetchError) -> Self {
        Failure::Final(e)
    }
}

#[derive(Clone)]
pub(super) struct Client {
    /// Its proxy comes from the environment: ureq's default.
    https: Agent,
    /// For this machine, and so without a proxy.
    loopback: Agent,
}

impl Client {
    pub fn new(stall_timeout: Duration) -> Self {
        let config = || {
            Agent::config_builder()
                .max_redirects(0)
                .http_status_as_error(false)
                .user_agent(concat!("pplx/", env!("CARGO_PKG_VERSION")))
                // Offsets count the bytes of the file, not of a compressed stream.
                .accept_encoding("identity")
                .timeout_connect(Some(stall_timeout))
                .timeout_recv_response(Some(stall_timeout))
                .timeout_per_read(Some(stall_timeout))
        };
        Self {
            https: config().https_only(true).build().into(),
            loopback: config().proxy(None).build().into(),
        }
    }

    /// The first response that is not a redirect; `see` is shown the headers of each.
    /// An Authorization header goes to the first host only.
    pub fn get(
        &self,
        url: &MaskedUrl,
        headers: &HeaderMap,
        mut see: impl FnMut(&HeaderMap),
    ) -> Result<Response<Body>, Failure> {
        let protocol = |why: String| {
            Failure::Final(FetchError::Protocol {
                url: url.to_string(),
                why,
            })
        };
        let mut headers = headers.clone();
        let mut here = url::Url::parse(url.raw()).map_err(|e| protocol(e.to_string()))?;
        for hop in 0..=MOST_REDIRECTS {
            // The first one to the letter: it may be signed.
            let text = if hop == 0 { url.raw() } else { here.as_str() };
            let uri: Uri = match text.parse() {
                Ok(uri) => uri,
                Err(e) => return Err(protocol(format!("a redirect to no URL ({e})"))),
            };
            let secure = uri.scheme_str() == Some("https");
            let refused = match (hop, check_transport(&uri)) {
                (0, refused) => refused.err(),
                (_, Err(why)) => Some(why),
                (_, Ok(())) if !secure && url.raw().starts_with("https:") => {
                    Some("from https to plain http")
                }
                (_, Ok(())) => None,
            };
            if let Some(why) = refused {
                return Err(protocol(match hop {
                    0 => why.to_owned(),
                    _ => format!(
                        "a redirect to '{}' is not followed: {why}",
                        MaskedUrl::from(here.as_str())
                    ),
                }));
            }
            let agent = if secure { &self.https } else { &self.loopback };
            let mut request = agent.get(uri);
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            let response = request.call().map_err(|e| network(url, &e))?;
            see(response.headers());
            let next = match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION),
                _ => None,
            };
            let Some(next) = next else {
                return Ok(response);
            };
            let next = next.to_str().ok().and_then(|l| here.join(l).ok());
            let Some(next) = next else {
                return Err(protocol("a redirect to no URL".to_owned()));
            };
            if next.origin() != here.origin() {
                headers.remove(AUTHORIZATION);
            }
            here = next;
        }
        Err(protocol(format!("more than {MOST_REDIRECTS} redirects")))
    }
}

fn network(url: &MaskedUrl, error: &ureq::Error) -> Failure {
    let transient = matches!(
        error,
        ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed
    );
    let error = FetchError::Network {
        url: url.to_string(),
        why: masked_text(&error.to_string()),
    };
    match transient {
        true => Failure::Transient(error),
        false => Failure::Final(error),
    }
}
