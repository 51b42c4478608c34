//! Reads JSON text into any type that implements `Deserialize`, with the results of `serde_json`. In the sandbox a
//! whole answer takes two thirds of its instructions: the text is checked for UTF-8 once, strings are searched in blocks
//! of 16 bytes, and an error says nothing but that there is one. Guests write their own messages for errors.

mod scan;
#[cfg(test)]
mod tests;
mod unescape;

use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, MapDeserializer, StringDeserializer};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use scan::Scanner;
use unescape::unescape;

/// How deep the values may be nested that are read and not skipped, as in `serde_json`.
const DEPTH_MAX: u8 = 127;
/// The name by which `serde_json::value::RawValue` asks a deserializer for the text of a value.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// The text is not the JSON that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError;

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("not the expected JSON")
    }
}

impl std::error::Error for JsonError {}

impl Error for JsonError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl From<serde_json::Error> for JsonError {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

/// Reads a whole text.
///
/// # Errors
///
/// When it is not JSON, or does not fit the type.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, JsonError> {
    read_seed(text, std::marker::PhantomData)
}

/// Like [`from_str`], for a value that needs to know more than its type.
///
/// # Errors
///
/// As [`from_str`].
pub fn read_seed<'de, S: DeserializeSeed<'de>>(text: &'de str, seed: S) -> Result<S::Value, JsonError> {
    let mut reader = JsonReader { scanner: Scanner::new(text), depth: 0 };
    let value = seed.deserialize(&mut reader)?;
    match reader.scanner.peek() {
        None => Ok(value),
        Some(_) => Err(JsonError),
    }
}

/// The bytes as text.
///
/// # Errors
///
/// When they are not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str, JsonError> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| JsonError)
}

/// A text without escapes is a part of the JSON text.
enum JsonString<'de> {
    Plain(&'de str),
    Unescaped(String),
}

struct JsonReader<'de> {
    scanner: Scanner<'de>,
    depth: u8,
}

impl<'de> JsonReader<'de> {
    /// Reads a string after its opening quote.
    #[inline]
    fn string(&mut self) -> Result<JsonString<'de>, JsonError> {
        let (text, has_escapes) = self.scanner.string()?;
        if has_escapes { unescape(text).map(JsonString::Unescaped) } else { Ok(JsonString::Plain(text)) }
    }

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, JsonError> {
        match self.scanner.number()? {
            scan::Number::Whole { negative: false, digits } => visitor.visit_u64(digits),
            scan::Number::Whole { negative: true, digits } => match 0_i64.checked_sub_unsigned(digits) {
                Some(number) if number < 0 => visitor.visit_i64(number),
                _ => visitor.visit_f64(-(digits as f64)),
            },
            scan::Number::Fraction(number) => visitor.visit_f64(number),
            scan::Number::Other(text) => {
                Ok(serde_json::Deserializer::from_str(text).deserialize_any(visitor)?)
            }
        }
    }

    /// Lets the visitor read the elements or members up to the closing bracket.
    #[inline]
    fn inside<T>(
        &mut self,
        close: u8,
        read: impl FnOnce(Inside<'_, 'de>) -> Result<T, JsonError>,
    ) -> Result<T, JsonError> {
        self.scanner.skip_byte();
        if self.depth == DEPTH_MAX {
            return Err(JsonError);
        }
        self.depth += 1;
        let value = read(Inside { reader: self, first: true })?;
        self.depth -= 1;
        if self.scanner.next_token()? == close { Ok(value) } else { Err(JsonError) }
    }
}

impl<'de> Deserializer<'de> for &mut JsonReader<'de> {
    type Error = JsonError;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.scanner.peek() {
            Some(b'"') => {
                self.scanner.skip_byte();
                match self.string()? {
                    JsonString::Plain(text) => visitor.visit_borrowed_str(text),
                    JsonString::Unescaped(text) => visitor.visit_string(text),
                }
            }
            Some(b'{') => self.inside(b'}', |members| visitor.visit_map(members)),
            Some(b'[') => self.inside(b']', |elements| visitor.visit_seq(elements)),
            Some(b'n') => {
                self.scanner.word(b"null")?;
                visitor.visit_unit()
            }
            Some(b't') => {
                self.scanner.word(b"true")?;
                visitor.visit_bool(true)
            }
            Some(b'f') => {
                self.scanner.word(b"false")?;
                visitor.visit_bool(false)
            }
            Some(b'-' | b'0'..=b'9') => self.number(visitor),
            _ => Err(JsonError),
        }
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.scanner.peek() == Some(b'n') {
            self.scanner.word(b"null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        if name != RAW_VALUE {
            return visitor.visit_newtype_struct(self);
        }
        let raw = self.scanner.raw_value()?;
        visitor
            .visit_map(MapDeserializer::new(std::iter::once((RAW_VALUE, BorrowedStrDeserializer::new(raw)))))
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.scanner.skip_value()?;
        visitor.visit_unit()
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        let raw = self.scanner.raw_value()?;
        Ok(serde_json::Deserializer::from_str(raw).deserialize_enum(name, variants, visitor)?)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier
    }
}

/// The elements or members between two brackets.
struct Inside<'r, 'de> {
    reader: &'r mut JsonReader<'de>,
    first: bool,
}

impl Inside<'_, '_> {
    /// Moves to the next element or member; false at the closing bracket.
    #[inline]
    fn advance(&mut self, close: u8) -> Result<bool, JsonError> {
        let scanner = &mut self.reader.scanner;
        let next = scanner.peek().ok_or(JsonError)?;
        if next == close {
            return Ok(false);
        }
        if std::mem::take(&mut self.first) {
            return Ok(true);
        }
        scanner.skip_byte();
        if next == b',' { Ok(true) } else { Err(JsonError) }
    }
}

impl<'de> SeqAccess<'de> for Inside<'_, 'de> {
    type Error = JsonError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, JsonError> {
        if self.advance(b']')? { seed.deserialize(&mut *self.reader).map(Some) } else { Ok(None) }
    }
}

impl<'de> MapAccess<'de> for Inside<'_, 'de> {
    type Error = JsonError;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, JsonError> {
        if !self.advance(b'}')? {
            return Ok(None);
        }
        if self.reader.scanner.next_token()? != b'"' {
            return Err(JsonError);
        }
        match self.reader.string()? {
            JsonString::Plain(name) => seed.deserialize(BorrowedStrDeserializer::new(name)),
            JsonString::Unescaped(name) => seed.deserialize(StringDeserializer::new(name)),
        }
        .map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, JsonError> {
        if self.reader.scanner.next_token()? != b':' {
            return Err(JsonError);
        }
        seed.deserialize(&mut *self.reader)
    }
}
