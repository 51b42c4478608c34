//! The address of a client. Behind a trusted proxy it stands in `Forwarded` (RFC 7239)
//! or `X-Forwarded-For`, where each proxy adds at the right the address that it was
//! reached from. So both are read from the right: what a client has written itself
//! stands to the left of what the first trusted proxy has added, and is not looked at.

use std::net::{IpAddr, SocketAddr};

use cofferdam_egress::IpRange;
use http::header::{FORWARDED, HeaderName};
use http::{HeaderMap, HeaderValue};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of the client whose request came from `peer`.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpRange]) -> IpAddr {
    let peer = peer.to_canonical();
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let (name, read): (_, fn(&str) -> Option<IpAddr>) =
        if headers.contains_key(FORWARDED) { (FORWARDED, forwarded_for) } else { (X_FORWARDED_FOR, address) };
    // Several headers are one list, the first header at its left.
    let mut client = peer;
    for value in headers.get_all(name).iter().rev() {
        for element in from_the_right(value) {
            match element.and_then(read) {
                None => return peer,
                Some(address) if is_trusted(address, trusted) => client = address,
                Some(address) => return address,
            }
        }
    }
    // All of them are proxies: the one farthest away asked.
    client
}

/// Whether a trusted proxy has this address.
pub(crate) fn is_trusted(address: IpAddr, trusted: &[IpRange]) -> bool {
    trusted.iter().any(|range| range.contains(address))
}

/// The elements of a list, the last one first; `None` for a value that is no text.
fn from_the_right(value: &HeaderValue) -> impl Iterator<Item = Option<&str>> {
    let mut rest = Some(value.to_str().ok());
    std::iter::from_fn(move || {
        let Some(text) = rest.take()? else { return Some(None) };
        let comma = last(b',', text);
        rest = comma.and_then(|at| text.get(..at)).map(Some);
        let element = text.get(comma.map_or(0, |at| at + 1)..)?;
        Some(Some(element.trim_matches([' ', '\t'])))
    })
}

/// The last separator outside of quotes. Quotes are matched from the right, so that a quote that a client has left
/// open does not swallow what a proxy has added.
fn last(separator: u8, text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut is_quoted = false;
    for (at, byte) in bytes.iter().enumerate().rev() {
        match byte {
            b'"' if !(is_quoted && is_escaped(bytes.get(..at)?)) => is_quoted = !is_quoted,
            byte if *byte == separator && !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether what follows `before` stands after an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in an element of `Forwarded`, such as `for="[2001:db8::1]:4711";proto=https`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let (mut found, mut rest) = (None, Some(element));
    while let Some(pairs) = rest {
        let semicolon = last(b';', pairs);
        let (name, value) = pairs.get(semicolon.map_or(0, |at| at + 1)..)?.split_once('=')?;
        rest = semicolon.and_then(|at| pairs.get(..at));
        if !name.trim_matches([' ', '\t']).eq_ignore_ascii_case("for") {
            continue;
        }
        let node = address(unquoted(value.trim_matches([' ', '\t']))?)?;
        if found.replace(node).is_some() {
            return None;
        }
    }
    found
}

/// A value without its quotes. No address needs an escape in them.
fn unquoted(value: &str) -> Option<&str> {
    match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"'),
        None => Some(value),
    }
}

/// An address, with or without a port, with or without the brackets of IPv6.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let address: IpAddr = text.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests;
