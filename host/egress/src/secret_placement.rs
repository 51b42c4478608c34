//! The place of one secret in a guest's request (egress rules R1 to R3 and R15).

use cofferdam_store::{Release, SecretName};
use http::HeaderName;

use crate::{header_rules, placeholder};

/// Length limit of a query parameter's name and of a JSON pointer, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// A checked place for one secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPlacement(pub(crate) PlacementKind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlacementKind {
    Header {
        name: HeaderName,
        before: String,
        after: String,
    },
    Placeholder {
        header: HeaderName,
        secret: SecretName,
    },
    Query(String),
    /// The decoded members of a JSON pointer. The last one is the member that will be added.
    Json(Vec<String>),
}

/// A secret and its place in the request.
pub struct Injection {
    /// Where the secret goes.
    pub slot: SecretPlacement,
    /// The secret, which was released to the host of the request.
    pub secret: Release,
}

/// Why a place cannot take a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Not a header name, or a header that may not carry a secret because it steers the request,
    /// describes its sender or is usually logged (egress rule R15).
    #[error("this header cannot carry a secret")]
    Header,
    /// The text around the secret is not printable ASCII, has braces, has a space at its outer end,
    /// or has more than 256 bytes on one side.
    #[error("the text around a secret must be printable and without braces")]
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

impl SecretPlacement {
    /// A header that the guest did not set. Its value is the secret between two fixed texts.
    ///
    /// # Errors
    ///
    /// [`SlotError::Header`] and [`SlotError::Format`].
    pub fn header(name: &str, before: &str, after: &str) -> Result<Self, SlotError> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| SlotError::Header)?;
        if !header_rules::may_carry_secret(&name) {
            return Err(SlotError::Header);
        }
        if !header_rules::is_frame(before, after) {
            return Err(SlotError::Format);
        }
        Ok(Self(PlacementKind::Header { name, before: before.to_owned(), after: after.to_owned() }))
    }

    /// Every `{{secret:NAME}}` in the value of this header, for the secret of that name.
    ///
    /// # Errors
    ///
    /// [`SlotError::Header`] and [`SlotError::Placeholder`].
    pub fn header_placeholder(name: &str, placeholder: &str) -> Result<Self, SlotError> {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| SlotError::Header)?;
        if !header_rules::may_carry_credential(&header) {
            return Err(SlotError::Header);
        }
        let secret = placeholder::parse(placeholder).ok_or(SlotError::Placeholder)?;
        Ok(Self(PlacementKind::Placeholder { header, secret }))
    }

    /// A parameter that the query does not have yet.
    ///
    /// # Errors
    ///
    /// [`SlotError::Query`].
    pub fn query(name: &str) -> Result<Self, SlotError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(SlotError::Query);
        }
        Ok(Self(PlacementKind::Query(name.to_owned())))
    }

    /// A member that the JSON body does not have yet, in an object that it has: with `/auth/key`
    /// the member `key` of the object `auth`.
    ///
    /// # Errors
    ///
    /// [`SlotError::Pointer`].
    pub fn json(pointer: &str) -> Result<Self, SlotError> {
        if pointer.len() > NAME_BYTES_MAX {
            return Err(SlotError::Pointer);
        }
        let members = pointer.strip_prefix('/').ok_or(SlotError::Pointer)?;
        let members: Option<Vec<String>> = members.split('/').map(member).collect();
        Ok(Self(PlacementKind::Json(members.ok_or(SlotError::Pointer)?)))
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
