//! A provider's credential: a secret inside one header value.
//!
//! The finished value is kept in one buffer that is wiped when the last request with it is dropped.
//! It is marked sensitive, so that HTTP/2 neither compresses nor indexes it (RFC 7541, 7.1.3) and
//! `Debug` does not print it.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use cofferdam_store::Secret;
use http::{HeaderName, HeaderValue};
use zeroize::Zeroizing;

use crate::ScrubSet;
use crate::header_rules::{self, VALUE_BYTES_MAX};

/// Where a provider expects its credential: a header and the text around the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPlacement {
    header: HeaderName,
    before: String,
    after: String,
}

/// A header whose value contains a secret.
#[derive(Clone)]
pub struct Credential {
    header: HeaderName,
    value: HeaderValue,
    /// The bytes of the value that are the secret.
    place: Range<usize>,
    /// Removes the secret from answers.
    scrub: ScrubSet,
}

/// Length below which [`Credential::cover`] does nothing: so short a secret would also occur in
/// ordinary text.
const COVERED_BYTES_MIN: usize = 8;

/// Why a credential cannot be made. The text reveals nothing about the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// Not a header name, or a header that may not carry a credential because it steers the request
    /// or describes its sender.
    #[error("this header cannot carry a credential")]
    Header,
    /// The format is not printable ASCII with exactly one `{}` and no other brace.
    #[error("the format must be printable text with exactly one {{}}")]
    Format,
    /// The value is empty.
    #[error("the secret is empty")]
    Empty,
    /// The value has a control character, a character outside ASCII, or a space at an end.
    #[error("the secret cannot be sent in a header: is there a line break or a space at its end?")]
    NotHeaderSafe,
    /// The finished value is longer than 16 KiB.
    #[error("the secret is too long for a header")]
    TooLong,
}

impl HeaderPlacement {
    /// Parses a header name and a format such as `Bearer {}`, both from the manifest of a provider
    /// guest.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Header`] or [`CredentialError::Format`].
    pub fn parse(header: &str, format: &str) -> Result<Self, CredentialError> {
        let header = HeaderName::from_bytes(header.as_bytes()).map_err(|_| CredentialError::Header)?;
        if !header_rules::may_carry_credential(&header) {
            return Err(CredentialError::Header);
        }
        let (before, after) = format.split_once("{}").ok_or(CredentialError::Format)?;
        if !header_rules::is_frame(before, after) {
            return Err(CredentialError::Format);
        }
        Ok(Self { header, before: before.to_owned(), after: after.to_owned() })
    }

    /// Builds the credential from a secret. Its buffer is wiped with the last request that uses it.
    /// The caller must wipe `exposed` itself.
    ///
    /// # Errors
    ///
    /// The value cannot be sent in a header. It is refused and never trimmed (egress rule R14).
    pub fn fill(&self, exposed: &[u8]) -> Result<Credential, CredentialError> {
        if exposed.is_empty() {
            return Err(CredentialError::Empty);
        }
        if !header_rules::is_safe(exposed) {
            return Err(CredentialError::NotHeaderSafe);
        }
        let length = self.before.len() + exposed.len() + self.after.len();
        if length > VALUE_BYTES_MAX {
            return Err(CredentialError::TooLong);
        }
        // The buffer has the final size: a buffer that grows leaves unwiped copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(length));
        text.extend_from_slice(self.before.as_bytes());
        text.extend_from_slice(exposed);
        text.extend_from_slice(self.after.as_bytes());
        let text = Bytes::from_owner(text);
        let place = self.before.len()..self.before.len() + exposed.len();
        let scrub = ScrubSet::new([("", text.slice(place.clone()))]);
        let mut value = HeaderValue::from_maybe_shared(text).map_err(|_| CredentialError::NotHeaderSafe)?;
        value.set_sensitive(true);
        Ok(Credential { header: self.header.clone(), value, place, scrub })
    }
}

impl Credential {
    /// [`HeaderPlacement::parse`] and [`HeaderPlacement::fill`] in one step. The secret is wiped on return.
    ///
    /// # Errors
    ///
    /// Those of both functions.
    pub fn new(header: &str, format: &str, value: Secret) -> Result<Self, CredentialError> {
        HeaderPlacement::parse(header, format)?.fill(value.expose())
    }

