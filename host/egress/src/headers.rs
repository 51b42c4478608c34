//! The rules for request headers, and for the headers of answers that guests may read.
//!
//! A guest sets the headers of its provider's dialect. The host sets those for the connection,
//! framing, content coding and credential. A guest header that conflicts with them is refused,
//! never dropped silently, so that the guest's author learns about it.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::header_rules::{VALUE_BYTES_MAX, is_connection, is_credential_header};
use crate::{Credential, Reason, placeholder};

/// Number of headers that a guest may set (egress rule R17).
const HEADERS_MAX: usize = 100;

/// Sent unless the guest sets its own `User-Agent`.
const USER_AGENT: &str = concat!("cofferdam/", env!("CARGO_PKG_VERSION"));

/// Builds the headers of a provider's request, without the one that carries the credential.
///
/// # Errors
///
/// The rule that one of the guest's headers breaks.
pub(crate) fn assemble(
    from_guest: Vec<(HeaderName, HeaderValue)>,
    streamed: bool,
    credential: Option<&Credential>,
) -> Result<HeaderMap, Reason> {
    if credential.is_some() && from_guest.iter().any(|(name, _)| asks_for_piece(name.as_str())) {
        return Err(Reason::Header);
    }
    let slot = credential.map(|credential| credential.header().map_or("", HeaderName::as_str));
    let competes =
        |name: &HeaderName, _: &HeaderValue| slot.is_some_and(|slot| competes(name.as_str(), slot));
    let mut headers = collect(from_guest.into_iter().map(Ok), competes)?;
    headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let accept = if streamed { "text/event-stream" } else { "application/json" };
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static(accept));
    // A compressed answer could neither be split into events nor be searched for secrets.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    Ok(headers)
}

/// Checks the headers that a guest writes for its provider by the rules of [`assemble`]. `slot` is the header of the
/// credential, for a dialect with one.
///
/// # Errors
///
/// The rule that one of the headers breaks.
pub(crate) fn check(from_guest: &[(String, String)], slot: Option<&str>) -> Result<(), Reason> {
    if from_guest.len() > HEADERS_MAX {
        return Err(Reason::HeadersTooLarge);
    }
    for (name, value) in from_guest {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Reason::HeadersTooLarge);
        }
        if is_reserved(name, value.as_bytes()) || (slot.is_some() && asks_for_piece(name)) {
            return Err(Reason::Header);
        }
        if slot.is_some_and(|slot| competes(name, slot)) {
            return Err(Reason::CredentialHeader);
        }
    }
    Ok(())
}

/// Collects the guest's headers if the guest may set all of them. `competes` says which ones
/// conflict with a credential.
fn collect(
    from_guest: impl ExactSizeIterator<Item = Result<(HeaderName, HeaderValue), Reason>>,
    competes: impl Fn(&HeaderName, &HeaderValue) -> bool,
) -> Result<HeaderMap, Reason> {
    if from_guest.len() > HEADERS_MAX {
        return Err(Reason::HeadersTooLarge);
    }
    // Spare room for the headers that the host adds, so that the map never grows.
    let mut headers = HeaderMap::with_capacity(from_guest.len() + 8);
    for header in from_guest {
        let (name, value) = header?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Reason::HeadersTooLarge);
        }
        if is_reserved(name.as_str(), value.as_bytes()) {
            return Err(Reason::Header);
        }
        if competes(&name, &value) {
            return Err(Reason::CredentialHeader);
        }
        headers.append(name, value);
    }
    Ok(headers)
}

/// Builds the headers of a guest's own request, without those that carry a secret (egress rules R15
/// to R18).
///
/// `with_secret`: the request carries a secret, so no other header may identify the caller, except
/// one with a placeholder.
///
/// # Errors
///
/// The rule that one of the guest's headers breaks.
pub(crate) fn assemble_own(from_guest: &[(String, String)], with_secret: bool) -> Result<HeaderMap, Reason> {
    let parsed = from_guest.iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Reason::Header)?;
        // Values with other characters are not scanned for placeholders, so a placeholder in one
        // would be sent unreplaced (egress rule R2).
        let is_plain = value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        if (with_secret && asks_for_piece(name.as_str())) || !is_plain {
            return Err(Reason::Header);
        }
        Ok((name, HeaderValue::from_str(value).map_err(|_| Reason::Header)?))
    });
    let mut headers = collect(parsed, |name, value| {
        let is_ours = value
            .to_str()
            .is_ok_and(|value| placeholder::in_value(value).is_ok_and(|found| !found.is_empty()));
        with_secret && !is_ours && is_credential_header(name.as_str())
    })?;
    // A compressed answer could not be searched for released secrets, and its decoded size would be
    // unknown.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    Ok(headers)
}

/// Returns whether a guest may read this header of an answer. Hidden are headers of the connection
/// and of sessions. If the request carried a secret, validators and digests of the body are hidden
/// too: scrubbing may have changed the body (egress rule R18).
pub(crate) fn may_be_read(name: &HeaderName, with_secret: bool) -> bool {
    let of_the_body = ["etag", "digest", "content-digest", "repr-digest", "content-md5"];
    let of_the_connection = ["www-authenticate", "authentication-info", "alt-svc", "content-encoding"];
    let name = name.as_str();
    let is_hidden = is_connection(name) || of_the_connection.contains(&name);
    let is_stale = with_secret && of_the_body.contains(&name);
    !is_hidden && !is_stale
}

