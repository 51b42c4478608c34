//! [`Target`]: the checked URL of a guest's own request.
//!
//! A [`Target`] exists only if all URL parsers find the same host in the text. The text is checked
//! before a URL parser sees it, the host is parsed as the hosts of secrets are (egress rule R7),
//! and the result is compared with what a URL parser would dial. An IP address is recognised in
//! every notation.

use std::{fmt, net::IpAddr, sync::Arc};

use cofferdam_store::HostName;
use http::{HeaderValue, Uri};
use url::{Host, Url};

use crate::{origin::is_localhost, placeholder};

#[cfg(test)]
mod tests;

/// Length limit of a URL, in bytes.
const URL_BYTES_MAX: usize = 8 * 1024;

/// A checked absolute URL of a guest.
#[derive(Clone, Debug)]
pub struct Target {
    url: Url,
    /// Scheme, host, port, path and query. The same host is dialled, verified by TLS and named in
    /// the request (egress rule R8).
    uri: Uri,
    host: TargetHost,
    /// The authority as the value of the `Host` header.
    host_header: HeaderValue,
    /// Key of this origin's connections in the pool: scheme, host and port.
    key: Arc<str>,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetHost {
    Name(HostName),
    Literal(IpAddr),
}

/// Why a URL is not accepted. The text never repeats the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than 8 KiB.
    #[error("the URL is longer than 8 KiB")]
    TooLong,
    /// The URL has a space, a control character or a backslash. Parsers drop or replace these
    /// characters, each in its own way (egress rule R9).
    #[error("the URL has a space, a control character or a backslash in it")]
    Character,
    /// Not `http://` or `https://`.
    #[error("the URL must begin with https://")]
    Scheme,
    /// The URL has a user name or password, which a reader can mistake for the host
    /// (egress rule R9).
    #[error("a user name or password is not allowed in the URL: use a secret")]
    UserInfo,
    /// Not an exact host name and not an address.
    #[error("the URL has no host name in ASCII: write an international name as xn--")]
    Host,
    /// Not a number from 1 to 65535.
    #[error("the port of the URL must be a number from 1 to 65535")]
    Port,
    /// The URL has the beginning of a placeholder, `{{secret:`. No secret may go into a URL this
    /// way (egress rule R2).
    #[error("a placeholder for a secret is not allowed in a URL")]
    Placeholder,
    /// URL parsers could disagree about it.
    #[error("the URL is malformed")]
    Malformed,
    /// A redirect from `https` to `http` (egress rule R10).
    #[error("a redirect must not leave https")]
    Downgrade,
}

impl Target {
    /// Checks a URL (egress rules R7 to R9, and the scheme of R5). [`crate::Egress::check`] decides
    /// which schemes, ports and addresses are open.
    ///
    /// # Errors
    ///
    /// The first rule that the URL breaks.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let (scheme, authority) = split(url)?;
        let (host, port) = split_port(authority)?;
        let host = TargetHost::parse(host)?;
        let url = Url::parse(url).map_err(|_| TargetError::Malformed)?;
        let port = port.or_else(|| url.port_or_known_default()).ok_or(TargetError::Port)?;
        Self::agreed(url, scheme, host, port)
    }

    /// Compares the host, scheme and port that were read from the text with those of the URL
    /// parser, and builds the request's URI from the parsed URL.
    fn agreed(mut url: Url, scheme: &str, host: TargetHost, port: u16) -> Result<Self, TargetError> {
        let has_same_host = match (&host, url.host()) {
            (TargetHost::Name(ours), Some(Host::Domain(theirs))) => {
                ours.as_str() == theirs.strip_suffix('.').unwrap_or(theirs)
            }
            (TargetHost::Literal(ours), Some(Host::Ipv4(theirs))) => *ours == IpAddr::V4(theirs),
            (TargetHost::Literal(ours), Some(Host::Ipv6(theirs))) => *ours == IpAddr::V6(theirs),
            _ => false,
        };
        if !has_same_host || url.scheme() != scheme || url.port_or_known_default() != Some(port) {
            return Err(TargetError::Malformed);
        }
        // This removes the trailing dot of the host. The fragment is never sent.
        url.set_host(Some(&host.to_string())).map_err(|_| TargetError::Malformed)?;
        url.set_fragment(None);
        // The parser escapes characters, so that the URL may have become three times as long.
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        let uri: Uri = url.as_str().parse().map_err(|_| TargetError::Malformed)?;
        let authority = uri.authority().ok_or(TargetError::Malformed)?;
        let host_header = HeaderValue::from_str(authority.as_str()).map_err(|_| TargetError::Malformed)?;
        let key = Arc::from(format!("{scheme}://{host}:{port}"));
        Ok(Self { url, uri, host, host_header, key, port })
    }

    /// Resolves a `Location` header against this URL. The same checks apply, and `https` never
    /// leads to `http` (egress rule R10).
    ///
    /// # Errors
    ///
    /// Those of [`Target::parse`], and [`TargetError::Downgrade`].
    pub fn redirect(&self, location: &str) -> Result<Self, TargetError> {
        let target = match location.split_once(':') {
            Some((scheme, _)) if is_scheme(scheme) => Self::parse(location)?,
            _ if location.starts_with("//") => Self::parse(&format!("{}:{location}", self.url.scheme()))?,
            _ => {
                check_text(location)?;
                let url = self.url.join(location).map_err(|_| TargetError::Malformed)?;
                Self::agreed(url, self.url.scheme(), self.host.clone(), self.port)?
            }
        };
        if self.is_https() && !target.is_https() {
            return Err(TargetError::Downgrade);
        }
        Ok(target)
    }

    /// The host in canonical form: a name in lower case, or an address (IPv6 in brackets).
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The host if it is a name. `None` for an IP address: no secret is ever bound to one.
    #[must_use]
    pub fn host_name(&self) -> Option<&HostName> {
        match &self.host {
            TargetHost::Name(name) => Some(name),
            TargetHost::Literal(_) => None,
        }
    }

    /// The port, which is the scheme's default if the URL has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the request uses TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The URL as it is requested: canonical, without a fragment and without any secret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Returns whether two URLs have the same scheme, host and port.
    #[must_use]
    pub fn is_same_origin(&self, other: &Self) -> bool {
        self.key == other.key
    }

    pub(crate) fn literal(&self) -> Option<IpAddr> {
        match &self.host {
            TargetHost::Name(_) => None,
            TargetHost::Literal(address) => Some(*address),
        }
    }

    /// Returns whether the host is loopback by its text alone, without asking DNS.
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            TargetHost::Name(name) => is_localhost(name.as_str()),
            TargetHost::Literal(address) => address.to_canonical().is_loopback(),
        }
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns whether the query has a parameter of this name, compared after decoding.
    pub(crate) fn has_query_name(&self, name: &str) -> bool {
        self.url.query_pairs().any(|(taken, _)| taken == name)
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    pub(crate) fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }
}

