//! The URL of a guest's own request.
//!
//! A [`Target`] exists only if everybody who reads the URL reads the same host in it: the text is looked at
//! before any URL parser sees it, the host goes through the one parser that secrets' hosts go through, and
//! what a URL parser would dial is compared with it. An address is told from a name however it is spelled.

use std::{fmt, net::IpAddr, sync::Arc};

use cofferdam_store::HostName;
use http::{HeaderValue, Uri};
use url::{Host, Url};

use crate::{origin::is_localhost, placeholder};

#[cfg(test)]
mod tests;

/// The longest URL, in bytes.
const URL_BYTES_MAX: usize = 8 * 1024;

/// A checked absolute URL of a guest.
#[derive(Clone, Debug)]
pub struct Target {
    url: Url,
    /// What is dialled, proved by TLS and named in the request (R8): scheme, host, port, path and query.
    uri: Uri,
    host: TargetHost,
    /// The authority as a header.
    host_header: HeaderValue,
    /// What connections are kept under.
    key: Arc<str>,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetHost {
    Name(HostName),
    Literal(IpAddr),
}

/// Why a URL is not accepted. It never repeats the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than 8 KiB.
    #[error("the URL is longer than 8 KiB")]
    TooLong,
    /// A space, a control character or a backslash. Parsers drop or turn them, each in its own way (R9).
    #[error("the URL has a space, a control character or a backslash in it")]
    Character,
    /// Not `http://` or `https://`.
    #[error("the URL must begin with https://")]
    Scheme,
    /// A user name or password; what looks like the host may be one (R9).
    #[error("a user name or password is not allowed in the URL: use a secret")]
    UserInfo,
    /// Not an exact host name and not an address.
    #[error("the URL has no host name in ASCII: write an international name as xn--")]
    Host,
    /// Not a number from 1 to 65535.
    #[error("the port of the URL must be a number from 1 to 65535")]
    Port,
    /// `{{secret:`; a URL is no place for a secret (R2).
    #[error("a placeholder for a secret is not allowed in a URL")]
    Placeholder,
    /// Parsers would not agree about it.
    #[error("the URL is malformed")]
    Malformed,
    /// A redirect from `https` to `http` (R10).
    #[error("a redirect must not leave https")]
    Downgrade,
}

impl Target {
    /// Checks a URL (R5 to R9). Which ports and addresses are open is for [`crate::Egress::check`] to say.
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

    /// Builds the request's target anew and compares what a URL parser would dial.
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
        // The root's dot goes, and the fragment, which is never sent.
        url.set_host(Some(&host.to_string())).map_err(|_| TargetError::Malformed)?;
        url.set_fragment(None);
        let uri: Uri = url.as_str().parse().map_err(|_| TargetError::Malformed)?;
        let authority = uri.authority().ok_or(TargetError::Malformed)?;
        let host_header = HeaderValue::from_str(authority.as_str()).map_err(|_| TargetError::Malformed)?;
        let key = Arc::from(format!("{scheme}://{host}:{port}"));
        Ok(Self { url, uri, host, host_header, key, port })
    }

    /// Where a `Location` leads from here: the same checks, and never from `https` to `http` (R10).
    ///
    /// # Errors
    ///
    /// As [`Target::parse`], and [`TargetError::Downgrade`].
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

    /// The host in its one spelling: a name, or an address (IPv6 in brackets).
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The host if it is a name. An address has none, so no secret is ever bound to it.
    #[must_use]
    pub fn host_name(&self) -> Option<&HostName> {
        match &self.host {
            TargetHost::Name(name) => Some(name),
            TargetHost::Literal(_) => None,
        }
    }

    /// The port, also where the URL leaves it to the scheme.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Is the request protected by TLS?
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The URL as it is requested: canonical, without a fragment and without any secret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Are two requests to the same scheme, host and port?
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

    /// Is it this machine by its very spelling, without asking anybody?
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            TargetHost::Name(name) => is_localhost(name.as_str()),
            TargetHost::Literal(address) => address.to_canonical().is_loopback(),
        }
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(crate) fn query(&self) -> Option<&str> {
        self.url.query()
    }

    /// The names of the query's parameters, decoded.
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
        // Decimal, octal, hexadecimal and short forms of IPv4 are addresses to whoever dials them.
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

/// What no part of a URL may have, looked for before a parser drops, turns or decodes it.
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

/// Scheme and authority of the text as it stands.
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
    // An encoded character in a host is one that somebody decodes and somebody else does not.
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

/// RFC 3986: is what stands before the first colon a scheme?
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}
