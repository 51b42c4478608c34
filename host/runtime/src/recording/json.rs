//! Values of the contract as JSON. Bytes are written as `{"$text": "..."}` where they are UTF-8,
//! else as `{"$base64": "..."}`, so that people can read a recording. A number that the shortest
//! decimal form does not restore is written as `{"$f64": BITS}`.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use serde_json::value::RawValue;

const TEXT: &str = "$text";
const BASE64: &str = "$base64";
const F64: &str = "$f64";

/// Writes a value.
pub(crate) fn write(value: &impl Serialize) -> Box<RawValue> {
    write_within(value, usize::MAX).unwrap_or_else(|| RawValue::NULL.to_owned())
}

/// Writes a value, unless that takes more bytes than this. Types of the contract can always be
/// written.
pub(crate) fn write_within(value: &impl Serialize, bytes_max: usize) -> Option<Box<RawValue>> {
    let mut out = BoundedBytes { bytes: Vec::new(), most: bytes_max };
    let formatter = Bytes { is_open: false, bytes: BoundedBytes { bytes: Vec::new(), most: bytes_max } };
    value.serialize(&mut Serializer::with_formatter(&mut out, formatter)).ok()?;
    RawValue::from_string(String::from_utf8(out.bytes).ok()?).ok()
}

/// Reads what [`write()`] wrote.
///
/// # Errors
///
/// The value is not of the type.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(expanded(value))
}

/// Same as [`read`], from text.
///
/// # Errors
///
/// The text is not JSON, or not of the type.
pub(crate) fn read_text<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    read(serde_json::from_str(text)?)
}

/// All texts in a value: strings, names of members, and bytes as far as they are UTF-8.
pub(crate) fn each_text(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(values) => values.iter().for_each(|value| each_text(value, see)),
        Value::Object(members) => {
            if let Some(bytes) = bytes_of(value, BASE64) {
                see(&String::from_utf8_lossy(&bytes));
            }
            for (name, value) in members {
                see(name);
                each_text(value, see);
            }
        }
        _ => {}
    }
}

/// The bytes in a value, one after the other: neither other strings nor names.
pub(crate) fn join_bytes(value: &Value, joined: &mut Vec<u8>) {
    if let Some(bytes) = bytes_of(value, TEXT).or_else(|| bytes_of(value, BASE64)) {
        return joined.extend(bytes);
    }
    match value {
        Value::Array(values) => values.iter().for_each(|value| join_bytes(value, joined)),
        Value::Object(members) => members.values().for_each(|value| join_bytes(value, joined)),
        _ => {}
    }
}

fn expanded(value: Value) -> Value {
    if let Some(bytes) = bytes_of(&value, TEXT).or_else(|| bytes_of(&value, BASE64)) {
        return bytes.into();
    }
    match value {
        Value::Array(values) => values.into_iter().map(expanded).collect(),
        Value::Object(members) => match members.get(F64).and_then(Value::as_u64) {
            Some(bits) => f64::from_bits(bits).into(),
            None => members.into_iter().map(|(name, value)| (name, expanded(value))).collect(),
        },
        value => value,
    }
}

/// The bytes of a value with this only member.
fn bytes_of(value: &Value, name: &str) -> Option<Vec<u8>> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let text = members.get(name)?.as_str()?;
    if name == TEXT { Some(text.as_bytes().to_vec()) } else { STANDARD.decode(text).ok() }
}

