//! Objects taken apart and put together again without a copy of their values:
//! a request may carry megabytes of pictures through a guest that only drops a
//! few fields.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::lenient::MaybeText;

/// The fields of an object, values unread. Null counts as absent.
#[derive(Debug, Default)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads `json`.
    ///
    /// # Errors
    ///
    /// When it is not an object.
    pub fn read(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.0.iter().rev().find(|(field, _)| field == name)?;
        (value.get() != "null").then_some(*value)
    }

    /// The value of a field that is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        let value: MaybeText<'a> = serde_json::from_str(self.get(name)?.get()).ok()?;
        value.0
    }

    /// All fields in their order.
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

/// Writes one object behind whatever `out` holds.
pub struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    empty: bool,
}

impl<'o> ObjectWriter<'o> {
    /// Opens the object.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Writes a field's name; the value has to follow.
    pub fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        // Names are this program's own or were read from JSON; a text always
        // serializes, and a vector always takes it.
        serde_json::to_writer(&mut *self.out, name).unwrap_or_default();
        self.out.push(b':');
        self.out
    }

    /// Writes a field as it was read.
    pub fn raw(&mut self, name: &str, value: &RawValue) {
        self.name(name).extend_from_slice(value.get().as_bytes());
    }

    /// Writes a field.
    pub fn value(&mut self, name: &str, value: &impl Serialize) {
        let out = self.name(name);
        let start = out.len();
        if serde_json::to_writer(&mut *out, value).is_err() {
            out.truncate(start);
            out.extend_from_slice(b"null");
        }
    }

    /// Writes those of `names` that `fields` has.
    pub fn pick(&mut self, fields: &Fields<'_>, names: &[&str]) {
        for name in names {
            if let Some(value) = fields.get(name) {
                self.raw(name, value);
            }
        }
    }

    /// Closes the object.
    pub fn end(self) {
        self.out.push(b'}');
    }
}

/// `fields` reduced to `names`, as an object.
pub fn picked(fields: &Fields<'_>, names: &[&str], out: &mut Vec<u8>) {
    let mut object = ObjectWriter::new(out);
    object.pick(fields, names);
    object.end();
}

/// JSON on one line, as a stream of events needs it. Line breaks stand only
/// between the tokens of JSON, where a space does as well.
#[must_use]
pub fn on_one_line(json: &RawValue) -> Vec<u8> {
    json.get().bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

/// Log-probabilities as a stream needs them; nothing unless there are some.
#[must_use]
pub fn log_probabilities(json: Option<&RawValue>) -> Vec<u8> {
    let listed = |json: &&RawValue| {
        json.get().strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'))
    };
    json.filter(listed).map(on_one_line).unwrap_or_default()
}

/// A price as servers report it; nothing when it is no amount.
#[must_use]
pub fn dollars(value: Option<&RawValue>) -> Option<f64> {
    let amount: f64 = value?.get().parse().ok()?;
    (amount.is_finite() && amount >= 0.0).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::{Fields, picked};

    #[test]
    fn values_are_handed_on_as_they_stand() {
        let fields = Fields::read(r#"{ "b" : [1, 2.50], "a\u0062": "x\n", "n":null, "z":{} }"#).unwrap();
        let mut out = Vec::new();
        picked(&fields, &["z", "n", "b", "ab", "absent"], &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"z":{},"b":[1, 2.50],"ab":"x\n"}"#);
        assert_eq!(fields.text("ab").as_deref(), Some("x\n"));
        assert_eq!(fields.text("z"), None);
        assert!(Fields::read("[]").is_err());
    }
}
