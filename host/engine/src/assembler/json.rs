//! Writing JSON into a byte buffer without a tree.

/// Text that is JSON already.
pub(super) fn raw(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// A whole number.
pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    written(serde_json::to_writer(out, &number));
}

/// A string with quotes and escapes.
pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    written(serde_json::to_writer(out, text));
}

/// A string or null.
pub(super) fn optional_string(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => string(out, text),
        None => raw(out, "null"),
    }
}

/// Any value.
pub(super) fn value(out: &mut Vec<u8>, value: &serde_json::Value) {
    written(serde_json::to_writer(out, value));
}

/// Any object.
pub(super) fn object(out: &mut Vec<u8>, members: &serde_json::Map<String, serde_json::Value>) {
    written(serde_json::to_writer(out, members));
}

/// Writing into memory has no way to fail; a half-written event would be a bug
/// worth stopping at in tests.
fn written<E>(result: Result<(), E>) {
    debug_assert!(result.is_ok());
}

/// Foreign JSON without line breaks between tokens, when it is valid and begins
/// with `first`: a raw line feed would end an SSE data line.
pub(super) fn compact_json(bytes: &[u8], first: u8) -> Option<Vec<u8>> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let compact = serde_json::to_vec(&value).ok()?;
    (compact.first() == Some(&first)).then_some(compact)
}