    /// Replaces every occurrence of the secret by asterisks, in place. For error messages of
    /// providers, some of which repeat the key that they refuse.
    pub fn cover(&self, bytes: &mut [u8]) {
        let Some(secret) = self.value.as_bytes().get(self.place.clone()) else { return };
        if secret.len() < COVERED_BYTES_MIN {
            return;
        }
        let mut from = 0;
        while let Some(found) = bytes.get(from..).and_then(|rest| memchr::memmem::find(rest, secret)) {
            let start = from + found;
            from = start + secret.len();
            if let Some(occurrence) = bytes.get_mut(start..from) {
                occurrence.fill(b'*');
            }
        }
    }

    /// Same as [`Self::cover`], for a `String`.
    #[must_use]
    pub fn covered(&self, text: String) -> String {
        let mut bytes = text.into_bytes();
        self.cover(&mut bytes);
        // Secret and asterisks are ASCII, so the text stays valid UTF-8.
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// The set that removes the secret from answers.
    pub(crate) fn scrub(&self) -> &ScrubSet {
        &self.scrub
    }

    pub(crate) fn header(&self) -> &HeaderName {
        &self.header
    }

    pub(crate) fn value(&self) -> &HeaderValue {
        &self.value
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credential").field("header", &self.header).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    #[test]
    fn credential_is_placed_in_its_format() {
        let credential = Credential::new("Authorization", "Bearer {}", secret("sk-1 2")).unwrap();
        assert_eq!(credential.header(), http::header::AUTHORIZATION);
        assert_eq!(credential.value().as_bytes(), b"Bearer sk-1 2");
        assert!(credential.value().is_sensitive());
    }

    #[test]
    fn every_occurrence_of_a_secret_is_covered_and_short_ones_are_left() {
        let credential = Credential::new("authorization", "Bearer {}", secret("sk-12345")).unwrap();
        let text = "sk-12345sk-12345 käme Bearer sk-12345, not sk-1234".to_owned();
        assert_eq!(credential.covered(text), "**************** käme Bearer ********, not sk-1234");
        let short = Credential::new("x-api-key", "{}", secret("a")).unwrap();
        assert_eq!(short.covered("banana".to_owned()), "banana");
    }

    #[test]
    fn credential_debug_hides_its_value() {
        let credential = Credential::new("x-api-key", "{}", secret("sk-very-secret")).unwrap();
        assert!(!format!("{credential:?} {:?}", credential.value()).contains("very"));
    }

    #[test]
    fn credential_refuses_values_that_are_not_header_safe() {
        for text in ["a\nb", "a\r\n", "a\n", "\ta", "a\0b", "a\u{7f}", " a", "a ", "schlüssel", "a\tb"] {
            let refused = Credential::new("x-api-key", "{}", secret(text)).err();
            assert_eq!(refused, Some(CredentialError::NotHeaderSafe), "{text:?}");
        }
        let refused = Credential::new("x-api-key", "{}", secret("")).err();
        assert_eq!(refused, Some(CredentialError::Empty));
        let refused = Credential::new("x-api-key", "{}", secret(&"k".repeat(VALUE_BYTES_MAX + 1))).err();
        assert_eq!(refused, Some(CredentialError::TooLong));
    }

    #[test]
    fn placement_refuses_formats_without_exactly_one_gap() {
        for format in ["", "Bearer", "{}{}", "{} {x}", "{", "Bearer {}\n", " {}", "{} ", "{{}}"] {
            assert_eq!(
                HeaderPlacement::parse("x-api-key", format),
                Err(CredentialError::Format),
                "{format:?}"
            );
        }
    }

    #[test]
    fn placement_refuses_headers_that_steer_the_request() {
        let names = [
            "",
            "a b",
            ":authority",
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "upgrade",
            "te",
            "cookie",
            "proxy-authorization",
            "Proxy-Connection",
            "x-forwarded-for",
            "user-agent",
            "referer",
            "accept",
            "range",
            "if-match",
            "sec-fetch-site",
            "idempotency-key",
        ];
        for name in names {
            assert_eq!(HeaderPlacement::parse(name, "{}"), Err(CredentialError::Header), "{name}");
        }
    }
}
