//! Puts released secrets into their places in a guest's request.

mod json;

use bytes::Bytes;
use cofferdam_store::SecretName;
use http::{HeaderMap, HeaderValue, Method, Uri, uri::PathAndQuery};
use zeroize::Zeroizing;

use crate::{
    GuestRequest, Injection, Reason, SecretPlacement,
    guest_request::placeholders,
    header_rules::{self, VALUE_BYTES_MAX},
    headers, placeholder,
    secret_placement::PlacementKind,
};

/// Number of secrets in one request.
pub const SECRETS_MAX: usize = 16;
/// Length limit of the path and query after secrets are added, in bytes.
const TARGET_BYTES_MAX: usize = 64 * 1024 - 1;

/// A request as it is sent. Its buffers that hold a secret are wiped when their last user drops
/// them.
pub(crate) struct Filled {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Checks all rules that do not need a secret's value. Returns the method and the headers without
/// secrets.
pub(crate) fn check(
    request: &GuestRequest,
    slots: &[(&SecretPlacement, &SecretName)],
) -> Result<(Method, HeaderMap), Reason> {
    if slots.len() > SECRETS_MAX {
        return Err(Reason::TooManySecrets);
    }
    let method = method(&request.method)?;
    check_placeholders(request, slots)?;
    let headers = headers::assemble_own(&request.headers, !slots.is_empty())?;
    let mut taken: Vec<&SecretPlacement> = Vec::with_capacity(slots.len());
    for (slot, _) in slots {
        // Taken by the guest's own request, or by another secret of this request.
        let is_taken = taken.contains(slot)
            || match &slot.0 {
                PlacementKind::Header { name, .. } => {
                    headers.contains_key(name) || taken.iter().any(|other| is_header(other, name))
                }
                PlacementKind::Placeholder { .. } => false,
                PlacementKind::Query(name) => request.target.has_query_name(name),
                PlacementKind::Json(members) => {
                    json::gap(&request.body, members)?;
                    false
                }
            };
        if is_taken {
            return Err(Reason::SlotTaken);
        }
        taken.push(slot);
    }
    Ok((method, headers))
}

fn is_header(slot: &SecretPlacement, wanted: &http::HeaderName) -> bool {
    matches!(&slot.0, PlacementKind::Header { name, .. } if name == wanted)
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
fn check_placeholders(
    request: &GuestRequest,
    slots: &[(&SecretPlacement, &SecretName)],
) -> Result<(), Reason> {
    let found = placeholders(request)?;
    let mut wanted = Vec::new();
    for (slot, name) in slots {
        if let PlacementKind::Placeholder { header, secret } = &slot.0 {
            if secret != *name {
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

/// Checks the request again and puts every secret into its place.
pub(crate) fn fill(request: &GuestRequest, injections: &[Injection]) -> Result<Filled, Reason> {
    let slots: Vec<(&SecretPlacement, &SecretName)> =
        injections.iter().map(|injection| (&injection.slot, injection.secret.name())).collect();
    let (method, mut headers) = check(request, &slots)?;
    // The release was for one host: a secret never goes to another one (egress rules R4 and R7).
    for Injection { secret, .. } in injections {
        if Some(secret.host()) != request.target.host_name() {
            return Err(Reason::SecretHost);
        }
        if !(1..=VALUE_BYTES_MAX).contains(&secret.expose().len()) {
            return Err(Reason::SecretLength);
        }
    }
    let mut body = request.body.clone();
    for injection in injections {
        match &injection.slot.0 {
            PlacementKind::Header { name, before, after } => {
                headers.insert(name.clone(), framed(before, injection.secret.expose(), after)?);
            }
            PlacementKind::Json(members) => body = json::insert(&body, members, injection.secret.expose())?,
            PlacementKind::Placeholder { .. } | PlacementKind::Query(_) => {}
        }
    }
    replace_placeholders(&mut headers, injections)?;
    Ok(Filled { method, uri: with_query(request, injections)?, headers, body })
}

fn framed(before: &str, exposed: &[u8], after: &str) -> Result<HeaderValue, Reason> {
    if !header_rules::is_safe(exposed) {
        return Err(Reason::SecretNotHeaderSafe);
    }
    sensitive(&[before.as_bytes(), exposed, after.as_bytes()])
}

/// Joins the parts into a header value whose buffer is wiped on drop.
fn sensitive(parts: &[&[u8]]) -> Result<HeaderValue, Reason> {
    let length = parts.iter().map(|part| part.len()).sum();
    if length > VALUE_BYTES_MAX {
        return Err(Reason::SecretLength);
    }
    let mut value =
        HeaderValue::from_maybe_shared(joined(parts, length)).map_err(|_| Reason::SecretNotHeaderSafe)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Joins the parts in a buffer of the final size: a buffer that grows leaves unwiped copies behind.
fn joined(parts: &[&[u8]], length: usize) -> Bytes {
    let mut text = Zeroizing::new(Vec::with_capacity(length));
    for part in parts {
        text.extend_from_slice(part);
    }
    Bytes::from_owner(text)
}

/// Replaces placeholders by their secrets, in one pass over the guest's text.
fn replace_placeholders(headers: &mut HeaderMap, injections: &[Injection]) -> Result<(), Reason> {
    for (name, value) in headers.iter_mut() {
        // Only the guest's own values are scanned, never one that already has a secret in it: a
        // secret may contain text that looks like a placeholder.
        let Some(text) = value.to_str().ok().filter(|_| !value.is_sensitive()) else { continue };
        let found = placeholder::in_value(text)?;
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * found.len() + 1);
        let mut from = 0;
        for (place, secret) in &found {
            let wanted = injections.iter().find(|injection| {
                matches!(&injection.slot.0, PlacementKind::Placeholder { header, secret: named } if header == name && named == secret)
            });
            let exposed = wanted.ok_or(Reason::Placeholder)?.secret.expose();
            if !header_rules::is_safe(exposed) {
                return Err(Reason::SecretNotHeaderSafe);
            }
            parts.extend([text.get(from..place.start).unwrap_or_default().as_bytes(), exposed]);
            from = place.end;
        }
        if !found.is_empty() {
            parts.push(text.get(from..).unwrap_or_default().as_bytes());
            *value = sensitive(&parts)?;
        }
    }
    Ok(())
}

/// The request's URI with the query parameters that carry secrets. All but unreserved characters
/// are percent-encoded.
fn with_query(request: &GuestRequest, injections: &[Injection]) -> Result<Uri, Reason> {
    let uri = request.target.uri();
    let mut added: Vec<(&str, &[u8])> = Vec::new();
    for injection in injections {
        if let PlacementKind::Query(name) = &injection.slot.0 {
            added.push((name, injection.secret.expose()));
        }
    }
    if added.is_empty() {
        return Ok(uri.clone());
    }
    let bare = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let length = added.iter().fold(bare.len(), |sum, (name, value)| sum + 2 + name.len() + 3 * value.len());
    if length > TARGET_BYTES_MAX {
        return Err(Reason::SecretLength);
    }
    let mut text = Zeroizing::new(Vec::with_capacity(length));
    text.extend_from_slice(bare.as_bytes());
    let mut separator = match request.target.query() {
        None => Some(b'?'),
        // The URL already ends with a question mark.
        Some("") => None,
        Some(_) => Some(b'&'),
    };
    for (name, value) in added {
        text.extend(separator);
        separator = Some(b'&');
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        for byte in value {
            percent_encode(*byte, &mut text);
        }
    }
    let mut parts = uri.clone().into_parts();
    let path_and_query = PathAndQuery::from_maybe_shared(Bytes::from_owner(text));
    parts.path_and_query = Some(path_and_query.map_err(|_| Reason::SecretLength)?);
    Uri::from_parts(parts).map_err(|_| Reason::SecretLength)
}

fn percent_encode(byte: u8, text: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        text.push(byte);
        return;
    }
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or_default();
    text.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
}
