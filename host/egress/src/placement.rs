//! The place of one secret in a request (egress rules R1 to R3 and R15).

use cofferdam_store::SecretName;
use http::HeaderName;

use crate::{header_rules, placeholder};

/// Length limit of a query parameter's name and of a JSON pointer, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// A checked place for one secret. Only the functions of this type create one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A header that the request does not set itself. Its value is the secret between two fixed
    /// texts.
    #[non_exhaustive]
    Header {
        /// The name of the header.
        name: HeaderName,
        /// The text before the secret.
        before: String,
        /// The text after the secret.
        after: String,
    },
    /// Every `{{secret:NAME}}` in the value of a header.
    #[non_exhaustive]
    Placeholder {
        /// The name of the header.
        header: HeaderName,
        /// The secret that the placeholder names.
        secret: SecretName,
    },
    /// The value of a parameter that the query does not have yet.
    #[non_exhaustive]
    Query {
        /// The name of the parameter.
        name: String,
    },
    /// A member that the JSON body does not have yet, in an object that it has.
    #[non_exhaustive]
    Json {
        /// The decoded members of a JSON pointer. The last one is the member that will be added.
        members: Vec<String>,
    },
}

/// A secret and its place in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedSecret {
    /// The name of the secret.
    pub secret: SecretName,
    /// Where its value goes.
    pub placement: Placement,
}

/// Why a place cannot take a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Not a header name, or a header that may not carry a secret because it steers the request,
    /// describes its sender or is usually logged (egress rule R15).
    #[error("this header cannot carry a credential")]
    Header,
    /// Not exactly one `{}`, or the text around it is not printable ASCII, has braces, has a space
    /// at its outer end, or has more than 256 bytes on one side.
    #[error("the format must be printable text with exactly one {{}}")]
    Format,
    /// Not `{{secret:NAME}}`.
    #[error("a placeholder must read {{{{secret:NAME}}}}")]
    Placeholder,
    /// The name does not consist of 1 to 256 letters, digits and `-._~`.
    #[error("the name of a query parameter must be letters, digits and -._~")]
    Query,
    /// Not a JSON pointer (RFC 6901) with at least one member and at most 256 bytes.
    #[error("not a JSON pointer to a member of an object")]
    Pointer,
}

impl Placement {
    /// A header and a format such as `Bearer {}`, from an injection of the grant: only these may
    /// name `cookie`.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Header`] and [`PlacementError::Format`].
    pub fn header(name: &str, format: &str) -> Result<Self, PlacementError> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| PlacementError::Header)?;
        if !header_rules::may_carry_secret(&name) {
            return Err(PlacementError::Header);
        }
        let (before, after) = format.split_once("{}").ok_or(PlacementError::Format)?;
        if !header_rules::is_frame(before, after) {
            return Err(PlacementError::Format);
        }
        Ok(Self::Header { name, before: before.to_owned(), after: after.to_owned() })
    }

    /// A header that a provider, an export destination or a guest's request names. Never `cookie`.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Header`] and [`PlacementError::Format`].
    pub fn credential_header(name: &str, format: &str) -> Result<Self, PlacementError> {
        if name.eq_ignore_ascii_case("cookie") {
            return Err(PlacementError::Header);
        }
        Self::header(name, format)
    }

    /// Every occurrence of `placeholder`, which reads `{{secret:NAME}}`, in the value of a header.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Header`] and [`PlacementError::Placeholder`].
    pub fn placeholder(header: &str, placeholder: &str) -> Result<Self, PlacementError> {
        let header = HeaderName::from_bytes(header.as_bytes()).map_err(|_| PlacementError::Header)?;
        if !header_rules::may_carry_credential(&header) {
            return Err(PlacementError::Header);
        }
        let secret = placeholder::parse(placeholder).ok_or(PlacementError::Placeholder)?;
        Ok(Self::Placeholder { header, secret })
    }

    /// A query parameter.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Query`].
    pub fn query(name: &str) -> Result<Self, PlacementError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(PlacementError::Query);
        }
        Ok(Self::Query { name: name.to_owned() })
    }

    /// A member of the JSON body, as a JSON pointer: `/auth/key` is the member `key` of the object
    /// `auth`.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Pointer`].
    pub fn json(pointer: &str) -> Result<Self, PlacementError> {
        if pointer.len() > NAME_BYTES_MAX {
            return Err(PlacementError::Pointer);
        }
        let members = pointer.strip_prefix('/').ok_or(PlacementError::Pointer)?;
        let members: Option<Vec<String>> = members.split('/').map(member).collect();
        Ok(Self::Json { members: members.ok_or(PlacementError::Pointer)? })
    }

    /// Whether both are the same header, parameter or member, whatever text surrounds the value.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header { name, .. }, Self::Header { name: other, .. }) => name == other,
            (one, other) => one == other,
        }
    }
}

/// One member of a JSON pointer with `~0` and `~1` decoded.
fn member(text: &str) -> Option<String> {
    let mut name = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        name.push(match character {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            character => character,
        });
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_without_exactly_one_gap_are_refused() {
        for format in ["", "Bearer", "{}{}", "{} {x}", "{", "Bearer {}\n", " {}", "{} ", "{{}}"] {
            assert_eq!(Placement::header("x-api-key", format), Err(PlacementError::Format), "{format:?}");
        }
    }

    #[test]
    fn headers_that_steer_the_request_carry_no_credential() {
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
            "Cookie",
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
            assert_eq!(Placement::credential_header(name, "{}"), Err(PlacementError::Header), "{name}");
        }
    }
}
