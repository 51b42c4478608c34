//! A JSON document as a flat list of nodes that borrow from the client's bytes.
//!
//! Nothing is copied while reading. A node is a span of the body plus the index of the node after
//! its subtree. So a tree of any shape is one allocation, skipping a subtree is one step, and
//! copying a subtree is one memory copy. Paths are computed from node positions, and only for an
//! error.

mod count;
mod escape;
mod scan;

pub(super) use cofferdam_protocol::separate;
pub(super) use count::TextCounts;

use super::invalid::{InvalidRequest, quoted};
use super::walk::count_step;
use cofferdam_protocol::write_value;
use std::borrow::Cow;
use std::fmt::Write as _;

/// The deepest nesting of arrays and objects, including the body itself.
pub(super) const DEPTH_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonKind {
    Null,
    True,
    False,
    Number,
    String,
    Array,
    Object,
}

impl JsonKind {
    /// The type's name in error messages.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::True | Self::False => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// One value or key. A key is a string node right before its value.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// Offsets into the text. The span includes quotes and brackets.
    start: u32,
    end: u32,
    /// The index after the last node of this subtree; `u32::MAX` while a container is open.
    next: u32,
    kind: JsonKind,
    /// For a string: it has escapes. For a container: it has no whitespace inside, so its span is
    /// already compact.
    flag: bool,
}

/// Returned for an index beyond the list, which cannot occur in a finished document.
const NOWHERE: Node = Node { start: 0, end: 0, next: u32::MAX, kind: JsonKind::Null, flag: true };

/// A parsed body.
#[derive(Debug)]
pub(super) struct JsonDocument<'a> {
    text: &'a str,
    nodes: Vec<Node>,
}

impl<'a> JsonDocument<'a> {
    /// Reads a whole body. It must be UTF-8 and one JSON value, with bounded nesting, no duplicate
    /// keys and only finite numbers.
    ///
    /// # Errors
    /// The first violation, with line and column, or with the path where one exists.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, InvalidRequest> {
        scan::scan(body)
    }

    pub(super) fn root(&self) -> JsonValue<'_> {
        JsonValue { document: self, index: 0 }
    }

    fn node(&self, index: u32) -> Node {
        self.nodes.get(index as usize).copied().unwrap_or(NOWHERE)
    }

    fn span(&self, node: Node) -> &str {
        self.text.get(node.start as usize..node.end as usize).unwrap_or_default()
    }

    /// The path of a node. It is found by a walk from the root, which only errors need.
    fn path(&self, target: u32) -> String {
        let mut path = String::new();
        let mut container = JsonValue { document: self, index: 0 };
        while container.index < target {
            let Some(child) = self.step(container, target, &mut path) else { break };
            container = child;
        }
        path
    }

    /// Appends one step of the path from a container towards the node `target`. Returns the child
    /// that has it, or none where the walk ends.
    fn step<'d>(&'d self, container: JsonValue<'d>, target: u32, path: &mut String) -> Option<JsonValue<'d>> {
        let holds = |child: JsonValue<'_>| child.index <= target && target < self.node(child.index).next;
        if container.kind() == JsonKind::Array {
            let (index, child) = container.items().enumerate().find(|(_, child)| holds(*child))?;
            // Writing into a string cannot fail.
            _ = write!(path, "[{index}]");
            return Some(child);
        }
        // A key's path is that of its value.
        let (key, child) = container.members().find(|(key, child)| key.index == target || holds(*child))?;
        push_key(path, &key.text());
        (key.index != target).then_some(child)
    }
}

/// Appends `.key`, or `["key"]` where the key does not read as a name.
pub(super) fn push_key(path: &mut String, key: &str) {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let key = quoted(key);
    if !plain {
        _ = write!(path, "[\"{key}\"]");
    } else if path.is_empty() {
        path.push_str(&key);
    } else {
        _ = write!(path, ".{key}");
    }
}

/// A value in a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct JsonValue<'d> {
    document: &'d JsonDocument<'d>,
    index: u32,
}

impl<'d> JsonValue<'d> {
    fn node(self) -> Node {
        self.document.node(self.index)
    }

