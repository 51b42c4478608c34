//! Writes JSON into a buffer, without building a tree.

use serde::Serialize;

/// Appends a comma, unless an array or object was just opened. No written value ends with an opening
/// bracket.
#[inline]
pub fn separate(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'[' | b'{')) {
        out.push(b',');
    }
}

/// Appends a value; `null` if it cannot be serialized, for example for a map whose keys are not
/// strings.
pub fn write_value(value: impl Serialize, out: &mut Vec<u8>) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, &value).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Appends an array with what `write` appends for each element.
pub fn write_list<T>(
    elements: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    out.push(b'[');
    for element in elements {
        separate(out);
        write(element, out);
    }
    out.push(b']');
}

/// Appends one object, member by member.
pub struct ObjectWriter<'o>(&'o mut Vec<u8>);

impl<'o> ObjectWriter<'o> {
    /// Writes the opening brace.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self(out)
    }

    /// Writes the name of a member, which needs no escapes. The caller writes its value next.
    #[inline]
    pub fn name(&mut self, name: &str) -> &mut Vec<u8> {
        match self.0.last() {
            Some(b'{') => self.0.push(b'"'),
            _ => self.0.extend_from_slice(b",\""),
        }
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        self.0
    }

    /// Like [`Self::name`], for a name from outside.
    #[inline]
    pub fn foreign_name(&mut self, name: &str) -> &mut Vec<u8> {
        separate(self.0);
        write_value(name, self.0);
        self.0.push(b':');
        self.0
    }

    /// Writes a member.
    pub fn value(&mut self, name: &str, value: impl Serialize) {
        write_value(value, self.name(name));
    }

    /// Writes a member, if it has a value.
    pub fn some(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    /// Writes a member with a list, unless the list is empty.
    pub fn filled(&mut self, name: &str, list: &[impl Serialize]) {
        self.some(name, Some(list).filter(|list| !list.is_empty()));
    }

    /// Writes a member whose value is a word that needs no escapes.
    #[inline]
    pub fn word(&mut self, name: &str, word: &str) {
        let out = self.name(name);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    /// Writes a member whose value is JSON already.
    #[inline]
    pub fn raw(&mut self, name: &str, json: impl AsRef<[u8]>) {
        self.name(name).extend_from_slice(json.as_ref());
    }

    /// Writes members that are JSON already, comma-separated and without braces.
    #[inline]
    pub fn members(&mut self, members: &[u8]) {
        if !members.is_empty() {
            separate(self.0);
            self.0.extend_from_slice(members);
        }
    }

    /// Writes the closing brace.
    #[inline]
    pub fn end(self) {
        self.0.push(b'}');
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
            object.foreign_name(name).push(b'0');
        }
        object.end();
        assert_eq!(out, b"{\"plain_1\":0,\"\":0,\"a\\\"b\":0,\"\\u0001\":0}");
    }
}
