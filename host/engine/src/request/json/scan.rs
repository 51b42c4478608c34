//! The scanner: one pass over the body without recursion, with a stack of at most 64 open
//! containers.

use super::{DEPTH_MAX, JsonDocument, JsonKind, JsonValue, Node, push_key};
use crate::request::invalid::{InvalidKind, InvalidRequest};
use std::borrow::Cow;
use std::collections::HashSet;

/// Up to this many keys, duplicates are found by comparing pairs; beyond it with a hash set.
const PAIRWISE_MAX: usize = 16;

/// The most values and keys in a body. A node takes 16 bytes, while a value may take only two bytes
/// of the body. Without this limit a large body of small values would use eight times its size in
/// memory.
const NODES_MAX: usize = 1 << 20;

/// A number with more bytes than this may be outside the range of a 64-bit float even without an
/// exponent.
const DIGITS_SAFE: usize = 300;

/// Bytes of a text that are tested at once.
const BLOCK: usize = 64;

/// A container that is not closed yet.
struct Open {
    node: u32,
    object: bool,
    /// The number of whitespace bytes seen before it opened. If it is the same at the end, the span
    /// is compact.
    blanks: usize,
    keys: usize,
    escaped_keys: bool,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whitespace bytes skipped so far.
    blanks: usize,
    open: Vec<Open>,
    document: JsonDocument<'a>,
}

pub(super) fn scan(body: &[u8]) -> Result<JsonDocument<'_>, InvalidRequest> {
    if u32::try_from(body.len()).is_err() {
        let message = "is larger than 4 GiB".to_owned();
        return Err(InvalidRequest { kind: InvalidKind::PayloadTooLarge, path: String::new(), message });
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        let (line, column) = position(body, error.valid_up_to());
        InvalidRequest::new("", format!("is not valid UTF-8 at line {line}, column {column}"))
    })?;
    // Client bodies have one node per 8 to 30 bytes. If the guess is too low, the list grows.
    let nodes = Vec::with_capacity((body.len() / 16).clamp(32, 4096));
    let document = JsonDocument { text, nodes };
    Scanner { bytes: body, at: 0, blanks: 0, open: Vec::with_capacity(16), document }.run()
}

/// Line and column of an offset, both counted from 1. Columns count characters as far as the text
/// is UTF-8.
fn position(bytes: &[u8], at: usize) -> (usize, usize) {
    let before = bytes.get(..at).unwrap_or(bytes);
    let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
    let line = memchr::memchr_iter(b'\n', before).count() + 1;
    let column = before.iter().skip(line_start).filter(|byte| (**byte & 0xC0) != 0x80).count() + 1;
    (line, column)
}

