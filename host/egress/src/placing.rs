//! Puts released secrets into their places in a request. No other code does this.

mod json;

use bytes::Bytes;
use cofferdam_store::SecretName;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, uri::PathAndQuery};
use zeroize::Zeroizing;

use crate::{
    Placement, Reason,
    header_rules::{self, VALUE_BYTES_MAX},
    placeholder,
};

pub(crate) use json::gap;

/// Length limit of the path and query after secrets are added, in bytes.
const TARGET_BYTES_MAX: usize = 64 * 1024 - 1;

/// Puts each value into its place. The places are free: the rules for the request have checked it.
/// The new buffers with a secret in them are wiped when their last user drops them.
///
/// # Errors
///
/// A value does not fit into its place.
pub(crate) fn fill(request: &mut Request<Bytes>, secrets: &[(&Placement, &[u8])]) -> Result<(), Reason> {
    for (placement, exposed) in secrets {
        match placement {
            Placement::Header { name, before, after } => {
                let value = framed(before, exposed, after)?;
                request.headers_mut().insert(name.clone(), value);
            }
            Placement::Json { members } => {
                *request.body_mut() = json::insert(request.body(), members, exposed)?;
            }
            Placement::Placeholder { .. } | Placement::Query { .. } => {}
        }
    }
    if secrets.iter().any(|(placement, _)| matches!(placement, Placement::Placeholder { .. })) {
        replace_placeholders(request.headers_mut(), secrets)?;
    }
    add_to_query(request.uri_mut(), secrets)
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
fn replace_placeholders(headers: &mut HeaderMap, secrets: &[(&Placement, &[u8])]) -> Result<(), Reason> {
    let exposed_for = |name: &HeaderName, wanted: &SecretName| {
        let found = secrets.iter().find(|(placement, _)| {
            matches!(placement, Placement::Placeholder { header, secret } if header == name && secret == wanted)
        });
        found.map(|(_, exposed)| *exposed).ok_or(Reason::Placeholder)
    };
    for (name, value) in headers.iter_mut() {
        // Only the guest's own values are scanned, never one that already has a secret in it: a
        // secret may contain text that looks like a placeholder.
        let Some(text) = value.to_str().ok().filter(|_| !value.is_sensitive()) else { continue };
        let found = placeholder::in_value(text)?;
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * found.len() + 1);
        let mut from = 0;
        for (range, secret) in &found {
            let exposed = exposed_for(name, secret)?;
            if !header_rules::is_safe(exposed) {
                return Err(Reason::SecretNotHeaderSafe);
            }
            parts.extend([text.get(from..range.start).unwrap_or_default().as_bytes(), exposed]);
            from = range.end;
        }
        if !found.is_empty() {
            parts.push(text.get(from..).unwrap_or_default().as_bytes());
            *value = sensitive(&parts)?;
        }
    }
    Ok(())
}

/// Adds the query parameters that carry secrets. All but unreserved characters are percent-encoded.
fn add_to_query(uri: &mut Uri, secrets: &[(&Placement, &[u8])]) -> Result<(), Reason> {
    let mut added: Vec<(&str, &[u8])> = Vec::new();
    for (placement, exposed) in secrets {
        if let Placement::Query { name } = placement {
            added.push((name, exposed));
        }
    }
    if added.is_empty() {
        return Ok(());
    }
    let bare = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let length = added.iter().fold(bare.len(), |sum, (name, value)| sum + 2 + name.len() + 3 * value.len());
    if length > TARGET_BYTES_MAX {
        return Err(Reason::SecretLength);
    }
    let mut text = Zeroizing::new(Vec::with_capacity(length));
    text.extend_from_slice(bare.as_bytes());
    let mut separator = match uri.query() {
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
    *uri = Uri::from_parts(parts).map_err(|_| Reason::SecretLength)?;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_in_a_header_is_framed_and_marked_as_sensitive() {
        let mut request = Request::new(Bytes::new());
        let placement = Placement::header("Authorization", "Bearer {}").unwrap();
        fill(&mut request, &[(&placement, b"sk-1 2")]).unwrap();
        let value = &request.headers()["authorization"];
        assert_eq!(value, "Bearer sk-1 2");
        assert!(value.is_sensitive());
        assert!(!format!("{value:?}").contains("sk-1"));
    }
}