    pub(super) fn kind(self) -> JsonKind {
        self.node().kind
    }

    pub(super) fn is_null(self) -> bool {
        self.kind() == JsonKind::Null
    }

    /// The source text of the value, including quotes and whitespace.
    pub(super) fn raw(self) -> &'d str {
        self.document.span(self.node())
    }

    /// The text between the quotes of a string, with escapes as written; empty for other kinds.
    fn quoted_text(self) -> &'d str {
        match self.kind() {
            JsonKind::String => {
                self.raw().strip_prefix('"').and_then(|s| s.strip_suffix('"')).unwrap_or_default()
            }
            _ => "",
        }
    }

    /// The string with escapes resolved; empty for other kinds.
    pub(super) fn text(self) -> Cow<'d, str> {
        let text = self.quoted_text();
        if self.node().flag { Cow::Owned(escape::resolve(text)) } else { Cow::Borrowed(text) }
    }

    /// Whether this is the given string.
    pub(super) fn is(self, word: &str) -> bool {
        if self.node().flag {
            self.text() == word
        } else {
            self.kind() == JsonKind::String && self.quoted_text() == word
        }
    }

    /// The length of the string in bytes as written, which is an upper bound of its characters.
    pub(super) fn bytes_max(self) -> usize {
        self.quoted_text().len()
    }

    /// The length of the string in bytes, with escapes resolved.
    pub(super) fn bytes(self) -> usize {
        let text = self.quoted_text();
        if self.node().flag { escape::resolved_bytes(text) } else { text.len() }
    }

    /// The length of the value in bytes without whitespace.
    pub(super) fn compact_bytes(self) -> usize {
        let node = self.node();
        let has_blanks = matches!(node.kind, JsonKind::Array | JsonKind::Object) && !node.flag;
        if has_blanks { self.compact().len() } else { self.raw().len() }
    }

    /// The number of Unicode scalar values of the string.
    pub(super) fn chars(self) -> usize {
        count::chars(self.quoted_text(), self.node().flag)
    }

    /// Counts over the string, for the text facts of routers.
    pub(super) fn counts(self) -> TextCounts {
        TextCounts::of(self.quoted_text(), self.node().flag)
    }

    pub(super) fn is_true(self) -> bool {
        self.kind() == JsonKind::True
    }

    /// The value as an integer, if it is written as one and fits into 64 bits.
    pub(super) fn integer(self) -> Option<i64> {
        self.raw().parse().ok()
    }

    /// The value as a number. The scanner has refused numbers that are not finite.
    pub(super) fn number(self) -> Option<f64> {
        if self.kind() == JsonKind::Number { self.raw().parse().ok() } else { None }
    }

    /// The elements of an array; empty for other kinds.
    pub(super) fn items(self) -> Items<'d> {
        let end = if self.kind() == JsonKind::Array { self.end() } else { 0 };
        Items { document: self.document, at: self.index + 1, end }
    }

    pub(super) fn is_empty_list(self) -> bool {
        self.kind() == JsonKind::Array && self.items().next().is_none()
    }

    /// Keys and values of an object; empty for other kinds.
    pub(super) fn members(self) -> ObjectMembers<'d> {
        let end = if self.kind() == JsonKind::Object { self.end() } else { 0 };
        ObjectMembers { document: self.document, at: self.index + 1, end }
    }

    /// The index after the subtree, limited to the nodes read so far: the scanner looks at objects
    /// before the document is complete.
    fn end(self) -> u32 {
        self.node().next.min(u32::try_from(self.document.nodes.len()).unwrap_or(u32::MAX))
    }

    /// The member with that name. A null member counts as absent.
    pub(super) fn get(self, name: &str) -> Option<JsonValue<'d>> {
        self.members().find(|(key, _)| key.is(name)).map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// Appends the value without whitespace.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let node = self.node();
        match node.kind {
            JsonKind::Array if !node.flag => {
                out.push(b'[');
                self.items().for_each(|item| write_element(item, out));
                out.push(b']');
            }
            JsonKind::Object if !node.flag => {
                out.push(b'{');
                self.members().for_each(|(key, value)| write_member(key, value, out));
                out.push(b'}');
            }
            _ => out.extend_from_slice(self.raw().as_bytes()),
        }
    }

    /// Appends the value without whitespace and without escapes that JSON does not require.
    pub(super) fn write_resolved(self, out: &mut Vec<u8>) {
        match self.kind() {
            JsonKind::Array => {
                out.push(b'[');
                self.items().for_each(|item| {
                    separate(out);
                    item.write_resolved(out);
                });
                out.push(b']');
            }
            JsonKind::Object => {
                out.push(b'{');
                self.members().for_each(|(key, value)| write_member_resolved(key, value, out));
                out.push(b'}');
            }
            JsonKind::String if self.node().flag => write_value(self.text(), out),
            _ => out.extend_from_slice(self.raw().as_bytes()),
        }
    }

    /// The value without whitespace.
    pub(super) fn compact(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.raw().len());
        self.write(&mut out);
        out
    }

    pub(super) fn path(self) -> String {
        self.document.path(self.index)
    }

    /// An error about this value.
    pub(super) fn invalid(self, message: impl Into<String>) -> InvalidRequest {
        InvalidRequest::new(self.path(), message)
    }

    /// An error about a member that is missing.
    pub(super) fn invalid_member(self, name: &str, message: impl Into<String>) -> InvalidRequest {
        let mut path = self.path();
        push_key(&mut path, name);
        InvalidRequest::new(path, message)
    }

    /// An error that says that this value has the wrong type.
    pub(super) fn mistyped(self, wanted: &str) -> InvalidRequest {
        self.invalid(format!("must be {wanted}, not {}", self.kind().noun()))
    }
}

