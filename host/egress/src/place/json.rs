//! One more member in a JSON text, which is otherwise left as it stands.
//!
//! Reading and writing the text anew would change numbers and drop duplicates; so the object is found in the
//! text and the member is written before its closing brace.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use crate::Reason;

/// Where a new member fits into a text.
pub(super) struct Gap {
    /// The position of the closing brace.
    at: usize,
    /// Other members stand before it.
    is_after_others: bool,
}

/// Finds the object that is to get the last of `members`; the others lead to it.
///
/// # Errors
///
/// [`Reason::SlotTaken`] if it has that member already, [`Reason::JsonBody`] if there is no such object, or two
/// readers could see different ones in its place.
pub(super) fn gap(text: &[u8], members: &[String]) -> Result<Gap, Reason> {
    let text = std::str::from_utf8(text).map_err(|_| Reason::JsonBody)?;
    let (wanted, path) = members.split_last().ok_or(Reason::JsonBody)?;
    let mut inside: &RawValue = serde_json::from_str(text).map_err(|_| Reason::JsonBody)?;
    for name in path {
        inside = object(inside)?.only(name)?.ok_or(Reason::JsonBody)?;
    }
    let object = object(inside)?;
    if object.only(wanted)?.is_some() {
        return Err(Reason::SlotTaken);
    }
    // Both are slices of the same text.
    let start = inside.get().as_ptr().addr().checked_sub(text.as_ptr().addr()).ok_or(Reason::JsonBody)?;
    let at = (start + inside.get().len()).checked_sub(1).ok_or(Reason::JsonBody)?;
    Ok(Gap { at, is_after_others: !object.0.is_empty() })
}

/// Writes the member with a secret into its gap; the new text is wiped with its last user.
///
/// # Errors
///
/// As [`gap`], and [`Reason::SecretNotHeaderSafe`] never: a value is escaped as JSON wants it.
pub(super) fn insert(text: &Bytes, members: &[String], exposed: &[u8]) -> Result<Bytes, Reason> {
    let Gap { at, is_after_others } = gap(text, members)?;
    let (before, after) = text.split_at_checked(at).ok_or(Reason::JsonBody)?;
    let name = members.last().ok_or(Reason::JsonBody)?;
    let name = serde_json::to_string(name).map_err(|_| Reason::JsonBody)?;
    let exposed = std::str::from_utf8(exposed).map_err(|_| Reason::JsonBody)?;
    // Six bytes for each at most, as in `\u001f`; never less than is needed, so that nothing grows and is left.
    let capacity = text.len() + name.len() + 6 * exposed.len() + 4;
    let mut whole = Zeroizing::new(Vec::with_capacity(capacity));
    whole.extend_from_slice(before);
    if is_after_others {
        whole.push(b',');
    }
    whole.extend_from_slice(name.as_bytes());
    whole.push(b':');
    serde_json::to_writer(&mut *whole, exposed).map_err(|_| Reason::JsonBody)?;
    whole.extend_from_slice(after);
    Ok(Bytes::from_owner(whole))
}

/// The members of an object as they are written.
struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// The member of this name. Of two, readers differ which one counts.
    fn only(&self, name: &str) -> Result<Option<&'a RawValue>, Reason> {
        let mut found = self.0.iter().filter(|(other, _)| other == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(Reason::JsonBody),
            (found, None) => Ok(found.map(|(_, value)| *value)),
        }
    }
}

fn object(value: &RawValue) -> Result<Object<'_>, Reason> {
    serde_json::Deserializer::from_str(value.get()).deserialize_map(Members).map_err(|_| Reason::JsonBody)
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Key(name), value)) = map.next_entry()? {
            members.push((name, value));
        }
        Ok(Object(members))
    }
}

/// A name, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
