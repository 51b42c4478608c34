//! Writes JSON into a byte buffer without building a tree.

use serde::Serialize;

/// Appends text that is already JSON.
pub(super) fn raw(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    written(serde_json::to_writer(out, &number));
}

/// Appends a string with quotes and escapes.
pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    written(serde_json::to_writer(out, text));
}

/// Appends a comma and a member with a name that needs no escapes.
pub(super) fn member(out: &mut Vec<u8>, name: &str, value: impl Serialize) {
    key(out, name);
    written(serde_json::to_writer(out, &value));
}

/// Like [`member`], but with a name from a manifest or a client, which may need escapes.
pub(super) fn named_member(out: &mut Vec<u8>, name: &str, value: impl Serialize) {
    raw(out, ",");
    string(out, name);
    raw(out, ":");
    written(serde_json::to_writer(out, &value));
}

/// Appends a comma and the name of a member, which needs no escapes.
pub(super) fn key(out: &mut Vec<u8>, name: &str) {
    raw(out, ",\"");
    raw(out, name);
    raw(out, "\":");
}

pub(super) fn object(out: &mut Vec<u8>, members: &serde_json::Map<String, serde_json::Value>) {
    written(serde_json::to_writer(out, members));
}

/// Writing into memory cannot fail. If it did, the event would be incomplete, so tests stop here.
fn written<E>(result: Result<(), E>) {
    debug_assert!(result.is_ok());
}

/// Compacts JSON from a guest; none if it is invalid or does not begin with `first`. The result has
/// no line breaks between tokens: a raw line feed would end the data line of a server-sent event.
pub(super) fn compact_json(bytes: &[u8], first: u8) -> Option<Vec<u8>> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let compact = serde_json::to_vec(&value).ok()?;
    (compact.first() == Some(&first)).then_some(compact)
}
