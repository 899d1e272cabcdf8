//! Credentials in URLs are for servers. Messages show URLs without them.

use std::fmt;

/// What stands for userinfo, and for a query or fragment.
const USERINFO: &str = "***@";
const QUERY: &str = "?…";

/// A URL whose `Display` and `Debug` leave out userinfo, query and fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct MaskedUrl(String);

impl MaskedUrl {
    /// The URL as a server needs it. Not for messages.
    pub fn raw(&self) -> &str {
        &self.0
    }
}

impl From<&str> for MaskedUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl fmt::Display for MaskedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask_url(&self.0))
    }
}

impl fmt::Debug for MaskedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", mask_url(&self.0))
    }
}

/// A source as a message may show it, well-formed or not:
/// `https://***@host/path?…`.
pub fn masked_source(text: &str) -> String {
    mask_url(text)
}

/// A message of ours, with the URLs in it masked: whoever gives one as a path is told
/// that there is no such file.
pub fn masked_urls(text: &str) -> String {
    mask_words(text, |word| word.contains("://"))
}

/// What another program or library said, with the URLs in it masked.
pub(super) fn masked_text(text: &str) -> String {
    mask_words(text, |word| {
        // Paths of requests come with their query, but without a host.
        let has_query = word.starts_with('/') && word.contains('?');
        word.contains("://") || word.contains('@') || has_query
    })
}

fn mask_words(text: &str, is_url: impl Fn(&str) -> bool) -> String {
    let is_end = |c: char| c.is_whitespace() || "'\"`<>".contains(c);
    text.split_inclusive(is_end)
        .map(|piece| {
            let word = piece.trim_end_matches(is_end);
            match is_url(word) {
                true => mask_url(word) + &piece[word.len()..],
                false => piece.to_owned(),
            }
        })
        .collect()
}

fn mask_url(text: &str) -> String {
    let (scheme, rest) = match text.find("://") {
        Some(at) => text.split_at(at + 3),
        None => ("", text),
    };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..authority];
    let (shown, rest) = match authority.rfind('@') {
        Some(at) if !scheme.is_empty() || authority[..at].contains(':') => {
            (USERINFO, &rest[at + 1..])
        }
        // A password with a '/', '?' or '#' in it is not part of a well-formed URL.
        None if !scheme.is_empty() && !is_host(authority) => match rest.rfind('@') {
            Some(at) => (USERINFO, &rest[at + 1..]),
            None => ("***", ""),
        },
        _ => ("", rest),
    };
    let (path, query) = match rest.find(['?', '#']) {
        Some(at) => (&rest[..at], QUERY),
        None => (rest, ""),
    };
    let path = match path.contains("://") {
        true => mask_url(path),
        false => path.to_owned(),
    };
    format!("{scheme}{shown}{path}{query}")
}

/// Whether it looks like `host`, `host:80` or `[::1]:80`.
fn is_host(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let is_address = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let bracketed = authority.starts_with('[');
    (!bracketed || host.chars().all(is_address)) && port.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_show_without_secrets() {
        for (url, shown) in [
            ("https://h/p", "https://h/p"),
            ("https://h:80/p@v1", "https://h:80/p@v1"),
            ("http://[::1]:80/x", "http://[::1]:80/x"),
            ("https://user:s3cret@h/p", "https://***@h/p"),
            ("https://s3cret@h/p", "https://***@h/p"),
            ("https://user:s3@cret@h/p", "https://***@h/p"),
            ("https://h/p?token=s3cret", "https://h/p?…"),
            ("https://h?token=s3cret", "https://h?…"),
            ("https://h/p#s3cret", "https://h/p?…"),
            // Malformed ones, too.
            ("https://user:s3/cret@h/p", "https://***@h/p"),
            ("https://user:s3?cret@h/p", "https://***@h/p"),
            ("https://user:s3 cret@h/p", "https://***@h/p"),
            ("https://user:s3cret", "https://***"),
            ("https://:s3]?@h", "https://***@h"),
            ("https://[s3]?@h", "https://***@h"),
            ("HTTPS://user:s3cret@h", "HTTPS://***@h"),
            ("ftp://user:s3cret@h", "ftp://***@h"),
            ("user:s3cret@h/p", "***@h/p"),
            (
                "https://h/to/https://user:s3cret@h2/p",
                "https://h/to/https://***@h2/p",
            ),
            ("hf:o/r/f?token=s3cret", "hf:o/r/f?…"),
            ("hf:o/r/d/f@v1", "hf:o/r/d/f@v1"),
            ("pypi:a==1/b", "pypi:a==1/b"),
            ("", ""),
            ("://", "://"),
            ("@", "@"),
        ] {
            assert_eq!(mask_url(url), shown);
            assert_eq!(MaskedUrl::from(url).to_string(), shown);
            assert!(
                !format!("{:?}", MaskedUrl::from(url)).contains("s3"),
                "{url}"
            );
        }
        assert_eq!(MaskedUrl::from("https://u:p@h/").raw(), "https://u:p@h/");
    }

    #[test]
    fn what_others_say_is_shown_without_secrets() {
        let said = "Looking in indexes: https://me:s3cret@h/simple\n\
                    ERROR: HTTPSConnectionPool(host='h'): url: /simple/x?token=s3cret (proxy \
                    'http://p:s3cret@proxy:3128', me:s3cret@h2)\n  caf\u{e9}  x@y.z == 1 ? 2";
        let shown = "Looking in indexes: https://***@h/simple\n\
                     ERROR: HTTPSConnectionPool(host='h'): url: /simple/x?… (proxy \
                     'http://***@proxy:3128', ***@h2)\n  caf\u{e9}  x@y.z == 1 ? 2";
        assert_eq!(masked_text(said), shown);
        assert_eq!(masked_text(""), "");
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in "[a:/@?# \\[\\]é'.]{0,24}") {
            mask_url(&text);
            masked_text(&text);
        }

        #[test]
        fn no_password_is_shown(user in "[a-z]{0,4}", password in "[!-~]{0,12}", path in "[a-z/]{0,8}") {
            let secret = format!("S3{password}");
            // What is no URL by itself may look like the end of one.
            proptest::prop_assume!(!secret.contains("://"));
            let shown = mask_url(&format!("https://{user}:{secret}@host/{path}"));
            proptest::prop_assert!(!shown.contains("S3"), "{}", shown);
        }
    }
}
