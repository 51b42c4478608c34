//! The operator's `base_url`: permission for requests to one origin.
//!
//! An [`Origin`] exists only if its scheme, host and credential are allowed together, so they are
//! not checked again per request. The addresses of a name are checked whenever it is resolved. A
//! guest only adds a path.

use std::{net::IpAddr, sync::Arc};

use bytes::{BufMut, BytesMut};
use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery, Scheme as UriScheme},
};
use url::{Host, Url};

use crate::{EgressConfig, PathError, Reason, path, reach::AllowedAddresses};

#[cfg(test)]
mod tests;

/// A checked `base_url`: scheme, host, port and the path that all requests start with.
#[derive(Clone, Debug)]
pub struct Origin {
    scheme: UriScheme,
    /// Canonical: a name in lower case, without the scheme's default port.
    authority: Authority,
    /// The authority as the value of the `Host` header.
    host_header: HeaderValue,
    /// Key of this origin's connections in the pool: scheme and authority.
    key: Arc<str>,
    /// The path of the base URL, with a slash at the end.
    base_path: String,
    host: String,
    port: u16,
    reach: AllowedAddresses,
}

/// Why a `base_url` is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// Not an absolute URL of ASCII characters with a host.
    #[error("not a URL: write scheme, host and path in ASCII, as in https://api.example.com/v1")]
    Malformed,
    /// Neither `http` nor `https`.
    #[error("the scheme must be http or https")]
    Scheme,
    /// The URL has a user name or password. Credentials belong into the vault.
    #[error("a user name or password is not allowed in the URL: use a secret")]
    UserInfo,
    /// The URL has a query. Guests' paths are appended to the URL, so they would become part of the
    /// query.
    #[error("a query is not allowed in the URL")]
    Query,
    /// The URL has a fragment, which would never be sent.
    #[error("a fragment is not allowed in the URL")]
    Fragment,
    /// The URL's path breaks a rule for paths.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The host is the address of a cloud metadata service.
    #[error("metadata addresses are closed, whatever their form")]
    Metadata,
    /// Plain http to a literal address that is neither loopback nor private.
    #[error("http:// is allowed to loopback and private addresses only: write https://")]
    PlaintextAddress,
    /// Plain http with a credential to a host other than loopback.
    #[error("a credential travels over http:// to loopback only: write https://")]
    PlaintextCredential,
    /// Plain http with a credential to loopback, which the configuration does not allow.
    #[error("a credential travels over http:// only with egress.allow_plaintext_loopback = true")]
    PlaintextLoopback,
    /// A host-bound secret and a literal address: secrets are bound to names.
    #[error("a host-bound secret needs a host name, not an address: write localhost for a loopback provider")]
    HostBoundLiteral,
}

impl Origin {
    /// Checks a `base_url`.
    ///
    /// `with_credential`: requests may carry a credential. `host_bound`: the credential may be an
    /// operator's or a workspace's secret, which is released to host names only. A key from the
    /// environment is not host-bound.
    ///
    /// # Errors
    ///
    /// The rule that the URL breaks. The error's text says what to write instead.
    pub fn parse(
        base_url: &str,
        with_credential: bool,
        host_bound: bool,
        config: &EgressConfig,
    ) -> Result<Self, OriginError> {
        let (scheme, authority, base_path) = split(base_url)?;
        let url = Url::parse(base_url).map_err(|_| OriginError::Malformed)?;
        let host = url.host().ok_or(OriginError::Malformed)?;
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(OriginError::Malformed)?;
        let literal = literal(&host);
        // Each host has one notation: without a trailing dot and without an empty port.
        if matches!(host, Host::Domain(name) if name.ends_with('.')) || authority.ends_with(':') {
            return Err(OriginError::Malformed);
        }
        if !matches!(base_path, "" | "/") {
            path::check(base_path)?;
        }
        let reach = match (scheme, with_credential) {
            (Scheme::Https, _) => AllowedAddresses::Anywhere,
            (Scheme::Http, false) => AllowedAddresses::Local,
            (Scheme::Http, true) => AllowedAddresses::Loopback,
        };
        if let Some(address) = literal {
            reach.check(address).map_err(|reason| match reason {
                Reason::Metadata => OriginError::Metadata,
                Reason::Plaintext => OriginError::PlaintextCredential,
                _ => OriginError::PlaintextAddress,
            })?;
        }
        if reach == AllowedAddresses::Loopback && !config.allow_plaintext_loopback {
            // A literal address that passed the check above is loopback. A name is surely loopback
            // only if it is one of the `localhost` names.
            let is_loopback = literal.is_some() || is_localhost(url.host_str().unwrap_or_default());
            return Err(if is_loopback {
                OriginError::PlaintextLoopback
            } else {
                OriginError::PlaintextCredential
            });
        }
        if host_bound && literal.is_some() {
            return Err(OriginError::HostBoundLiteral);
        }
        let base: Uri = url.as_str().parse().map_err(|_| OriginError::Malformed)?;
        let authority = base.authority().cloned().ok_or(OriginError::Malformed)?;
        let path = url.path();
        Ok(Self {
            scheme: base.scheme().cloned().ok_or(OriginError::Malformed)?,
            host_header: HeaderValue::from_str(authority.as_str()).map_err(|_| OriginError::Malformed)?,
            key: Arc::from(format!("{}://{authority}", url.scheme())),
            authority,
            base_path: format!("{}/", path.strip_suffix('/').unwrap_or(path)),
            host: host.to_string(),
            port,
            reach,
        })
    }

