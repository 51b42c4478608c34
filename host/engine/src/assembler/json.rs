//! Checks JSON from guests and writes it on one line.

/// Compacts JSON from a guest; none if it is invalid or does not begin with `first`. The result has
/// no line breaks between tokens: a raw line feed would end the data line of a server-sent event.
pub(super) fn compact_json(bytes: &[u8], first: u8) -> Option<Vec<u8>> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let compact = serde_json::to_vec(&value).ok()?;
    (compact.first() == Some(&first)).then_some(compact)
}
