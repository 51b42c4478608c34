//! What a judging hook is shown: the request, and under `provider.options` the provider options
//! that are sent on. Models may read these options, so they are judged too. Other hooks do not get
//! them.

use crate::catalog::Catalog;
use crate::request::ResponsesRequest;
use bytes::Bytes;
use serde_json::Value;

/// The request's JSON with the options that the providers of this host let clients set.
pub(super) fn shown(catalog: &Catalog, request: &ResponsesRequest) -> Bytes {
    let mut written = Vec::new();
    for (name, given) in &request.provider.options {
        let mut endpoints = catalog.endpoints();
        let named = endpoints.find(|endpoint| endpoint.provider.name.eq_ignore_ascii_case(name));
        let Some(endpoint) = named else { continue };
        let options = endpoint.provider.options.sift(given).json;
        written.extend_from_slice(if written.is_empty() { b"{" } else { b"," });
        // A string always serializes.
        written.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
        written.push(b':');
        written.extend_from_slice(&options);
    }
    match request.guest_json.strip_suffix(b"}") {
        Some(document) if !written.is_empty() => {
            Bytes::from([document, br#","provider":{"options":"#, &written, b"}}}"].concat())
        }
        _ => request.guest_json.clone(),
    }
}