impl<'a> Scanner<'a> {
    fn run(mut self) -> Result<JsonDocument<'a>, InvalidRequest> {
        loop {
            if self.document.nodes.len() >= NODES_MAX {
                return Err(InvalidRequest::new("", format!("holds more than {NODES_MAX} values and keys")));
            }
            let entered = self.value()?;
            if !entered && !self.ascend()? {
                break;
            }
        }
        self.skip_blanks();
        if self.at < self.bytes.len() {
            return Err(self.malformed("something follows the JSON value"));
        }
        Ok(self.document)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
            self.blanks += 1;
        }
    }

    fn malformed(&self, what: &str) -> InvalidRequest {
        let what = if self.at >= self.bytes.len() { "it ends too early" } else { what };
        let (line, column) = position(self.bytes, self.at);
        InvalidRequest::new("", format!("is not valid JSON: {what} at line {line}, column {column}"))
    }

    /// The offsets fit into 32 bits because the body's length was checked.
    #[expect(clippy::cast_possible_truncation, reason = "scan refuses bodies of 4 GiB and more")]
    fn push(&mut self, start: usize, kind: JsonKind, flag: bool) -> u32 {
        let index = self.document.nodes.len() as u32;
        let (start, end) = (start as u32, self.at as u32);
        self.document.nodes.push(Node { start, end, next: index + 1, kind, flag });
        index
    }

    /// Reads a scalar or opens a container. Returns true when the container's first value comes
    /// next.
    fn value(&mut self) -> Result<bool, InvalidRequest> {
        self.skip_blanks();
        let start = self.at;
        match self.peek() {
            Some(b'"') => {
                let escaped = self.string()?;
                self.push(start, JsonKind::String, escaped);
            }
            Some(b'{') => return self.enter(true),
            Some(b'[') => return self.enter(false),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true", JsonKind::True)?,
            Some(b'f') => self.literal("false", JsonKind::False)?,
            Some(b'n') => self.literal("null", JsonKind::Null)?,
            _ => return Err(self.malformed("a value was expected")),
        }
        Ok(false)
    }

    fn enter(&mut self, object: bool) -> Result<bool, InvalidRequest> {
        if self.open.len() >= DEPTH_MAX {
            let (line, column) = position(self.bytes, self.at);
            let message =
                format!("is nested deeper than {DEPTH_MAX} containers at line {line}, column {column}");
            return Err(InvalidRequest::new("", message));
        }
        let start = self.at;
        self.at += 1;
        let node = self.push(start, if object { JsonKind::Object } else { JsonKind::Array }, false);
        if let Some(node) = self.document.nodes.last_mut() {
            // Marks the container as open; `leave` sets its end.
            node.next = u32::MAX;
        }
        self.open.push(Open { node, object, blanks: self.blanks, keys: 0, escaped_keys: false });
        self.skip_blanks();
        match (object, self.peek()) {
            (true, Some(b'}')) | (false, Some(b']')) => Ok(false),
            (true, _) => self.key().map(|()| true),
            (false, _) => Ok(true),
        }
    }

    /// Continues after a value: after a comma the next value follows (true). Closing brackets close
    /// containers, and the end of the outermost container ends the document (false).
    fn ascend(&mut self) -> Result<bool, InvalidRequest> {
        while let Some(top) = self.open.last() {
            let object = top.object;
            self.skip_blanks();
            match (object, self.peek()) {
                (true, Some(b'}')) | (false, Some(b']')) => self.leave()?,
                (true, Some(b',')) => {
                    self.at += 1;
                    self.skip_blanks();
                    return self.key().map(|()| true);
                }
                (false, Some(b',')) => {
                    self.at += 1;
                    return Ok(true);
                }
                (true, _) => return Err(self.malformed("a comma or a closing brace was expected")),
                (false, _) => return Err(self.malformed("a comma or a closing bracket was expected")),
            }
        }
        Ok(false)
    }

    #[expect(clippy::cast_possible_truncation, reason = "scan refuses bodies of 4 GiB and more")]
    fn leave(&mut self) -> Result<(), InvalidRequest> {
        self.at += 1;
        let Some(closed) = self.open.pop() else { return Ok(()) };
        let (end, next) = (self.at as u32, self.document.nodes.len() as u32);
        if let Some(node) = self.document.nodes.get_mut(closed.node as usize) {
            node.end = end;
            node.next = next;
            // Without whitespace since it opened, the span can be copied as it is.
            node.flag = self.blanks == closed.blanks;
        }
        if closed.keys > 1 {
            self.refuse_duplicates(&closed)?;
        }
        Ok(())
    }

    fn key(&mut self) -> Result<(), InvalidRequest> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed("a key in double quotes was expected"));
        }
        let start = self.at;
        let escaped = self.string()?;
        self.push(start, JsonKind::String, escaped);
        if let Some(top) = self.open.last_mut() {
            top.keys += 1;
            top.escaped_keys |= escaped;
        }
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.malformed("a colon was expected"));
        }
        self.at += 1;
        Ok(())
    }

    /// Refuses duplicate keys. Two parsers may choose different ones of two equal keys; an attacker
    /// could then pass a check with one value and have the other one used.
    fn refuse_duplicates(&self, object: &Open) -> Result<(), InvalidRequest> {
        let value = JsonValue { document: &self.document, index: object.node };
        let twice = if object.escaped_keys || object.keys > PAIRWISE_MAX {
            let mut seen: HashSet<Cow<'_, str>> = HashSet::with_capacity(object.keys);
            value.members().find(|(key, _)| !seen.insert(key.text()))
        } else {
            let mut seen = [""; PAIRWISE_MAX];
            value
                .members()
                .enumerate()
                .find(|(count, (key, _))| seen_before(&mut seen, *count, key.raw()))
                .map(|(_, member)| member)
        };
        let Some((key, _)) = twice else { return Ok(()) };
        let mut path = value.path();
        push_key(&mut path, &key.text());
        Err(InvalidRequest::new(path, "is given twice"))
    }

    /// Skips a string. Returns true when it has escapes.
    fn string(&mut self) -> Result<bool, InvalidRequest> {
        self.at += 1;
        let mut escaped = false;
        loop {
            self.at += plain_bytes(self.bytes.get(self.at..).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.malformed("a control character stands in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), InvalidRequest> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => self.unicode_escape(),
            _ => Err(self.malformed("an unknown escape stands in a string")),
        }
    }

    /// Skips `\uXXXX`. A lone surrogate is refused, because it is not a character and UTF-8 cannot
    /// encode it.
    fn unicode_escape(&mut self) -> Result<(), InvalidRequest> {
        let length = match self.code_unit(self.at) {
            Some(0xD800..=0xDBFF) => match self.code_unit(self.at + 6) {
                Some(0xDC00..=0xDFFF) => 12,
                _ => return Err(self.malformed("half a surrogate pair stands in a string")),
            },
            Some(0xDC00..=0xDFFF) => return Err(self.malformed("half a surrogate pair stands in a string")),
            Some(_) => 6,
            None => return Err(self.malformed("an unknown escape stands in a string")),
        };
        self.at += length;
        Ok(())
    }

    /// The code unit of `\uXXXX` at an offset.
    fn code_unit(&self, at: usize) -> Option<u32> {
        let hex = self.bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        hex.iter().try_fold(0, |unit, byte| Some(unit << 4 | char::from(*byte).to_digit(16)?))
    }

    fn digits(&mut self) -> Result<(), InvalidRequest> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.malformed("a digit was expected")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), InvalidRequest> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        let exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let index = self.push(start, JsonKind::Number, false);
        if exponent || self.at - start > DIGITS_SAFE {
            self.refuse_infinity(index)?;
        }
        Ok(())
    }

    fn refuse_infinity(&self, index: u32) -> Result<(), InvalidRequest> {
        let value = JsonValue { document: &self.document, index };
        match value.number() {
            Some(number) if number.is_finite() => Ok(()),
            _ => Err(value.invalid("is a number out of range")),
        }
    }

    fn literal(&mut self, word: &str, kind: JsonKind) -> Result<(), InvalidRequest> {
        let start = self.at;
        if !self.bytes.get(start..).unwrap_or_default().starts_with(word.as_bytes()) {
            return Err(self.malformed("a value was expected"));
        }
        self.at += word.len();
        self.push(start, kind, false);
        Ok(())
    }
}

