//! Adds one member to a JSON text and leaves the rest of the text unchanged.
//!
//! Parsing and serialising the whole text would change numbers and drop duplicates. So the object
//! is located in the text, and the member is written before its closing brace.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use crate::Reason;

/// The position for a new member in a text.
pub(crate) struct Gap {
    /// Offset of the closing brace, in bytes.
    at: usize,
    /// The object has other members, so a comma is needed.
    is_after_others: bool,
}

/// Finds the object that gets the last of `members`. The others are the path to it.
///
/// # Errors
///
/// [`Reason::PlaceTaken`] if the object already has that member. [`Reason::JsonBody`] if there is no
/// such object, or if it is ambiguous because a member on the path occurs twice.
pub(crate) fn gap(text: &[u8], members: &[String]) -> Result<Gap, Reason> {
    let text = std::str::from_utf8(text).map_err(|_| Reason::JsonBody)?;
    let (wanted, path) = members.split_last().ok_or(Reason::JsonBody)?;
    let mut inside: &RawValue = serde_json::from_str(text).map_err(|_| Reason::JsonBody)?;
    for name in path {
        inside = object(inside)?.only(name)?.ok_or(Reason::JsonBody)?;
    }
    let object = object(inside)?;
    if object.only(wanted)?.is_some() {
        return Err(Reason::PlaceTaken);
    }
    // Both are slices of the same text, so the difference of their addresses is an offset.
    let start = inside.get().as_ptr().addr().checked_sub(text.as_ptr().addr()).ok_or(Reason::JsonBody)?;
    let at = (start + inside.get().len()).checked_sub(1).ok_or(Reason::JsonBody)?;
    Ok(Gap { at, is_after_others: !object.0.is_empty() })
}

/// Writes the member with a secret. The new text is wiped when its last user drops it.
///
/// # Errors
///
/// Those of [`gap`].
pub(super) fn insert(text: &Bytes, members: &[String], exposed: &[u8]) -> Result<Bytes, Reason> {
    let Gap { at, is_after_others } = gap(text, members)?;
    let (before, after) = text.split_at_checked(at).ok_or(Reason::JsonBody)?;
    let name = members.last().ok_or(Reason::JsonBody)?;
    let name = serde_json::to_string(name).map_err(|_| Reason::JsonBody)?;
    let exposed = std::str::from_utf8(exposed).map_err(|_| Reason::JsonBody)?;
    // At most six bytes per byte, as in `\u001f`. Too much room is fine, too little is not: a
    // buffer that grows leaves an unwiped copy behind.
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

/// The members of an object in the order of the text, duplicates included.
struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// The member of this name. Two of the same name are refused, because JSON readers differ in
    /// which one counts.
    fn only(&self, name: &str) -> Result<Option<&'a RawValue>, Reason> {
        let mut found = self.0.iter().filter(|(other, _)| other == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(Reason::JsonBody),
            (found, None) => Ok(found.map(|(_, value)| *value)),
        }
    }
}

fn object(value: &RawValue) -> Result<Object<'_>, Reason> {
    serde_json::Deserializer::from_str(value.get()).deserialize_map(JsonMembers).map_err(|_| Reason::JsonBody)
}

struct JsonMembers;

impl<'de> Visitor<'de> for JsonMembers {
    type Value = Object<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((JsonName(name), value)) = map.next_entry()? {
            members.push((name, value));
        }
        Ok(Object(members))
    }
}

/// A member's name, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct JsonName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn put(text: &str, pointer: &[&str], value: &str) -> Result<String, Reason> {
        let members: Vec<String> = pointer.iter().map(|member| (*member).to_owned()).collect();
        let whole = insert(&Bytes::copy_from_slice(text.as_bytes()), &members, value.as_bytes())?;
        Ok(String::from_utf8(whole.to_vec()).unwrap())
    }

    #[test]
    fn member_is_added_and_the_rest_of_the_text_stays_unchanged() {
        let table = [
            ("{}", &["key"][..], r#"{"key":"v\"1\n"}"#),
            (r#" { "a" : 1e400 , "b": [ ] } "#, &["key"], r#" { "a" : 1e400 , "b": [ ] ,"key":"v\"1\n"} "#),
            (r#"{"a":{"b":{ }},"c":0}"#, &["a", "b", "key"], r#"{"a":{"b":{ "key":"v\"1\n"}},"c":0}"#),
            (r#"{"a/b":{"x":"}"}}"#, &["a/b", "k~"], r#"{"a/b":{"x":"}","k~":"v\"1\n"}}"#),
            (r#"{"\u0061":{}}"#, &["a", "key"], r#"{"\u0061":{"key":"v\"1\n"}}"#),
        ];
        for (text, pointer, expected) in table {
            assert_eq!(put(text, pointer, "v\"1\n").as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn existing_members_are_not_replaced() {
        for text in [r#"{"key":null}"#, r#"{"k\u0065y":1}"#] {
            assert_eq!(put(text, &["key"], "v"), Err(Reason::PlaceTaken), "{text}");
        }
    }

    #[test]
    fn bodies_without_the_object_are_refused() {
        let table = [
            ("", &["key"][..]),
            ("[]", &["key"]),
            ("\"text\"", &["key"]),
            ("{} {}", &["key"]),
            (r#"{"a":1"#, &["key"]),
            ("{}", &["a", "key"]),
            (r#"{"a":[]}"#, &["a", "key"]),
            (r#"{"a":"{}"}"#, &["a", "key"]),
            // Of two members of one name, some readers take the first and some the last.
            (r#"{"a":{},"a":{}}"#, &["a", "key"]),
            (r#"{"key":1,"key":2}"#, &["key"]),
            ("key=value", &["key"]),
        ];
        for (text, pointer) in table {
            assert_eq!(put(text, pointer, "v"), Err(Reason::JsonBody), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsers_read_the_added_member(
            names in proptest::collection::btree_map("[a-z\\\\\"é/]{0,4}", "[ -~é]{0,6}", 0..4),
            value in any::<String>(),
        ) {
            let text = serde_json::to_string(&names).unwrap();
            match put(&text, &["key"], &value) {
                Ok(whole) => {
                    let read: Value = serde_json::from_str(&whole).unwrap();
                    prop_assert_eq!(read["key"].as_str(), Some(value.as_str()));
                    prop_assert_eq!(read.as_object().unwrap().len(), names.len() + 1);
                }
                Err(error) => prop_assert!(names.contains_key("key") && error == Reason::PlaceTaken),
            }
        }

        #[test]
        fn any_body_yields_valid_json_or_is_refused(text in "[{}\\[\\]\",:a ]{0,16}") {
            if let Ok(whole) = put(&text, &["key"], "v") {
                let read: Value = serde_json::from_str(&whole).unwrap();
                prop_assert_eq!(read["key"].as_str(), Some("v"));
            }
        }
    }
}
