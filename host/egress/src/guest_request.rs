//! A request as a guest writes it, and the placeholders for secrets in it.

use std::{fmt, time::Duration};

use bytes::Bytes;
use cofferdam_store::SecretName;
use http::HeaderName;
use memchr::memmem;

use crate::placeholder::{OPENING, PLACEHOLDERS_MAX, in_value};
use crate::{Reason, Target};

/// A request of a guest.
#[derive(Clone)]
pub struct GuestRequest {
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// The checked URL.
    pub target: Target,
    /// The guest's headers, at most 100. They may have placeholders if the grant allows it.
    pub headers: Vec<(String, String)>,
    /// The body, empty for none.
    pub body: Bytes,
    /// Limits in bytes and time.
    pub limits: GuestLimits,
    /// Restricts the request to public addresses, even if `allow_private` opens others. For guests
    /// that may reach any host: the operator did not name this one.
    pub public_only: bool,
}

/// Limits of one exchange of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestLimits {
    /// Length limit of the answer's body, in bytes.
    pub body_bytes_max: u64,
    /// Time limit for everything, from resolving the name to the last byte of the body; at most an
    /// hour.
    pub total: Duration,
}

impl fmt::Debug for GuestRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // URL, headers and body are the guest's content and do not belong into logs.
        formatter.debug_struct("GuestRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// A placeholder in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    /// The header whose value contains it.
    pub header: HeaderName,
    /// The name of the secret that it stands for.
    pub secret: SecretName,
}

/// All placeholders of a request, in order of occurrence.
///
/// # Errors
///
/// [`Reason::Placeholder`] for a placeholder outside of a header's value, a malformed one, and a
/// fifth one. [`Reason::Header`] for a placeholder in a header with an invalid name.
pub fn placeholders(request: &GuestRequest) -> Result<Vec<Placeholder>, Reason> {
    let mut found = Vec::new();
    for (name, value) in &request.headers {
        if name.contains(OPENING) {
            return Err(Reason::Placeholder);
        }
        for (_, secret) in in_value(value)? {
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Reason::Header)?;
            found.push(Placeholder { header, secret });
        }
    }
    let is_misplaced =
        request.method.contains(OPENING) || memmem::find(&request.body, OPENING.as_bytes()).is_some();
    if is_misplaced || found.len() > PLACEHOLDERS_MAX {
        return Err(Reason::Placeholder);
    }
    Ok(found)
}