/// Whether a key is among the first `count`. If it is not, it is stored at index `count`.
fn seen_before<'k>(seen: &mut [&'k str; PAIRWISE_MAX], count: usize, key: &'k str) -> bool {
    if seen.iter().take(count).any(|other| *other == key) {
        return true;
    }
    if let Some(slot) = seen.get_mut(count) {
        *slot = key;
    }
    false
}

/// How many bytes come before the first quote, backslash or control character.
fn plain_bytes(bytes: &[u8]) -> usize {
    // Long texts are tested in blocks without branches, for which the compiler uses vector instructions.
    let blocks = bytes.as_chunks::<BLOCK>().0;
    let is_plain = |block: &&[u8; BLOCK]| !block.iter().fold(false, |stop, byte| stop | is_stop(*byte));
    let plain = blocks.iter().take_while(is_plain).count() * BLOCK;
    plain + plain_bytes_of_words(bytes.get(plain..).unwrap_or_default())
}

/// Whether a byte of a string does not stand for itself.
const fn is_stop(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// The same as [`plain_bytes`]. Tests eight bytes at once, and finds the place where they end.
fn plain_bytes_of_words(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, tail) = bytes.as_chunks::<8>();
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let controls = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let found = zero_bytes(word ^ (ONES * 0x22)) | zero_bytes(word ^ (ONES * 0x5C)) | controls;
        if found != 0 {
            // The subtraction borrows upwards, so only marks above a true one can be wrong: the
            // lowest is exact.
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + tail.iter().position(|byte| is_stop(*byte)).unwrap_or(tail.len())
}