/// Returns whether the body has a coding that the request did not ask for (egress rule R18).
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    let is_other = |name, plain: &str| {
        headers.get_all(name).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    is_other(header::CONTENT_ENCODING, "identity") || is_other(header::TRANSFER_ENCODING, "chunked")
}

fn is_reserved(name: &str, value: &[u8]) -> bool {
    match name {
        "accept-encoding" => value != b"identity",
        "content-encoding" => true,
        name => is_connection(name),
    }
}

/// Returns whether a header asks for a part of the answer. In such a part, a secret that is cut by the range's
/// edge would not be found, so a request with a secret has no such header (egress rule R18).
fn asks_for_piece(name: &str) -> bool {
    name == header::RANGE || name == header::IF_RANGE
}

/// Returns whether a guest's header would identify the caller in addition to the credential, which
/// is sent in the header `slot`.
fn competes(name: &str, slot: &str) -> bool {
    name == slot || name == header::AUTHORIZATION || name.ends_with("api-key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Placement;

    fn one(name: &str, value: &str) -> Vec<(HeaderName, HeaderValue)> {
        vec![(name.parse().unwrap(), value.parse().unwrap())]
    }

    fn key() -> Credential {
        Credential::new(&Placement::header("x-api-key", "{}").unwrap(), b"sk-1").unwrap()
    }

    #[test]
    fn guest_headers_of_the_connection_are_refused() {
        let names = [
            "Host",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Keep-Alive",
            "Upgrade",
            "TE",
            "Trailer",
            "Expect",
            "Cookie",
            "Proxy-Authorization",
            "Proxy-Anything",
            "X-Forwarded-For",
            "Via",
            "Content-Encoding",
        ];
        for name in names {
            assert_eq!(assemble(one(name, "x"), false, None), Err(Reason::Header), "{name}");
        }
        assert_eq!(assemble(one("accept-encoding", "gzip"), false, None), Err(Reason::Header));
        assert!(assemble(one("accept-encoding", "identity"), false, None).is_ok());
    }

    #[test]
    fn guest_headers_that_compete_with_the_credential_are_refused() {
        for name in ["X-Api-Key", "authorization", "api-key", "other-api-key"] {
            assert_eq!(
                assemble(one(name, "x"), false, Some(&key())),
                Err(Reason::CredentialHeader),
                "{name}"
            );
            assert!(assemble(one(name, "x"), false, None).is_ok(), "{name}");
        }
    }

    #[test]
    fn guests_ask_for_no_part_of_an_answer_beside_a_credential() {
        for name in ["Range", "if-range"] {
            assert_eq!(assemble(one(name, "bytes=0-6"), false, Some(&key())), Err(Reason::Header), "{name}");
            assert!(assemble(one(name, "bytes=0-6"), false, None).is_ok(), "{name}");
        }
    }

    #[test]
    fn headers_are_checked_before_they_are_sent_by_the_same_rules() {
        let check = |name: &str, value: &str, slot| check(&[(name.to_owned(), value.to_owned())], slot);
        for name in ["host", "cookie", "content-length", "proxy-anything", "content-encoding"] {
            assert_eq!(check(name, "x", None), Err(Reason::Header), "{name}");
        }
        for name in ["x-api-key", "authorization", "api-key", "x-key"] {
            assert_eq!(check(name, "x", Some("x-key")), Err(Reason::CredentialHeader), "{name}");
            assert_eq!(check(name, "x", None), Ok(()), "{name}");
        }
        assert_eq!(check("range", "bytes=0-6", Some("x-key")), Err(Reason::Header));
        assert_eq!(check("accept-encoding", "identity", Some("x-key")), Ok(()));
        assert_eq!(check("x-a", &"v".repeat(VALUE_BYTES_MAX + 1), None), Err(Reason::HeadersTooLarge));
    }

    #[test]
    fn host_fills_in_type_and_accept() {
        let headers = assemble(one("api-version", "2023-06-01"), true, Some(&key())).unwrap();
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["accept"], "text/event-stream");
        assert_eq!(headers["accept-encoding"], "identity");
        assert_eq!(headers["api-version"], "2023-06-01");
        assert!(!headers.contains_key("x-api-key"));
        assert_eq!(assemble(Vec::new(), false, None).unwrap()["accept"], "application/json");
        let own = assemble(one("accept", "application/x-ndjson"), true, None).unwrap();
        assert_eq!(own.get_all("accept").iter().count(), 1);
        assert_eq!(own["accept"], "application/x-ndjson");
    }

    #[test]
    fn too_many_or_too_long_headers_are_refused() {
        let many = (0..=HEADERS_MAX).flat_map(|index| one(&format!("x-{index}"), "v")).collect();
        assert_eq!(assemble(many, false, None), Err(Reason::HeadersTooLarge));
        let long = one("x-long", &"v".repeat(VALUE_BYTES_MAX + 1));
        assert_eq!(assemble(long, false, None), Err(Reason::HeadersTooLarge));
    }
}