/// Takes no more than so many bytes.
struct BoundedBytes {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for BoundedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most.saturating_sub(self.bytes.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects the elements of an array as long as all of them are bytes.
struct Bytes {
    /// An array has begun, and nothing of it is written.
    is_open: bool,
    bytes: BoundedBytes,
}

impl Bytes {
    /// Writes the begin of an array that is not one of bytes.
    fn settle<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        writer.write_all(b"[")?;
        for byte in self.bytes.bytes.drain(..) {
            write!(writer, "{byte},")?;
        }
        Ok(())
    }

    fn plain<W: ?Sized + Write>(&mut self, writer: &mut W, value: impl std::fmt::Display) -> io::Result<()> {
        self.settle(writer)?;
        write!(writer, "{value}")
    }
}

impl Formatter for Bytes {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.settle(writer)?;
        self.is_open = true;
        Ok(())
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if !std::mem::take(&mut self.is_open) {
            return writer.write_all(b"]");
        }
        let bytes = std::mem::take(&mut self.bytes.bytes);
        if bytes.is_empty() {
            return writer.write_all(b"[]");
        }
        let (name, text) = match String::from_utf8(bytes) {
            Ok(text) => (TEXT, text),
            Err(error) => (BASE64, STANDARD.encode(error.as_bytes())),
        };
        write!(writer, "{{\"{name}\":")?;
        serde_json::to_writer(&mut *writer, &text)?;
        writer.write_all(b"}")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first || self.is_open { Ok(()) } else { writer.write_all(b",") }
    }

    fn write_u8<W: ?Sized + Write>(&mut self, writer: &mut W, value: u8) -> io::Result<()> {
        if self.is_open {
            return self.bytes.write_all(&[value]);
        }
        write!(writer, "{value}")
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        self.settle(writer)?;
        let text = serde_json::to_string(&value)?;
        let restored = serde_json::from_str::<f64>(&text).ok();
        if restored.is_some_and(|restored| restored.to_bits() == value.to_bits()) {
            return writer.write_all(text.as_bytes());
        }
        write!(writer, "{{\"{F64}\":{}}}", value.to_bits())
    }

    fn write_f32<W: ?Sized + Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn write_null<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.plain(writer, "null")
    }

    fn write_bool<W: ?Sized + Write>(&mut self, writer: &mut W, value: bool) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn write_i32<W: ?Sized + Write>(&mut self, writer: &mut W, value: i32) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn write_i64<W: ?Sized + Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn write_u16<W: ?Sized + Write>(&mut self, writer: &mut W, value: u16) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn write_u32<W: ?Sized + Write>(&mut self, writer: &mut W, value: u32) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn write_number_str<W: ?Sized + Write>(&mut self, writer: &mut W, value: &str) -> io::Result<()> {
        self.plain(writer, value)
    }

    fn begin_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.plain(writer, '"')
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.plain(writer, '{')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    type Mixed = (Vec<u8>, Vec<Vec<u8>>, Vec<u32>, Option<Vec<u8>>, (u8, String), f64, Vec<String>);

    #[test]
    fn bytes_are_written_as_text_where_they_are_text() {
        let shown = |value: &(Vec<u8>, Vec<u32>, Vec<u8>)| write(value).get().to_owned();
        assert_eq!(
            shown(&(b"{\"a\":1}".to_vec(), vec![1, 2], vec![0xff])),
            r#"[{"$text":"{\"a\":1}"},[1,2],{"$base64":"/w=="}]"#
        );
        assert_eq!(shown(&(vec![], vec![], vec![])), "[[],[],[]]");
    }

    #[test]
    fn a_value_that_takes_more_than_its_limit_is_not_written() {
        let value = (vec![b'x'; 100], vec![1_u32; 50], "y".repeat(100));
        let length = write(&value).get().len();
        assert!(write_within(&value, length).is_some());
        for limit in [0, 50, 150, length - 1] {
            assert!(write_within(&value, limit).is_none(), "{limit}");
        }
    }

    #[test]
    fn every_text_is_seen_with_bytes_decoded() {
        let value = json!({"a": ["b", {"$text": "c"}], "d": {"$base64": STANDARD.encode("e\u{0}")}});
        let mut seen = Vec::new();
        each_text(&value, &mut |text| seen.push(text.to_owned()));
        for text in ["a", "b", "c", "e\u{0}"] {
            assert!(seen.iter().any(|seen| seen == text), "{text:?} of {seen:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: Mixed) {
            prop_assume!(value.5.is_finite());
            let text = write(&value);
            let read: Mixed = read_text(text.get()).unwrap();
            prop_assert_eq!(read.5.to_bits(), value.5.to_bits());
            prop_assert_eq!(read, value);
        }
    }
}
