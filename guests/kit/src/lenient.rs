//! Readers for fields of foreign JSON. Each reader takes the type it expects and turns every
//! other value into nothing. Servers that imitate an API differ in exactly these fields, and one
//! unexpected value must not make the whole answer fail.
//! In a request, the type of a field may depend on a sibling that comes later.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Text that is borrowed from the JSON when it has no escapes.
pub type Text<'a> = Cow<'a, str>;

/// The text if the value is a string; borrowed when the string has no escapes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MaybeText<'a>(pub Option<Text<'a>>);

impl MaybeText<'_> {
    /// The text, empty when there is none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The number if the value can be a count; fractions are cut off.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub Option<u64>);

/// A text that holds JSON. Some servers send the JSON object itself; it becomes text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct JsonText<'a>(pub Option<Text<'a>>);

/// A text or a list of parts. The elements of the list are read strictly.
#[derive(Debug, Clone)]
pub struct TextOrList<'a, T> {
    /// The text, where it is one.
    pub text: Option<Text<'a>>,
    /// The elements, where it is a list; otherwise empty.
    pub list: Vec<T>,
}

impl<T> Default for TextOrList<'_, T> {
    fn default() -> Self {
        Self { text: None, list: Vec::new() }
    }
}

/// The list if the value is one. Its elements are read strictly.
#[derive(Debug, Clone)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Skips every value whose method an implementation does not override.
pub(crate) trait Reader<'de>: Sized {
    type Output: Default;

    fn text(self, _: Text<'de>) -> Self::Output {
        Self::Output::default()
    }

    fn number(self, _: f64) -> Self::Output {
        Self::Output::default()
    }

    fn integer(self, _: u64) -> Self::Output {
        Self::Output::default()
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Output, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::Output::default())
    }

    fn list<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Output, A::Error> {
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::Output::default())
    }
}

pub(crate) struct Lenient<R>(pub(crate) R);

impl<'de, R: Reader<'de>> Visitor<'de> for Lenient<R> {
    type Value = R::Output;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(self.0.text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(self.0.text(Cow::Owned(text)))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(R::Output::default())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).map_or_else(|_| R::Output::default(), |number| self.0.integer(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.0.integer(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(self.0.number(number))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(R::Output::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<Self::Value, A::Error> {
        self.0.list(sequence)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        self.0.object(map)
    }
}

struct TextReader;

impl<'de> Reader<'de> for TextReader {
    type Output = Option<Text<'de>>;

    fn text(self, text: Text<'de>) -> Self::Output {
        Some(text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MaybeText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        maybe_text(deserializer).map(MaybeText)
    }
}

/// For `deserialize_with`: the text if the field is a string, otherwise nothing. (Serde borrows
/// only fields whose type is written `Cow<'_, str>`, not optional ones.)
pub(crate) fn maybe_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'de>>, D::Error> {
    deserializer.deserialize_any(Lenient(TextReader))
}

/// For `deserialize_with`: the text of the field, empty when it is not a string.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
    maybe_text(deserializer).map(Option::unwrap_or_default)
}

struct JsonTextReader;

impl<'de> Reader<'de> for JsonTextReader {
    type Output = Option<Text<'de>>;

    fn text(self, text: Text<'de>) -> Self::Output {
        Some(text)
    }

    fn object<A: MapAccess<'de>>(self, map: A) -> Result<Self::Output, A::Error> {
        let value = Value::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Some(Cow::Owned(value.to_string())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Lenient(JsonTextReader)).map(JsonText)
    }
}

struct TextOrListReader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Reader<'de> for TextOrListReader<T> {
    type Output = TextOrList<'de, T>;

    fn text(self, text: Text<'de>) -> Self::Output {
        TextOrList { text: Some(text), list: Vec::new() }
    }

    fn list<A: SeqAccess<'de>>(self, sequence: A) -> Result<Self::Output, A::Error> {
        let list = ListReader(PhantomData).list(sequence)?;
        Ok(TextOrList { text: None, list })
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for TextOrList<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Lenient(TextOrListReader(PhantomData)))
    }
}

/// For `deserialize_with`: the value of a field that one may do without; nothing if it cannot be read.
///
/// # Errors
///
/// When the text is not JSON.
pub fn if_readable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Option::<&'de RawValue>::deserialize(deserializer)?;
    Ok(value.and_then(|value| crate::json::from_str(value.get()).ok()))
}

/// The error that an answer reports in a field, if it is one. Some servers send an empty one with every answer.
#[must_use]
pub fn reported_error(error: Option<&RawValue>) -> Option<&str> {
    error.map(RawValue::get).filter(|error| !matches!(*error, "\"\"" | "false" | "{}"))
}

struct CountReader;

impl Reader<'_> for CountReader {
    type Output = Option<u64>;

    fn number(self, number: f64) -> Self::Output {
        // The cast saturates; that is acceptable for a count larger than any real one.
        (number.is_finite() && number >= 0.0).then_some(number as u64)
    }

    fn integer(self, number: u64) -> Self::Output {
        Some(number)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Lenient(CountReader)).map(Count)
    }
}

pub(crate) struct ListReader<T>(pub(crate) PhantomData<T>);

impl<'de, T: Deserialize<'de>> Reader<'de> for ListReader<T> {
    type Output = Vec<T>;

    fn list<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Output, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(elements)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Lenient(ListReader(PhantomData))).map(List)
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, JsonText, List, MaybeText, TextOrList};

    #[test]
    fn values_of_the_wrong_type_are_ignored() {
        for other in ["null", "true", "-1", "{\"a\":[1]}", "\"x\""] {
            assert_eq!(serde_json::from_str::<Count>(other).unwrap().0, None, "{other}");
        }
        for other in ["null", "false", "7", "-7", "0.5", "[\"x\"]", "{\"a\":\"x\"}"] {
            assert_eq!(serde_json::from_str::<MaybeText<'_>>(other).unwrap().0, None, "{other}");
        }
        assert_eq!(serde_json::from_str::<Count>("12.0").unwrap().0, Some(12));
        assert_eq!(serde_json::from_str::<MaybeText<'_>>("\"a\\n\"").unwrap().as_str(), "a\n");
        assert_eq!(
            serde_json::from_str::<JsonText<'_>>("{\"a\": [1]}").unwrap().0.as_deref(),
            Some("{\"a\":[1]}")
        );
        let either: TextOrList<'_, u8> = serde_json::from_str("[3]").unwrap();
        assert_eq!((either.text, either.list), (None, vec![3]));
        assert_eq!(serde_json::from_str::<List<u8>>("[1,2]").unwrap().0, [1, 2]);
        assert!(serde_json::from_str::<List<u8>>("{\"0\":1}").unwrap().0.is_empty());
    }
}
