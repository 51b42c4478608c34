//! The domains that a client lets a tool reach: `allowed_domains` and `blocked_domains`. They
//! can only narrow the operator's grant.

use url::{Host, Url};

use super::fields::Fields;
use crate::bindings::tools::ToolError;

/// The largest number of entries in one list.
const ENTRIES_MAX: usize = 100;

/// One entry: a domain, and optionally a path prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    domain: String,
    /// The segments of the prefix; empty when every path matches.
    path: Vec<String>,
}

/// The allowed and the blocked domains in a tool's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainRules {
    /// When empty, every domain is allowed.
    allowed: Vec<Entry>,
    blocked: Vec<Entry>,
}

impl DomainRules {
    /// Reads `allowed_domains` and `blocked_domains`: lists of entries such as `example.com` or
    /// `example.com/docs`. An entry covers the domain and its subdomains.
    ///
    /// # Errors
    ///
    /// Invalid settings, when an entry is not a domain.
    pub fn read(settings: &Fields) -> Result<Self, ToolError> {
        Self::read_lists(settings, "allowed_domains", "blocked_domains")
    }

    /// Reads the same rules from fields with these names.
    ///
    /// # Errors
    ///
    /// Invalid settings, when an entry is not a domain.
    pub fn read_lists(settings: &Fields, allowed: &str, blocked: &str) -> Result<Self, ToolError> {
        Ok(Self { allowed: entries(settings, allowed)?, blocked: entries(settings, blocked)? })
    }

    /// The entries of the allowed and of the blocked list in normal form: `example.com/docs`.
    #[must_use]
    pub fn lists(&self) -> (Vec<String>, Vec<String>) {
        let written = |entries: &[Entry]| entries.iter().map(Entry::written).collect();
        (written(&self.allowed), written(&self.blocked))
    }

    /// Whether there are no rules, so that every URL passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.blocked.is_empty()
    }

    /// Whether this URL passes: the allowed list is empty or covers it, and the blocked list does not
    /// cover it.
    #[must_use]
    pub fn pass(&self, url: &Url) -> bool {
        let Some(Host::Domain(domain)) = url.host() else { return self.is_empty() };
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        let on = |entries: &[Entry]| entries.iter().any(|entry| entry.covers(domain, url.path()));
        // The server may decode an encoded slash or letter and see another path than this check. Such
        // a path fails wherever an entry for its domain names a path, on either list.
        (self.allowed.is_empty() || on(&self.allowed))
            && !on(&self.blocked)
            && !(is_ambiguous(url.path()) && self.names_paths_of(domain))
    }

    fn names_paths_of(&self, domain: &str) -> bool {
        let mut entries = self.allowed.iter().chain(&self.blocked);
        entries.any(|entry| !entry.path.is_empty() && entry.covers_domain(domain))
    }
}

impl Entry {
    fn written(&self) -> String {
        let parts = std::iter::once(&self.domain).chain(&self.path);
        parts.map(String::as_str).collect::<Vec<_>>().join("/")
    }