impl TargetHost {
    fn parse(text: &str) -> Result<Self, TargetError> {
        if let Some(inside) = text.strip_prefix('[') {
            let inside = inside.strip_suffix(']').ok_or(TargetError::Host)?;
            return inside.parse().map(|v6| Self::Literal(IpAddr::V6(v6))).map_err(|_| TargetError::Host);
        }
        // The URL standard reads decimal, octal, hexadecimal and short forms of IPv4 as addresses.
        match Host::parse(text).map_err(|_| TargetError::Host)? {
            Host::Ipv4(address) => Ok(Self::Literal(IpAddr::V4(address))),
            Host::Ipv6(address) => Ok(Self::Literal(IpAddr::V6(address))),
            Host::Domain(_) => text.parse().map(Self::Name).map_err(|_| TargetError::Host),
        }
    }
}

impl fmt::Display for TargetHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name.as_str()),
            Self::Literal(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Literal(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

/// Refuses characters and texts that no part of a URL may have, before a parser drops, replaces or
/// decodes them.
fn check_text(text: &str) -> Result<(), TargetError> {
    if text.len() > URL_BYTES_MAX {
        return Err(TargetError::TooLong);
    }
    if text.chars().any(|character| {
        character.is_control() || character.is_whitespace() || matches!(character, '\\' | '\u{feff}')
    }) {
        return Err(TargetError::Character);
    }
    if placeholder::is_in_url(text) {
        return Err(TargetError::Placeholder);
    }
    Ok(())
}

/// Scheme and authority of the text, without decoding anything.
fn split(text: &str) -> Result<(&'static str, &str), TargetError> {
    check_text(text)?;
    let (scheme, rest) = text.split_once("://").ok_or(TargetError::Scheme)?;
    let scheme = match scheme {
        _ if scheme.eq_ignore_ascii_case("https") => "https",
        _ if scheme.eq_ignore_ascii_case("http") => "http",
        _ => return Err(TargetError::Scheme),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(TargetError::UserInfo);
    }
    // Some parsers decode an encoded character in a host and others do not.
    if authority.is_empty() || authority.contains('%') || !authority.is_ascii() {
        return Err(TargetError::Host);
    }
    Ok((scheme, authority))
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), TargetError> {
    let host_end = if authority.starts_with('[') { authority.find(']').map(|at| at + 1) } else { None };
    let (host, rest) = match host_end.or_else(|| authority.find(':')) {
        Some(end) => authority.split_at(end),
        None => (authority, ""),
    };
    if rest.is_empty() {
        return Ok((host, None));
    }
    let digits = rest.strip_prefix(':').ok_or(TargetError::Host)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TargetError::Port);
    }
    let port = digits.parse().ok().filter(|port| *port != 0).ok_or(TargetError::Port)?;
    Ok((host, Some(port)))
}

/// Returns whether the text before the first colon is a scheme (RFC 3986, 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}
