//! Writes JSON objects field by field. Unlike a serialized struct, such an object needs no type of its
//! own, and a field that is absent needs no attribute.

use serde::Serialize;
use serde_json::value::RawValue;

/// Appends one object to `out`.
pub struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    empty: bool,
}

impl<'o> ObjectWriter<'o> {
    /// Writes the opening brace.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Writes the name of a field. The caller must write its value next.
    pub fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            self.out.push(b'"');
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(b"\":");
            return self.out;
        }
        // Such a name was read from JSON. Neither the serialization of a string nor a write to a
        // vector can fail.
        serde_json::to_writer(&mut *self.out, name).unwrap_or_default();
        self.out.push(b':');
        self.out
    }

    /// Writes a field with its unparsed value.
    pub fn raw(&mut self, name: &str, value: &RawValue) {
        self.name(name).extend_from_slice(value.get().as_bytes());
    }

    /// Writes a field with a serialized value.
    pub fn value(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        let out = self.name(name);
        let start = out.len();
        if serde_json::to_writer(&mut *out, value).is_err() {
            out.truncate(start);
            out.extend_from_slice(b"null");
        }
    }

    /// Writes a field, if it has a value.
    pub fn some(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.value(name, &value);
        }
    }

    /// Writes a list, unless it is empty.
    pub fn filled(&mut self, name: &str, list: &[impl Serialize]) {
        self.some(name, Some(list).filter(|list| !list.is_empty()));
    }

    /// Writes the closing brace.
    pub fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::ObjectWriter;

    #[test]
    fn names_are_written_as_json() {
        let mut out = Vec::new();
        let mut object = ObjectWriter::new(&mut out);
        for name in ["plain_1", "", "a\"b", "\u{1}"] {
            object.value(name, &0);
        }
        object.end();
        assert_eq!(String::from_utf8(out).unwrap(), "{\"plain_1\":0,\"\":0,\"a\\\"b\":0,\"\\u0001\":0}");
    }
}
