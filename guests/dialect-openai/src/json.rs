//! Reads JSON objects without copying their values: a request may carry megabytes of images through a
//! guest that only drops a few fields.

use std::borrow::Cow;
use std::fmt;

use cofferdam_guest_kit::MaybeText;
use cofferdam_guest_kit::json::{self, JsonError};
use cofferdam_protocol::ObjectWriter;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object with unparsed values. `null` counts as absent.
#[derive(Debug, Default)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads `json` as an object.
    ///
    /// # Errors
    ///
    /// When it is not an object.
    pub fn read(json: &'a str) -> Result<Self, JsonError> {
        json::from_str(json)
    }

    /// Reads `json` and, in the same pass, the objects in the field `list`, which is then not among
    /// the returned fields. The list is empty when the field is absent or null.
    ///
    /// # Errors
    ///
    /// When it is not an object, or the field `list` is not a list of objects.
    pub fn read_with_list(json: &'a str, list: &str) -> Result<(Self, Vec<Self>), JsonError> {
        json::read_seed(json, WithList(list))
    }

    /// The value of a field, unless it is absent or null.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.0.iter().rev().find(|(field, _)| field == name)?;
        (value.get() != "null").then_some(*value)
    }

    /// The value of a field, if it is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        let raw = self.get(name)?.get();
        let quoted = raw.strip_prefix('"')?;
        // The JSON was validated when it was read: a string without an escape is its own value.
        if let Some(plain) = quoted.strip_suffix('"').filter(|text| !text.contains('\\')) {
            return Some(Cow::Borrowed(plain));
        }
        let value: MaybeText<'a> = json::from_str(raw).ok()?;
        value.0
    }

    /// Writes those of the fields that `names` lists.
    pub fn pick(&self, names: &[&str], object: &mut ObjectWriter<'_>) {
        for name in names {
            if let Some(value) = self.get(name) {
                object.raw(name, value.get());
            }
        }
    }

    /// All fields in their order, including those that are null.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<MaybeText<'de>, &'de RawValue>()? {
            fields.push((name.0.unwrap_or_default(), value));
        }
        Ok(Fields(fields))
    }
}

/// Reads an object whose field with this name is a list of objects.
struct WithList<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for WithList<'_> {
    type Value = (Fields<'de>, Vec<Fields<'de>>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WithList<'_> {
    type Value = (Fields<'de>, Vec<Fields<'de>>);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut list) = (Vec::new(), None);
        while let Some(name) = map.next_key::<MaybeText<'de>>()? {
            let name = name.0.unwrap_or_default();
            if name == self.0 {
                list = map.next_value::<Option<Vec<Fields<'de>>>>()?;
            } else {
                fields.push((name, map.next_value::<&'de RawValue>()?));
            }
        }
        Ok((Fields(fields), list.unwrap_or_default()))
    }
}

/// Writes an object with the fields of `fields` that `names` lists.
pub fn picked(fields: &Fields<'_>, names: &[&str], out: &mut Vec<u8>) {
    let mut object = ObjectWriter::new(out);
    fields.pick(names, &mut object);
    object.end();
}

/// JSON on one line, as an event stream needs it. In valid JSON a line break can stand only
/// between tokens, where a space means the same.
#[must_use]
pub fn on_one_line(json: &RawValue) -> Vec<u8> {
    json.get().bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

/// Log-probabilities in the form of the contract; empty bytes unless there are some.
#[must_use]
pub fn log_probabilities(json: Option<&RawValue>) -> Vec<u8> {
    let listed = |json: &&RawValue| {
        json.get().strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'))
    };
    json.filter(listed).map(on_one_line).unwrap_or_default()
}

/// A price as servers report it, in dollars; `None` when it is not a valid amount.
#[must_use]
pub fn dollars(value: Option<&RawValue>) -> Option<f64> {
    let amount: f64 = value?.get().parse().ok()?;
    (amount.is_finite() && amount >= 0.0).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::{Fields, picked};

    #[test]
    fn values_are_written_unchanged() {
        let fields = Fields::read(r#"{ "b" : [1, 2.50], "a\u0062": "x\n", "n":null, "z":{} }"#).unwrap();
        let mut out = Vec::new();
        picked(&fields, &["z", "n", "b", "ab", "absent"], &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"z":{},"b":[1, 2.50],"ab":"x\n"}"#);
        assert_eq!(fields.text("ab").as_deref(), Some("x\n"));
        assert_eq!(fields.text("z"), None);
        assert!(Fields::read("[]").is_err());
    }

    #[test]
    fn a_list_of_objects_is_read_along_with_the_fields() {
        let (fields, list) = Fields::read_with_list(r#"{"a":1,"l":[{"b":"c"},{}],"d":2}"#, "l").unwrap();
        assert_eq!(fields.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].text("b").as_deref(), Some("c"));
        for none in [r#"{"a":1}"#, r#"{"l":null}"#, r#"{"l":[]}"#, r#"{"l":[{}],"l":null}"#] {
            assert!(Fields::read_with_list(none, "l").unwrap().1.is_empty(), "{none}");
        }
        for wrong in [r#"{"l":[1]}"#, r#"{"l":{}}"#, r#"{"l":"x"}"#, "[]", "{} {}"] {
            assert!(Fields::read_with_list(wrong, "l").is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_is_read_with_and_without_escapes() {
        let fields = Fields::read(r#"{"a":"plain ä","b":"\"\u00e4\\","c":"","d":7,"e":"\\"}"#).unwrap();
        let expected =
            [("a", Some("plain ä")), ("b", Some("\"ä\\")), ("c", Some("")), ("d", None), ("e", Some("\\"))];
        for (name, text) in expected {
            assert_eq!(fields.text(name).as_deref(), text, "{name}");
        }
    }
}
