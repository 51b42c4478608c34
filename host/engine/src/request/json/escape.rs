//! Resolves escapes of JSON strings that the scanner has already validated.

/// The string with its escapes resolved.
pub(super) fn resolve(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        out.push_str(plain);
        let (c, used) = one(escaped);
        out.push(c);
        rest = escaped.get(used..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The length of the string in bytes after its escapes are resolved.
pub(super) fn resolved_bytes(text: &str) -> usize {
    let mut bytes = 0;
    let mut rest = text;
    while let Some(plain) = memchr::memchr(b'\\', rest.as_bytes()) {
        let escaped = rest.get(plain + 1..).unwrap_or_default();
        let (c, used) = one(escaped);
        bytes += plain + c.len_utf8();
        rest = escaped.get(used..).unwrap_or_default();
    }
    bytes + rest.len()
}

/// The character of an escape, and the bytes that the escape takes after the backslash.
fn one(escaped: &str) -> (char, usize) {
    let c = match escaped.as_bytes().first() {
        Some(b'u') => return unicode(escaped),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(&byte) => char::from(byte),
        None => char::REPLACEMENT_CHARACTER,
    };
    (c, 1)
}

/// `uXXXX`, or `uXXXX\uXXXX` for a surrogate pair.
fn unicode(escaped: &str) -> (char, usize) {
    let unit = |from: usize| {
        escaped.get(from..from + 4).and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or_default()
    };
    let first = unit(1);
    if !(0xD800..0xDC00).contains(&first) {
        return (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 5);
    }
    let second = unit(7);
    let scalar = 0x10000 + ((first & 0x3FF) << 10) + (second & 0x3FF);
    (char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER), 11)
}