    /// Appends a path to the path of the base URL. The path may have a leading slash and a query.
    ///
    /// # Errors
    ///
    /// [`PathError`] for every path that could lead out of the base URL.
    pub fn join(&self, path: &str) -> Result<Uri, PathError> {
        let relative = path::check(path)?;
        let mut text = BytesMut::with_capacity(self.base_path.len() + relative.len());
        text.put_slice(self.base_path.as_bytes());
        text.put_slice(relative.as_bytes());
        // Scheme and authority are copied, not parsed from the joined text: no path can change
        // them.
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        let path_and_query = PathAndQuery::from_maybe_shared(text.freeze());
        parts.path_and_query = Some(path_and_query.map_err(|_| PathError::Character)?);
        Uri::from_parts(parts).map_err(|_| PathError::Character)
    }

    /// The host in canonical form: a name in lower case, or an address (IPv6 in brackets).
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, which is the scheme's default if the URL has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Warnings about a `base_url` that is accepted but may be a mistake.
    pub fn doubts(&self) -> impl Iterator<Item = &'static str> {
        let has_version = self.base_path.split('/').any(is_version);
        let version = "it has no version in its path, such as /v1, and requests go right below it";
        let is_public = self.scheme == UriScheme::HTTP && is_public_name(&self.host);
        let plaintext = "http:// reaches loopback and private addresses only, requests are refused where this name \
                         leads to a public one: write https://";
        [(!has_version, version), (is_public, plaintext)]
            .into_iter()
            .filter_map(|(is_doubtful, doubt)| is_doubtful.then_some(doubt))
    }

    pub(crate) fn reach(&self) -> AllowedAddresses {
        self.reach
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    pub(crate) fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }
}

/// Returns whether a path segment is a version such as `v1`, `v1beta` or `v4`.
fn is_version(segment: &str) -> bool {
    segment
        .strip_prefix(['v', 'V'])
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// Guesses from its text whether a name is public. Names of a local network have no dot, or end in
/// a suffix that is reserved or customary for local use.
fn is_public_name(host: &str) -> bool {
    const LOCAL: [&str; 9] =
        ["localhost", "local", "internal", "lan", "home", "arpa", "test", "intranet", "private"];
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let suffix = host.rsplit_once('.').map(|(_, suffix)| suffix);
    !is_address && suffix.is_some_and(|suffix| !LOCAL.contains(&suffix))
}

#[derive(Clone, Copy)]
enum Scheme {
    Http,
    Https,
}

/// Splits the text before a URL parser sees it. A parser drops tabs and line breaks, turns
/// backslashes into slashes and decodes the host, so its result can differ from the text that was
/// written.
fn split(base_url: &str) -> Result<(Scheme, &str, &str), OriginError> {
    if !base_url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err(OriginError::Malformed);
    }
    let (scheme, rest) = base_url.split_once("://").ok_or(OriginError::Malformed)?;
    let scheme = match scheme {
        _ if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
        _ if scheme.eq_ignore_ascii_case("http") => Scheme::Http,
        _ => return Err(OriginError::Scheme),
    };
    if rest.contains('#') {
        return Err(OriginError::Fragment);
    }
    if rest.contains('?') {
        return Err(OriginError::Query);
    }
    let (authority, base_path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(OriginError::UserInfo);
    }
    if authority.is_empty() || authority.contains('%') {
        return Err(OriginError::Malformed);
    }
    Ok((scheme, authority, base_path))
}

/// Returns whether a name is `localhost` or below it. Such names always mean loopback (RFC 6761,
/// 6.3).
pub(crate) fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

fn literal(host: &Host<&str>) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
    }
}