    fn covers_domain(&self, domain: &str) -> bool {
        domain.strip_suffix(&self.domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    fn covers(&self, domain: &str, path: &str) -> bool {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        self.covers_domain(domain)
            && self.path.iter().all(|wanted| segments.next().is_some_and(|segment| segment == wanted))
    }
}

/// Whether the path encodes a character that needs no encoding: `%70rivate` is `private` for the
/// server.
fn is_ambiguous(path: &str) -> bool {
    let mut codes = path.split('%').skip(1).filter_map(|rest| u8::from_str_radix(rest.get(..2)?, 16).ok());
    codes.any(|byte| byte.is_ascii_graphic() && !br#""<>`{}#?"#.contains(&byte))
}

fn entries(settings: &Fields, name: &str) -> Result<Vec<Entry>, ToolError> {
    let texts = settings.texts(name, ENTRIES_MAX)?.unwrap_or_default();
    let read = |text| {
        entry(text).ok_or_else(|| {
            settings
                .wrong(name, "takes domains such as example.com or example.com/docs, without scheme or port")
        })
    };
    texts.into_iter().map(read).collect()
}

fn entry(text: &str) -> Option<Entry> {
    let (domain, path) = text.split_once('/').unwrap_or((text, ""));
    if domain.is_empty()
        || domain.contains([':', '@', '*', '?', '#', '\\', '%'])
        || path.contains(['?', '#', '\\'])
    {
        return None;
    }
    // Parsed with the same library as the URLs that it is compared with.
    let url = Url::parse(&format!("https://{domain}/{path}")).ok()?;
    let Some(Host::Domain(domain)) = url.host() else { return None };
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let path: Vec<_> =
        url.path().split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
    (!is_ambiguous(url.path())).then(|| Entry { domain: domain.to_owned(), path })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(json: &str) -> Result<DomainRules, ToolError> {
        DomainRules::read(&Fields::settings(json.as_bytes()).unwrap())
    }

    fn passes(json: &str, url: &str) -> bool {
        rules(json).unwrap().pass(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_domain_means_itself_and_its_subdomains() {
        let allowed = r#"{"allowed_domains":["Example.com","bücher.example"]}"#;
        for url in [
            "https://example.com/",
            "https://a.b.example.com/x",
            "https://example.com./",
            "https://bücher.example",
        ] {
            assert!(passes(allowed, url), "{url}");
        }
        for url in ["https://evilexample.com/", "https://example.com.evil.net/", "https://example.org/"] {
            assert!(!passes(allowed, url), "{url}");
        }
        let blocked = r#"{"blocked_domains":["example.com"]}"#;
        assert!(!passes(blocked, "https://www.example.com/"));
        assert!(passes(blocked, "https://example.org/"));
        assert!(passes("{}", "https://example.org/"));
    }

    #[test]
    fn a_path_means_whole_segments() {
        let allowed = r#"{"allowed_domains":["example.com/docs/v1/"]}"#;
        for (url, pass) in [
            ("https://example.com/docs/v1", true),
            ("https://example.com/docs/v1/page?q=1", true),
            ("https://example.com/docs//v1/page", true),
            ("https://example.com/docs/v12", false),
            ("https://example.com/docs", false),
            ("https://example.com/docs/v1/../v2", false),
            ("https://example.com/docs/v1/%2e%2e/v2", false),
            ("https://example.com/docs/v1/..%2fv2", false),
        ] {
            assert_eq!(passes(allowed, url), pass, "{url}");
        }
        let blocked = r#"{"blocked_domains":["example.com/private"]}"#;
        assert!(!passes(blocked, "https://example.com/private/x"));
        assert!(!passes(blocked, "https://example.com/a%2f..%2fprivate"));
        assert!(!passes(blocked, "https://example.com/%70rivate/x"));
        assert!(passes(blocked, "https://example.com/public"));
    }

    #[test]
    fn blocked_wins_over_allowed() {
        let both = r#"{"allowed_domains":["example.com"],"blocked_domains":["bad.example.com"]}"#;
        assert!(passes(both, "https://good.example.com/") && !passes(both, "https://x.bad.example.com/"));
    }

    #[test]
    fn entries_that_are_no_domains_are_refused() {
        for entry in
            ["https://example.com", "example.com:443", "*.example.com", "127.0.0.1", "", "a@b", "/x", "a?b"]
        {
            let json = serde_json::json!({ "allowed_domains": [entry] }).to_string();
            assert!(matches!(rules(&json), Err(ToolError::InvalidSettings(_))), "{entry:?}");
        }
        assert!(rules(r#"{"blocked_domains":"example.com"}"#).is_err());
    }

    proptest! {
        #[test]
        fn entries_never_panic(text in "\\PC{0,40}") {
            if let Some(entry) = entry(&text) {
                prop_assert!(entry.covers_domain(&entry.domain));
            }
        }
    }
}