/// Appends a comma where needed, and the element.
pub(super) fn write_element(item: JsonValue<'_>, out: &mut Vec<u8>) {
    separate(out);
    item.write(out);
}

/// Appends a comma where needed, the key and a colon.
pub(super) fn write_key(key: JsonValue<'_>, out: &mut Vec<u8>) {
    separate(out);
    out.extend_from_slice(key.raw().as_bytes());
    out.push(b':');
}

/// Appends a comma where needed, a key of the host's own that needs no escapes, and a colon.
pub(super) fn write_name(name: &str, out: &mut Vec<u8>) {
    separate(out);
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a comma where needed, and the member.
pub(super) fn write_member(key: JsonValue<'_>, value: JsonValue<'_>, out: &mut Vec<u8>) {
    write_key(key, out);
    value.write(out);
}

/// Like [`write_member`], but without escapes that JSON does not require.
pub(super) fn write_member_resolved(key: JsonValue<'_>, value: JsonValue<'_>, out: &mut Vec<u8>) {
    separate(out);
    key.write_resolved(out);
    out.push(b':');
    value.write_resolved(out);
}

/// The elements of an array.
#[derive(Debug, Clone)]
pub(super) struct Items<'d> {
    document: &'d JsonDocument<'d>,
    at: u32,
    end: u32,
}

impl<'d> Iterator for Items<'d> {
    type Item = JsonValue<'d>;

    fn next(&mut self) -> Option<JsonValue<'d>> {
        count_step();
        if self.at >= self.end {
            return None;
        }
        let value = JsonValue { document: self.document, index: self.at };
        self.at = value.node().next;
        Some(value)
    }
}

/// The members of an object, in the client's order.
#[derive(Debug, Clone)]
pub(super) struct ObjectMembers<'d> {
    document: &'d JsonDocument<'d>,
    at: u32,
    end: u32,
}

impl<'d> Iterator for ObjectMembers<'d> {
    type Item = (JsonValue<'d>, JsonValue<'d>);

    fn next(&mut self) -> Option<(JsonValue<'d>, JsonValue<'d>)> {
        count_step();
        // A key without its value exists only while the document is being read.
        if self.at.saturating_add(1) >= self.end {
            return None;
        }
        let key = JsonValue { document: self.document, index: self.at };
        let value = JsonValue { document: self.document, index: self.at + 1 };
        self.at = value.node().next;
        Some((key, value))
    }
}
