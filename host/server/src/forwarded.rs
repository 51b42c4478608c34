//! The address of a client behind trusted proxies, from `Forwarded` (RFC 7239) or
//! `X-Forwarded-For`. Each proxy appends the address it was reached from at the right end. Both
//! headers are therefore read from the right: addresses that a client has forged are to the left of
//! those that trusted proxies have added, and are not used.

use std::net::{IpAddr, SocketAddr};

use cofferdam_egress::IpRange;
use http::header::{FORWARDED, HeaderName};
use http::{HeaderMap, HeaderValue};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of the client whose request came over a connection from `peer`. It is `peer` itself
/// if that is not a trusted proxy or if the header is malformed.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpRange]) -> IpAddr {
    let peer = peer.to_canonical();
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let (name, read): (_, fn(&str) -> Option<IpAddr>) =
        if headers.contains_key(FORWARDED) { (FORWARDED, forwarded_for) } else { (X_FORWARDED_FOR, address) };
    // Several header lines form one list; the first line is the left end.
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
    // Every address is a trusted proxy; the leftmost one sent the request.
    client
}

pub(crate) fn is_trusted(address: IpAddr, trusted: &[IpRange]) -> bool {
    trusted.iter().any(|range| range.contains(address))
}

/// The elements of a list, from the last to the first; `None` for a value that is not ASCII text.
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

/// The last separator outside quotes. Quotes are matched from the right, so that a quote which a
/// client has left open does not hide what a proxy has appended.
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

/// Whether the byte after `before` is escaped: an odd number of backslashes comes before it.
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

/// A value without its quotes. An address contains no characters that need escapes.
fn unquoted(value: &str) -> Option<&str> {
    match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"'),
        None => Some(value),
    }
}

/// Parses an address, with or without a port and with or without the brackets of IPv6.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let address: IpAddr = text.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests;
