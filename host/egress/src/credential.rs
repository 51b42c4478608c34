//! A provider's credential: a secret and the header it is sent in.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::HeaderName;
use zeroize::Zeroizing;

use crate::header_rules::{self, VALUE_BYTES_MAX};
use crate::{Placement, ScrubSet};

/// A secret in a header. Clones share the value, which is wiped with the last of them.
#[derive(Clone)]
pub struct Credential {
    placement: Arc<Placement>,
    value: Bytes,
    /// Removes the secret from answers.
    scrub: ScrubSet,
}

/// Length below which [`Credential::cover`] does nothing: so short a secret would also occur in
/// ordinary text.
const COVERED_BYTES_MIN: usize = 8;

/// Why a secret cannot be sent in a header. The text reveals nothing about the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
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

impl Credential {
    /// A secret for a header. The caller must wipe `exposed` itself.
    ///
    /// # Errors
    ///
    /// The value cannot be sent in a header. It is refused and never trimmed (egress rule R14).
    pub fn new(placement: &Placement, exposed: &[u8]) -> Result<Self, CredentialError> {
        if exposed.is_empty() {
            return Err(CredentialError::Empty);
        }
        if !header_rules::is_safe(exposed) {
            return Err(CredentialError::NotHeaderSafe);
        }
        let frame = match placement {
            Placement::Header { before, after, .. } => before.len() + after.len(),
            _ => 0,
        };
        if frame + exposed.len() > VALUE_BYTES_MAX {
            return Err(CredentialError::TooLong);
        }
        #[cfg(debug_assertions)]
        cofferdam_store::canaries::released(exposed);
        let value = Bytes::from_owner(Zeroizing::new(exposed.to_vec()));
        let scrub = ScrubSet::new([("", value.clone())]);
        Ok(Self { placement: Arc::new(placement.clone()), value, scrub })
    }

    /// Replaces every occurrence of the secret by asterisks, in place. For error messages of
    /// providers, some of which repeat the key that they refuse.
    pub fn cover(&self, bytes: &mut [u8]) {
        let secret: &[u8] = &self.value;
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

    /// Whether the secret occurs in a text, in a spelling that answers are searched for.
    #[must_use]
    pub fn occurs_in(&self, text: &[u8]) -> bool {
        self.scrub.occurs_in(text)
    }

    /// The set that removes the secret from answers.
    pub(crate) fn scrub(&self) -> &ScrubSet {
        &self.scrub
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.value
    }

    /// The header that the secret is sent in.
    pub(crate) fn header(&self) -> Option<&HeaderName> {
        match &*self.placement {
            Placement::Header { name, .. } => Some(name),
            _ => None,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credential").field("placement", &self.placement).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(header: &str, format: &str, value: &str) -> Result<Credential, CredentialError> {
        Credential::new(&Placement::header(header, format).unwrap(), value.as_bytes())
    }

    #[test]
    fn every_occurrence_of_a_secret_is_covered_and_short_ones_are_left() {
        let long = credential("authorization", "Bearer {}", "sk-12345").unwrap();
        let text = "sk-12345sk-12345 käme Bearer sk-12345, not sk-1234".to_owned();
        assert_eq!(long.covered(text), "**************** käme Bearer ********, not sk-1234");
        let short = credential("x-api-key", "{}", "a").unwrap();
        assert_eq!(short.covered("banana".to_owned()), "banana");
    }

    #[test]
    fn credential_debug_hides_its_value() {
        let credential = credential("x-api-key", "{}", "sk-very-secret").unwrap();
        assert!(!format!("{credential:?}").contains("very"));
    }

    #[test]
    fn credential_refuses_values_that_are_not_header_safe() {
        for text in ["a\nb", "a\r\n", "a\n", "\ta", "a\0b", "a\u{7f}", " a", "a ", "schlüssel", "a\tb"] {
            let refused = credential("x-api-key", "{}", text).err();
            assert_eq!(refused, Some(CredentialError::NotHeaderSafe), "{text:?}");
        }
        assert_eq!(credential("x-api-key", "{}", "").err(), Some(CredentialError::Empty));
        let long = "k".repeat(VALUE_BYTES_MAX);
        assert!(credential("x-api-key", "{}", &long).is_ok());
        assert_eq!(credential("x-api-key", "B{}", &long).err(), Some(CredentialError::TooLong));
    }
}
