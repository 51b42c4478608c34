//! A request as a guest writes it, and the rules that need no secret's value.

use std::{fmt, time::Duration};

use bytes::Bytes;
use cofferdam_store::SecretName;
use http::{HeaderMap, HeaderName, Method, Request};
use memchr::memmem;

use crate::placeholder::{OPENING, PLACEHOLDERS_MAX, in_value};
use crate::{PlacedSecret, Placement, Reason, Target, headers, placing};

/// Number of secrets in one request.
pub const SECRETS_MAX: usize = 16;

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

/// A request that passed all rules that need no secret's value. It can be sent once its secrets are
/// released.
pub struct CheckedRequest {
    pub(crate) request: GuestRequest,
    /// The request as it is sent, still without secrets.
    pub(crate) bare: Request<Bytes>,
    pub(crate) secrets: Vec<PlacedSecret>,
}

impl CheckedRequest {
    /// The request as the guest wrote it.
    #[must_use]
    pub fn request(&self) -> &GuestRequest {
        &self.request
    }

    /// The secrets that are sent with the request.
    #[must_use]
    pub fn secrets(&self) -> &[PlacedSecret] {
        &self.secrets
    }

    /// Moves one of the secrets to the front, to be released first.
    pub fn move_to_front(&mut self, index: usize) {
        if index < self.secrets.len() {
            self.secrets.swap(0, index);
        }
    }
}

impl GuestRequest {
    /// Checks all rules about the content of the request.
    pub(crate) fn checked(self, secrets: Vec<PlacedSecret>) -> Result<CheckedRequest, Reason> {
        if secrets.len() > SECRETS_MAX {
            return Err(Reason::TooManySecrets);
        }
        let method = method(&self.method)?;
        check_placeholders(&self, &secrets)?;
        let headers = headers::assemble_own(&self.headers, !secrets.is_empty())?;
        check_places(&self, &headers, &secrets)?;
        let mut bare = Request::new(self.body.clone());
        *bare.method_mut() = method;
        *bare.uri_mut() = self.target.uri().clone();
        *bare.headers_mut() = headers;
        Ok(CheckedRequest { request: self, bare, secrets })
    }
}

fn method(text: &str) -> Result<Method, Reason> {
    match text {
        "GET" => Ok(Method::GET),
        "HEAD" => Ok(Method::HEAD),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(Reason::Method),
    }
}

/// Every placeholder must have a secret, and every secret for a placeholder must be used by one
/// (egress rule R2).
fn check_placeholders(request: &GuestRequest, secrets: &[PlacedSecret]) -> Result<(), Reason> {
    let found = placeholders(request)?;
    let mut wanted = Vec::new();
    for PlacedSecret { secret, placement } in secrets {
        if let Placement::Placeholder { header, secret: named } = placement {
            if secret != named {
                return Err(Reason::Placeholder);
            }
            wanted.push((header, secret));
        }
    }
    let is_provided = found.iter().all(|one| wanted.contains(&(&one.header, &one.secret)));
    let is_used = wanted
        .iter()
        .all(|(header, secret)| found.iter().any(|one| one.header == **header && one.secret == **secret));
    if is_provided && is_used { Ok(()) } else { Err(Reason::Placeholder) }
}

/// No place may be taken by the guest's own request or by another secret of this request.
fn check_places(request: &GuestRequest, headers: &HeaderMap, secrets: &[PlacedSecret]) -> Result<(), Reason> {
    let mut taken: Vec<&Placement> = Vec::with_capacity(secrets.len());
    for PlacedSecret { placement, .. } in secrets {
        let is_taken = taken.iter().any(|other| other.is_same_place(placement))
            || match placement {
                Placement::Header { name, .. } => headers.contains_key(name),
                Placement::Placeholder { .. } => false,
                Placement::Query { name } => request.target.has_query_name(name),
                Placement::Json { members } => {
                    placing::gap(&request.body, members)?;
                    false
                }
            };
        if is_taken {
            return Err(Reason::PlaceTaken);
        }
        taken.push(placement);
    }
    Ok(())
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
