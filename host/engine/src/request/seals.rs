//! Removes from a request what providers sealed for themselves.
//!
//! A provider seals its reasoning, and takes it back only where it can open or check the seal. Another provider of the
//! same dialect cannot, nor can the same provider with the credential of another account.

use super::json::{JsonDocument, JsonValue, separate, write_key, write_member};

/// The members of a reasoning item that hold a seal.
const SEALS: [&str; 2] = ["encrypted_content", "signature"];

/// A document for guests from which seals were removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unsealed {
    pub(crate) json: Vec<u8>,
    /// The number of items of its input.
    pub(crate) items: usize,
}

/// Removes the seals of reasoning from the first `most` items of the input. `json` is the document that this host wrote
/// for guests. `None` where these items have no seal.
pub(crate) fn without_seals(json: &[u8], most: usize) -> Option<Unsealed> {
    let document = JsonDocument::parse(json).ok()?;
    let input = document.root().get("input")?;
    if !input.items().take(most).any(is_sealed) {
        return None;
    }
    let mut out = Vec::with_capacity(json.len());
    out.push(b'{');
    for (key, value) in document.root().members() {
        if key.is("input") {
            write_key(key, &mut out);
            write_input(value, most, &mut out);
        } else {
            write_member(key, value, &mut out);
        }
    }
    out.push(b'}');
    Some(Unsealed { json: out, items: input.items().count() })
}

fn is_sealed(item: JsonValue<'_>) -> bool {
    is_reasoning(item) && SEALS.iter().any(|name| item.get(name).is_some())
}

fn is_reasoning(item: JsonValue<'_>) -> bool {
    item.get("type").is_some_and(|kind| kind.is("reasoning"))
}

fn write_input(input: JsonValue<'_>, most: usize, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, item) in input.items().enumerate() {
        separate(out);
        if index < most && is_reasoning(item) {
            write_unsealed(item, out);
        } else {
            item.write(out);
        }
    }
    out.push(b']');
}

fn write_unsealed(item: JsonValue<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    let kept = item.members().filter(|(key, _)| !SEALS.iter().any(|name| key.is(name)));
    kept.for_each(|(key, value)| write_member(key, value, out));
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::{Unsealed, without_seals};

    const SEALED: &str = r#"{"type":"reasoning","summary":[],"encrypted_content":"x","signature":"y"}"#;
    const OPEN: &str = r#"{"type":"reasoning","summary":[]}"#;
    const COMPACTED: &str = r#"{"type":"compaction","encrypted_content":"x"}"#;

    fn document(items: &[&str]) -> String {
        format!(r#"{{"model":"m","input":[{}],"tools":[]}}"#, items.join(","))
    }

    #[test]
    fn seals_of_reasoning_are_removed_from_the_first_items() {
        let json = document(&[SEALED, COMPACTED, SEALED]);
        for (most, expected) in [(1, [OPEN, COMPACTED, SEALED]), (9, [OPEN, COMPACTED, OPEN])] {
            let json = without_seals(json.as_bytes(), most);
            assert_eq!(json, Some(Unsealed { json: document(&expected).into_bytes(), items: 3 }));
        }
    }

    #[test]
    fn a_request_without_seals_stays_as_it_is() {
        for items in [&[OPEN, COMPACTED][..], &[], &[OPEN, SEALED]] {
            assert_eq!(without_seals(document(items).as_bytes(), 1), None);
        }
        assert_eq!(without_seals(b"{", 1), None);
    }
}
